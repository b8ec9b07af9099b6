"""Fleets: env steps per second by the number of actors, and what limits them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from analysis.figures.parts import lines_by, make_figure, marks, points, values_of
from analysis.figures.theme import BASELINE_COLOUR, COLOURS, DASHES, SUBJECT_COLOUR, Figure

PANELS = {
    "env_steps_per_second": "Env steps per second",
    "bytes_in_per_second": "Bytes per second into the learner's node",
    "bytes_out_per_second": "Bytes per second out of it",
}


def fleet_figure(result: Mapping[str, Any]) -> Figure:
    """Speed and traffic of the fleets of a `profile sample` result; points show what limits."""
    rows = result["rows"]
    table = [
        {"panel": title, "label": row["label"], "actors": row["actors"], "limit": row["limit"]}
        | {"value": max(row[name], 1.0)}
        for row in rows
        for name, title in PANELS.items()
    ]
    labels = values_of(rows, "label")
    hues = [BASELINE_COLOUR, SUBJECT_COLOUR, *COLOURS]
    colours = {label: hues[index % len(hues)] for index, label in enumerate(labels)}
    look = lines_by("label", colours, [DASHES[i % len(DASHES)] for i in range(len(labels))])
    limits = values_of(rows, "limit")
    shape = alt.Shape("limit:N").scale(domain=limits).legend(title="limited by")
    x = (
        alt.X("actors:Q")
        .scale(type="log", nice=False)
        .title("actors")
        .axis(format="~s", grid=False)
    )
    y = alt.Y("value:Q").scale(type="log").title(None).axis(format="~s", tickCount=5)
    panels = []
    for title in PANELS.values():
        chosen = marks("panel", title)
        line = chosen.mark_line(strokeWidth=1.7).encode(x=x, y=y, **look)
        dots = points(45, 1, chosen).encode(x=x, y=y, color=look["color"], shape=shape)
        panels.append(alt.layer(line, dots).properties(title=title, width=240, height=200))
    settings = result["settings"]
    return make_figure(
        "fleet",
        "Fleets of actors on other machines",
        f"Predicted for {result['env']} with {result['network']}, times of "
        f"{result['profile']['name']}; {settings['link_gbit']:g} Gbit/s into the learner's node, "
        f"{settings['actors_per_node']} actors a node. Values below 1 are drawn at 1.",
        alt.hconcat(*panels, spacing=24, data=marks().data),
        table,
    )
