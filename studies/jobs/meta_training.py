"""Meta-training on tier 0 as one job: it takes minutes and no inner run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch

from accerl.seeds import Role, torch_generator
from controller.env.machine_instances import DrawnInstances
from controller.indicator.prior import Prior
from controller.indicator.scorer import SpecScorer
from controller.indicator.strategy import AdvancedIndicator, IndicatorSettings
from controller.indicator.trainable import read_indicator
from controller.indicator.training import train_on_tier0
from controller.training.gradient import GradientConfig
from studies.jobs.executor import Job


@dataclass(frozen=True, kw_only=True)
class TrainedPolicy:
    """What came of it."""

    policy: Mapping[str, Any]
    """`PolicyModule.to_json`"""
    history: tuple[Mapping[str, float], ...]
    """a row of statistics per iteration"""

    def to_json(self) -> dict[str, Any]:
        """Return all fields."""
        return {"policy": dict(self.policy), "history": [dict(row) for row in self.history]}


@dataclass(frozen=True, kw_only=True)
class MetaTrainingJob(Job[TrainedPolicy]):
    """Training an indicator on instances that are drawn from the training split."""

    kind: ClassVar[str] = "meta-training"
    indicator: Mapping[str, Any]
    """description of what training starts from, see `read_indicator`"""
    config: GradientConfig
    iterations: int
    evolution: bool = False
    keeps_pace: bool = False
    """whether students of the drawn games are distilled as often as Atari's"""

    def to_json(self) -> dict[str, Any]:
        """Return all that the result depends on."""
        return {
            "kind": self.kind,
            "indicator": dict(self.indicator),
            "config": {**asdict(self.config), "sigma_limits": list(self.config.sigma_limits)},
            "iterations": self.iterations,
            "evolution": self.evolution,
            "keeps_pace": self.keeps_pace,
        }

    def run(self) -> TrainedPolicy:
        """Train here."""
        torch.set_num_threads(1)
        indicator = read_indicator(self.indicator)
        drawn = DrawnInstances("train", keeps_pace=self.keeps_pace)
        history = train_on_tier0(
            indicator,
            self.config,
            self.iterations,
            evolution=self.evolution,
            draw=drawn.__getitem__,
        )
        return TrainedPolicy(policy=indicator.policy.to_json(), history=tuple(history))

    @classmethod
    def read_result(cls, data: Mapping[str, Any]) -> TrainedPolicy:
        """Read a result."""
        return TrainedPolicy(policy=data["policy"], history=tuple(data["history"]))


def first_indicator(settings: IndicatorSettings, seed: int) -> AdvancedIndicator:
    """Return the rule that training starts from; the seed draws its hidden layer."""
    scorer = SpecScorer(generator=torch_generator(seed, Role.CONTROLLER))
    return AdvancedIndicator(scorer, Prior(), settings)
