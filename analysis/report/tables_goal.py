"""Tables of the goal that was set before the contest: met or missed, and instance by instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.comparison.goal import CLOSED, GOAL_RATIO, WORSE
from analysis.comparison.verdict import format_p
from analysis.comparison.worth import ROOM
from analysis.records.load import StudyRecord
from analysis.report import formats
from analysis.report.tables import Cell, Table, number


def goal_table(study: StudyRecord, goal: Mapping[str, Any]) -> Table:
    """A row for every part of the goal: what was found, and whether that is enough."""
    rule = study.labels[goal["against"]]
    held, closed, worst = goal["held_out"], goal["gap_closed"], goal["worst"] or {}
    evidence = f", uncorrected p {format_p(held['p'])}, {held['n']} pairs"
    if held["clusters"] < held["n"]:
        evidence += f", {held['clusters']} of them independent"
    if held["trained"]:
        evidence += ", all on instances that were trained on"
    rows = (
        (
            Cell(
                f"At most {GOAL_RATIO:.2f}x the seconds of {rule} on instances that nobody was "
                f"trained on, with the interval below 1"
            ),
            Cell(_ratio(held, evidence)),
            Cell(_met(held["met"])),
        ),
        (
            Cell(f"{CLOSED:.0%} of the oracle gap closed (median) where it is at least {ROOM:.0%}"),
            Cell(_closed(closed)),
            Cell(_met(closed["met"])),
        ),
        (
            Cell(f"At most {WORSE:.2f}x the seconds of {rule} on every instance"),
            Cell(_ratio(worst, f" on {worst.get('env')}, the worst")),
            Cell(_met(goal["nowhere_worse"])),
        ),
    )
    return Table("Goal", ("Goal", "Found", "Met"), rows)


def instance_table(study: StudyRecord, goal: Mapping[str, Any]) -> Table:
    """Seconds to target over those of the goal's rule, a row an instance."""
    items: Sequence[Mapping[str, Any]] = goal["by_instance"]
    limits = {game.name: game.limit for game in study.games.values()}
    rows = tuple(
        (
            Cell(item["env"]),
            Cell(item.get("group") or formats.NOTHING),
            Cell(limits.get(item["env"]) or formats.NOTHING),
            number(item["ratio"], formats.fixed(item["ratio"])),
            Cell(formats.interval(item["low"], item["high"])),
            number(item["n"], str(item["n"])),
        )
        for item in items
    )
    rule = study.labels[goal["against"]]
    columns = ("Instance", "Group", "Limited by", "#Ratio", "#95% interval", "#Pairs")
    title = f"Seconds to target by instance: {study.labels[study.subject]} / {rule}"
    return Table(title, columns, rows)


def _ratio(found: Mapping[str, Any], ending: str) -> str:
    if found.get("ratio") is None:
        return "no test runs in common"
    text = f"{found['ratio']:.2f}x the seconds"
    if found.get("low") is not None:
        text += f" ({formats.interval(found['low'], found['high'])})"
    return text + ending


def _closed(found: Mapping[str, Any]) -> str:
    where = f"such a gap on {found['instances']} of {found['measured']} instances measured"
    if found["closed"] is None:
        return f"cannot be told ({where})"
    return f"{found['closed']:.0%} on {found['known']} instances ({where})"


def _met(met: bool | None) -> str:
    return "cannot be told" if met is None else "met" if met else "missed"
