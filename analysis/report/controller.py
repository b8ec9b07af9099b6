"""The sections about the controller: what it chose, what it looks at, and how it was trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.comparison.decisions import explained
from analysis.figures import forest
from analysis.figures.explainer import decision_explainer
from analysis.figures.strips import schedule_story, study_strips
from analysis.formats import NOTHING
from analysis.records.load import StudyRecord
from analysis.report.blocks import Block, Heading, Section, Text, fold, section
from analysis.report.provenance import RUN_FILES
from analysis.report.runs import decision_table
from analysis.report.table import Cell, Table, estimate


def schedules(study: StudyRecord, contest: Mapping[str, Any]) -> Section:
    """What every strategy chose when; and the subject's choices below reward and KL."""
    has_subject = any(key[0] == study.subject for key in study.runs)
    others = study.exploratory
    more = study_strips(study, others, "-exploratory") if others else []
    blocks: list[Block | None] = [
        schedule_story(study) if has_subject else None,
        *study_strips(study, study.planned),
        fold(*more, title="Exploratory strategies"),
        *subject_explained(study),
    ]
    return section("Schedules", "Which compression acted when.", blocks, (RUN_FILES,))


def subject_explained(study: StudyRecord) -> list[Block | None]:
    """Return why the subject decided so in one of its test runs, if its records say."""
    for (strategy, game, seed), run in study.runs.items():
        if strategy == study.subject and explained(run):
            heading = Heading(f"Why it decided so: {game}, seed {seed}")
            return [heading, decision_explainer(run, f"{game}, seed {seed}"), decision_table(run)]
    return []


def policy(study: StudyRecord, contest: Mapping[str, Any]) -> Section:
    """Every way of training that was tried, and what its steps were worth."""
    blocks: list[Block | None] = []
    if study.variants:
        blocks += [
            Heading("Ways of training"),
            forest.variants_forest(study.variants),
            variant_table(study.variants),
        ]
    if study.checks:
        blocks += [
            check_table(study.checks),
            Text(
                "Gain: mean difference to what was best before it in the log of the horizon over "
                "the seconds to target, on the validation seeds, paired by instance and seed (0.1 "
                "is 10% sooner). The best in the mean is entered.",
                "small",
            ),
        ]
    return section(
        "Policy",
        "How the policy was trained.",
        blocks,
        ("variants.json", "checks.json"),
        empty="The study holds no variants.json and no checks.json, which would fill this section.",
    )


def variant_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Every way of training that was tried, and its result."""
    body = tuple(
        (
            Cell(row["name"]),
            Cell(row["what"] or NOTHING),
            *estimate(row),
            Cell(row["note"]),
        )
        for row in rows
    )
    return Table("Ways of training", ("Name", "What", "#Ratio", "#95% interval", "Note"), body)


def check_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Every candidate of meta-training, what it gained over the incumbent, and the verdict."""
    body = tuple(
        (
            Cell(row["variant"]),
            Cell(row["candidate"]),
            *estimate(row, "gain", 3),
            Cell("accepted" if row["accepted"] else "rejected"),
        )
        for row in rows
    )
    columns = ("Training", "Candidate", "#Gain", "#95% interval", "Verdict")
    return Table("Candidates on the validation seeds", columns, body)
