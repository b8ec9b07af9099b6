"""Stable-Baselines3 accepts the outer environment and learns to steer tier 0."""

from __future__ import annotations

import numpy as np
import pytest
from stable_baselines3.common.env_checker import check_env

from accerl.monitor.features import Features
from accerl.spec import Decision
from controller.actions import find_actions
from controller.comparators.ppo import PPOConfig, train_ppo
from controller.env.control_env import CompressionControlEnv
from controller.env.play import play
from tests.fixtures.controllers.outer_envs import drawn_instance, tiny_instance

ACTIONS = find_actions("joint")


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize(
    ("tier", "action_space"),
    [
        ("analytic", "factored"),
        ("analytic", "joint"),
        pytest.param("virtual", "factored", marks=pytest.mark.slow),
        pytest.param("virtual", "joint", marks=pytest.mark.slow),
    ],
)
def test_stable_baselines_checker_passes(tier: str, action_space: str) -> None:
    instances = None if tier == "analytic" else [tiny_instance()]
    env = CompressionControlEnv(instances, actions=find_actions(action_space))
    check_env(env)
    assert env.observation_space.contains(env.reset(seed=0)[0])
    env.close()


class Uniform:
    """Any spec, whatever is seen."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def reset(self) -> None:
        pass

    def decide(self, features: Features) -> Decision:
        return ACTIONS.decision((int(self.rng.integers(len(ACTIONS.all_specs))),))


@pytest.mark.slow
def test_ppo_learns_to_steer_tier_0() -> None:
    instance = drawn_instance(intervals=12)
    result = train_ppo(
        [instance], ACTIONS.all_specs, seeds=range(100), validation=[(instance, 1000)],
        inner_runs=120, seed=0, config=PPOConfig(learning_rate=3e-3, entropy=0.0),
    )  # fmt: skip
    random = np.mean([play(Uniform(n), instance, n).gain(instance) for n in range(20)])
    played = [result.strategy.play(instance, seed) for seed in range(2000, 2005)]
    learned = np.mean([each.gain(instance) for each in played]) / instance.fp32_gain
    assert learned > 1.1 * random
