"""Stable-Baselines3 accepts the outer environment and learns to steer tier 0."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env

from controller import ENV_ID
from controller.actions import find_actions
from controller.env.control_env import CompressionControlEnv
from tests.fixtures.controllers.outer_envs import tiny_instance


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("action_space", ["factored", "joint"])
@pytest.mark.parametrize("tier", ["analytic", "virtual"])
def test_stable_baselines_checker_passes(tier: str, action_space: str) -> None:
    instances = None if tier == "analytic" else [tiny_instance()]
    env = CompressionControlEnv(instances, actions=find_actions(action_space))
    check_env(env)
    assert env.observation_space.contains(env.reset(seed=0)[0])
    env.close()


def discounted_return(env: gymnasium.Env[Any, Any], model: PPO | None, seed: int) -> float:
    """What one episode brings, by a trained model or by random actions."""
    observation, _ = env.reset(seed=seed)
    env.action_space.seed(seed)
    total, discount, truncated = 0.0, 1.0, False
    while not truncated:
        if model is None:
            action = env.action_space.sample()
        else:
            action = model.predict(observation, deterministic=True)[0]
        observation, reward, _, truncated, info = env.step(action)
        total += discount * float(reward)
        discount *= info["discount"]
    return total


def test_ppo_learns_to_steer_tier_0() -> None:
    env = gymnasium.make(ENV_ID, action_space="joint")
    model = PPO(
        "MlpPolicy", env, n_steps=400, batch_size=100, n_epochs=8, learning_rate=3e-3,
        gamma=0.9, seed=0, device="cpu",
    )  # fmt: skip
    model.learn(2400)
    random = np.mean([discounted_return(env, None, seed) for seed in range(20)])
    learned = np.mean([discounted_return(env, model, seed) for seed in range(5)])
    assert learned > 1.1 * random
