"""Figures of learning with small actors: their scores, and their KL, against env steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import altair as alt

from analysis.figures.parts import COUNT_AXIS, few_points, lines_by, make_figure, marks, values_of
from analysis.figures.theme import BASELINE_COLOUR, COLOURS, DASHES, Figure

KL_FLOOR_NATS = 1e-4
"""what is nearer to the learner is drawn there"""


def learning_figures(name: str, cases: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """Return the scores and the KL of compression of every case, a line for each run.

    What was not measured in any run has no figure.

    Args:
        name: of the study.
        cases: of its result.
    """
    table = [
        {
            "panel": case["title"],
            "label": variant["label"],
            "run": f"{variant['label']} {curve['seed']}",
            "env_steps": steps,
            "score": score,
            "kl": None if kl is None else max(kl, KL_FLOOR_NATS),
        }
        for case in cases
        for variant in case["variants"]
        for curve in variant["curves"]
        for steps, score, kl in zip(
            curve["env_steps"], curve["scores"], curve["compression_kl_nats"], strict=True
        )
    ]
    labels = values_of(table, "label")
    hues = [BASELINE_COLOUR, *COLOURS]
    colours = {label: hues[index % len(hues)] for index, label in enumerate(labels)}
    dashes = [DASHES[index % len(DASHES)] for index in range(len(labels))]
    lines = lines_by("label", colours, dashes)

    def figure(
        kind: str, field: str, title: str, caption: str, scale: Literal["linear", "log"]
    ) -> Figure | None:
        y = alt.Y(f"{field}:Q").title(title).scale(type=scale, zero=False, nice=False)
        x = alt.X("env_steps:Q").title("Env steps").axis(**COUNT_AXIS)
        shown = []
        for panel in values_of([row for row in table if row[field] is not None], "panel"):
            rows = marks("panel", panel)
            rows = rows.transform_filter(alt.FieldValidPredicate(field=field, valid=True))
            line = rows.mark_line(strokeWidth=1.7, opacity=0.85)
            line = line.encode(x=x, y=y, detail="run:N", **lines)
            dots = few_points(rows, 16, "run").encode(x=x, y=y, color=lines["color"])
            shown.append(alt.layer(line, dots).properties(title=panel, width=380, height=220))
        if not shown:
            return None
        rows = [alt.hconcat(*shown[at : at + 2], spacing=24) for at in range(0, len(shown), 2)]
        chart = alt.vconcat(*rows, data=marks().data)
        return make_figure(f"{name}-{kind}", title, caption, chart, table)

    found = (
        figure(
            "scores",
            "score",
            "Score of the actors",
            "Mean of the last 20 episodes that the actors played; a line is a run.",
            "linear",
        ),
        figure(
            "kl",
            "kl",
            "KL of compression, nats",
            "KL(learner || engine made of the same weights) on recorded states; staleness is not "
            f"in it. What is below {KL_FLOOR_NATS:g} is drawn there.",
            "log",
        ),
    )
    return [each for each in found if each is not None]
