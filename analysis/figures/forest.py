"""Forests: ratios and differences with their intervals, one row a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from analysis.comparison.contrasts import PRIMARY
from analysis.figures.parts import (
    PLAIN_NUMBERS,
    make_figure,
    marks,
    only,
    panels,
    points,
    rows_axis,
    strategy_colour,
    values_of,
)
from analysis.figures.theme import SUBJECT_COLOUR, Figure
from analysis.records.load import StudyRecord

WHOLE = {"kind": "all games"}
ONE_COLOUR = alt.value(SUBJECT_COLOUR)
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
    """Paired ratios of seconds to target with intervals; small ticks are single instances."""
    table: list[dict[str, Any]] = []
    for item in _shown(contest, PRIMARY, exploratory):
        other = {"other": study.labels[item["b"]]}
        table.append({**WHOLE, **other, **estimated(item)})
        table += [
            {"kind": "one game", **other, "ratio": ratio, "game": game}
            for game, ratio in item["ratio_by_game"].items()
        ]
    title = f"Seconds to target: {study.labels[study.subject]} / comparator (log; left: faster)"
    return make_figure(
        "seconds-to-target",
        "Paired ratios of seconds to target",
        "Left of 1 the subject is faster. Point and bar: geometric mean over (instance, seed) "
        "pairs and 95% interval: Student's t times the deviation of a bootstrap over independent "
        "pairs. Small ticks: each instance by itself (exploratory).",
        ratio_layers(table, title, "other", strategy_colour(study, "other", study.names), step=34),
        table,
        "-exploratory" if exploratory else "",
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
        if not none:  # a denominator may be zero: differences take the place of ratios
            title = title.replace("ratio (", "difference (").replace("of 1 =", "of 0 =")
        rows = [
            {**WHOLE, "metric": metric, "other": study.labels[item["b"]]}
            | {"ratio": item["ratio"] if none else item["difference"]}
            | {"low": item["low"], "high": item["high"]}
            for item in contrasts
        ]
        table += rows
        x = alt.X("ratio:Q").title(title).axis(tickCount=4, **PLAIN_NUMBERS)
        x = x.scale(zero=False, padding=14)
        y = rows_axis("other", values_of(rows, "other"), labelFontSize=12)
        margin = [_rule(-0.05, opacity=0.5)] if metric == "final_return" else []
        intervals = _intervals(x, y, strategy_colour(study, "other", study.names))
        panel = alt.layer(_rule(none, strokeDash=[4, 3]), *margin, *intervals)
        panel = panel.transform_filter(only("metric", metric))
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
        {**WHOLE, "other": study.labels[item["b"]], "group": item["group"], **estimated(item)}
        for item in contest["transfer"]
    ]
    title = f"Seconds to target: {study.labels[study.subject]} / comparator (log)"
    colour = strategy_colour(study, "other", study.names)
    chart = ratio_layers(table, title, "group", colour, step=30, order=list(study.groups))
    return make_figure(
        "transfer",
        "By what training had covered",
        "One panel a comparator. Left of 1 the subject is faster; 95% intervals.",
        panels(chart, "other", values_of(table, "other"), 1, independent=()),
        table,
    )


def instance_forest(
    rows: Sequence[Mapping[str, Any]], subject: str, against: str, name: str
) -> Figure:
    """Paired ratios of seconds to target over one comparator's, a row an instance."""
    table = [
        {
            **WHOLE,
            "instance": row["env"] + "*" * (row["group"] == "trained"),
            "group": row["group"],
            **estimated(row),
        }
        for row in rows
    ]
    caption = "Geometric mean over seeds and 95% interval; each instance by itself, uncorrected."
    if any(row["group"] == "trained" for row in rows):
        caption += " The controller was trained on instances with a star."
    title = f"Seconds to target: {subject} / {against} (log; left: faster)"
    return make_figure(
        f"by-instance-{name}",
        f"Instance by instance against {against}",
        caption,
        ratio_layers(table, title, "instance"),
        table,
    )


def variants_forest(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Every way of training that was tried, against the best threshold rule."""
    table = [{**WHOLE, "other": row["name"], "what": row["what"], **estimated(row)} for row in rows]
    return make_figure(
        "variants",
        "Ways of training that were tried",
        "All of them, kept or not; 95% intervals. The table says what each is.",
        ratio_layers(table, "Seconds to target, ratio to the best threshold rule (log)", "other"),
        table,
    )


def _shown(contest: Mapping[str, Any], metric: str, exploratory: bool) -> list[Mapping[str, Any]]:
    return [
        item
        for item in contest["contrasts"]
        if item["metric"] == metric and (item["family"] == "exploratory") == exploratory
    ]


def estimated(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ratio, its bounds and both as text, of a row that has them."""
    text = f"{item['ratio']:.2f}"
    if item["low"] is not None:
        text += f"  ({item['low']:.2f} to {item['high']:.2f})"
    return {"ratio": item["ratio"], "low": item["low"], "high": item["high"], "text": text}


def ratio_layers(
    table: Sequence[Mapping[str, Any]],
    title: str,
    field: str,
    colour: Any = ONE_COLOUR,
    step: int = 27,
    order: Sequence[str] | None = None,
) -> Any:
    """Layers: the line of no difference, single games, intervals, and numbers at the right."""
    values = [
        row[key] for row in table for key in ("ratio", "low", "high") if row.get(key) is not None
    ]
    domain = [0.93 * min([1.0, *values]), 1.07 * max([1.0, *values])]
    x = alt.X("ratio:Q").title(title).scale(type="log", domain=domain, nice=False)
    x = x.axis(values=_ratio_ticks(domain), format="~g")
    y = rows_axis(field, values_of(table, field) if order is None else order, labelFontSize=12)
    ticks = marks("kind", "one game").mark_tick(thickness=1.5, size=12, opacity=0.55)
    numbers = marks("kind", "all games").mark_text(align="left", fontSize=12)
    return alt.layer(
        _rule(1, strokeDash=[4, 3], opacity=0.7),
        ticks.encode(x=x, y=y, color=colour),
        *_intervals(x, y, colour),
        numbers.encode(x=alt.value(615), y=y, text="text:N"),
    ).properties(width=600, height=alt.Step(step))


def _rule(value: float, **style: Any) -> alt.Chart:
    """Return a line at one value of the axis of estimates."""
    return marks().mark_rule(**style).encode(x=alt.XDatum(value, type="quantitative"))


def _intervals(x: alt.X, y: alt.Y, colour: Any) -> list[alt.Chart]:
    whole = marks("kind", "all games")
    bars = whole.transform_filter(alt.FieldValidPredicate(field="low", valid=True))
    return [
        bars.mark_rule(strokeWidth=2.5).encode(x="low:Q", x2="high", y=y, color=colour),
        points(95, chart=whole).encode(x=x, y=y, color=colour),
    ]


def _ratio_ticks(domain: Sequence[float]) -> list[float]:
    wide = domain[1] / domain[0] > 6.0
    ticks = (0.1, 0.2, 0.5, 1, 2, 5, 10) if wide else (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)
    if not wide:
        ticks += (1.1, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0)
    return [tick for tick in ticks if domain[0] <= tick <= domain[1]]
