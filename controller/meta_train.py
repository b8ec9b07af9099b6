"""Meta-training: a policy gradient over whole inner runs, with the variance taken out.

One inner run costs seconds to minutes, so hundreds of runs are all there is. An iteration is a
list of *groups*; the rollouts of a group share the game and the inner run's seed and differ only
in the controller's own dice. What the game and the seed do to the return is therefore common to a
group, and the mean of the *other* rollouts removes it without bias (leave-one-out baseline).

    collect groups -> advantage = return to go - mean of the others -> a few clipped epochs
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from accerl.errors import UserError
from controller.actions import Actions
from controller.analytic import Machine, sample_config
from controller.instances import Instance, analytic_instance
from controller.policy import ControllerPolicy
from controller.rollouts import Trajectory, rollout

__all__ = [
    "Instance",
    "MetaTrainConfig",
    "Trajectory",
    "advantages",
    "collect_group",
    "leave_one_out",
    "meta_train",
    "pretrain_tier0",
    "returns_to_go",
    "rollout",
    "update",
]


@dataclass(frozen=True, kw_only=True)
class MetaTrainConfig:
    """How to turn groups of rollouts into a better controller.

    Raises:
        UserError: a number is out of range, or a group is too small for its baseline.
    """

    groups: int = 8
    """(game, seed) pairs per iteration"""
    rollouts: int = 4
    """rollouts per group"""
    antithetic: bool = True
    """draw rollouts in pairs with mirrored action noise, u and 1 - u"""
    learning_rate: float = 0.02
    epochs: int = 4
    """passes over the same rollouts"""
    clip: float = 0.2
    """how far the probability ratio may move before its gradient stops"""
    entropy_weight: float = 0.01
    max_gradient_norm: float = 1.0

    def __post_init__(self) -> None:
        for name in ("groups", "epochs"):
            if getattr(self, name) < 1:
                raise UserError(f"meta-training: {name} must be 1 or more")
        for name in ("learning_rate", "clip", "max_gradient_norm"):
            if not getattr(self, name) > 0.0:
                raise UserError(f"meta-training: {name} must be positive")
        if not self.entropy_weight >= 0.0:
            raise UserError("meta-training: entropy_weight must not be negative")
        if self.antithetic and (self.rollouts < 4 or self.rollouts % 2):
            raise UserError("meta-training: antithetic rollouts come in pairs; use 4, 6, 8, ...")
        if self.rollouts < 2:
            raise UserError("meta-training: a leave-one-out baseline needs 2 rollouts or more")

    @property
    def block(self) -> int:
        """How many rollouts of a group share their action noise."""
        return 2 if self.antithetic else 1


def collect_group(
    policy_state: Mapping[str, Any],
    actions: Actions,
    instance: Instance,
    seed: int,
    first_action_seed: int,
    config: MetaTrainConfig,
) -> list[Trajectory]:
    """Play the rollouts of one group here, one after the other."""
    first_action_seed -= first_action_seed % config.block  # a pair starts at an even seed
    return [
        rollout(
            policy_state,
            actions,
            instance,
            seed,
            first_action_seed + member,
            antithetic=config.antithetic,
        )
        for member in range(config.rollouts)
    ]


def returns_to_go(rewards: np.ndarray, discount: float) -> np.ndarray:
    """Return sum over j >= k of discount^j r_j for every step k; rewards [..., K].

    Discounted to the start of the episode, not to step k: then the sum of gradient terms is the
    gradient of the outer objective itself, and late decisions weigh what they are worth.
    """
    discounted = rewards * discount ** np.arange(rewards.shape[-1])
    return np.flip(np.cumsum(np.flip(discounted, -1), -1), -1)


def leave_one_out(returns: np.ndarray, block: int = 1) -> np.ndarray:
    """Return each rollout's returns [K, T] minus the mean of the other rollouts' at the same step.

    Rollouts with shared action noise (a mirrored pair is a block of 2) are left out together:
    a baseline that depends on a rollout's own dice would bias the gradient.
    """
    members, steps = returns.shape
    if members % block or members <= block:
        raise UserError(
            f"leave-one-out: {members} rollouts do not make two or more blocks of {block}"
        )
    own = returns.reshape(members // block, block, steps).sum(axis=1).repeat(block, axis=0)
    return returns - (returns.sum(axis=0) - own) / (members - block)


def advantages(group: Sequence[Trajectory], block: int) -> np.ndarray:
    """Return the advantages [rollouts, K] of one group, in the order given.

    Raises:
        UserError: the rollouts do not share instance, seed, discount and number of steps.
    """
    if len({(t.instance, t.seed, t.discount, len(t.rewards)) for t in group}) != 1:
        raise UserError("meta-training: the rollouts of a group must share instance and seed")
    if len({t.action_seed for t in group}) != len(group):
        raise UserError("meta-training: two rollouts of a group share their action seed")
    pairs = [t.action_seed // block for t in group]
    if any(pairs[i] != pairs[i - i % block] for i in range(len(pairs))):
        raise UserError("meta-training: mirrored rollouts must stand side by side in their group")
    rewards = np.stack([trajectory.rewards for trajectory in group])
    return leave_one_out(returns_to_go(rewards, group[0].discount), block)


def update(
    policy: ControllerPolicy,
    optimizer: torch.optim.Optimizer,
    groups: Sequence[Sequence[Trajectory]],
    config: MetaTrainConfig,
) -> dict[str, float]:
    """Improve the policy on the rollouts of one iteration and return what happened.

    Advantages are scaled by their common spread but not centred: the baseline has done that, and
    centring over the whole batch would let one game's luck leak into another.
    """
    trajectories = [trajectory for group in groups for trajectory in group]
    observations = torch.from_numpy(np.concatenate([t.observations for t in trajectories]))
    actions = torch.from_numpy(np.concatenate([t.actions for t in trajectories]))
    acted = torch.from_numpy(np.concatenate([t.log_probs for t in trajectories])).float()
    raw = np.concatenate([advantages(group, config.block).ravel() for group in groups])
    advantage = torch.from_numpy(raw / (raw.std() + 1e-8)).float()

    stats: dict[str, float] = {}
    for _ in range(config.epochs):
        log_prob, entropy = policy.evaluate(observations, actions)
        ratio = torch.exp(log_prob - acted)
        clipped = torch.clamp(ratio, 1.0 - config.clip, 1.0 + config.clip)
        gain = torch.minimum(ratio * advantage, clipped * advantage).mean()
        loss = -gain - config.entropy_weight * entropy.mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), config.max_gradient_norm)
        optimizer.step()
        stats = {
            "entropy_nats": entropy.mean().item(),
            "kl_nats": (acted - log_prob).mean().item(),
            "clipped_share": (ratio != clipped).float().mean().item(),
        }
    gains = [float(returns_to_go(t.rewards, t.discount)[0]) for t in trajectories]
    return {"gain": float(np.mean(gains)), "advantage_std": float(raw.std()), **stats}


def meta_train(
    policy: ControllerPolicy,
    collect: Callable[[dict[str, Any], int], Sequence[Sequence[Trajectory]]],
    iterations: int,
    config: MetaTrainConfig,
) -> list[dict[str, float]]:
    """Alternate collecting and updating; return one row of statistics per iteration.

    Args:
        policy: trained in place.
        collect: (policy state, iteration) -> groups of rollouts, played wherever it likes.
        iterations: how often.
        config: how to update.
    """
    optimizer = torch.optim.Adam(policy.parameters(), lr=config.learning_rate, eps=1e-5)
    history = []
    for iteration in range(iterations):
        groups = collect(policy.to_json(), iteration)
        history.append({"iteration": iteration, **update(policy, optimizer, groups, config)})
    return history


def pretrain_tier0(
    policy: ControllerPolicy,
    actions: Actions,
    config: MetaTrainConfig,
    generator: np.random.Generator,
    iterations: int,
    machines: Sequence[Machine | None] = (None,),
) -> list[dict[str, float]]:
    """Train on analytic games, new ones every iteration: seconds instead of hours.

    The games of an iteration take turns on `machines`; None is a random one.
    """

    def collect(policy_state: dict[str, Any], iteration: int) -> list[list[Trajectory]]:
        groups = []
        for number in range(config.groups):
            machine = machines[number % len(machines)]
            game = sample_config(generator, machine)
            instance = analytic_instance(game, f"tier0-{iteration}-{number}")
            seed, action_seed = (int(draw) for draw in generator.integers(2**31, size=2))
            groups.append(collect_group(policy_state, actions, instance, seed, action_seed, config))
        return groups

    return meta_train(policy, collect, iterations, config)
