"""The tables of the room, for its page and for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis import formats
from analysis.report.table import Cell, Table, count, number

COLUMNS = ("#Gain", "#95% interval")
MISSED = "#Runs that missed a target"
FILLED = "#Filled in (stopped)"
UNSEEN = "Gain of choices that know the machine, and nothing of the game but its KL"
FAMILIES = "Seconds to target of no compression over each spec's (env steps likewise)"


def families_table(result: Mapping[str, Any]) -> Table:
    """Return what specs are worth over no compression, by family of machines."""
    specs = specs_of(result["families"], "seconds")
    rows = tuple(
        (
            Cell(row["family"]),
            *(number(row["seconds"].get(spec), worth_cell(row, spec)) for spec in specs),
            count(row["instances"]),
            number(row["missed"], formats.percent(row["missed"])),
            number(row["filled"], formats.percent(row["filled"])),
        )
        for row in result["families"]
    )
    columns = ("Machines", *(f"#{spec}" for spec in specs), "#Instances", MISSED, FILLED)
    return Table(FAMILIES, columns, rows)


def groups_table(result: Mapping[str, Any]) -> Table:
    """Return the room in all and by group, and its parts."""
    rows = tuple(
        (
            Cell(row["name"]),
            *gain_cells(row),
            *gain_cells(row["speed"]),
            *gain_cells(row["fidelity"]),
            count(row["instances"]),
            count(row["pairs"]),
        )
        for row in ({"name": "in all", **result["room"]}, *result["groups"])
    )
    columns = ("Group", *COLUMNS, "#Speed", "#95% interval", "#Fidelity", "#95% interval")
    return Table("Room by group", (*columns, "#Instances", "#Pairs"), rows)


def choices_table(result: Mapping[str, Any]) -> Table:
    """Return what each choice gains over one spec for all."""
    single = result["chosen"]["one for all"]
    rows = tuple((Cell(n), *gain_cells(each)) for n, each in result["room"]["choices"].items())
    return Table(f"Gain over one spec for all ({single})", ("Choice", *COLUMNS), rows)


def unseen_table(result: Mapping[str, Any]) -> Table:
    """Return what is to be gained in games that nothing was measured in."""
    rows = tuple(
        (Cell(row["name"]), *gain_cells(row["over_single"]), *gain_cells(row["over_elsewhere"]))
        for row in result["unseen"]
    )
    columns = ("Choice", *COLUMNS, "#Over the one for other games", "#95% interval")
    return Table(UNSEEN, columns, rows)


def strategies_table(result: Mapping[str, Any]) -> Table:
    """Return what rules and schedules gain over one spec, for all or other games, and the best."""
    rows = tuple(
        (
            Cell(row["label"]),
            *gain_cells(row["over_single"]),
            *gain_cells(row["over_elsewhere"]),
            *gain_cells(row["over_virtual"]),
            count(row["pairs"]),
        )
        for row in result["strategies"]
    )
    others = ("#Over the one for other games", "#95% interval", "#Over the virtual best")
    columns = ("Strategy", *COLUMNS, *others, "#95% interval", "#Pairs")
    return Table("Rules and schedules: gain over one spec for all", columns, rows)


def specs_of(families: Sequence[Mapping[str, Any]], what: str) -> tuple[str, ...]:
    """Return the specs that some of `families` have numbers of, such as "seconds"."""
    return tuple(dict.fromkeys(spec for row in families for spec in row[what]))


def worth_cell(row: Mapping[str, Any], spec: str) -> str:
    """Return a spec's worth in a row of `comparison.families.by_family`: seconds (env steps)."""
    if spec not in row["seconds"]:
        return formats.NOTHING
    return f"{row['seconds'][spec]:.2f} ({formats.fixed(row['env_steps'][spec])})"


def gain_cells(found: Mapping[str, Any]) -> tuple[Cell, Cell]:
    """Return the cells of a gain and of its interval, in percent."""
    text, bounds = formats.gain(found["ratio"], found["low"], found["high"])
    return number(found["ratio"], text), Cell(bounds)
