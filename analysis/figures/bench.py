"""Figures of benchmarks: which compression is fastest at each KL budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from accerl.spec import CompressionSpec
from analysis.figures.parts import make_figure, marks, only, point_colour, rows_axis
from analysis.figures.theme import BASELINE_COLOUR, COLOURS, INK, SUBJECT_COLOUR, Figure

SIDES = ("real", "virtual")
KL_FLOOR_NATS = 1e-6  # what is exact needs a place on a logarithmic axis


def pareto_front(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows that no other row beats in both time and KL, slowest first.

    Args:
        rows: of one batch size, each with `us_per_state` and `kl_mean`.
    """
    front: list[Mapping[str, Any]] = []
    for row in sorted(rows, key=lambda item: (item["us_per_state"], item["kl_mean"])):
        if not front or _drawn(row) < _drawn(front[-1]):
            front.append(row)
    return front[::-1]


def _drawn(row: Mapping[str, Any]) -> float:
    """Return a row's KL, at least the floor: rounding is no difference between two policies."""
    return max(row["kl_mean"], KL_FLOOR_NATS)


def pareto(result: Mapping[str, Any], batch: int) -> Figure:
    """Time against KL of every compression of a `bench infer` result at one batch size.

    Raises:
        ValueError: that batch size was not measured.
    """
    rows = [row for row in result["rows"] if row["batch"] == batch]
    if not rows:
        raise ValueError(f"batch {batch} was not measured")
    best = [id(row) for row in pareto_front(rows)]
    table = [
        {
            "label": CompressionSpec.from_json(row["spec"]).label,
            "kl": _drawn(row),
            "time": row["us_per_state"],
            "front": "fastest at its KL budget" if id(row) in best else "beaten",
        }
        for row in rows
    ]
    title = f"KL to Original (nats; what is below {KL_FLOOR_NATS:g} is drawn there)"
    x = alt.X("kl:Q").scale(type="log").title(title)
    y = alt.Y("time:Q").scale(type="log", nice=False, padding=20)
    y = y.title(f"Microseconds per state, batch {batch}")
    kinds = ["fastest at its KL budget", "beaten"]
    colour = point_colour("front", kinds, [SUBJECT_COLOUR, BASELINE_COLOUR])
    chosen = marks().transform_filter(only("front", kinds[0]))
    line = chosen.mark_line(color=SUBJECT_COLOUR, strokeWidth=1.5, interpolate="step-after")
    text = chosen.mark_text(align="left", dx=6, dy=-8, fontSize=11, color=INK)
    layers = alt.layer(
        line.encode(x=x, y=y),
        marks().mark_point(filled=True, size=70, opacity=1).encode(x=x, y=y, color=colour),
        text.encode(x=x, y=y, text="label:N"),
    )
    return make_figure(
        f"pareto-batch-{batch}",
        "Time against KL",
        "Left and below is better; what is beaten has no name. Students and pruned "
        "networks were distilled.",
        layers.properties(width=640, height=380),
        table,
    )


def clock_fidelity(result: Mapping[str, Any]) -> Figure:
    """What the virtual clock predicts against what the real one shows: speeds, and returns."""
    table = [
        {
            "panel": f"Env steps per second, {row['game']}",
            "label": row["label"],
            "real": real,
            "virtual": virtual,
        }
        for row in result["rows"]
        for real, virtual in zip(row["real_all"], row["virtual_all"], strict=True)
    ]
    table += [
        {
            "panel": f"Mean return over the run, {row['game']}",
            "label": row["label"],
            "real": float(np.median(row["return_real_all"])),
            "virtual": float(np.median(row["return_virtual_all"])),
        }
        for row in result["rows"]
        if "return_real_all" in row
    ]
    labels = list(dict.fromkeys(row["label"] for row in result["rows"]))
    colour = point_colour("label", labels, _hues(len(labels)), orient="right", columns=1)
    panels = []
    for panel in dict.fromkeys(row["panel"] for row in table):
        values = [row[side] for row in table if row["panel"] == panel for side in SIDES]
        scale = {"domain": [min(0.0, *values), 1.05 * max(values)], "nice": False}
        axis = {"tickCount": 5, "format": "~s"}
        x = alt.X("real:Q").title("real clock").scale(**scale).axis(**axis)
        y = alt.Y("virtual:Q").title("virtual clock").scale(**scale).axis(**axis)
        points = marks().transform_filter(only("panel", panel))
        points = points.mark_point(filled=True, size=60, opacity=0.85)
        layers = alt.layer(_diagonal(x, y), points.encode(x=x, y=y, color=colour))
        panels.append(layers.properties(title=panel, width=250, height=250))
    return make_figure(
        "clock-fidelity",
        "The virtual clock against the real one",
        "On the diagonal both agree. Speeds: one point a run; returns: medians over seeds.",
        alt.hconcat(*panels, spacing=24, data=marks().data),
        table,
    )


def _diagonal(x: alt.X, y: alt.Y) -> alt.Chart:
    """Return the line on which both sides agree."""
    sides = [field["shorthand"].partition(":")[0] for field in (x, y)]
    ends = alt.Data(values=[dict.fromkeys(sides, value) for value in x["scale"]["domain"]])
    return alt.Chart(ends).mark_line(color=INK, opacity=0.4, strokeDash=[4, 3]).encode(x=x, y=y)


def _hues(count: int) -> list[str]:
    return [COLOURS[index % len(COLOURS)] for index in range(count)]


SCHEDULES = {
    "fp32": "no compression",
    "two_phase": "best of two phases",
    "oracle": "greedy-branch oracle",
    "placebo": "placebo: other random numbers",
}


def oracle_gap(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """What each schedule gains over the best static spec, for every game and machine."""
    table = [
        {
            "pair": f"{row['game']}, {row['profile']}",
            "schedule": text,
            **{
                end: None if row[name][end] is None else 100.0 * (row[name][end] - 1.0)
                for end in ("ratio", "low", "high")
            },
        }
        for row in rows
        for name, text in SCHEDULES.items()
    ]
    table = [row for row in table if row["ratio"] is not None]
    scale = {"domain": [-60, 60], "clamp": True, "nice": False}
    title = "Discounted gain over the best static spec's, % (clipped at 60)"
    y = rows_axis("pair", list(dict.fromkeys(row["pair"] for row in table)), grid=True)
    texts = list(SCHEDULES.values())
    colours = [BASELINE_COLOUR, COLOURS[0], SUBJECT_COLOUR, COLOURS[1]]
    place = {
        "y": y,
        "yOffset": alt.YOffset("schedule:N").scale(domain=texts),
        "color": point_colour("schedule", texts, colours),
    }

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q").scale(**scale).title(title)

    zero = alt.XDatum(0, type="quantitative").scale(**scale).title(title)
    layers = alt.layer(
        marks().mark_rule(strokeDash=[4, 3], opacity=0.7).encode(x=zero),
        marks().mark_rule(strokeWidth=1.5).encode(x=x("low"), x2="high", **place),
        marks().mark_point(filled=True, size=60, opacity=1).encode(x=x("ratio"), **place),
    )
    return make_figure(
        "oracle-gap",
        "The oracle gap",
        "Mean over seeds with 95% interval (Student's t). A controller has room where the "
        "oracle is above the placebo, whose branches differ in the actors' random numbers alone.",
        layers.properties(width=560, height=alt.Step(13)),
        table,
    )


def real_against_predicted(
    rows: Sequence[Mapping[str, Any]], labels: Mapping[str, str], colours: Mapping[str, str]
) -> Figure:
    """Env steps a second on the real clock beside what the virtual clock predicts for them.

    `labels` and `colours` are of the study's strategies, by name.
    """
    table: list[dict[str, Any]] = [
        {"strategy": labels[row["strategy"]], "game": row["game"], "seed": row["seed"]}
        | {"real": row["env_steps_per_second"]}
        | {"predicted": row["predicted_env_steps_per_second"]}
        for row in rows
    ]
    names = list(dict.fromkeys(row["strategy"] for row in table))
    values = [row[side] for row in table for side in ("real", "predicted")]
    domain = [0.9 * min(values), 1.1 * max(values)]
    scale = {"type": "log", "domain": domain, "nice": False}
    axis = {"format": "~s", "tickCount": 5, "grid": False}
    x = alt.X("real:Q").title("Real env steps per second").scale(**scale).axis(**axis)
    y = alt.Y("predicted:Q").title("Predicted").scale(**scale).axis(**axis)
    known = {labels[name]: colour for name, colour in colours.items()}
    colour = point_colour("strategy", names, [known[name] for name in names], orient="right")
    point = marks().mark_point(filled=True, size=70, opacity=0.85)
    layers = alt.layer(_diagonal(x, y), point.encode(x=x, y=y, color=colour))
    return make_figure(
        "real-clock",
        "Speed on the real clock against the prediction",
        "One point a run; on the diagonal the virtual clock was right.",
        layers.properties(width=420, height=300),
        table,
    )
