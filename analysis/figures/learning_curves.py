"""Figures of a contest: learning curves, and what all its figures share.

Every function returns one Figure: a Vega-Lite specification over one tidy table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.comparison import curves
from analysis.figures.theme import Figure, strategy_colours, strategy_dashes
from analysis.records.load import StudyRecord

GRID_POINTS = 80
"""of a learning curve, where that many fit"""
MOST_ROWS = 9_000
"""of a figure's table: W&B keeps 10,000 and would drop the rest"""
COUNT_AXIS: Mapping[str, Any] = {
    "tickCount": 5,
    "format": "~s",
    "grid": False,
    "labelExpr": "datum.value === 0 ? '0' : datum.label",
}
"""SI prefixes keep millions of env steps short; without the expression zero would read 0M"""

PLAIN_NUMBERS: Mapping[str, Any] = {"labelExpr": "format(datum.value, ',~r')"}
"""labels that neither round a flat curve's only tick nor turn 100 into 1e+2"""


def panel_layout(panels: int) -> tuple[int, int]:
    """Return (columns, width of a panel in px) such that a row fills about 900 px."""
    columns = 1 if panels == 1 else 2 if panels in (2, 4) else 3
    return columns, {1: 800, 2: 395, 3: 250}[columns]


def study_colours(study: StudyRecord) -> dict[str, str]:
    """Return every strategy's colour, in the study's order; planned ones never share theirs."""
    names = [item.name for item in study.strategies]
    colours = strategy_colours(names, study.subject, study.planned)
    return {name: colours[name] for name in names}


def study_dashes(study: StudyRecord) -> dict[str, list[int]]:
    """Return every strategy's dash pattern."""
    names = [item.name for item in study.strategies]
    return strategy_dashes(names, study.subject, study.planned)


def strategy_scale(study: StudyRecord, shown: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the colour scale that every figure of a study shares, keyed by label.

    `shown` names the strategies of a figure that has not all of them.
    """
    colours = study_colours(study)
    shown = list(colours) if shown is None else shown
    return {
        "domain": [study.labels[name] for name in shown],
        "range": [colours[name] for name in shown],
    }


def learning_curves(
    study: StudyRecord, axis: str, shown: Sequence[str] | None = None, suffix: str = ""
) -> Figure:
    """Learning curves over `axis` ("seconds" or "env_steps"), one panel a game.

    Lines are interquartile means over test seeds, bands reach from quartile to quartile. `shown`
    names the strategies (default: all); a figure of some has a name of its own, by `suffix`.
    """
    everybody = [item.name for item in study.strategies]
    shown = everybody if shown is None else shown
    table: list[dict[str, Any]] = []
    points = min(GRID_POINTS, MOST_ROWS // (len(study.games) * len(shown)))
    for game in study.games.values():
        found: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
        for (strategy, env, _), run in study.runs.items():
            if env == game.name and strategy in shown:
                curve = curves.learning_curve(run.reports, game.random_return)
                x = curve.seconds if axis == "seconds" else curve.env_steps
                found.setdefault(strategy, []).append((x, curve.returns))
        if not found:
            continue
        end = max(float(x[-1]) for group in found.values() for x, _ in group)
        grid = np.linspace(0.0, game.horizon_seconds if axis == "seconds" else end, points)
        for strategy, group in found.items():
            # Clocks may stop a rounding error before the horizon: hold the last value there.
            values = curves.resample(group, grid, hold=axis == "seconds")
            table += _band_rows(study, game.name, strategy, grid, curves.band(values))
        table.append({"kind": "target", "game": game.name, "value": game.target_return})
    title = f"Seconds ({study.tier} clock)" if axis == "seconds" else "Environment steps"
    columns, width = panel_layout(len(study.games))
    dashes = study_dashes(study)
    inner = curve_panel(
        title,
        "Learner's return (game score)",
        strategy_scale(study, shown),
        [dashes[name] for name in shown],
        study.labels[study.subject],
    )
    name = "learning-curves" if axis == "seconds" else "learning-curves-env-steps"
    return Figure(
        name=f"{name}{suffix}",
        title=f"Learning curves over {axis.replace('env_steps', 'environment steps')}"
        + suffix.replace("-", ", "),
        caption=(
            "Return of the learner's full-precision policy, measured off the clock. Line: "
            "interquartile mean over test seeds; band: quartiles. Dashed rule: the target."
        ),
        spec=facet("game", list(study.games), {**inner, "width": width, "height": 210}, columns),
        table=table,
    )


def _band_rows(
    study: StudyRecord, game: str, strategy: str, grid: np.ndarray, band: dict[str, np.ndarray]
) -> list[dict[str, Any]]:
    return [
        {"kind": "curve", "game": game, "strategy": study.labels[strategy], "x": round(x, 4)}
        | {key: round(float(band[key][i]), 5) for key in ("low", "iqm", "high")}
        for i, x in enumerate(grid.tolist())
        if not np.isnan(band["iqm"][i])
    ]


def curve_panel(
    x_title: str, y_title: str, scale: Mapping[str, Any], dashes: list[list[int]], subject: str
) -> dict[str, Any]:
    """Return the layers of one panel of learning curves over a table of x, low, iqm, high."""
    legend = {"orient": "top", "columns": 4, "title": None, "symbolType": "stroke"}
    colour = {"field": "strategy", "type": "nominal", "scale": dict(scale), "legend": legend}
    dash = {**colour, "scale": {"domain": scale["domain"], "range": dashes}}
    x: dict[str, Any] = {"field": "x", "type": "quantitative", "title": x_title}
    x["axis"] = COUNT_AXIS
    value: dict[str, Any] = {"type": "quantitative", "title": y_title}
    value["scale"] = {"zero": False, "nice": False}
    return {
        "layer": [
            {
                "transform": [{"filter": {"field": "kind", "equal": "target"}}],
                "mark": {"type": "rule", "strokeDash": [5, 4], "opacity": 0.6},
                "encoding": {"y": {"field": "value", **value}},
            },
            {
                "transform": [{"filter": {"field": "kind", "equal": "curve"}}],
                "mark": {"type": "area", "opacity": 0.13},
                "encoding": {
                    "x": x,
                    "y": {"field": "low", **value},
                    "y2": {"field": "high"},
                    "color": colour,
                },
            },
            {
                "transform": [{"filter": {"field": "kind", "equal": "curve"}}],
                "mark": {"type": "line"},
                "encoding": {
                    "x": x,
                    "y": {"field": "iqm", **value},
                    "color": colour,
                    "strokeDash": dash,
                    "strokeWidth": {
                        "condition": {"test": {"field": "strategy", "equal": subject}, "value": 3},
                        "value": 1.7,
                    },
                },
            },
        ]
    }


def facet(
    field: str,
    order: Sequence[str],
    inner: dict[str, Any],
    columns: int,
    independent: Sequence[str] = ("x", "y"),
) -> dict[str, Any]:
    """Return small multiples of `inner`, one panel a value of `field`, in the given order."""
    return {
        "facet": {"field": field, "type": "nominal", "title": None, "sort": list(order)},
        "columns": columns,
        "spec": inner,
        "resolve": {"scale": dict.fromkeys(independent, "independent")},
    }


def strategy_colour(
    study: StudyRecord, field: str, shown: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return the encoding of a strategy's label by its colour, without a legend."""
    scale = strategy_scale(study, shown)
    return {"field": field, "type": "nominal", "scale": scale, "legend": None}
