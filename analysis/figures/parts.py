"""Parts that figures share: the data they draw, filters, legends, panels, colours of strategies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from analysis.figures.theme import Figure, strategy_colours, strategy_dashes
from analysis.records.load import StudyRecord

TABLE = alt.NamedData("table")
"""stands for the figure's own table, which belongs to the whole specification"""
COUNT_AXIS: Mapping[str, Any] = {
    "tickCount": 5,
    "format": "~s",
    "grid": False,
    "labelExpr": "datum.value === 0 ? '0' : datum.label",
}
"""SI prefixes keep millions of env steps short; without the expression zero would read 0M"""
PLAIN_NUMBERS: Mapping[str, Any] = {"labelExpr": "format(datum.value, ',~r')"}
"""labels that neither round a flat curve's only tick nor turn 100 into 1e+2"""


def marks() -> alt.Chart:
    """Return a chart over the figure's own table."""
    return alt.Chart(TABLE)


def make_figure(
    name: str, title: str, caption: str, chart: Any, table: Sequence[Mapping[str, Any]]
) -> Figure:
    """Return a figure of an Altair chart over one tidy table."""
    with alt.data_transformers.enable(consolidate_datasets=False):
        spec = _without_table(chart.to_dict())
    for key in ("$schema", "config"):
        del spec[key]
    return Figure(name, title, caption, spec, table)


def _without_table(part: Any) -> Any:
    if isinstance(part, list):
        return [_without_table(item) for item in part]
    if not isinstance(part, dict):
        return part
    own = {"name": TABLE.name}
    return {
        key: _without_table(item)
        for key, item in part.items()
        if not (key == "data" and item == own)
    }


def only(field: str, value: Any) -> alt.FieldEqualPredicate:
    """Return the test that a row's field has this value; W&B can bind such a field."""
    return alt.FieldEqualPredicate(field=field, equal=value)


def rows_axis(field: str, order: Sequence[str], **axis: Any) -> alt.Y:
    """Return the axis of names, one row each in the given order."""
    options = {"labelLimit": 240, "ticks": False, "domain": False} | axis
    return alt.Y(f"{field}:N", sort=list(order)).title(None).axis(**options)


def point_colour(field: str, labels: Sequence[str], colours: Sequence[str], **legend: Any) -> Any:
    """Return the colours of points or bars by a field, with a legend of circles."""
    options = {"orient": "top", "title": None, "symbolType": "circle"} | legend
    return alt.Color(f"{field}:N").scale(domain=labels, range=colours).legend(**options)


def lines_by(
    field: str,
    labels: Sequence[str],
    colours: Sequence[str],
    dashes: Sequence[Sequence[int]],
    columns: int = 4,
) -> dict[str, Any]:
    """Return colour and dash pattern of lines by a field, with one legend where it is needed."""
    legend = {"orient": "top", "columns": columns, "title": None, "symbolType": "stroke"}
    shown = alt.Legend(**legend) if len(labels) > 1 else None
    return {
        "color": alt.Color(f"{field}:N").scale(domain=labels, range=colours).legend(shown),
        "strokeDash": alt.StrokeDash(f"{field}:N").scale(domain=labels, range=dashes).legend(shown),
    }


def strategy_lines(study: StudyRecord, names: Sequence[str]) -> dict[str, Any]:
    """Return how the lines of strategies look in every figure of a study; the subject is bold."""
    colours, dashes = study_colours(study), study_dashes(study)
    bold = only("strategy", study.labels[study.subject])
    return {
        **lines_by(
            "strategy",
            [study.labels[name] for name in names],
            [colours[name] for name in names],
            [dashes[name] for name in names],
        ),
        "strokeWidth": alt.condition(bold, alt.value(3), alt.value(1.7)),
    }


def strategy_colour(study: StudyRecord, field: str, shown: Sequence[str] | None = None) -> Any:
    """Return the encoding of a strategy's label by its colour, without a legend."""
    colours = study_colours(study)
    names = list(colours) if shown is None else shown
    labels = [study.labels[name] for name in names]
    scale = alt.Scale(domain=labels, range=[colours[name] for name in names])
    return alt.Color(f"{field}:N").scale(scale).legend(None)


def study_colours(study: StudyRecord) -> dict[str, str]:
    """Return every strategy's colour, in the study's order; planned ones never share theirs."""
    names = [item.name for item in study.strategies]
    colours = strategy_colours(names, study.subject, study.planned)
    return {name: colours[name] for name in names}


def study_dashes(study: StudyRecord) -> dict[str, list[int]]:
    """Return every strategy's dash pattern."""
    names = [item.name for item in study.strategies]
    return strategy_dashes(names, study.subject, study.planned)


def panel_layout(panels: int) -> tuple[int, int]:
    """Return (columns, width of a panel in px) such that a row fills about 900 px."""
    columns = 1 if panels == 1 else 2 if panels in (2, 4) else 3
    return columns, {1: 800, 2: 395, 3: 250}[columns]


def panels(
    chart: Any,
    field: str,
    order: Sequence[str],
    columns: int,
    independent: Sequence[str] = ("x", "y"),
) -> alt.FacetChart:
    """Return small multiples of a chart, one panel a value of `field`, in the given order."""
    facet = alt.Facet(f"{field}:N", sort=list(order)).title(None)
    found = chart.facet(facet=facet, columns=columns)
    return found.resolve_scale(**dict.fromkeys(independent, "independent"))
