"""Search spaces of the strategies, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import optuna

from accerl.monitor.strategies import (
    AdviseKLCapStrategy,
    FirstThatFires,
    FixedStrategy,
    KLThresholdStrategy,
    Levels,
    LinearKLMixStrategy,
    RandomStrategy,
    RewardGapStrategy,
    ThreeStageStrategy,
)
from controller.comparators.bandits import SlidingWindowUCB, ThompsonBandit
from controller.comparators.gp_bandit import GPBandit

Params = dict[str, Any]


@dataclass(frozen=True)
class SearchSpace:
    """A strategy and what may be tuned about it."""

    name: str
    """as in `accerl train --strategy`"""
    key: str
    """folder and row name in the study"""
    label: str
    suggest: Callable[[optuna.Trial, Levels], Params]
    grid: bool = False
    """try every static spec instead of sampling"""

    def describe(self, params: Params) -> dict[str, Any]:
        """Return the description of the strategy that inner runs are given."""
        return {"name": self.name, "params": params, "label": self.key}


STATIC = SearchSpace("fixed", "static", "best static spec", FixedStrategy.suggest, grid=True)
KL_THRESHOLD = SearchSpace(
    "kl-threshold", "kl_threshold", "KL threshold", KLThresholdStrategy.suggest
)
REWARD_GAP = SearchSpace("reward-gap", "reward_gap", "reward gap", RewardGapStrategy.suggest)
SPACES_BY_NAME = {
    "fixed": STATIC,
    "kl-threshold": KL_THRESHOLD,
    "reward-gap": REWARD_GAP,
    "linear-kl": SearchSpace(
        "linear-kl", "linear_kl", "linear KL mix", LinearKLMixStrategy.suggest
    ),
    "three-stage": SearchSpace(
        "three-stage", "three_stage", "three stages", ThreeStageStrategy.suggest
    ),
    "advise-kl-cap": SearchSpace(
        "advise-kl-cap", "advise_kl_cap", "advise + KL cap", AdviseKLCapStrategy.suggest
    ),
    "random": SearchSpace("random", "random", "random specs", RandomStrategy.suggest),
    "first-that-fires": SearchSpace(
        "first-that-fires", "first_that_fires", "first that fires", FirstThatFires.suggest
    ),
    "sw-ucb": SearchSpace("sw-ucb", "sw_ucb", "sliding-window UCB", SlidingWindowUCB.suggest),
    "thompson": SearchSpace("thompson", "thompson", "Thompson bandit", ThompsonBandit.suggest),
    "gp-bandit": SearchSpace("gp-bandit", "gp_bandit", "Gaussian-process bandit", GPBandit.suggest),
}
"""every space that a study can tune"""
