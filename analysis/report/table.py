"""A table once, for every view: the HTML report, W&B and the terminal print the same cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accerl.errors import is_number
from accerl.spec import CompressionSpec
from analysis import formats
from analysis.figures.parts import study_colours
from analysis.figures.theme import Figure
from analysis.records.load import StudyRecord


@dataclass(frozen=True)
class Cell:
    """What is shown, and the number behind it if there is one."""

    text: str
    value: float | None = None
    colour: str | None = None


@dataclass(frozen=True)
class Table:
    """A titled table; column titles that begin with "#" hold numbers and are right-aligned."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def headings(self) -> list[tuple[str, bool]]:
        """Column titles, and whether the column is numeric."""
        return [(name.removeprefix("#"), name.startswith("#")) for name in self.columns]


def number(value: float | None, text: str | None = None) -> Cell:
    """Return a cell of a number, three significant digits unless `text` says how to show it."""
    return Cell(formats.significant(value) if text is None else text, value)


def fixed(value: float | None, decimals: int = 2) -> Cell:
    """Return a cell of a number with a fixed number of decimals."""
    return Cell(formats.fixed(value, decimals), value)


def count(value: int) -> Cell:
    """Return a cell of a whole number."""
    return Cell(str(value), value)


def estimate(item: Mapping[str, Any], name: str = "ratio", decimals: int = 2) -> tuple[Cell, Cell]:
    """Return the cells of an estimate and of its interval.

    The interval's bounds are `low` and `high` for a ratio or a difference, NAME_low and NAME_high
    for anything else.
    """
    before = "" if name in ("ratio", "difference", "gain") else f"{name}_"
    bounds = formats.interval(item.get(f"{before}low"), item.get(f"{before}high"), decimals)
    return fixed(item.get(name), decimals), Cell(bounds)


def share_cell(reached: int, runs: int) -> Cell:
    """Return a cell such as "3 of 4"; a dash where there is no run."""
    return number(reached, f"{reached} of {runs}") if runs else number(None)


def strategy_cell(study: StudyRecord, name: str) -> Cell:
    """Return a cell of a strategy's label in its colour."""
    return Cell(study.labels[name], colour=study_colours(study)[name])


def pairs_table(title: str, data: Mapping[str, Any], length: int = 160) -> Table:
    """A table of names and values; texts are cut at `length`."""
    rows = tuple((Cell(str(key)), _any_cell(key, value, length)) for key, value in data.items())
    return Table(title, ("Name", "Value"), rows)


def rows_table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """A table of objects; a column is numeric if all its values are."""
    rows = [_flat(row) for row in rows]
    keys = list(dict.fromkeys(key for row in rows for key in row))
    numeric = {key for key in keys if all(is_number(row.get(key, 0.0)) for row in rows)}
    return Table(
        title,
        tuple(f"#{key}" if key in numeric else key for key in keys),
        tuple(tuple(_any_cell(key, row.get(key)) for key in keys) for row in rows),
    )


def figure_table(figure: Figure, limit: int) -> Table:
    """The table behind a figure, at most `limit` rows of it."""
    title = f"Data of this figure ({len(figure.table):,} rows"
    title += f", the first {limit:,} shown)" if len(figure.table) > limit else ")"
    return rows_table(title, figure.table[:limit])


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Lift small objects such as {"batch": microseconds} into columns; a spec stays one cell."""
    result: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping) and "student" not in value:
            result |= {f"{key} {inner}": item for inner, item in value.items()}
        else:
            result[key] = value
    return result


def _any_cell(key: str, value: Any, length: int = 160) -> Cell:
    if key == "spec" and isinstance(value, Mapping):
        return Cell(CompressionSpec.from_json(value).label)
    return Cell(formats.compact(value, length), float(value) if is_number(value) else None)
