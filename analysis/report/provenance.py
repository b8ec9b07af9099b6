"""The section that comes last: machine, versions, and the commands and files behind everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis import formats
from analysis.records.load import StudyRecord
from analysis.report.blocks import Block, Code, Section, Text, fold, section
from analysis.report.table import Cell, Table, pairs_table

RUN_FILES = "runs/*/*/seed-*/metrics.jsonl"
REPORT = "accerl report STUDY --html STUDY/report.html --figures PICTURES"


def provenance(study: StudyRecord, sections: Sequence[Section]) -> Section:
    """Machine, versions, and the commands and files behind every figure."""
    info = study.info
    rows = tuple(
        (
            Cell(figure.title),
            Cell(part.title),
            Cell(f"PICTURES/{figure.name}.png, .csv"),
            Cell(", ".join(part.files)),
        )
        for part in sections
        for figure in part.figures
    )
    blocks: list[Block | None] = [
        Text(
            "Every number above is computed from the records of this study. contest.json holds "
            "those of the contest unrounded, as they were when the study ended."
        ),
        Text(
            f"Study seed {info['seed']}, budget {info['budget']}, latency profile "
            f"{study.machines}. Test seeds {formats.ranges(study.test_seeds)}."
        ),
        *(
            Text(
                f"The test seeds were first used at {note['at']} under plan "
                f"{str(note['plan_hash'])[:12]}, by code of revision "
                f"{note['git_revision'] or 'unknown'}."
            )
            for note in info.get("test_opened") or ()
        ),
        Text(
            "Commands of the study. The last one rebuilds every figure, its data and this page; "
            "STUDY is the study's folder."
        ),
        Code((*(str(item) for item in info["commands"]), REPORT)),
        Table("Figures and their sources", ("Figure", "Section", "Rebuilt as", "From"), rows),
        *provenance_tables(info),
        fold(pairs_table("Bundle", study.bundle)) if study.bundle else None,
    ]
    lead = "Machine, versions, commands and files."
    return section("Provenance", lead, blocks, ("study.json", "bundle/bundle.json"))


def provenance_tables(data: Mapping[str, Any]) -> list[Table]:
    """Return the machine, the versions and the revisions of the runs that a record names."""
    titles = {
        "fingerprint": "Machine",
        "versions": "Versions",
        "runs_by": "Runs by revision of the code that made them",
    }
    return [pairs_table(title, data[key]) for key, title in titles.items() if data.get(key)]
