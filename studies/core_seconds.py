"""What runs will take: core-seconds by game, before any of them is made."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from accerl.precision import BF16, FP32, choose_precision
from accerl.presets import load_preset
from accerl.records import write_json
from accerl.runtime.latency.games import times_of_run
from accerl.runtime.latency.predict import predict
from accerl.spec import CompressionSpec
from analysis.records.read import read_optional, shaped
from controller.env.instances import Instance
from studies.jobs.executor import Outcome
from studies.jobs.inner import StrategyResult

COSTS = "core-seconds.json"
SHAPE = {"games": {str: {"core_seconds": float, "env_steps": float}}, "jobs": [str]}
"""what it holds: sums by game, and the keys of the jobs that are in them"""
PER_1000 = {
    "catch": 0.03,
    "cartpole": 0.03,
    "acrobot": 0.12,
    "LunarLander-v3": 0.4,
    "minatar-freeway": 1.0,  # most of it J, whose episodes are long
    "pong": 1.2,
    "breakout": 1.2,
}
"""core-seconds per 1,000 env steps, J included, on a 2-core AMD EPYC"""
OTHERS_PER_1000 = {FP32: 0.13, BF16: 0.085}
"""of MinAtar's other games, by what the learner computes in"""


class CoreSeconds:
    """Core-seconds per env step by game: those of jobs that were done, or the table's.

    Args:
        out: the study's folder, where they are saved.
        unlike: games whose runs cost less here than the table says, because J is measured seldom.
    """

    def __init__(self, out: Path, unlike: Collection[str] = ()) -> None:
        self._unlike = unlike
        self._path = out / COSTS
        found = shaped(self._path, read_optional, SHAPE)
        self._done: dict[str, dict[str, float]] = found.get("games", {})
        self._counted = set(found.get("jobs", ()))  # tuning does not ask again for what has ended

    def add(self, game: str, outcome: Outcome[StrategyResult]) -> None:
        """Count a run, once."""
        if outcome.key in self._counted:
            return
        self._counted.add(outcome.key)
        sums = self._done.setdefault(game, {"core_seconds": 0.0, "env_steps": 0.0})
        sums["core_seconds"] += outcome.cpu_seconds
        sums["env_steps"] += outcome.result.env_steps[-1]

    def save(self) -> None:
        """Write what is known for the next start."""
        write_json(self._path, {"games": self._done, "jobs": sorted(self._counted)})

    @property
    def spent(self) -> float:
        """Core-seconds of all runs that were counted."""
        return sum(sums["core_seconds"] for sums in self._done.values())

    def per_step(self, game: str, precision: str = FP32) -> float:
        """Return the core-seconds of an env step, whose learner computes in fp32 or bf16."""
        sums = self._done.get(game, {"env_steps": 0.0})
        if sums["env_steps"]:
            return sums["core_seconds"] / sums["env_steps"]
        usual = OTHERS_PER_1000[precision]
        return (usual if game in self._unlike else PER_1000.get(game, usual)) / 1e3

    def of(self, instance: Instance, specs: Iterable[CompressionSpec]) -> float:
        """Return the core-seconds of a run of each spec on an instance."""
        assert instance.latency is not None
        config = instance.base or load_preset(instance.game)
        times = times_of_run(instance.latency, config)
        rates = [predict(times, config, spec).env_steps_per_second for spec in specs]
        precision = choose_precision(config.learner.precision)
        return self.per_step(instance.game, precision) * instance.horizon_seconds * sum(rates)
