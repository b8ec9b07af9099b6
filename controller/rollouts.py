"""Rollouts: what meta-training learns from, made by a pure function of plain data.

`rollout` depends on its arguments alone and returns arrays and numbers, so a caller may run many
of them in other processes or on other machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from controller.actions import Actions
from controller.env import CompressionControlEnv
from controller.instances import Instance
from controller.policy import ControllerPolicy


@dataclass(frozen=True, kw_only=True, eq=False)
class Trajectory:
    """One episode of the controller, K steps."""

    instance: str
    seed: int
    action_seed: int
    observations: np.ndarray
    """float32 [K, F]: what the policy saw"""
    actions: np.ndarray
    """int64 [K, heads]"""
    log_probs: np.ndarray
    """float64 [K]: of the joint action, under the policy that acted"""
    rewards: np.ndarray
    """float64 [K]: normalised gains, not discounted"""
    discount: float
    """factor per step"""

    def to_json(self) -> dict[str, Any]:
        """Return the trajectory as plain numbers and lists."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in values.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Trajectory:
        """Read a trajectory written by `to_json`."""
        arrays = {
            "observations": np.asarray(data["observations"], dtype=np.float32),
            "actions": np.asarray(data["actions"], dtype=np.int64),
            "log_probs": np.asarray(data["log_probs"], dtype=np.float64),
            "rewards": np.asarray(data["rewards"], dtype=np.float64),
        }
        return cls(**{**data, **arrays})


def rollout(
    policy_state: Mapping[str, Any],
    actions: Actions,
    instance: Instance,
    seed: int,
    action_seed: int,
    *,
    antithetic: bool = True,
) -> Trajectory:
    """Play one episode and return it; the same arguments give the same trajectory.

    Args:
        policy_state: `ControllerPolicy.to_json`.
        actions: what the policy's heads stand for.
        instance: the outer task.
        seed: of the inner run.
        action_seed: of the controller's dice; with `antithetic`, an odd one mirrors the even
            one before it.
        antithetic: whether action seeds come in mirrored pairs.
    """
    policy = ControllerPolicy.from_json(policy_state)
    mirrored = antithetic and action_seed % 2 == 1
    dice = np.random.default_rng(action_seed - mirrored)
    observations, indices, log_probs, rewards, discount = [], [], [], [], 1.0
    env = CompressionControlEnv([instance], actions=actions)
    try:
        observation, _ = env.reset(seed=seed)
        truncated = False
        while not truncated:
            uniforms = dice.random(len(policy.sizes))
            action = policy.sample(observation, 1.0 - uniforms if mirrored else uniforms)
            observations.append(observation)
            indices.append(action.indices)
            log_probs.append(action.log_prob)
            observation, reward, _, truncated, info = env.step(np.array(action.indices))
            rewards.append(reward)
            discount = info["discount"]
    finally:
        env.close()
    return Trajectory(
        instance=instance.name,
        seed=seed,
        action_seed=action_seed,
        observations=np.array(observations, dtype=np.float32),
        actions=np.array(indices, dtype=np.int64),
        log_probs=np.array(log_probs),
        rewards=np.array(rewards),
        discount=discount,
    )
