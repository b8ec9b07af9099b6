"""What people see of the room: tables on the terminal, room.json, pictures and a page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accerl.records import write_json
from analysis import formats
from studies.progress import console, paragraph, say

RESULT = "room.json"
SMALL = "room-small.json"
"""the same without single runs, its numbers rounded: small enough for a repository"""
DIGITS = 5
_LONG = ("means", "strategy_rows")
KL = "compression_kl_nats"
_FOLLOWS = ("label", "group", "over_best")


def show(out: Path, result: dict[str, Any]) -> dict[str, Any]:
    """Write and print a result; return it."""
    write_json(out / RESULT, result)
    write_json(out / SMALL, small_result(result), indent=None)
    # They bring Altair, which no job needs.
    from analysis.figures.export import write_pngs
    from analysis.figures.studies.room import room_figures
    from analysis.render.html import write_room_report
    from analysis.render.terminal import rich_table
    from analysis.report.studies import room, room_tables

    tables = (
        room_tables.families_table,
        room_tables.groups_table,
        room_tables.choices_table,
        room_tables.unseen_table,
        room_tables.strategies_table,
    )
    for table in (make(result) for make in tables):
        if table.rows:
            console.print(rich_table(table))
    for row in result["strategies"]:
        paragraph(f"{row['label']}: {room.beside(row)}", indent=2)
    if note := room.parts_note(result["room"]):
        say(f"  {note}")
    for row in result["targets"]:
        say(
            f"  {row['target']:.0%} of the way: reached by {row['reached']:.0%} of the runs, room "
            f"{formats.gain_with_interval(row['ratio'], row['low'], row['high'])}"
        )
    console.print(result["gate"]["reason"])
    pictures = write_pngs(room_figures(result), out)
    page = write_room_report(out, out / "room.html")
    for path in (out / RESULT, out / SMALL, page, *pictures):
        say(f"wrote {path}")
    return result


def small_result(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result without single runs, rounded, without what follows from the rest."""
    rows = [
        {name: each for name, each in row.items() if name not in _left_out(row)}
        for row in result["means"]
    ]
    return _rounded({**{n: v for n, v in result.items() if n not in _LONG}, "matrix": rows})


def _left_out(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the fields of a row that follow from others, or of what was not sampled."""
    return _FOLLOWS if row[KL] is not None else (*_FOLLOWS, KL)


def _rounded(value: Any) -> Any:
    """Return plain data with its numbers cut to `DIGITS` significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list | tuple) else value
