"""The learned controller against the known optimum of games it has never seen."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from controller.actions import ActionSpace
from controller.env import CompressionControlEnv
from controller.instances import analytic_instance
from controller.meta_train import MetaTrainConfig, pretrain_tier0
from controller.policy import ControllerPolicy
from controller.simulator import (
    AnalyticConfig,
    optimum,
    sample_config,
    schedule_value,
)

ACTIONS = ActionSpace()


def held_out(count: int) -> list[AnalyticConfig]:
    return [sample_config(np.random.default_rng(10_000 + number)) for number in range(count)]


def played_value(policy: ControllerPolicy, config: AnalyticConfig) -> float:
    """The noise-free value of what the greedy controller does in one noisy run."""
    env = CompressionControlEnv([analytic_instance(config)], actions=ACTIONS)
    observation, _ = env.reset(seed=50)
    schedule, truncated = [], False
    while not truncated:
        schedule.append(policy.act(observation).indices)
        observation, _, _, truncated, _ = env.step(np.array(schedule[-1]))
    return schedule_value(config, ACTIONS, schedule, env.instance.interval_seconds, env.beta)


@pytest.fixture(scope="module")
def games() -> list[tuple[AnalyticConfig, float, float]]:
    """Held-out games with their optimum and the value of their own best static."""
    env = CompressionControlEnv()
    task = env.instance
    found = []
    for config in held_out(6):
        best, _ = optimum(
            config, ACTIONS, task.horizon_seconds, task.interval_seconds, env.beta, grid_size=81
        )
        static = max(
            schedule_value(config, ACTIONS, [indices] * 20, task.interval_seconds, env.beta)
            for indices in ACTIONS.all_indices()
        )
        found.append((config, best, static))
    return found


@pytest.mark.parametrize("seed", [0, 1])
def test_pretraining_reaches_95_percent_of_the_optimum(
    games: list[tuple[AnalyticConfig, float, float]], seed: int
) -> None:
    policy = ControllerPolicy(ACTIONS.sizes, generator=torch.Generator().manual_seed(seed))
    untrained = np.mean([played_value(policy, config) / best for config, best, _ in games])
    config = MetaTrainConfig(groups=4, rollouts=8, epochs=8, learning_rate=0.03)
    history = pretrain_tier0(policy, ACTIONS, config, np.random.default_rng(seed), iterations=15)
    learned = np.mean([played_value(policy, config) / best for config, best, _ in games])
    static = np.mean([static / best for _, best, static in games])
    assert learned >= 0.95
    assert learned > static + 0.02  # better than knowing each game's own best static in advance
    assert learned > untrained + 0.05
    assert history[-1]["entropy_nats"] < history[0]["entropy_nats"]
