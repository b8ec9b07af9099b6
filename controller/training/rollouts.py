"""Rollouts: what meta-training learns from, made by a pure function of plain data.

`rollout` depends on its arguments alone and returns arrays and numbers, so a caller may run many
of them in other processes or on other machines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from accerl.errors import UserError
from accerl.seeds import Role, generator
from accerl.spec import Decision
from controller.actions import Actions
from controller.env.control_env import CompressionControlEnv
from controller.env.instances import Instance
from controller.policy.dwell import Dwell
from controller.policy.policy import ControllerPolicy


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedEpisode:
    """The observations and choices of one episode of K steps."""

    observations: np.ndarray
    """float32 [K, F]: the feature vectors"""
    actions: np.ndarray
    """int64 [K, heads]: level indices"""
    mask: np.ndarray
    """bool [N]: which combinations exist, in the order of `Actions.all_indices`"""
    seconds: np.ndarray
    """float64 [K]: real length of every interval"""
    rewards: np.ndarray
    """float64 [K]: normalised gains, not discounted"""

    def __len__(self) -> int:
        """K."""
        return len(self.seconds)

    def discounted(self, beta: float) -> np.ndarray:
        """Return exp(-beta t_k) r_k, float64 [K], t_k the clock after step k.

        Their sum is the outer objective, `objective.discounted_gain`.
        """
        return self.rewards * np.exp(-beta * np.cumsum(self.seconds))

    def to_json(self) -> dict[str, Any]:
        """Return all fields as plain numbers and lists."""
        values = vars(self).items()
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in values}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote; further keys are ignored."""
        values = {field.name: data[field.name] for field in fields(cls)}
        arrays = {k: np.asarray(values[k], dtype=t) for k, t in _DTYPES.items() if k in values}
        return cls(**{**values, **arrays})


@dataclass(frozen=True, kw_only=True, eq=False)
class Trajectory(RecordedEpisode):
    """One episode in which a controller acted.

    Raises:
        UserError: a reward is not finite, or an interval has no length.
    """

    instance: str
    seed: int
    action_seed: int | None
    """of the controller's random numbers; None: it took the most likely action"""
    chosen: np.ndarray
    """bool [K]: whether the step was free to choose; where not, the action before was held"""
    log_probs: np.ndarray
    """float64 [K]: of the joint action, under the policy that acted; 0 where it was held"""
    beta: float
    """discount rate per second"""
    horizon_seconds: float
    interval_seconds: float
    """length of an interval that nothing delays"""
    first_interval_seconds: float = 0.0
    """of the first one; 0: as long as the others"""

    @property
    def lengths(self) -> tuple[float, float, float]:
        """Horizon, interval and first interval, in seconds; see `objective.num_intervals`."""
        return self.horizon_seconds, self.interval_seconds, self.first_interval_seconds

    def __post_init__(self) -> None:
        broken = ~np.isfinite(self.rewards) | ~(self.seconds > 0.0)
        if broken.any():
            step = int(np.argmax(broken))
            raise UserError(
                f"meta-training: the rollout of {self.instance}, seed {self.seed}, action seed "
                f"{self.action_seed}, has reward {self.rewards[step]} and {self.seconds[step]} "
                f"seconds at step {step}; rewards must be finite and seconds positive"
            )

    @property
    def discounted_rewards(self) -> np.ndarray:
        """See `RecordedEpisode.discounted`."""
        return self.discounted(self.beta)

    @property
    def gain(self) -> float:
        """The outer objective of this episode, `objective.discounted_gain`."""
        return float(self.discounted_rewards.sum())


_DTYPES = {
    "observations": np.float32,
    "actions": np.int64,
    "mask": np.bool_,
    "seconds": np.float64,
    "chosen": np.bool_,
    "log_probs": np.float64,
    "rewards": np.float64,
}


def play_episode(
    env: CompressionControlEnv, seed: int, choose: Callable[[np.ndarray, np.ndarray], Decision]
) -> RecordedEpisode:
    """Play one episode and record it; of a mix of specs, its main spec.

    Args:
        env: the environment.
        seed: what it is reset with.
        choose: feature vector [F] and mask [N] -> decision of the next interval.

    Raises:
        UserError: a spec is not in the environment's action space.
    """
    observation, info = env.reset(seed=seed)
    mask, truncated = info["action_mask"], False
    observations, actions, seconds, rewards = [], [], [], []
    while not truncated:
        decision = choose(observation, mask)
        observations.append(observation)
        actions.append(env.actions.indices(decision.main))
        observation, reward, _, truncated, info = env.step_decision(decision)
        seconds.append(info["seconds"])
        rewards.append(reward)
    return RecordedEpisode(
        observations=np.array(observations, dtype=np.float32),
        actions=np.array(actions, dtype=np.int64),
        mask=mask,
        seconds=np.array(seconds),
        rewards=np.array(rewards),
    )


def rollout(
    policy_state: Mapping[str, Any],
    actions: Actions,
    instance: Instance,
    seed: int,
    action_seed: int | None,
    *,
    antithetic: bool = True,
    min_dwell_intervals: int = 1,
) -> Trajectory:
    """Play one episode and return it; the same arguments give the same trajectory.

    Args:
        policy_state: `ControllerPolicy.to_json`.
        actions: what the policy's heads stand for.
        instance: the outer task.
        seed: of the inner run.
        action_seed: of the controller's random numbers; with `antithetic`, an odd one mirrors the
            even one before it. None takes the most likely action of every step.
        antithetic: whether action seeds come in mirrored pairs.
        min_dwell_intervals: how long a decision is held at least, as by `LearnedStrategy`.
    """
    policy = ControllerPolicy.from_json(policy_state)
    mirrored = antithetic and action_seed is not None and action_seed % 2 == 1
    rng = (
        None if action_seed is None else generator(action_seed - mirrored, Role.CONTROLLER_ACTIONS)
    )
    dwell = Dwell[tuple[int, ...]](min_dwell_intervals)
    chosen: list[bool] = []
    log_probs: list[float] = []

    def choose(observation: np.ndarray, mask: np.ndarray) -> Decision:
        uniforms = None if rng is None else rng.random(len(policy.sizes))
        if uniforms is not None and mirrored:
            uniforms = 1.0 - uniforms
        action = policy.act(observation, uniforms, mask=mask)
        indices, free = dwell.settle(action.indices)
        chosen.append(free)
        log_probs.append(action.log_prob if free else 0.0)
        return actions.decision(indices)

    with closing(CompressionControlEnv([instance], actions=actions)) as env:
        episode = play_episode(env, seed, choose)
    return Trajectory(
        **vars(episode),
        instance=instance.name,
        seed=seed,
        action_seed=action_seed,
        chosen=np.array(chosen),
        log_probs=np.array(log_probs),
        beta=env.beta,
        horizon_seconds=instance.horizon_seconds,
        interval_seconds=instance.interval_seconds,
        first_interval_seconds=instance.first_interval_seconds,
    )
