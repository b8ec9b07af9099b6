"""What people see of the room: tables on the terminal, room.json, pictures and a page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from accerl.records import write_json
from analysis import formats
from analysis.report.studies.room import FAMILIES, UNSEEN, beside, parts_note, worth_cell
from studies.progress import console, numbers_table, paragraph, say

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
    tables = (families_table, room_table, choices_table, unseen_table, strategies_table)
    for table in (make(result) for make in tables):
        if table.row_count:
            console.print(table)
    for row in result["strategies"]:
        paragraph(f"{row['label']}: {beside(row)}", indent=2)
    if note := parts_note(result["room"]):
        say(f"  {note}")
    for row in result["targets"]:
        say(
            f"  {row['target']:.0%} of the way: reached by {row['reached']:.0%} of the runs, room "
            f"{formats.gain_with_interval(row['ratio'], row['low'], row['high'])}"
        )
    console.print(result["gate"]["reason"])
    # They bring Altair, which no job needs.
    from analysis.figures.export import write_pngs
    from analysis.figures.studies.room import room_figures
    from analysis.render.html import write_room_report

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


def percent(found: Mapping[str, Any]) -> tuple[str, str]:
    """Return a gain and its interval in percent."""
    return formats.gain(found["ratio"], found["low"], found["high"])


def families_table(result: Mapping[str, Any]) -> Table:
    """Return what specs are worth over no compression, by family of machines."""
    specs = list(result["families"][0]["seconds"])
    table = numbers_table(FAMILIES, "machines", *specs, "instances", "missed\na target")
    for row in result["families"]:
        cells = (worth_cell(row, spec) for spec in specs)
        missed = formats.percent(row.get("missed"))
        table.add_row(row["family"], *cells, str(row["instances"]), missed)
    return table


def room_table(result: Mapping[str, Any]) -> Table:
    """Return the room in all and by group, and its parts."""
    table = numbers_table(
        "Room: seconds of one spec for all over those of the virtual best",
        *("group", "room", "95% interval", "speed", "fidelity", "naive", "instances", "runs"),
    )
    for row in ({"name": "in all", **result["room"]}, *result["groups"]):
        table.add_row(
            row["name"],
            *percent(row),
            percent(row["speed"])[0],
            percent(row["fidelity"])[0],
            f"{row['naive'] - 1:+.1%}",
            str(row["instances"]),
            str(row["pairs"]),
        )
    return table


def choices_table(result: Mapping[str, Any]) -> Table:
    """Return what each choice gains over one spec for all."""
    single = result["chosen"]["one for all"]
    table = numbers_table(
        f"Gain over one spec for all ({single})", "choice", "gain", "95% interval"
    )
    for name, found in result["room"]["choices"].items():
        table.add_row(name, *percent(found))
    return table


def unseen_table(result: Mapping[str, Any]) -> Table:
    """Return what is to be gained in games that nothing was measured in."""
    columns = ("gain over one spec", "95% interval", "over that of other games", "95% interval")
    table = numbers_table(UNSEEN, "choice", *columns)
    for row in result["unseen"]:
        cells = (cell for name in ("over_single", "over_elsewhere") for cell in percent(row[name]))
        table.add_row(row["name"], *cells)
    return table


def strategies_table(result: Mapping[str, Any]) -> Table:
    """Return what rules and schedules gain over one spec, for all or other games, and the best."""
    columns = ("gain over one spec", "95% interval", "over that of other games", "95% interval")
    columns += ("over the virtual best", "95% interval")
    table = numbers_table("Rules and schedules", "strategy", *columns, "runs", "best of")
    for row in result["strategies"]:
        names = ("over_single", "over_elsewhere", "over_virtual")
        cells = [cell for name in names for cell in percent(row[name])]
        table.add_row(row["label"], *cells, str(row["pairs"]), f"{row['sets']} sets")
    return table
