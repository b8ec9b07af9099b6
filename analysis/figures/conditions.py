"""Figure of single runs: what happened to the machine meanwhile, and how fast the run then was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from analysis.figures.parts import COUNT_AXIS, PLAIN_NUMBERS, make_figure, marks, panels
from analysis.figures.theme import INK, SUBJECT_COLOUR, Figure
from analysis.records.load import RunRecord

WIDTH, HEIGHT = 800, 240


def run_conditions(labelled: Mapping[str, RunRecord]) -> Figure | None:
    """Env steps per second of each run with events, which are bands; None: no run has any."""
    table: list[dict[str, Any]] = []
    shown = []
    for label, run in labelled.items():
        bands = event_bands(run)
        if not bands:
            continue
        shown.append(label)
        table += [{"run": label, "kind": "event", **band} for band in bands]
        table += [
            {
                "run": label,
                "kind": "speed",
                "seconds": report.total_seconds,
                "steps": report.env_steps / max(report.seconds, 1e-9),
            }
            for report in run.reports
        ]
    if not shown:
        return None
    x = alt.X("begins:Q").title("Seconds").axis(**COUNT_AXIS)
    band = marks("kind", "event").mark_rect(color=INK, opacity=0.12)
    words = marks("kind", "event").mark_text(
        angle=270, align="right", baseline="top", dx=-4, dy=3, color=INK, fontSize=11
    )
    speed = marks("kind", "speed").mark_line(strokeWidth=1.9, color=SUBJECT_COLOUR)
    y = alt.Y("steps:Q").title("Env steps per second").axis(**PLAIN_NUMBERS)
    chart = alt.layer(
        band.encode(x=x, x2="ends:Q", tooltip=["event:N", "begins:Q", "ends:Q"]),
        speed.encode(x="seconds:Q", y=y),
        words.encode(x="begins:Q", y=alt.value(0), text="event:N"),
    )
    return make_figure(
        "conditions",
        "What happened to the machine",
        "A band is an event; the line is the run's speed, one point an interval.",
        panels(chart.properties(width=WIDTH, height=HEIGHT), "run", shown, 1),
        table,
    )


def event_bands(run: RunRecord) -> list[dict[str, Any]]:
    """Return each event of a run once: {event, begins, ends}, until its end at most."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for report in run.reports:
        for event in report.conditions:
            begins, words = event["at_seconds"], event["words"]
            ends = min(begins + event["lasts_seconds"], run.reports[-1].total_seconds)
            found[begins, ends, words] = {"event": words, "begins": begins, "ends": ends}
    return list(found.values())
