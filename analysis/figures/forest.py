"""Forests: ratios and differences with their intervals, one row a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from analysis.comparison.contrasts import PRIMARY
from analysis.figures.parts import (
    PLAIN_NUMBERS,
    make_figure,
    marks,
    only,
    panels,
    rows_axis,
    strategy_colour,
)
from analysis.figures.theme import SUBJECT_COLOUR, Figure
from analysis.records.load import StudyRecord

WHOLE = only("kind", "all games")
PANELS = {
    "gain_per_second": "Gain per second, ratio (right of 1 = better)",
    "auc": "Area under the curve, difference",
    "final_return": "Final return, difference (normalised)",
    "cpu_seconds": "CPU-seconds, ratio (left of 1 = less)",
    "publication_bytes": "Bytes published, ratio (left of 1 = less)",
}
"""secondary metrics and the titles of their axes"""


@dataclass(frozen=True)
class Axis:
    """The axis of estimates: one scale for points, bounds and marked values."""

    title: str
    scale: Mapping[str, Any]
    axis: Mapping[str, Any]

    def of(self, field: str) -> alt.X:
        """Return the place of a field."""
        return alt.X(f"{field}:Q").title(self.title).scale(**self.scale).axis(**self.axis)

    def rule(self, value: float, **style: Any) -> alt.Chart:
        """Return a line at one value."""
        place = alt.XDatum(value, type="quantitative").title(self.title).scale(**self.scale)
        return marks().mark_rule(**style).encode(x=place)


def time_forest(
    study: StudyRecord, contest: Mapping[str, Any], *, exploratory: bool = False
) -> Figure:
    """Paired ratios of seconds to target with intervals; small ticks are single games."""
    table: list[dict[str, Any]] = []
    for item in _shown(contest, PRIMARY, exploratory):
        row = {"other": study.labels[item["b"]]}
        table.append({"kind": "all games", **row, **_estimate(item)})
        table += [
            {"kind": "one game", **row, "ratio": ratio, "game": game}
            for game, ratio in item["ratio_by_game"].items()
        ]
    title = f"Seconds to target: {study.labels[study.subject]} / comparator (log; left: faster)"
    x = _ratio_axis(table, title)
    y = _rows("other", [row["other"] for row in table if row["kind"] == "all games"])
    colour = strategy_colour(study, "other")
    games = (
        marks()
        .transform_filter(only("kind", "one game"))
        .mark_tick(thickness=1.5, size=12, opacity=0.55)
        .encode(x=x.of("ratio"), y=y, color=colour)
    )
    return make_figure(
        "seconds-to-target-exploratory" if exploratory else "seconds-to-target",
        "Paired ratios of seconds to target" + (", exploratory" if exploratory else ""),
        "Left of 1 the subject is faster. Point and bar: geometric mean over (game, seed) pairs "
        "and 95% interval, paired bootstrap within games. Small ticks: each game by itself "
        "(exploratory).",
        _forest(x, y, colour, [games], step=34),
        table,
    )


def secondary_forest(study: StudyRecord, contest: Mapping[str, Any]) -> Figure:
    """Intervals of the secondary metrics of the planned comparisons, one panel each."""
    table: list[dict[str, Any]] = []
    found = []
    for metric, title in PANELS.items():
        contrasts = _shown(contest, metric, False)
        if not contrasts:
            continue
        none = 1.0 if contrasts[0]["ratio"] is not None else 0.0
        table += [
            {"kind": "all games", "metric": metric, "other": study.labels[item["b"]]}
            | {"ratio": item["ratio"] if none else item["difference"]}
            | {"low": item["low"], "high": item["high"]}
            for item in contrasts
        ]
        x = Axis(title, {"zero": False, "padding": 14}, {"tickCount": 4, **PLAIN_NUMBERS})
        y = _rows("other", [study.labels[item["b"]] for item in contrasts])
        margin = [x.rule(-0.05, opacity=0.5)] if metric == "final_return" else []
        layers = [x.rule(none, strokeDash=[4, 3]), *margin]
        layers += _intervals(x, y, strategy_colour(study, "other"))
        panel = alt.layer(*layers).transform_filter(only("metric", metric))
        found.append(panel.properties(width=290, height=alt.Step(26)))
    return make_figure(
        "secondary-metrics",
        "Secondary metrics, paired",
        "Positive differences favour the subject. The solid line at -0.05 is the "
        "non-inferiority margin of final return.",
        alt.concat(*found, columns=2, spacing=22, data=marks().data),
        table,
    )


def transfer_forest(study: StudyRecord, contest: Mapping[str, Any]) -> Figure:
    """Paired ratios of seconds to target within each group of games."""
    table = [
        {"kind": "all games", "other": study.labels[item["b"]], "group": item["group"]}
        | _estimate(item)
        for item in contest["transfer"]
    ]
    title = f"Seconds to target: {study.labels[study.subject]} / comparator (log)"
    y = _rows("group", list(study.groups))
    chart = _forest(_ratio_axis(table, title), y, strategy_colour(study, "other"), [], step=30)
    others = list(dict.fromkeys(row["other"] for row in table))
    return make_figure(
        "transfer",
        "By what training had covered",
        "One panel a comparator. Left of 1 the subject is faster; 95% intervals.",
        panels(chart, "other", others, 1, independent=()),
        table,
    )


def instance_forest(rows: Sequence[Mapping[str, Any]], subject: str, against: str) -> Figure:
    """Paired ratios of seconds to target over one comparator's, a row an instance."""
    table = [
        {"kind": "all games", "instance": row["env"], "group": row["group"], **_estimate(row)}
        for row in rows
    ]
    return _plain_forest(
        "by-instance",
        f"Instance by instance against {against}",
        "Geometric mean over seeds and 95% interval; each instance by itself, uncorrected.",
        f"Seconds to target: {subject} / {against} (log; left: faster)",
        "instance",
        table,
    )


def variants_forest(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Every way of training that was tried, against the best threshold rule."""
    table = [
        {"kind": "all games", "other": row["name"], "what": row["what"], **_estimate(row)}
        for row in rows
    ]
    return _plain_forest(
        "variants",
        "Ways of training that were tried",
        "All of them, kept or not; 95% intervals. The table says what each is.",
        "Seconds to target, ratio to the best threshold rule (log)",
        "other",
        table,
    )


def _plain_forest(
    name: str, title: str, caption: str, x_title: str, field: str, table: list[dict[str, Any]]
) -> Figure:
    y = _rows(field, [row[field] for row in table])
    x = _ratio_axis(table, x_title)
    return make_figure(
        name, title, caption, _forest(x, y, alt.value(SUBJECT_COLOUR), [], step=27), table
    )


def _shown(contest: Mapping[str, Any], metric: str, exploratory: bool) -> list[Mapping[str, Any]]:
    return [
        item
        for item in contest["contrasts"]
        if item["metric"] == metric and (item["family"] == "exploratory") == exploratory
    ]


def _estimate(item: Mapping[str, Any]) -> dict[str, Any]:
    text = f"{item['ratio']:.2f}"
    if item["low"] is not None:
        text += f"  ({item['low']:.2f} to {item['high']:.2f})"
    return {"ratio": item["ratio"], "low": item["low"], "high": item["high"], "text": text}


def _forest(x: Axis, y: alt.Y, colour: Any, between: Sequence[alt.Chart], step: int) -> Any:
    """Layers: the line of no difference, `between`, intervals, points, and numbers at the right."""
    numbers = (
        marks()
        .transform_filter(WHOLE)
        .mark_text(align="left", fontSize=12)
        .encode(x=alt.value(615), y=y, text="text:N")
    )
    none = x.rule(1, strokeDash=[4, 3], opacity=0.7)
    layers = alt.layer(none, *between, *_intervals(x, y, colour), numbers)
    return layers.properties(width=600, height=alt.Step(step))


def _intervals(x: Axis, y: alt.Y, colour: Any) -> list[alt.Chart]:
    whole = marks().transform_filter(WHOLE)
    bars = whole.transform_filter(alt.FieldValidPredicate(field="low", valid=True))
    return [
        bars.mark_rule(strokeWidth=2.5).encode(x=x.of("low"), x2="high", y=y, color=colour),
        whole.mark_point(filled=True, size=95, opacity=1).encode(
            x=x.of("ratio"), y=y, color=colour
        ),
    ]


def _rows(field: str, order: Sequence[str]) -> alt.Y:
    return rows_axis(field, order, labelFontSize=12)


def _ratio_axis(table: Sequence[Mapping[str, Any]], title: str) -> Axis:
    values = [1.0] + [
        row[key] for row in table for key in ("ratio", "low", "high") if row.get(key) is not None
    ]
    domain = [0.93 * min(values), 1.07 * max(values)]
    axis = {"values": _ratio_ticks(domain), "format": "~g"}
    return Axis(title, {"type": "log", "domain": domain, "nice": False}, axis)


def _ratio_ticks(domain: Sequence[float]) -> list[float]:
    wide = domain[1] / domain[0] > 6.0
    ticks = (0.1, 0.2, 0.5, 1, 2, 5, 10) if wide else (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)
    if not wide:
        ticks += (1.1, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0)
    return [tick for tick in ticks if domain[0] <= tick <= domain[1]]
