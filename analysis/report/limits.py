"""What limits the evidence: complete, and folded under one heading."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.comparison.verdict import limit_sentences
from analysis.formats import counted
from analysis.records.load import StudyRecord
from analysis.report.blocks import Section, fold, listing, section
from analysis.report.provenance import RUN_FILES
from analysis.report.table import Cell, Table, count, strategy_cell


def limits(study: StudyRecord, contest: Mapping[str, Any]) -> Section:
    """What the numbers do not show, which runs are missing, and what was reported going wrong."""
    sentences = limit_sentences(study, contest)
    warnings = contest["warnings"]
    events = event_table(study)
    title = counted(len(sentences), "limit")
    title += f", {counted(len(warnings), 'warning')}" if warnings else ""
    title += f", {counted(len(events.rows), 'kind')} of reported events" if events.rows else ""
    return section(
        "Limits of the evidence",
        "What these numbers do not show, and what is missing.",
        [
            fold(
                listing(sentences),
                listing(warnings, warning=True),
                events if events.rows else None,
                title=title,
            )
        ],
        (RUN_FILES, "runs/*/*/seed-*/summary.json"),
        empty="No test run is shared with a comparator, so there is no evidence to limit.",
    )


def event_table(study: StudyRecord) -> Table:
    """What strategies and processes reported going wrong, counted by cause."""
    found: dict[tuple[str, str, str], list[tuple[str, int]]] = {}
    for (strategy, game, seed), run in study.runs.items():
        events = [("strategy", event) for event in run.summary.get("strategy_events") or ()]
        events += [(str(e.get("role", "process")), e) for r in run.reports for e in r.events]
        for source, event in events:
            cause = str(event.get("cause", "unknown"))
            found.setdefault((strategy, source, cause), []).append((game, seed))
    rows = tuple(
        (strategy_cell(study, name), Cell(source), Cell(cause), count(len(at)), count(len(set(at))))
        for (name, source, cause), at in sorted(
            found.items(), key=lambda item: (item[0][0], -len(item[1]))
        )
    )
    columns = ("Strategy", "Reported by", "Cause", "#Events", "#In runs")
    return Table("Shields, fallbacks and dead processes", columns, rows)
