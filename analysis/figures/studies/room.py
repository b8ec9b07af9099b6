"""Figures of the room: which spec is how far from the best where, and what the room is made of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from analysis.comparison.room.kl_cost import LEAST_NATS, MILD, kl_and_cost
from analysis.figures.parts import (
    make_figure,
    marks,
    point_colour,
    points,
    rows_axis,
    values_of,
)
from analysis.figures.theme import COLOURS, INK, RAMP, SUBJECT_COLOUR, Figure

DARK_FROM = 1.8
"""times the best's seconds, from which a cell is so dark that its number is white"""
PART_OF = {"switching (best schedule)": "schedule"}
"""strategies that parts of the room are measured with, by the parts' names"""
FAR = 3.0
"""what took longer than so many times the best's seconds is coloured like that"""


def room_figures(result: Mapping[str, Any]) -> list[Figure]:
    """Return the figures of a room.json: a heat map for each game, the room and its parts."""
    games = values_of(result["means"], "game")
    against_kl = cost_by_kl(kl_and_cost(result["means"]))
    return [
        *(heat_map(result["means"], game) for game in games),
        gains(result),
        *([] if against_kl is None else [against_kl]),
    ]


def heat_map(means: Sequence[Mapping[str, Any]], game: str) -> Figure:
    """Return the machines and specs of a game, coloured by seconds over the machine's best.

    Args:
        means: of a room.json.
        game: one of theirs.
    """
    table = [
        {
            "machine": row["machine"] + ("*" if "changing" in row["group"] else ""),
            "spec": row["label"],
            "over_best": row["over_best"],
            "cell": f"{row['over_best']:.2f}" + ("+" if row["censored"] else ""),
            "censored": row["censored"],
            "seconds": row["seconds_to_target"],
            "env_steps": row["env_steps_to_target"],
            "final_return": row["final_return"],
            "seeds": row["seeds"],
        }
        for row in means
        if row["game"] == game
    ]
    colour = (
        alt.Color("over_best:Q")
        .scale(type="log", domain=[1.0, FAR], range=RAMP[::-1], clamp=True)
        .legend(title="seconds over the best", orient="right", format=".1f", tickCount=3)
    )
    x = alt.X("spec:N", sort=values_of(table, "spec")).title(None).axis(labelAngle=-30, ticks=False)
    base = marks().encode(x=x, y=rows_axis("machine", values_of(table, "machine")))
    cells = base.mark_rect(stroke="white", strokeWidth=1).encode(color=colour)
    # Of the cell, not of the page: no ink that follows dark pages.
    ink = alt.condition(f"datum.over_best >= {DARK_FROM}", alt.value("white"), alt.value("black"))
    text = base.mark_text(fontSize=11).encode(text="cell:N", color=ink)
    size = {"width": 78 * len(values_of(table, "spec")), "height": alt.Step(26)}
    return make_figure(
        f"room-{game}",
        f"Seconds to target over the fastest spec's, {game}",
        "Geometric mean of the seconds to both targets and over seeds; 1.00 is the fastest spec on "
        "the machine, on the seeds that are shown. + marks specs of which a run missed a target: "
        "its seconds are cut at the horizon. Conditions change on machines with a star.",
        alt.layer(cells, text).properties(**size),
        table,
    )


def cost_by_kl(found: Mapping[str, Any]) -> Figure | None:
    """Return the env steps of specs against their KL, game by game; None: no KL is known.

    Args:
        found: by `comparison.room.kl_cost.kl_and_cost`.
    """
    rows, noise = found["rows"], found["noise"]
    if not rows:
        return None
    games, specs = values_of(rows, "game"), values_of(rows, "label")
    x = alt.X("kl_nats:Q").title("KL of compression, nats").axis(tickCount=5, format="~g")
    x = x.scale(type="log", padding=14, nice=False)
    y = alt.Y("steps_ratio:Q").title(f"Env steps to target over those of {MILD}")
    y = y.scale(zero=False)
    colours = [COLOURS[place % len(COLOURS)] for place in range(len(games))]
    shape = alt.Shape("label:N", sort=specs).legend(title="spec", orient="right", labelLimit=240)
    dots = points(110, 0.9).encode(
        x=x,
        y=y,
        color=point_colour("game", games, colours, title="game", orient="right"),
        shape=shape,
    )
    rules = [marks().mark_rule(strokeDash=[3, 3], opacity=0.6).encode(y=alt.datum(1.0))]
    if noise is not None:
        once = marks().transform_aggregate(rows="count()")  # else one for each row of the table
        band = once.mark_rect(opacity=0.08, color=INK)
        rules.append(band.encode(y=alt.datum(math.exp(-noise)), y2=alt.datum(math.exp(noise))))
    return make_figure(
        "room-kl-cost",
        "What KL says of cost",
        "A mark is a spec in a game: KL(learner || engine made of the same weights), and the env "
        "steps to both targets (where runs missed one, as many as an additive model expects); "
        "means over seeds, geometric ones over machines. The band is one standard deviation of "
        f"noise: what specs below {LEAST_NATS:g} nats differ by, root mean square.",
        alt.layer(*rules, dots).properties(width=560, height=300),
        list(rows),
    )


def gains(result: Mapping[str, Any]) -> Figure:
    """Return the room by group, its parts, and what rules and schedules gain, with intervals."""
    room, strategies = result["room"], result["strategies"]
    pairs, parts = room["pairs"], room["parts_pairs"]
    tested = {row["name"]: row["pairs"] for row in strategies}
    found = [
        ("Room", "in all", room, pairs),
        *(("Room", group["name"], group, group["pairs"]) for group in result["groups"]),
        *(
            ("What it is made of", part["name"], part, tested.get(PART_OF.get(part["name"]), parts))
            for part in result["decomposition"]
        ),
        *(("Known of an instance", name, each, pairs) for name, each in room["choices"].items()),
        *(
            ("Rules and schedules", row["label"], row["over_single"], row["pairs"])
            for row in strategies
        ),
    ]
    table = [
        {
            "panel": panel,
            "name": name,
            "pairs": number,
            "gain": each["ratio"] - 1.0,
            "low": (each["ratio"] if each["low"] is None else each["low"]) - 1.0,
            "high": (each["ratio"] if each["high"] is None else each["high"]) - 1.0,
        }
        for panel, name, each, number in found
        if each["ratio"] is not None
    ]
    axis = alt.Axis(format="+.0%", tickCount=6)
    panels = []
    for panel in values_of(table, "panel"):
        rows = [row for row in table if row["panel"] == panel]
        y = rows_axis("name", values_of(rows, "name"), labelLimit=340)
        chosen = marks("panel", panel)
        x = alt.X("gain:Q").title("gain").axis(axis)
        none = chosen.mark_rule(strokeDash=[3, 3], opacity=0.5).encode(x=alt.datum(0.0))
        line = chosen.mark_rule(color=SUBJECT_COLOUR).encode(
            x=alt.X("low:Q").title("gain").axis(axis), x2="high:Q", y=y
        )
        dots = points(55, 1, chosen).encode(x=x, y=y, color=alt.value(SUBJECT_COLOUR))
        numbers = chosen.mark_text(align="left", fontSize=11).encode(
            x=alt.value(490), y=y, text=alt.Text("pairs:Q", format=",")
        )
        layers = alt.layer(none, line, dots, numbers)
        panels.append(layers.properties(title=panel, width=480, height=alt.Step(24)))
    return make_figure(
        "room",
        "Room",
        "Seconds to target of the one spec for all over those of another choice, less one, with "
        "95% intervals: the virtual best, by group; its speed and fidelity, and the best schedule "
        "over it; what is known of an instance; tuned rules. Right: pairs of instance and seed.",
        alt.vconcat(*panels, data=marks().data).resolve_scale(x="shared"),
        table,
    )
