"""The sections of a study's report in order, the same for HTML and W&B.

The answer comes first, then the evidence, then what limits it; the plan, the machines and the
records come last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.figures.theme import Figure
from analysis.records.load import StudyRecord
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


def study_sections(study: StudyRecord, contest: Mapping[str, Any]) -> list[Section]:
    """Return all sections in order; one without data says what would fill it."""
    found = [build(study, contest) for build in BUILDERS]
    return [*found, provenance(study, found)]


def study_figures(sections: Sequence[Section]) -> list[Figure]:
    """Return all figures of a report in order."""
    return [figure for part in sections for figure in part.figures]
