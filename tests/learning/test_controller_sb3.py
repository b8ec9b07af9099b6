"""Stable-Baselines3 accepts the outer environment and learns to steer tier 0."""

from __future__ import annotations

import numpy as np
import pytest
from stable_baselines3.common.env_checker import check_env

from controller.actions import find_actions
from controller.analytic.model import AnalyticConfig
from controller.comparators.ppo import PPOConfig, train_ppo
from controller.env.control_env import CompressionControlEnv
from controller.env.instances import Instance, analytic_instance
from controller.training.rollouts import play_episode
from tests.fixtures.controllers.outer_envs import tiny_instance

ACTIONS = find_actions("joint")


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize(
    ("tier", "action_space"),
    [
        ("analytic", "factored"),
        ("analytic", "joint"),
        ("virtual", "factored"),
        pytest.param("virtual", "joint", marks=pytest.mark.slow),
    ],
)
def test_stable_baselines_checker_passes(tier: str, action_space: str) -> None:
    instances = None if tier == "analytic" else [tiny_instance()]
    env = CompressionControlEnv(instances, actions=find_actions(action_space))
    check_env(env)
    assert env.observation_space.contains(env.reset(seed=0)[0])
    env.close()


def uniform_gain(instance: Instance, seed: int) -> float:
    """What one episode of uniformly random specs brings."""
    env, rng = CompressionControlEnv([instance], actions=ACTIONS), np.random.default_rng(seed)
    size = len(ACTIONS.all_specs)
    episode = play_episode(env, seed, lambda *_: ACTIONS.decision((int(rng.integers(size)),)))
    return float(episode.discounted(env.beta).sum())


def test_ppo_learns_to_steer_tier_0() -> None:
    instance = analytic_instance(AnalyticConfig())
    result = train_ppo(
        [instance], ACTIONS.all_specs, seeds=range(100), validation=[(instance, 1000)],
        inner_runs=120, seed=0, config=PPOConfig(learning_rate=3e-3, entropy=0.0),
    )  # fmt: skip
    random = np.mean([uniform_gain(instance, seed) for seed in range(20)])
    learned = np.mean([result.strategy.gain(instance, seed) for seed in range(2000, 2005)])
    assert learned > 1.1 * random
