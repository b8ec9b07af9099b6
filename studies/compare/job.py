"""A run of a comparison as a job, on the virtual clock or on this machine's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from accerl.config import RunConfig
from accerl.monitor.strategy import Strategy
from accerl.runtime.latency.profile import LatencyProfile
from studies.jobs.executor import Job, config_key
from studies.learning.curve import LearningCurve
from studies.learning.job import learn


@dataclass(frozen=True, kw_only=True)
class ComparedJob(Job[LearningCurve]):
    """A run under a strategy; its learner plays at the end."""

    kind: ClassVar[str] = "compared"
    config: RunConfig
    label: str
    strategy: Strategy = field(repr=False)
    identity: Mapping[str, Any]
    """of the strategy, see `Entrant`"""
    latency: LatencyProfile | None
    """charges the virtual clock; None: the clock is real"""

    def to_json(self) -> dict[str, Any]:
        """Return what the result depends on."""
        return {
            "kind": self.kind,
            "game": self.config.preset,
            "seed": self.config.seed,
            **config_key(self.config),
            "strategy": {"name": self.label, "identity": dict(self.identity)},
        }

    def run(self) -> LearningCurve:
        """Do the run."""
        return learn(self.config, self.strategy, self.label, self.out, profile=self.latency)

    @classmethod
    def read_result(cls, data: Mapping[str, Any]) -> LearningCurve:
        """Read a curve."""
        return LearningCurve(**data)


@dataclass(frozen=True, kw_only=True)
class TimedComparedJob(ComparedJob):
    """The same where seconds are this machine's."""

    is_timed: ClassVar[bool] = True
    timed: Sequence[Any]
    """machine and code, as they were when the comparison began"""

    def to_json(self) -> dict[str, Any]:
        """Return what the result depends on: machine and code too."""
        return {**super().to_json(), "timed": list(self.timed)}
