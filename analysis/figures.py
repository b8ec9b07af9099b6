"""Figures of a contest: forests of paired contrasts, times to target, learning curves.

Every function returns one Figure: a Vega-Lite specification over one tidy table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis import curves
from analysis.load import StudyRecord
from analysis.theme import Figure, strategy_colours, strategy_dashes

GRID_POINTS = 80
COUNT_AXIS: Mapping[str, Any] = {
    "tickCount": 5,
    "format": "~s",
    "grid": False,
    "labelExpr": "datum.value === 0 ? '0' : datum.label",
}
"""SI prefixes keep millions of env steps short; without the expression zero would read 0M"""


def panel_layout(panels: int) -> tuple[int, int]:
    """Return (columns, width of a panel in px) such that a row fills about 900 px."""
    columns = 1 if panels == 1 else 2 if panels in (2, 4) else 3
    return columns, {1: 800, 2: 395, 3: 250}[columns]


def strategy_scale(study: StudyRecord) -> dict[str, Any]:
    """Return the colour scale that every figure of a study shares, keyed by label."""
    names = [item.name for item in study.strategies]
    colours = strategy_colours(names, study.subject)
    return {
        "domain": [study.labels[name] for name in names],
        "range": [colours[name] for name in names],
    }


def time_forest(study: StudyRecord, contest: Mapping[str, Any]) -> Figure:
    """Paired ratios of seconds to target with intervals; small ticks are single games."""
    table: list[dict[str, Any]] = []
    for item in _of_metric(contest, "seconds_to_target"):
        other = study.labels[item["b"]]
        text = f"{item['ratio']:.2f}"
        if item["low"] is not None:
            text += f"  ({item['low']:.2f} to {item['high']:.2f})"
        table.append(
            {"kind": "all games", "other": other, "ratio": item["ratio"], "text": text}
            | {"low": item["low"], "high": item["high"]}
        )
        table += [
            {"kind": "one game", "other": other, "ratio": ratio, "game": game}
            for game, ratio in item["ratio_by_game"].items()
        ]
    subject = study.labels[study.subject]
    scale = {"type": "log", "domain": _log_domain(table), "nice": False}
    axis = {"values": _ratio_ticks(scale["domain"]), "format": "~g"}
    title = f"Seconds to target: {subject} / comparator (log; left of 1 = {subject} is faster)"
    x: dict[str, Any] = {
        "field": "ratio",
        "type": "quantitative",
        "scale": scale,
        "title": title,
        "axis": axis,
    }
    y = _y_other([row["other"] for row in table if row["kind"] == "all games"])
    layers = [
        {"mark": {"type": "rule", "strokeDash": [4, 3], "opacity": 0.7}, "encoding": _at(1.0, x)},
        {
            "transform": [{"filter": "datum.kind === 'one game'"}],
            "mark": {"type": "tick", "thickness": 1.5, "size": 12, "opacity": 0.55},
            "encoding": {"x": x, "y": y, "color": _colour(study, "other")},
        },
        *_interval_layers(x, y, _colour(study, "other")),
        {
            "transform": [{"filter": "datum.kind === 'all games'"}],
            "mark": {"type": "text", "align": "left", "fontSize": 12},
            "encoding": {"x": {"value": 615}, "y": y, "text": {"field": "text"}},
        },
    ]
    return Figure(
        name="time-forest",
        title="Paired ratios of seconds to target",
        caption=(
            "Point and bar: geometric mean over (game, seed) pairs and 95% interval, paired "
            "bootstrap within games. Small ticks: each game by itself (exploratory)."
        ),
        spec={"width": 600, "height": {"step": 34}, "layer": layers},
        table=table,
    )


def secondary_forest(study: StudyRecord, contest: Mapping[str, Any]) -> Figure:
    """Intervals of the secondary metrics, one panel each."""
    titles = {
        "gain_per_second": "Gain per second, ratio (right of 1 = better)",
        "auc": "Area under the curve, difference",
        "final_return": "Final return, difference (normalised)",
    }
    table: list[dict[str, Any]] = []
    panels: list[dict[str, Any]] = []
    for metric, title in titles.items():
        contrasts = _of_metric(contest, metric)
        if not contrasts:
            continue
        none = 1.0 if all(item["ratio"] is not None for item in contrasts) else 0.0
        shown = [c for c in contrasts if (c["ratio"] is not None) == (none == 1.0)]
        table += [
            {"kind": "all games", "metric": metric, "other": study.labels[item["b"]]}
            | {"ratio": item["ratio"] if none else item["difference"]}
            | {"low": item["low"], "high": item["high"]}
            for item in shown
        ]
        axis = {"tickCount": 4, "format": "~g"}
        x = {"field": "ratio", "type": "quantitative", "title": title, "axis": axis}
        x["scale"] = {"zero": False, "padding": 8}
        y = _y_other([study.labels[item["b"]] for item in contrasts])
        if panels:
            y["axis"] = None
        zero = {"mark": {"type": "rule", "strokeDash": [4, 3]}, "encoding": _at(none, x)}
        marks = [zero, *_interval_layers(x, y, _colour(study, "other"))]
        if metric == "final_return":
            margin = {"mark": {"type": "rule", "opacity": 0.5}, "encoding": _at(-0.05, x)}
            marks.insert(1, margin)
        panels.append(
            {
                "width": 235,
                "height": {"step": 26},
                "transform": [{"filter": f"datum.metric === '{metric}'"}],
                "layer": marks,
            }
        )
    return Figure(
        name="secondary-forest",
        title="Secondary metrics, paired",
        caption=(
            "Positive differences favour the subject. The solid line at -0.05 is the "
            "non-inferiority margin of final return."
        ),
        spec={"hconcat": panels, "spacing": 14},
        table=table,
    )


def time_strip(study: StudyRecord, contest: Mapping[str, Any]) -> Figure:
    """Seconds to target of every test run; hollow triangles at the horizon never reached it."""
    table = [
        {
            "strategy": study.labels[row["strategy"]],
            "game": row["env"],
            "seed": row["seed"],
            "seconds": row["seconds_to_target"],
            "reached": "not reached" if row["censored"] else "reached",
        }
        for row in contest["rows"]
    ]
    columns, width = panel_layout(len(study.games))
    labels = [study.labels[item.name] for item in study.strategies]
    y: dict[str, Any] = {"field": "strategy", "type": "nominal", "sort": labels, "title": None}
    y["axis"] = {"labelLimit": 200, "grid": True, "ticks": False, "domain": False}
    x: dict[str, Any] = {"field": "seconds", "type": "quantitative", "title": "Seconds to target"}
    x["scale"] = {"zero": False, "padding": 12}
    shape = {
        "field": "reached",
        "type": "nominal",
        "title": None,
        "scale": {"domain": ["reached", "not reached"], "range": ["circle", "triangle-right"]},
        "legend": {"orient": "top", "symbolSize": 60},
    }
    layers = [
        {
            "mark": {"type": "point", "size": 46, "strokeWidth": 1.5, "opacity": 0.75},
            "encoding": {"x": x, "y": y, "color": _colour(study, "strategy"), "shape": shape},
        },
        {
            "mark": {"type": "tick", "thickness": 3, "size": 18, "opacity": 0.9},
            "encoding": {
                "x": {**x, "aggregate": "median"},
                "y": y,
                "color": _colour(study, "strategy"),
            },
        },
    ]
    inner = {"width": width - 30, "height": {"step": 22}, "layer": layers}
    return Figure(
        name="time-to-target",
        title="Seconds to target of every test run",
        caption="One mark a run (game, seed); the bar is the median. Triangles were censored.",
        spec=facet("game", list(study.games), inner, columns, independent=("x",)),
        table=table,
    )


def learning_curves(study: StudyRecord, axis: str) -> Figure:
    """Learning curves of every strategy over `axis` ("seconds" or "env_steps"), one panel a game.

    Lines are interquartile means over test seeds, bands reach from quartile to quartile.
    """
    table: list[dict[str, Any]] = []
    for game in study.games.values():
        found: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
        for (strategy, env, _), run in study.runs.items():
            if env == game.name:
                curve = curves.learning_curve(run.reports, game.random_return)
                x = curve.seconds if axis == "seconds" else curve.env_steps
                found.setdefault(strategy, []).append((x, curve.returns))
        if not found:
            continue
        end = max(float(x[-1]) for group in found.values() for x, _ in group)
        grid = np.linspace(0.0, game.horizon_seconds if axis == "seconds" else end, GRID_POINTS)
        for strategy, group in found.items():
            # Clocks may stop a rounding error before the horizon: hold the last value there.
            values = curves.resample(group, grid, hold=axis == "seconds")
            table += _band_rows(study, game.name, strategy, grid, curves.band(values))
        table.append({"kind": "target", "game": game.name, "value": game.target_return})
    title = f"Seconds ({study.tier} clock)" if axis == "seconds" else "Environment steps"
    columns, width = panel_layout(len(study.games))
    names = [item.name for item in study.strategies]
    inner = curve_panel(
        title,
        "Learner's return (game score)",
        strategy_scale(study),
        list(strategy_dashes(names, study.subject).values()),
        study.labels[study.subject],
    )
    return Figure(
        name=f"curves-{axis.replace('_', '-')}",
        title=f"Learning curves over {axis.replace('env_steps', 'environment steps')}",
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
                "transform": [{"filter": "datum.kind === 'target'"}],
                "mark": {"type": "rule", "strokeDash": [5, 4], "opacity": 0.6},
                "encoding": {"y": {"field": "value", **value}},
            },
            {
                "transform": [{"filter": "datum.kind === 'curve'"}],
                "mark": {"type": "area", "opacity": 0.13},
                "encoding": {
                    "x": x,
                    "y": {"field": "low", **value},
                    "y2": {"field": "high"},
                    "color": colour,
                },
            },
            {
                "transform": [{"filter": "datum.kind === 'curve'"}],
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


def _of_metric(contest: Mapping[str, Any], metric: str) -> list[Mapping[str, Any]]:
    return [item for item in contest["contrasts"] if item["metric"] == metric]


def _colour(study: StudyRecord, field: str) -> dict[str, Any]:
    return {"field": field, "type": "nominal", "scale": strategy_scale(study), "legend": None}


def _y_other(order: Sequence[str]) -> dict[str, Any]:
    axis = {"labelLimit": 240, "labelFontSize": 12, "ticks": False, "domain": False}
    return {"field": "other", "type": "nominal", "sort": list(order), "title": None, "axis": axis}


def _at(value: float, x: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "x": {"datum": value, **{key: x[key] for key in ("type", "scale", "title") if key in x}}
    }


def _interval_layers(
    x: dict[str, Any], y: dict[str, Any], colour: dict[str, Any]
) -> list[dict[str, Any]]:
    whole = [{"filter": "datum.kind === 'all games'"}]
    bounds = {**x, "field": "low"}
    return [
        {
            "transform": [*whole, {"filter": "isValid(datum.low)"}],
            "mark": {"type": "rule", "strokeWidth": 2.5},
            "encoding": {"x": bounds, "x2": {"field": "high"}, "y": y, "color": colour},
        },
        {
            "transform": whole,
            "mark": {"type": "point", "filled": True, "size": 95, "opacity": 1},
            "encoding": {"x": x, "y": y, "color": colour},
        },
    ]


def _log_domain(table: Sequence[Mapping[str, Any]]) -> list[float]:
    values = [1.0] + [
        row[key] for row in table for key in ("ratio", "low", "high") if row.get(key) is not None
    ]
    return [0.93 * min(values), 1.07 * max(values)]


def _ratio_ticks(domain: Sequence[float]) -> list[float]:
    wide = domain[1] / domain[0] > 6.0
    ticks = (0.1, 0.2, 0.5, 1, 2, 5, 10) if wide else (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)
    if not wide:
        ticks += (1.1, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0)
    return [tick for tick in ticks if domain[0] <= tick <= domain[1]]
