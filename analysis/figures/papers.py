"""The papers' figures, drawn again: scores by env steps and by seconds, and where time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from analysis.figures.parts import (
    COUNT_AXIS,
    lines_by,
    make_figure,
    marks,
    point_colour,
    points,
    rows_axis,
    values_of,
)
from analysis.figures.theme import BASELINE_COLOUR, COLOURS, DASHES, Figure

STAGES = ("exploration", "improving", "convergence")
COSTS = {
    "seconds_ratio": "seconds",
    "core_seconds_ratio": "processor seconds",
    "env_steps_ratio": "env steps",
}
AXES = {"env_steps": "Env steps", "seconds": "Seconds of the machine's clock"}


def paper_figures(result: Mapping[str, Any]) -> list[Figure]:
    """Return the pictures of a figure's result: one for each axis, and what else it shows.

    Args:
        result: of one figure.
    """
    if "split" in result:
        return [_split(result)]
    table = _table(result)
    if not table:
        return []
    found = [_curves(result, table, axis) for axis in AXES]
    if result["shows_kl_max"]:
        found.append(_kl(result, table))
    if result["shows_costs"] and (costs := _costs_table(result)):
        found.append(_costs(result, costs))
    return found


def _table(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for panel in result["panels"]:
        for machine, known in panel["machines"].items():
            for line in known["lines"]:
                for curve in line["curves"]:
                    rows += _points(result, panel["game"], machine, line["label"], curve)
    return rows


def _points(
    result: Mapping[str, Any], game: str, machine: str, label: str, curve: Mapping[str, Any]
) -> list[dict[str, Any]]:
    before: int | None = None
    rows = []
    for index, score in enumerate(curve["scores"]):
        stage: int | None = curve["stages"][index]
        begins = stage if result["shows_stages"] and stage != before else None
        before = stage
        rows.append(
            {
                "panel": f"{game} on {machine}",
                "label": label,
                "run": f"{label} {curve['seed']}",
                "env_steps": curve["env_steps"][index],
                "seconds": curve["seconds"][index],
                "score": score,
                "kl_max": max(curve["kl_max_nats"][index], 1e-3),
                "stage": None if begins is None else STAGES[begins],
            }
        )
    return rows


def _lines(table: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    labels = values_of(table, "label")
    hues = [BASELINE_COLOUR, *COLOURS]
    colours = {label: hues[index % len(hues)] for index, label in enumerate(labels)}
    return lines_by("label", colours, [DASHES[index % len(DASHES)] for index in range(len(labels))])


def _curves(result: Mapping[str, Any], table: Sequence[Mapping[str, Any]], axis: str) -> Figure:
    x = alt.X(f"{axis}:Q").title(AXES[axis]).axis(**COUNT_AXIS)
    y = alt.Y("score:Q").title("Score of the actors").scale(zero=False)
    lines = _lines(table)

    def panel(name: str) -> Any:
        rows = marks("panel", name).transform_filter(
            alt.FieldValidPredicate(field="score", valid=True)
        )
        shown = rows.mark_line(strokeWidth=1.7, opacity=0.85).encode(
            x=x, y=y, detail="run:N", **lines
        )
        if result["shows_stages"]:
            begins = rows.transform_filter(alt.FieldValidPredicate(field="stage", valid=True))
            dots = begins.mark_point(filled=True, size=60).encode(x=x, y=y)
            words = begins.mark_text(align="left", dx=6, dy=-8).encode(x=x, y=y, text="stage:N")
            shown = alt.layer(shown, dots.encode(color=alt.value(COLOURS[1])), words)
        return shown.properties(title=name, width=380, height=220)

    return _figure(result, f"by-{axis.replace('_', '-')}", table, panel)


def _kl(result: Mapping[str, Any], table: Sequence[Mapping[str, Any]]) -> Figure:
    x = alt.X("env_steps:Q").title("Env steps").axis(**COUNT_AXIS)
    y = alt.Y("kl_max:Q").title("Largest KL of an interval, nats").scale(type="log")
    lines = _lines(table)

    def panel(name: str) -> Any:
        shown = marks("panel", name).mark_line(strokeWidth=1.7, opacity=0.85)
        return shown.encode(x=x, y=y, detail="run:N", **lines).properties(
            title=name, width=380, height=220
        )

    return _figure(result, "kl-max", table, panel)


def _costs_table(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what each line takes to the score over the baseline's, by game and machine."""
    return [
        {
            "machine": machine,
            "game": panel["game"],
            "label": line["label"],
            "what": what,
            "ratio": line[name]["estimate"],
            "reached": f"{line[name]['reached']} of {line[name]['runs']}",
        }
        for panel in result["panels"]
        for machine, known in panel["machines"].items()
        for line in known["lines"]
        if line["label"] != panel["baseline"]
        for name, what in COSTS.items()
        if line[name] is not None
    ]


def _costs(result: Mapping[str, Any], table: Sequence[Mapping[str, Any]]) -> Figure:
    x = alt.X("ratio:Q").title("Over the baseline's, to the same score").scale(zero=True)
    colour = point_colour("what", [*COSTS.values()], [COLOURS[0], COLOURS[4], BASELINE_COLOUR])
    shape = alt.Shape("what:N").scale(
        domain=[*COSTS.values()], range=["circle", "diamond", "square"]
    )
    shown = []
    for machine in values_of(table, "machine"):
        rows = marks("machine", machine)
        y = rows_axis("game", values_of(table, "game"))
        none = rows.mark_rule(strokeDash=[3, 3], opacity=0.5).encode(x=alt.datum(1.0))
        dots = points(70, 0.9, rows).encode(x=x, y=y, color=colour, shape=shape.legend(None))
        layers = alt.layer(none, dots)
        shown.append(layers.properties(title=machine, width=300, height=alt.Step(30)))
    chart = alt.hconcat(*shown, spacing=24, data=marks().data).resolve_scale(x="shared")
    labels = ", ".join(values_of(table, "label"))
    baseline = result["panels"][0]["baseline"]
    caption = f"What {labels} takes to the score of {baseline}, over what {baseline} takes: left "
    caption += "of 1 is less. Processor seconds are those of all processes together."
    return make_figure(f"{result['figure']}-costs", result["title"], caption, chart, table)


def _figure(
    result: Mapping[str, Any], kind: str, table: Sequence[Mapping[str, Any]], panel: Any
) -> Figure:
    shown = [panel(name) for name in values_of(table, "panel")]
    rows = [alt.hconcat(*shown[at : at + 2], spacing=24) for at in range(0, len(shown), 2)]
    chart = alt.vconcat(*rows, data=marks().data)
    caption = f"The paper: {result['claim']} A line is a run; a score is a mean of 20 episodes."
    return make_figure(f"{result['figure']}-{kind}", result["title"], caption, chart, table)


def _split(result: Mapping[str, Any]) -> Figure:
    table = [
        {"machine": f"{row['machine']} ({row['unit']})", "part": part, "share": share, "order": at}
        for row in result["split"]
        for at, (part, share) in enumerate(row["shares"].items())
    ]
    colour = alt.Color("part:N").scale(
        domain=["env", "agent", "learner"], range=[BASELINE_COLOUR, COLOURS[0], COLOURS[1]]
    )
    chart = (
        marks()
        .mark_bar(height=22)
        .encode(
            x=alt.X("share:Q").title("Share of the time").axis(format="%"),
            y=alt.Y("machine:N", sort=values_of(table, "machine")).title(None).axis(labelLimit=260),
            color=colour.legend(alt.Legend(symbolType="square", title=None)),
            order="order:Q",
        )
        .properties(width=520, height=120)
    )
    caption = f"The paper: {result['claim']}"
    return make_figure(f"{result['figure']}-split", result["title"], caption, chart, table)
