"""Figures of a comparison of strategies: ratios with their intervals, and how scores rise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import numpy as np

from analysis.comparison.curves import band, resample
from analysis.figures.forest import WHOLE, ratio_layers
from analysis.figures.parts import COUNT_AXIS, lines_by, make_figure, marks, values_of
from analysis.figures.theme import DASHES, Figure, strategy_colours
from analysis.formats import is_of_use

GRID_POINTS = 60


def comparison_figures(result: Mapping[str, Any]) -> list[Figure]:
    """Return all figures of a comparison.json."""
    found = [ratio_forest(result, at) for at in range(len(result["scores"]))]
    found += [score_curves(result, axis) for axis in ("seconds", "env_steps")]
    return [figure for figure in found if figure is not None]


def ratio_forest(result: Mapping[str, Any], at: int) -> Figure | None:
    """Seconds to a score over those of the first strategy; None: nothing could be compared.

    Args:
        result: a comparison.json.
        at: place of the score.
    """
    table = []
    for row in result["strategies"][1:]:
        found = row["to_score"][at]
        if found["seconds_ratio"] is None:
            continue
        shown = None if found["bound"] else found["seconds_interval"]
        shown = shown if shown and is_of_use(*shown) else None
        low, high = shown or (None, None)
        text = f"{found['bound']}{found['seconds_ratio']:.2f}"
        text += "" if low is None else f"  ({low:.2f} to {high:.2f})"
        own = {"strategy": row["label"], "ratio": found["seconds_ratio"], "text": text}
        table.append({**WHOLE, **own, "low": low, "high": high})
    if not table:
        return None
    score = result["scores"][at]
    title = f"Seconds to a score of {score:g}, over {result['baseline']} (log; left: faster)"
    return make_figure(
        f"seconds-to-score-{at + 1}",
        f"Seconds to a score of {score:g}",
        "Geometric mean over seeds and 95% t interval of pairs with equal seeds. >, < and ~: some "
        "runs did not reach it, so that the truth is larger, smaller, or not to be told, and there "
        "is no interval.",
        ratio_layers(table, title, "strategy"),
        table,
    )


def score_curves(result: Mapping[str, Any], axis: str) -> Figure | None:
    """Scores of the actors over `axis` ("seconds" or "env_steps"); None: there are none yet.

    Lines are interquartile means over seeds, bands reach from quartile to quartile.
    """
    table: list[dict[str, Any]] = []
    notes: list[str] = []
    for row in result["strategies"]:
        known = [_known(curve, axis) for curve in row["curves"]]
        group = [curve for curve in known if len(curve[0])]
        if len(group) < len(known):
            notes.append(f"{row['label']} has scores of {len(group)} of {len(known)} seeds")
        if not group:
            continue
        # Where all of them have a score: a mean over fewer would bend towards those.
        begins, ends = max(x[0] for x, _ in group), min(x[-1] for x, _ in group)
        if begins >= ends:
            why = "it has a single score" if len(group) == 1 else "its seeds share no stretch"
            notes.append(f"{row['label']} is not drawn, for {why}")
            continue
        grid = np.linspace(begins, ends, GRID_POINTS)
        found = band(resample(group, grid))
        table += [
            {"kind": "curve", "strategy": row["label"], "x": float(x)}
            | {name: float(found[name][place]) for name in ("low", "iqm", "high")}
            for place, x in enumerate(grid)
            if not np.isnan(found["iqm"][place])
        ]
    if not table:
        return None
    labels = values_of(table, "strategy")
    of_all = strategy_colours([row["label"] for row in result["strategies"]])
    colours = {label: of_all[label] for label in labels}
    lines = lines_by("strategy", colours, [DASHES[n % len(DASHES)] for n in range(len(labels))])
    table += [{"kind": "score", "value": score} for score in result["scores"]]
    clock = f"Seconds ({result['clock']} clock)"
    x = alt.X("x:Q").title(clock if axis == "seconds" else "Env steps").axis(**COUNT_AXIS)
    y = alt.Y("iqm:Q").title("Score of the actors").scale(zero=False, nice=False)
    curve = marks("kind", "curve")
    chart = alt.layer(
        marks("kind", "score").mark_rule(strokeDash=[5, 4], opacity=0.6).encode(y="value:Q"),
        curve.mark_area(opacity=0.13).encode(x=x, y="low:Q", y2="high", color=lines["color"]),
        curve.mark_line().encode(x=x, y=y, **lines),
    ).properties(width=800, height=260)
    return make_figure(
        f"scores-by-{axis.replace('_', '-')}",
        f"Scores over {axis.replace('_', ' ')}",
        "Mean of the last 20 episodes that the actors played. Line: interquartile mean over seeds; "
        "band: quartiles. Dashed rules: the scores that runs are timed to."
        + (f" {'; '.join(notes)}." if notes else ""),
        chart,
        table,
    )


def _known(curve: Mapping[str, Any], axis: str) -> tuple[np.ndarray, np.ndarray]:
    """Return where a run's score is known, and the score."""
    rows = [
        (x, score)
        for x, score in zip(curve[axis], curve["scores"], strict=True)
        if score is not None
    ]
    return np.array([x for x, _ in rows]), np.array([score for _, score in rows])
