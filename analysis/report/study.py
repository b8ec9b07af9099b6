"""The sections of a study's report in order, the same for HTML and W&B.

The answer comes first, then the evidence, then what limits it; the plan, the machines and the
records come last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from accerl.records import plain
from analysis.comparison.contest import build_contest
from analysis.figures.theme import Figure
from analysis.records.load import StudyRecord, load_study
from analysis.report.answer import answer
from analysis.report.blocks import Section
from analysis.report.contrasts import contrasts
from analysis.report.controller import policy, schedules
from analysis.report.cost import cost
from analysis.report.curves import curves, reach
from analysis.report.limits import limits
from analysis.report.machines import latency
from analysis.report.oracle_gap import oracle_gap
from analysis.report.plan import plan
from analysis.report.provenance import provenance
from analysis.report.transfer import transfer

BUILDERS = (
    answer,
    curves,
    contrasts,
    limits,
    reach,
    schedules,
    policy,
    transfer,
    oracle_gap,
    cost,
    plan,
    latency,
)


@dataclass(frozen=True)
class StudyReport:
    """A study, its contest, which is worked out anew from the records, and what a report shows."""

    study: StudyRecord
    contest: Mapping[str, Any]

    @classmethod
    def of(cls, study_dir: Path) -> StudyReport:
        """Work out what the records of a study's folder say.

        Raises:
            UserError: the study is missing or damaged.
        """
        study = load_study(Path(study_dir))
        return cls(study, plain(build_contest(study)))

    @cached_property
    def sections(self) -> list[Section]:
        """All sections in order."""
        return study_sections(self.study, self.contest)

    @cached_property
    def figures(self) -> list[Figure]:
        """All figures in order."""
        return [figure for part in self.sections for figure in part.figures]


def study_sections(study: StudyRecord, contest: Mapping[str, Any]) -> list[Section]:
    """Return all sections in order; one without data says what would fill it."""
    found = [build(study, contest) for build in BUILDERS]
    return [*found, provenance(study, found)]
