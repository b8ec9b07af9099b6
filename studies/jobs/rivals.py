"""Training of rivals as jobs: their inner runs follow each other, so a rival is one job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from accerl.spec import CompressionSpec
from controller.comparators.ppo import PPOConfig, TrainedPPO, train_ppo
from controller.env.instances import Instance
from controller.env.machine_instances import DrawnInstances
from studies.jobs.executor import Job, config_key
from studies.jobs.inner import score


@dataclass(frozen=True, kw_only=True)
class PPOJob(Job[TrainedPPO]):
    """Trains PPO; fields are the arguments of `train_ppo`, but for what is simulated.

    ``strategy.to_json()`` of the result is a description as `build_strategy` takes it.
    """

    kind: ClassVar[str] = "sb3-ppo"
    instances: tuple[Instance, ...]
    specs: tuple[CompressionSpec, ...]
    seeds: tuple[int, ...]
    validation: tuple[tuple[Instance, int], ...]
    inner_runs: int
    seed: int
    config: PPOConfig = field(default_factory=PPOConfig)
    simulated_runs: int = 0
    """of instances that are drawn from the training split of tier 0"""
    keeps_pace: bool = False
    """whether students of the drawn games are distilled as often as Atari's"""

    def to_json(self) -> dict[str, Any]:
        """Return all fields, and of every instance the run's settings and the machine."""
        return {
            "kind": self.kind,
            "instances": [_described(instance, 0) for instance in self.instances],
            "specs": [spec.to_json() for spec in self.specs],
            "seeds": list(self.seeds),
            "validation": [_described(*turn) for turn in self.validation],
            "inner_runs": self.inner_runs,
            "seed": self.seed,
            "settings": asdict(self.config),
            "simulated_runs": self.simulated_runs,
            "keeps_pace": self.keeps_pace,
            "judged_by": "seconds to target",
        }

    def run(self) -> TrainedPPO:
        """Train it here."""
        drawn = DrawnInstances("train", keeps_pace=self.keeps_pace)
        return train_ppo(
            self.instances,
            self.specs,
            seeds=self.seeds,
            validation=self.validation,
            inner_runs=self.inner_runs,
            seed=self.seed,
            config=self.config,
            simulated=drawn if self.simulated_runs else None,
            simulated_runs=self.simulated_runs,
            score=score,
        )

    @classmethod
    def read_result(cls, data: Mapping[str, Any]) -> TrainedPPO:
        """Read a result."""
        return TrainedPPO.from_json(data)


def _described(instance: Instance, seed: int) -> dict[str, Any]:
    latency = None if instance.latency is None else instance.latency.hash
    known = {**config_key(instance.config(seed)), "latency": latency}
    return {"instance": instance.to_json(), "seed": seed, **known}
