"""Meta-training on tier 0 as one job: it takes minutes and no inner run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch

from accerl.seeds import Role, torch_generator
from controller.indicator.gradient import GradientConfig
from controller.indicator.prior import Prior
from controller.indicator.scorer import SpecScorer
from controller.indicator.strategy import IndicatorSettings
from controller.indicator.training import train_on_tier0
from studies.jobs.executor import Job


@dataclass(frozen=True, kw_only=True)
class TrainedScorer:
    """What came of it."""

    scorer: Mapping[str, Any]
    """`SpecScorer.to_json`"""
    history: tuple[Mapping[str, float], ...]
    """a row of statistics per iteration"""

    def to_json(self) -> dict[str, Any]:
        """Return all fields."""
        return {"scorer": dict(self.scorer), "history": [dict(row) for row in self.history]}


@dataclass(frozen=True, kw_only=True)
class MetaTrainingJob(Job[TrainedScorer]):
    """Training a scorer on instances that are drawn from the training split."""

    kind: ClassVar[str] = "meta-training"
    scorer: Mapping[str, Any]
    """that it starts from"""
    prior: Prior
    settings: IndicatorSettings
    config: GradientConfig
    iterations: int
    evolution: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return all that the result depends on."""
        return {
            "kind": self.kind,
            "scorer": dict(self.scorer),
            "prior": self.prior.to_json(),
            "settings": self.settings.to_json(),
            "config": {**asdict(self.config), "sigma_limits": list(self.config.sigma_limits)},
            "iterations": self.iterations,
            "evolution": self.evolution,
        }

    def run(self) -> TrainedScorer:
        """Train here."""
        torch.set_num_threads(1)
        scorer = SpecScorer.from_json(self.scorer)
        history = train_on_tier0(
            scorer,
            self.prior,
            self.settings,
            self.config,
            self.iterations,
            evolution=self.evolution,
        )
        return TrainedScorer(scorer=scorer.to_json(), history=tuple(history))

    @classmethod
    def read_result(cls, data: Mapping[str, Any]) -> TrainedScorer:
        """Read a result."""
        return TrainedScorer(scorer=data["scorer"], history=tuple(data["history"]))


def first_scorer(seed: int) -> SpecScorer:
    """Return the rule that training starts from; the seed draws its hidden layer."""
    return SpecScorer(generator=torch_generator(seed, Role.CONTROLLER))
