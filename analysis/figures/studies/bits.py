"""What bits cost a trained policy: its KL from float32, and its return, game by game."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from analysis.figures.parts import make_figure, marks, point_colour, values_of
from analysis.figures.theme import COLOURS, INK, SUBJECT_COLOUR, Figure

HUES = (COLOURS[0], COLOURS[4], COLOURS[1], SUBJECT_COLOUR)
SHAPES = ("circle", "square", "triangle-up", "diamond")
LEAST_KL = 1e-6
"""nats that are drawn: below, copies act alike"""


def bits_figures(result: Mapping[str, Any]) -> list[Figure]:
    """Return the figure of a bits.json: KL above, return below, a column for each game."""
    table = _table(result["games"])
    if not table:
        return []
    labels = values_of(table, "how")
    colour = point_colour("how", labels, HUES[: len(labels)])
    shape = alt.Shape("how:N").scale(domain=labels, range=SHAPES[: len(labels)]).legend(None)
    x = alt.X("bits:O").title("Bits").axis(labelAngle=0, grid=False)
    columns = []
    for number, game in enumerate(values_of(table, "game")):
        rows = marks("game", game)
        lines = rows.transform_filter("!datum.alone")
        titles = ("KL(float32 || copy), nats", "Return") if not number else (None, None)
        kl = alt.Y("kl_nats:Q").title(titles[0]).scale(type="log")
        kl = kl.axis(format=".0e", tickCount=5)
        score = alt.Y("return:Q").title(titles[1]).scale(zero=False)
        base = rows.transform_aggregate(float32="mean(float32)")
        parts = []
        for y, extra in (
            (kl, []),
            (
                score,
                [
                    base.mark_rule(strokeDash=[4, 3], color=INK).encode(y="float32:Q"),
                    rows.mark_rule(opacity=0.4).encode(
                        x=x, y=alt.Y("low:Q").title(titles[1]), y2="high:Q", color=colour
                    ),
                ],
            ),
        ):
            line = lines.mark_line(strokeWidth=1.6).encode(x=x, y=y, color=colour)
            dots = rows.mark_point(filled=True, size=48, opacity=1).encode(
                x=x, y=y, color=colour, shape=shape
            )
            parts.append(alt.layer(*extra, line, dots).properties(width=172, height=150))
        title = alt.Title(game, anchor="middle")
        columns.append(alt.vconcat(*parts, title=title, spacing=14))
    chart = alt.hconcat(*columns, spacing=16, data=marks().data)
    return [make_figure("bits", "Bits of a trained policy", bits_caption(result), chart, table)]


def bits_caption(result: Mapping[str, Any]) -> str:
    """Return what is to be said below the figure."""
    return (
        "Copies of trained policies, rounded after training by QuaRL's affine scheme, and tuned "
        "with it. Dashes: float32. Bars: 95% of the difference from float32, over episodes that "
        "both play; one that crosses the dashes cannot be told from it. "
        f"KL below {LEAST_KL:g} is drawn there. "
        f"{result['tuned']}"
    )


def _table(games: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "game": game["game"],
            "how": row["how"],
            "bits": row["bits"],
            "kl_nats": max(row["kl_nats"], LEAST_KL),
            "return": row["return"],
            "float32": game["return"],
            "low": game["return"] + (row["difference"] if row["low"] is None else row["low"]),
            "high": game["return"] + (row["difference"] if row["high"] is None else row["high"]),
            "alone": sum(row["how"] == other["how"] for other in game["rows"]) == 1,
        }
        for game in games
        for row in sorted(game["rows"], key=lambda row: row["bits"] == 8 and "INT8" in row["how"])
    ]
