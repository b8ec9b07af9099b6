"""LearningJob: one learning curve on the virtual clock, as a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from accerl.config import RunConfig
from accerl.monitor.strategies import make_strategy
from accerl.monitor.strategy import Strategy, check_times, specs_of
from accerl.presets import load_preset
from accerl.runtime.latency.games import times_of_run
from accerl.runtime.latency.predict import predict
from accerl.runtime.latency.profile import LatencyProfile
from accerl.settings import configure
from accerl.spec import IDENTITY, CompressionSpec
from accerl.training.run import check_startable, run_training
from accerl.training.saved_policy import evaluate_checkpoint
from controller.env.instances import keeping_pace
from controller.indicator.strategy import AdvancedIndicator
from controller.shield import Shielded
from studies.jobs.executor import Job, config_key
from studies.learning.curve import LearningCurve

INTERVALS = 50
EPISODES = 32
"""that the learner plays at the end"""


def acting_with(spec: CompressionSpec) -> dict[str, Any]:
    """Return the strategy that acts with one spec throughout, as a job describes it."""
    return {"name": "fixed", "params": {"spec": spec.to_json()}, "label": spec.label}


def described(strategy: Mapping[str, Any]) -> Strategy:
    """Return the strategy that a job describes; an indicator acts under the shield."""
    if strategy["name"] == AdvancedIndicator.name:
        return Shielded(AdvancedIndicator.from_params(strategy["params"]))
    return make_strategy(strategy["name"], **strategy["params"])


def settings_keeping_pace(game: str) -> dict[str, Any]:
    """Return the settings with which a small game's students follow as Atari's do."""
    own = load_preset(game)
    kept = keeping_pace(own).compression
    return {
        f"compression.{name}": value
        for name, value in vars(kept).items()
        if value != getattr(own.compression, name)
    }


def learn(
    config: RunConfig,
    strategy: Strategy,
    label: str,
    out: Path | None,
    *,
    profile: LatencyProfile | None,
) -> LearningCurve:
    """Do a run, and play with the learner it ends with; return how it went.

    Args:
        config: of the run.
        strategy: that decides.
        label: of the strategy, as records have it.
        out: run directory; None: nothing is kept.
        profile: that charges its virtual clock; None: the clock is real.
    """
    with TemporaryDirectory() as scratch:
        folder = out or Path(scratch)
        result = run_training(config, strategy, strategy_name=label, out=folder, profile=profile)
        played = evaluate_checkpoint(folder, EPISODES)
    return LearningCurve.of(result.reports, played["mean_return"], played["cut_off"])


@dataclass(frozen=True, kw_only=True)
class LearningJob(Job[LearningCurve]):
    """A run under a strategy, as long as it is predicted to need for so many env steps."""

    kind: ClassVar[str] = "learning"
    is_gone_on_from: ClassVar[bool] = True
    game: str
    network: str
    latency: LatencyProfile
    strategy: Mapping[str, Any]
    """{"name": ..., "params": {...}, "label": ...}"""
    paced_by: CompressionSpec = IDENTITY
    """whose predicted pace sets the length: that of the strategy's only spec, or of any of them"""
    settings: Mapping[str, Any]
    env_steps: int
    seed: int
    until_score: float | None = None
    """see `RunConfig`: the run may end before it has made `env_steps`"""
    start: LearningJob | None = None
    """done before; the run begins with the learner that it left in `start.out`"""

    @classmethod
    def with_spec(cls, spec: CompressionSpec, **values: Any) -> LearningJob:
        """Return the job of acting with one spec throughout."""
        return cls(strategy=acting_with(spec), paced_by=spec, **values)

    def config(self) -> RunConfig:
        """Return the run's configuration, its length included; without a folder to start from."""
        return self._lasting(self.env_steps / self.predicted_pace)

    def _lasting(self, seconds: float) -> RunConfig:
        given = {
            "runtime.runtime": "serial",
            "runtime.clock": "virtual",
            "runtime.eval_episodes": 0,
            **self.settings,
            "runtime.interval_seconds": seconds / INTERVALS,
        }
        return configure(
            self.game,
            given,
            label="setting",
            network=self.network,
            seconds=seconds,
            until_score=self.until_score,
            seed=self.seed,
        )

    def check(self) -> None:
        """Refuse, before anything is written, a machine without times for all that may act.

        Raises:
            UserError: it is one.
        """
        config, strategy = self.config(), described(self.strategy)
        check_startable(config, strategy, times=self.latency)
        check_times(strategy, times_of_run(self.latency, config), config)

    @property
    def predicted_pace(self) -> float:
        """Env steps a second of its machine while `paced_by` acts."""
        config = self._lasting(1.0)
        times = times_of_run(self.latency, config)
        return predict(times, config, self.paced_by).env_steps_per_second

    @property
    def predicted_env_steps(self) -> float:
        """Env steps that it is predicted to make; at most, where many specs may act."""
        config = self.config()
        times = times_of_run(self.latency, config)
        specs = specs_of(described(self.strategy)) or (self.paced_by,)
        known = [spec for spec in specs if times.has(spec)]
        paces = [predict(times, config, spec).env_steps_per_second for spec in known]
        return max(paces) * config.seconds

    def to_json(self) -> dict[str, Any]:
        """Return all fields, and a hash of the run's settings."""
        own = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "out"}
        plain = {
            "paced_by": self.paced_by.to_json(),
            "latency": self.latency.to_json(),
            "start": None if self.start is None else self.start.to_json(),
        }
        return {"kind": self.kind, **config_key(self.config()), **own, **plain}

    def run(self) -> LearningCurve:
        """Do the run, with records where `out` is given, and play with the learner it ends with."""
        strategy = described(self.strategy)
        config = self.config()
        if self.start is not None:  # not in `config()`, whose hash knows no folders
            config = replace(config, start=str(self.start.out))
        label = self.strategy["label"]
        return learn(config, strategy, label, self.out, profile=self.latency)

    @classmethod
    def read_result(cls, data: Mapping[str, Any]) -> LearningCurve:
        """Read a curve."""
        return LearningCurve(**data)
