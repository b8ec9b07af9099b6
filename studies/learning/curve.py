"""LearningCurve: how one run went, interval by interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from typing import Any, Self

from accerl.runtime.run import IntervalReport
from accerl.spec import CompressionSpec
from accerl.training.score import Score

PROCESSES: Mapping[str, tuple[str, ...]] = {
    "actors": ("actor",),
    "learner": ("learner",),
    "compression": ("compressor", "distiller"),
}
"""the processes that do each part of the work, by the first word of their names"""


@dataclass(frozen=True, kw_only=True)
class LearningCurve:
    """What actors scored while the learner learned; lists have an entry an interval."""

    seconds: Sequence[float]
    env_steps: Sequence[int]
    scores: Sequence[float | None]
    """of the actors, see `Score`; None before enough episodes have ended"""
    compression_kl_nats: Sequence[float | None]
    """KL(learner || engine made of the same weights); None where nothing was sampled"""
    kl_nats: Sequence[float]
    """KL(learner || what acted), staleness included"""
    kl_max_nats: Sequence[float] = ()
    """the largest of any state"""
    acting: Sequence[str] = ()
    """what was decided for, as people write it"""
    served: Sequence[float | None] = ()
    """share of the actors' seconds in which they acted with that; None: no rollout of theirs was
    learned from"""
    stages: Sequence[int | None] = ()
    """by `StageIndicator`; None where it does not know"""
    distill_core_seconds: float = 0.0
    """processor seconds of the whole run's distilling, without that of what may not act yet"""
    learner_score: float | None = None
    """mean score of the learner's own policy after the run: what small actors cost the learner, and
    not their own play; None: not measured"""
    learner_cut_off: int = 0
    """episodes of those that had not ended when they were cut off"""
    processor_seconds: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """so far, by part of the work, see `PROCESSES`; from `IntervalReport.cpu_seconds`"""

    @property
    def core_seconds(self) -> list[float]:
        """Processor seconds so far, of all processes; empty where they were not recorded."""
        # Exact sums: processes are in another order where a curve was read from a file.
        return [math.fsum(each) for each in zip(*self.processor_seconds.values(), strict=True)]

    def to_json(self) -> dict[str, Any]:
        """Return all fields."""
        return asdict(self)

    @classmethod
    def of(
        cls,
        reports: Sequence[IntervalReport],
        learner_score: float | None = None,
        learner_cut_off: int = 0,
    ) -> Self:
        """Read a run's reports."""
        # Where J is measured too: what is asked is how compressed actors play.
        score = Score(of_actors=True)
        stages = [report.indicators.get("stage") for report in reports]
        return cls(
            seconds=[report.total_seconds for report in reports],
            env_steps=[report.total_env_steps for report in reports],
            scores=[score.update(report) for report in reports],
            compression_kl_nats=[_mean(report.compression_kl_nats) for report in reports],
            kl_nats=[report.kl_mean_nats for report in reports],
            kl_max_nats=[report.kl_max_nats for report in reports],
            acting=[report.decision.without_shadow.label for report in reports],
            served=[_served(report) for report in reports],
            stages=[None if stage is None else round(stage) for stage in stages],
            distill_core_seconds=sum(report.distill_core_seconds for report in reports),
            learner_score=learner_score,
            learner_cut_off=learner_cut_off,
            processor_seconds={
                part: list(accumulate(_processor_seconds(report, names) for report in reports))
                for part, names in PROCESSES.items()
            },
        )

    @property
    def first_score(self) -> float | None:
        """The score when enough episodes had ended for one; None if they never had."""
        return next((score for score in self.scores if score is not None), None)

    def thinned(self, points: int, names: Sequence[str]) -> dict[str, list[Any]]:
        """Return some fields, every so many points and with four digits, for a small file.

        The last point always stays.

        Args:
            points: to keep at least; there are fewer than twice as many.
            names: of fields with a value a point.
        """
        every = max(len(self.seconds) // points, 1)
        return {
            name: [_short(value) for value in list(getattr(self, name))[::-1][::every][::-1]]
            for name in names
        }


def _processor_seconds(report: IntervalReport, names: Sequence[str]) -> float:
    return sum(
        seconds for name, seconds in report.cpu_seconds.items() if name.partition("-")[0] in names
    )


def _served(report: IntervalReport) -> float | None:
    acting = sum(report.spec_seconds.values())
    own = sum(report.spec_seconds.get(spec, 0.0) for spec in report.decision.specs)
    return own / acting if acting else None


def _short(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _mean(values: Mapping[CompressionSpec, float]) -> float | None:
    return sum(values.values()) / len(values) if values else None


Pair = tuple[tuple[float, bool], tuple[float, bool]]
"""what `reached` returned of a run, and of the baseline's"""


@dataclass(frozen=True)
class Ratios:
    """What runs take to a score over what the baseline's take, pair by pair.

    A run that does not reach the score counts with its whole length. Where neither of a pair does,
    the two lengths say nothing, and the pair is left out; so is one with a run of length 0, which
    made no env step.
    """

    logs: Sequence[float]
    own_missed: int
    """pairs whose ratio is too low"""
    base_missed: int
    """pairs whose ratio is too high"""
    left_out: int = 0

    @classmethod
    def of(cls, pairs: Sequence[Pair]) -> Self:
        """Compare runs with the baseline's."""
        known = [
            (own, base) for own, base in pairs if (own[1] or base[1]) and own[0] > 0.0 < base[0]
        ]
        return cls(
            logs=[math.log(own[0] / base[0]) for own, base in known],
            own_missed=sum(not own[1] for own, _ in known),
            base_missed=sum(not base[1] for _, base in known),
            left_out=len(pairs) - len(known),
        )

    @property
    def bound(self) -> str:
        """What to write before the mean: nothing, > (it is at least that), < or ~ (cannot tell).

        Pairs that are left out may lie on either side of the others.
        """
        if self.left_out or (self.own_missed and self.base_missed):
            return "~"
        return ">" if self.own_missed else "<" if self.base_missed else ""
