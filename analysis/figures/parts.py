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
PLAIN_NUMBERS: Mapping[str, Any] = {
    "labelExpr": (
        "datum.value === 0 || abs(datum.value) >= 1e-4 "
        "? format(datum.value, ',~r') : format(datum.value, '.3~e')"
    )
}
"""labels that neither round a flat curve's only tick nor turn 100 into 1e+2, nor write a tiny
number with all its zeros"""

FEW = 30
"""points of a line that are marked: of two, a line alone would not show that there are no more"""


def marks(field: str | None = None, value: Any = None) -> alt.Chart:
    """Return a chart over the figure's own table, or over its rows whose `field` is `value`."""
    chart = alt.Chart(TABLE)
    return chart if field is None else chart.transform_filter(only(field, value))


def points(size: int, opacity: float = 1, chart: alt.Chart | None = None) -> alt.Chart:
    """Return filled points over a chart's rows (default: the whole table)."""
    return (chart or marks()).mark_point(filled=True, size=size, opacity=opacity)


def few_points(chart: alt.Chart, size: int, *groups: str) -> alt.Chart:
    """Return the points of a chart's lines, one a value of the fields `groups`, that have few."""
    counted = chart.transform_joinaggregate(points="count()", groupby=list(groups))
    return points(size, chart=counted.transform_filter(alt.datum.points <= FEW))


def make_figure(
    name: str,
    title: str,
    caption: str,
    chart: Any,
    table: Sequence[Mapping[str, Any]],
    suffix: str = "",
) -> Figure:
    """Return a figure of an Altair chart over one tidy table.

    `suffix`, such as "-exploratory", ends the name and the title of a figure of some strategies.
    """
    with alt.data_transformers.enable(consolidate_datasets=False):
        spec = _without_table(chart.to_dict())
    for key in ("$schema", "config"):
        del spec[key]
    return Figure(f"{name}{suffix}", title + suffix.replace("-", ", "), caption, spec, table)


def _without_table(part: Any) -> Any:
    if isinstance(part, list):
        return [_without_table(item) for item in part]
    if not isinstance(part, dict):
        return part
    own = ("data", {"name": TABLE.name})
    return {key: _without_table(item) for key, item in part.items() if (key, item) != own}


def only(field: str, value: Any) -> alt.FieldEqualPredicate:
    """Return the test that a row's field has this value; W&B can bind such a field."""
    return alt.FieldEqualPredicate(field=field, equal=value)


def values_of(table: Sequence[Mapping[str, Any]], field: str) -> list[Any]:
    """Return the values of a field, each once, in the order of the rows."""
    return list(dict.fromkeys(row[field] for row in table))


def rows_axis(field: str, order: Sequence[str], **axis: Any) -> alt.Y:
    """Return the axis of names, one row each in the given order."""
    options = {"labelLimit": 240, "ticks": False, "domain": False} | axis
    return alt.Y(f"{field}:N", sort=list(order)).title(None).axis(**options)


def point_colour(field: str, labels: Sequence[str], colours: Sequence[str], **legend: Any) -> Any:
    """Return the colours of points or bars by a field, with a legend of circles."""
    colour = alt.Color(f"{field}:N").scale(domain=labels, range=colours)
    return colour.legend(symbolType="circle", **legend)


def lines_by(
    field: str,
    colours: Mapping[str, str],
    dashes: Sequence[Sequence[int]],
    columns: int = 4,
    *,
    names_one: bool = False,
) -> dict[str, Any]:
    """Return colour (by label) and dash pattern of lines by a field, with a legend if needed.

    One line alone gets a legend with `names_one` only: elsewhere a title says what it is.
    """
    labels = list(colours)
    room = max(260, 800 // columns)
    legend = alt.Legend(columns=columns, labelLimit=room, symbolType="stroke")
    legend = legend if len(labels) > 1 or names_one else None
    colour = alt.Color(f"{field}:N").scale(domain=labels, range=list(colours.values()))
    dash = alt.StrokeDash(f"{field}:N").scale(domain=labels, range=dashes)
    return {"color": colour.legend(legend), "strokeDash": dash.legend(legend)}


def strategy_lines(study: StudyRecord, names: Sequence[str]) -> dict[str, Any]:
    """Return how the lines of strategies look in every figure of a study; the subject is bold."""
    dashes = strategy_dashes(study.names, study.subject, study.planned)
    bold = only("strategy", study.labels[study.subject])
    return {
        **lines_by("strategy", label_colours(study, names), [dashes[name] for name in names]),
        "strokeWidth": alt.condition(bold, alt.value(3), alt.value(1.7)),
    }


def strategy_colour(study: StudyRecord, field: str, names: Sequence[str]) -> Any:
    """Return the encoding of a strategy's label by its colour, without a legend."""
    colours = label_colours(study, names)
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    return alt.Color(f"{field}:N").scale(scale).legend(None)


def label_colours(study: StudyRecord, names: Sequence[str]) -> dict[str, str]:
    """Return the colours of some strategies by their labels."""
    colours = study_colours(study)
    return {study.labels[name]: colours[name] for name in names}


def study_colours(study: StudyRecord) -> dict[str, str]:
    """Return every strategy's colour, in the study's order; planned ones never share theirs."""
    return strategy_colours(study.names, study.subject, study.planned)


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
