"""Tables of the goal that was set before the contest: met or missed, and instance by instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis import formats
from analysis.load import StudyRecord
from analysis.tables import Cell, Table, number
from analysis.verdict import format_p


def goal_table(study: StudyRecord, goal: Mapping[str, Any]) -> Table:
    """A row for every part of the goal: what was found, and whether that is enough."""
    against = goal.get("against")
    rule = study.labels.get(against, str(against)) if against else "the best threshold rule"
    held, closed = goal.get("held_out") or {}, goal.get("gap_closed") or {}
    worst = goal.get("worst") or {}
    rows = (
        (
            Cell(f"Faster than {rule} on the instances of the planned comparison"),
            Cell(_ratio(held, f", p {format_p(held.get('p'))}, {held.get('n', 0)} pairs")),
            Cell(_met(held.get("met"))),
        ),
        (
            Cell("Oracle gap closed on the instances that leave room to win (median)"),
            Cell(_closed(closed)),
            Cell(_met(closed.get("met"))),
        ),
        (
            Cell(f"On no instance slower than {rule}"),
            Cell(_ratio(worst, f" on {worst.get('env')}, the worst")),
            Cell(_met(goal.get("nowhere_worse"))),
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
    rule = study.labels.get(goal["against"], str(goal["against"]))
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
    where = f"{found.get('instances', 0)} with room among {found.get('measured', 0)} measured"
    if found.get("closed") is None:
        return f"cannot be told ({where})"
    return f"{found['closed']:.0%} ({where})"


def _met(met: bool | None) -> str:
    return "cannot be told" if met is None else "met" if met else "missed"
