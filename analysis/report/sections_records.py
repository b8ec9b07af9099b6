"""The sections about the records themselves: what went wrong, and where everything comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.records.load import StudyRecord
from analysis.report import formats, tables, tables_study
from analysis.report.blocks import Block, Code, Folded, Section, Text, listing, section

RUN_FILES = "runs/*/*/seed-*/metrics.jsonl"


def failures(study: StudyRecord, contest: Mapping[str, Any]) -> Section:
    """Missing and cut runs, and what shields, fallbacks and processes reported."""
    events = tables_study.event_table(study)
    return section(
        "Failures",
        "What is missing, what was cut short, and what had to be caught.",
        [listing(contest["warnings"], warning=True), events if events.rows else None],
        (RUN_FILES, "runs/*/*/seed-*/summary.json"),
        empty="No run is missing or cut short, and no run reports a shield, a fallback or a dead "
        "process; any of these would be listed here.",
    )


def provenance(study: StudyRecord, sections: Sequence[Section]) -> Section:
    """Machine, versions, and the commands and files behind every figure."""
    info = study.info
    seeds = formats.ranges(study.test_seeds)
    command = "accerl report STUDY --html STUDY/report.html --figures PICTURES"
    made = [(figure, part) for part in sections for figure in part.figures]
    rows = tuple(
        (
            tables.Cell(figure.title),
            tables.Cell(part.title),
            tables.Cell(f"PICTURES/{figure.name}.png, .csv"),
            tables.Cell(", ".join(part.files)),
        )
        for figure, part in made
    )
    blocks: list[Block | None] = [
        Text(
            "Every number above is computed from the records of this study; contest.json holds "
            "those of the contest unrounded."
        ),
        Text(
            f"Study seed {info.get('seed', 'unknown')}, budget {info.get('budget', 'unknown')}, "
            f"latency profile {study.machines}. Test seeds {seeds}."
        ),
        *(
            Text(
                f"They were opened at {note['at']} under plan {str(note['plan_hash'])[:12]}, by "
                f"code of revision {note['git_revision'] or 'unknown'}."
            )
            for note in info.get("test_opened") or ()
        ),
        Text(
            "Commands of the study; the last one rebuilds every figure, its data and this page, "
            "STUDY being the study's folder:"
        ),
        Code((*(str(item) for item in info.get("commands") or ()), command)),
        tables.Table(
            "Figures and what they are made from",
            ("Figure", "Section", "Rebuilt as", "From"),
            rows,
        ),
        *provenance_tables(info),
        Folded(tables.pairs_table("Bundle", study.bundle)) if study.bundle else None,
    ]
    lead = "Machine, versions, commands and files."
    files = ("study.json", "bundle/bundle.json")
    return section("Provenance", lead, blocks, files, empty="")


def provenance_tables(data: Mapping[str, Any]) -> list[tables.Table]:
    """Return the machine and the versions that a record names."""
    result = []
    for key, title in (("fingerprint", "Machine"), ("versions", "Versions")):
        value = data.get(key)
        if isinstance(value, Mapping):
            result.append(tables.pairs_table(title, value))
        elif value:
            result.append(tables.pairs_table(title, {"id": value}))
    return result
