"""What a paper's runs cost beside the baseline's, and where time goes: dots and bars."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import altair as alt

from analysis import formats
from analysis.figures.parts import marks, point_colour, points, rows_axis, values_of
from analysis.figures.theme import BASELINE_COLOUR, COLOURS

COSTS = {
    "seconds_ratio": ("seconds", COLOURS[0], "circle"),
    "core_seconds_ratio": ("processor seconds", COLOURS[4], "diamond"),
    "env_steps_ratio": ("env steps", BASELINE_COLOUR, "square"),
}
"""what is compared with the baseline's, and its marks"""
MEASURED = "measured"
BOUNDS = {"": MEASURED, ">": "at least", "<": "at most", "~": "about"}
"""what a mark before an estimate says, see `studies.learning.curve.Ratios.bound`"""
PARTS = {"env": "environment", "agent": "actors' inference", "learner": "learner"}
"""of a step, as the figure calls them"""


class Picture(NamedTuple):
    """A figure that is not drawn yet, which takes much longer than its caption."""

    name: str
    caption: str
    table: Sequence[Mapping[str, Any]]
    draw: Callable[[], Any]


def _costs_table(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what each line takes to the score over the baseline's, by game and machine."""
    return [
        {
            "machine": machine,
            "game": panel["game"],
            "label": line["label"],
            "what": what,
            "ratio": line[name]["estimate"],
            "low": line[name]["low"],
            "high": line[name]["high"],
            "bound": BOUNDS[line[name]["bound"]],
            "reached": f"{line[name]['reached']} of {line[name]['runs']}",
            "runs": line[name]["runs"],
        }
        for panel in result["panels"]
        for machine, known in panel["machines"].items()
        for line in known["lines"]
        if line["label"] != panel["baseline"]
        for name, (what, _, _) in COSTS.items()
        if line[name] is not None
    ]


def costs(result: Mapping[str, Any]) -> Picture | None:
    """Return a picture of what lines take to a score over what the baseline takes, by game.

    None: there is nothing to compare yet.
    """
    table = _costs_table(result)
    if not table:
        return None
    labels = values_of(table, "label")
    # A row is a game; where several lines are compared, each has rows of its own.
    named = [
        {**row, "row": f"{row['game']}, {row['label']}" if len(labels) > 1 else row["game"]}
        for row in table
    ]
    baseline = result["panels"][0]["baseline"]
    runs = {row["runs"] for row in table}
    pairs = formats.counted(max(runs), "pair")
    pairs = pairs if len(runs) == 1 else f"{min(runs)} to {pairs}"
    caption = f"What {', '.join(labels)} takes to the score of {baseline}, over what {baseline} "
    caption += f"takes: left of 1 is less. A mark is the geometric mean of {pairs} of runs with "
    caption += "the same seed (pairs of which neither reached it are left out). "
    if any(row["what"] == COSTS["core_seconds_ratio"][0] for row in table):
        caption += "Processor seconds are those of all processes together. "
    caption += "Hollow: runs ended before they reached the score, so the ratio is a bound or only "
    caption += "about right; intervals are in the table."
    name = f"{result['figure']}-costs"
    return Picture(name, caption, named, partial(_costs_chart, named))


def _costs_chart(table: Sequence[Mapping[str, Any]]) -> Any:
    x = alt.X("ratio:Q").title("Over the baseline's, to the same score").scale(type="log")
    x = x.axis(values=[0.1, 0.2, 0.5, 1, 2, 5, 10], format="~g")
    drawn = values_of(table, "what")
    looks = [look for look in COSTS.values() if look[0] in drawn]
    kinds = [kind for kind, _, _ in looks]
    colour = point_colour("what", kinds, [hue for _, hue, _ in looks])
    shape = alt.Shape("what:N").scale(domain=kinds, range=[mark for _, _, mark in looks])
    shown = []
    for machine in values_of(table, "machine"):
        rows = marks("machine", machine)
        y = rows_axis("row", values_of(table, "row"))
        none = rows.mark_rule(strokeDash=[3, 3], opacity=0.5).encode(x=alt.datum(1.0))
        measured, bounds = (
            rows.transform_filter(f"datum.bound {how} '{MEASURED}'") for how in ("==", "!=")
        )
        dots = points(70, 0.9, measured).encode(x=x, y=y, color=colour, shape=shape.legend(None))
        rings = bounds.mark_point(filled=False, size=70, strokeWidth=2)
        rings = rings.encode(x=x, y=y, color=colour, shape=shape.legend(None))
        layers = alt.layer(none, dots, rings)
        shown.append(layers.properties(title=machine, width=300, height=alt.Step(30)))
    return alt.hconcat(*shown, spacing=24, data=marks().data).resolve_scale(x="shared")


def split(result: Mapping[str, Any]) -> Picture:
    """Return a picture of the shares of a step's time, and of what faster inference saves."""
    table = [
        {
            "machine": row["machine"],
            "part": PARTS[part],
            "share": share,
            "order": at,
            "saved": "saves "
            + ", ".join(f"{share:.0%} ({name})" for name, share in row["saved"].items()),
        }
        for row in result["split"]
        for at, (part, share) in enumerate(row["shares"].items())
    ]
    units = "; ".join(f"{row['machine']}: {row['unit']}" for row in result["split"])
    caption = f"Right: what faster inference saves of the clock. {units}."
    return Picture(f"{result['figure']}-split", caption, table, partial(_split_chart, table))


def _split_chart(table: Sequence[Mapping[str, Any]]) -> Any:
    colour = alt.Color("part:N").scale(
        domain=[*PARTS.values()], range=[BASELINE_COLOUR, COLOURS[0], COLOURS[1]]
    )
    x = alt.X("share:Q").title("Share of the time").axis(format="%", grid=False, tickCount=5)
    base = marks().encode(
        x=x.stack("zero"),
        y=rows_axis("machine", values_of(table, "machine")),
        order="order:Q",
    )
    bars = base.mark_bar(height=24).encode(color=colour.legend(symbolType="square"))
    middle = marks().transform_stack(
        stack="share", groupby=["machine"], as_=["from", "to"], sort=[alt.SortField("order")]
    )
    words = middle.transform_calculate(at="(datum.from + datum.to) / 2").mark_text(fontSize=11)
    numbers = words.encode(
        x=alt.X("at:Q"),
        y=rows_axis("machine", values_of(table, "machine")),
        text=alt.Text("share:Q", format=".0%"),
        color=alt.value("white"),
    )
    saved = (
        marks("order", 0)
        .mark_text(align="left", dx=8, fontSize=12)
        .encode(
            x=alt.datum(1.0),
            y=rows_axis("machine", values_of(table, "machine")),
            text=alt.Text("saved:N"),
        )
    )
    return alt.layer(bars, numbers, saved).properties(width=430, height=alt.Step(40))
