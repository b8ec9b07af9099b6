"""Forests: ratios and differences with their intervals, one row a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.comparison.contrasts import PRIMARY
from analysis.figures.learning_curves import PLAIN_NUMBERS, strategy_colour
from analysis.figures.theme import SUBJECT_COLOUR, Figure
from analysis.records.load import StudyRecord

WHOLE = {"field": "kind", "equal": "all games"}
PANELS = {
    "gain_per_second": "Gain per second, ratio (right of 1 = better)",
    "auc": "Area under the curve, difference",
    "final_return": "Final return, difference (normalised)",
    "cpu_seconds": "CPU-seconds, ratio (left of 1 = less)",
    "publication_bytes": "Bytes published, ratio (left of 1 = less)",
}
"""secondary metrics and the titles of their axes"""


def time_forest(
    study: StudyRecord, contest: Mapping[str, Any], *, exploratory: bool = False
) -> Figure:
    """Paired ratios of seconds to target with intervals; small ticks are single games."""
    table: list[dict[str, Any]] = []
    for item in _shown(contest, PRIMARY, exploratory):
        row = {"other": study.labels[item["b"]]}
        table.append({"kind": "all games", **row, **_estimate(item), "text": _text(item)})
        table += [
            {"kind": "one game", **row, "ratio": ratio, "game": game}
            for game, ratio in item["ratio_by_game"].items()
        ]
    x = _ratio_axis(
        table, f"Seconds to target: {study.labels[study.subject]} / comparator (log; left: faster)"
    )
    y = _rows("other", [row["other"] for row in table if row["kind"] == "all games"])
    colour = strategy_colour(study, "other")
    games = {
        "transform": [{"filter": {"field": "kind", "equal": "one game"}}],
        "mark": {"type": "tick", "thickness": 1.5, "size": 12, "opacity": 0.55},
        "encoding": {"x": x, "y": y, "color": colour},
    }
    name = "seconds-to-target-exploratory" if exploratory else "seconds-to-target"
    return Figure(
        name=name,
        title="Paired ratios of seconds to target" + (", exploratory" if exploratory else ""),
        caption=(
            "Point and bar: geometric mean over (game, seed) pairs and 95% interval, paired "
            "bootstrap within games. Small ticks: each game by itself (exploratory)."
        ),
        spec=_forest(x, y, colour, [games], step=34),
        table=table,
    )


def secondary_forest(study: StudyRecord, contest: Mapping[str, Any]) -> Figure:
    """Intervals of the secondary metrics of the planned comparisons, one panel each."""
    table: list[dict[str, Any]] = []
    panels: list[dict[str, Any]] = []
    for metric, title in PANELS.items():
        contrasts = _shown(contest, metric, False)
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
        axis = {"tickCount": 4, **PLAIN_NUMBERS}
        x = {"field": "ratio", "type": "quantitative", "title": title, "axis": axis}
        x["scale"] = {"zero": False, "padding": 14}
        y = _rows("other", [study.labels[item["b"]] for item in contrasts])
        zero = {"mark": {"type": "rule", "strokeDash": [4, 3]}, "encoding": _at(none, x)}
        marks = [zero, *_interval_layers(x, y, strategy_colour(study, "other"))]
        if metric == "final_return":
            margin = {"mark": {"type": "rule", "opacity": 0.5}, "encoding": _at(-0.05, x)}
            marks.insert(1, margin)
        panels.append(
            {
                "width": 290,
                "height": {"step": 26},
                "transform": [{"filter": {"field": "metric", "equal": metric}}],
                "layer": marks,
            }
        )
    return Figure(
        name="secondary-metrics",
        title="Secondary metrics, paired",
        caption=(
            "Of differences, positive ones favour the subject. The solid line at -0.05 is the "
            "non-inferiority margin of final return."
        ),
        spec={"concat": panels, "columns": 2, "spacing": 22},
        table=table,
    )


def transfer_forest(study: StudyRecord, contest: Mapping[str, Any]) -> Figure:
    """Paired ratios of seconds to target within each group of games."""
    table = [
        {"kind": "all games", "other": study.labels[item["b"]], "group": item["group"]}
        | {**_estimate(item), "text": _text(item)}
        for item in contest["transfer"]
    ]
    x = _ratio_axis(table, f"Seconds to target: {study.labels[study.subject]} / comparator (log)")
    y = _rows("group", list(study.groups))
    spec = _forest(x, y, strategy_colour(study, "other"), [], step=30)
    others = list(dict.fromkeys(row["other"] for row in table))
    return Figure(
        name="transfer",
        title="By what it had met in training",
        caption="One panel a comparator. Left of 1 the subject is faster; 95% intervals.",
        spec={
            "facet": {"field": "other", "type": "nominal", "title": None, "sort": others},
            "columns": 1,
            "spec": spec,
        },
        table=table,
    )


def instance_forest(rows: Sequence[Mapping[str, Any]], subject: str, against: str) -> Figure:
    """Paired ratios of seconds to target over one comparator's, a row an instance."""
    table = [
        {"kind": "all games", "instance": row["env"], "group": row["group"]}
        | {**_estimate(row), "text": _text(row)}
        for row in rows
    ]
    x = _ratio_axis(table, f"Seconds to target: {subject} / {against} (log; left: faster)")
    y = _rows("instance", [row["instance"] for row in table])
    return Figure(
        name="by-instance",
        title=f"Instance by instance against {against}",
        caption="Geometric mean over seeds and 95% interval; each instance by itself, uncorrected.",
        spec=_forest(x, y, {"value": SUBJECT_COLOUR}, [], step=26),
        table=table,
    )


def variants_forest(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Every way of training that was tried, against the best threshold rule."""
    table = [
        {"kind": "all games", "other": row["name"], "what": row["what"]}
        | {**_estimate(row), "text": _text(row)}
        for row in rows
    ]
    x = _ratio_axis(table, "Seconds to target, ratio to the best threshold rule (log)")
    y = _rows("other", [row["other"] for row in table])
    return Figure(
        name="variants",
        title="Ways of training that were tried",
        caption="Kept or not, every one of them; 95% intervals. The table says what each is.",
        spec=_forest(x, y, {"value": SUBJECT_COLOUR}, [], step=28),
        table=table,
    )


def _shown(contest: Mapping[str, Any], metric: str, exploratory: bool) -> list[Mapping[str, Any]]:
    return [
        item
        for item in contest["contrasts"]
        if item["metric"] == metric and (item["family"] == "exploratory") == exploratory
    ]


def _estimate(item: Mapping[str, Any]) -> dict[str, Any]:
    return {key: item.get(key) for key in ("ratio", "low", "high")}


def _text(item: Mapping[str, Any]) -> str:
    text = f"{item['ratio']:.2f}"
    if item.get("low") is None:
        return text
    return f"{text}  ({item['low']:.2f} to {item['high']:.2f})"


def _forest(
    x: dict[str, Any],
    y: dict[str, Any],
    colour: dict[str, Any],
    between: Sequence[dict[str, Any]],
    step: int,
) -> dict[str, Any]:
    """Layers: the line of no difference, `between`, intervals, points, and numbers at the right."""
    return {
        "width": 600,
        "height": {"step": step},
        "layer": [
            {"mark": {"type": "rule", "strokeDash": [4, 3], "opacity": 0.7}, "encoding": _at(1, x)},
            *between,
            *_interval_layers(x, y, colour),
            {
                "transform": [{"filter": WHOLE}],
                "mark": {"type": "text", "align": "left", "fontSize": 12},
                "encoding": {"x": {"value": 615}, "y": y, "text": {"field": "text"}},
            },
        ],
    }


def _interval_layers(
    x: dict[str, Any], y: dict[str, Any], colour: dict[str, Any]
) -> list[dict[str, Any]]:
    bounds = {**x, "field": "low"}
    return [
        {
            "transform": [{"filter": WHOLE}, {"filter": {"field": "low", "valid": True}}],
            "mark": {"type": "rule", "strokeWidth": 2.5},
            "encoding": {"x": bounds, "x2": {"field": "high"}, "y": y, "color": colour},
        },
        {
            "transform": [{"filter": WHOLE}],
            "mark": {"type": "point", "filled": True, "size": 95, "opacity": 1},
            "encoding": {"x": x, "y": y, "color": colour},
        },
    ]


def _rows(field: str, order: Sequence[str]) -> dict[str, Any]:
    axis = {"labelLimit": 240, "labelFontSize": 12, "ticks": False, "domain": False}
    return {"field": field, "type": "nominal", "sort": list(order), "title": None, "axis": axis}


def _at(value: float, x: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "x": {"datum": value, **{key: x[key] for key in ("type", "scale", "title") if key in x}}
    }


def _ratio_axis(table: Sequence[Mapping[str, Any]], title: str) -> dict[str, Any]:
    values = [1.0] + [
        row[key] for row in table for key in ("ratio", "low", "high") if row.get(key) is not None
    ]
    domain = [0.93 * min(values), 1.07 * max(values)]
    scale = {"type": "log", "domain": domain, "nice": False}
    axis = {"values": _ratio_ticks(domain), "format": "~g"}
    return {"field": "ratio", "type": "quantitative", "scale": scale, "title": title, "axis": axis}


def _ratio_ticks(domain: Sequence[float]) -> list[float]:
    wide = domain[1] / domain[0] > 6.0
    ticks = (0.1, 0.2, 0.5, 1, 2, 5, 10) if wide else (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)
    if not wide:
        ticks += (1.1, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0)
    return [tick for tick in ticks if domain[0] <= tick <= domain[1]]
