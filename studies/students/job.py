"""LearningJob: one learning curve on the virtual clock, as a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from accerl.config import RunConfig
from accerl.monitor.strategies import FixedStrategy
from accerl.runtime.latency.games import times_of_run
from accerl.runtime.latency.predict import predict
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.run import IntervalReport
from accerl.settings import configure
from accerl.spec import CompressionSpec
from accerl.training.run import run_training
from studies.jobs.executor import Job

INTERVALS = 50
SCORED_EPISODES = 20
"""whose mean is the score, as everywhere where J is not measured"""


@dataclass(frozen=True, kw_only=True)
class LearningCurve:
    """What actors scored while the learner learned; lists have an entry an interval."""

    seconds: Sequence[float]
    env_steps: Sequence[int]
    scores: Sequence[float | None]
    """mean of the last `SCORED_EPISODES` episodes; None before there are so many"""
    compression_kl_nats: Sequence[float | None]
    """KL(learner || engine made of the same weights); None where nothing was sampled"""
    kl_nats: Sequence[float]
    """KL(learner || what acted), staleness included"""
    distill_core_seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return all fields."""
        return asdict(self)

    @classmethod
    def of(cls, reports: Sequence[IntervalReport]) -> LearningCurve:
        """Read a run's reports."""
        episodes: list[float] = []
        scores: list[float | None] = []
        for report in reports:
            episodes += report.episode_returns
            last = episodes[-SCORED_EPISODES:]
            scores.append(sum(last) / len(last) if len(last) == SCORED_EPISODES else None)
        return cls(
            seconds=[report.total_seconds for report in reports],
            env_steps=[report.total_env_steps for report in reports],
            scores=scores,
            compression_kl_nats=[_mean(report.compression_kl_nats) for report in reports],
            kl_nats=[report.kl_mean_nats for report in reports],
            distill_core_seconds=sum(report.phase_seconds["compress"] for report in reports),
        )


def _mean(values: Mapping[CompressionSpec, float]) -> float | None:
    return sum(values.values()) / len(values) if values else None


@dataclass(frozen=True, kw_only=True)
class LearningJob(Job[LearningCurve]):
    """A run with one spec, as long as the spec is predicted to need for so many env steps."""

    kind: ClassVar[str] = "learning"
    game: str
    network: str
    latency: LatencyProfile
    spec: CompressionSpec
    settings: Mapping[str, Any]
    env_steps: int
    seed: int

    def config(self) -> RunConfig:
        """Return the run's configuration, its length included."""
        clock = {
            "runtime.runtime": "serial",
            "runtime.clock": "virtual",
            "runtime.eval_episodes": 0,
        }
        given = {**clock, **self.settings}

        def make(seconds: float) -> RunConfig:
            return configure(
                self.game,
                {**given, "runtime.interval_seconds": seconds / INTERVALS},
                label="setting",
                network=self.network,
                seconds=seconds,
                seed=self.seed,
            )

        config = make(1.0)
        rate = predict(times_of_run(self.latency, config), config, self.spec).env_steps_per_second
        return make(self.env_steps / rate)

    def to_json(self) -> dict[str, Any]:
        """Return all fields, and a hash of the run's settings."""
        own = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "out"}
        plain = {"spec": self.spec.to_json(), "latency": self.latency.to_json()}
        return {"kind": self.kind, "config": self.config().hash, **own, **plain}

    def run(self) -> LearningCurve:
        """Do the run, with records where `out` is given."""
        result = run_training(
            self.config(), FixedStrategy(self.spec), out=self.out, profile=self.latency
        )
        return LearningCurve.of(result.reports)

    @classmethod
    def read_result(cls, data: Mapping[str, Any]) -> LearningCurve:
        """Read a curve."""
        return LearningCurve(**data)
