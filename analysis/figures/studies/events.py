"""The clocks under events: env steps per second before, during and after each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from analysis.figures.parts import PLAIN_NUMBERS, make_figure, marks, point_colour, points
from analysis.figures.theme import BASELINE_COLOUR, SUBJECT_COLOUR, Figure

CLOCKS = {"real": "real clock", "virtual": "virtual clock"}
WINDOWS = ("before", "during", "after")


def event_figures(events: Mapping[str, Any] | None) -> list[Figure]:
    """Return the figure of a bench-events.json; none where there is nothing to compare."""
    if events is None:
        return []
    table = [
        {
            "event": row["event"],
            "place": f"{row['begins']:g} s",
            "window": row["window"],
            "clock": clock,
            "env_steps_per_second": row[name],
        }
        for row in events["rows"]
        for name, clock in CLOCKS.items()
        if row[name] is not None
    ]
    if not table:
        return []
    names = list(dict.fromkeys(row["event"] for row in table))
    colour = point_colour("clock", [*CLOCKS.values()], [SUBJECT_COLOUR, BASELINE_COLOUR])
    shape = alt.Shape("clock:N").scale(domain=[*CLOCKS.values()], range=["circle", "square"])
    panels = []
    for name in names:
        rows = marks("event", name)
        x = alt.X("env_steps_per_second:Q").title("Env steps per second").scale(zero=True)
        y = alt.Y("window:N", sort=[*WINDOWS]).title(None)
        dots = points(70, 0.9, rows).encode(
            x=x.axis(tickCount=4, **PLAIN_NUMBERS), y=y, color=colour, shape=shape.legend(None)
        )
        panels.append(dots.properties(title=alt.Title(name, fontSize=12), width=230, height=78))
    rows = [alt.hconcat(*panels[at : at + 3], spacing=18) for at in range(0, len(panels), 3)]
    chart = alt.vconcat(*rows, data=marks().data).resolve_scale(x="shared")
    caption = "Each event on both clocks, without the first interval of each window; medians over "
    caption += f"seeds. {events['game']}, {events['network']}, {events['actors']} actors."
    return [make_figure("events", "The clocks while conditions change", caption, chart, table)]
