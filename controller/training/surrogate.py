"""The clipped policy gradient on groups of rollouts, also of rollouts that are a little old.

    advantage = V-trace over the episode, against the mean of the others of the group
    objective = mean over free steps of  min(r A, clip(r) A)  +  w H  -  u KL(policy || clone)

with r the ratio to the policy at the beginning of the update (PPO, Schulman et al. 2017). What a
rollout's own policy, perhaps some iterations old, did differently is a truncated weight inside A
(Espeholt et al. 2018; decoupled from r as by Hilton et al. 2022, "Batch size-invariance").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from accerl.correct import vtrace
from controller.policy.joint import entropy_nats, masked_kl_nats
from controller.policy.policy import ControllerPolicy
from controller.training.baselines import group_baselines, instance_factors
from controller.training.batch import Batch, make_batch, padded
from controller.training.config import MetaTrainConfig
from controller.training.rollouts import Trajectory


class Surrogate(NamedTuple):
    """The objective and what it is made of, means over the steps that count."""

    objective: Tensor
    """to be maximised, a scalar with gradient"""
    entropy_nats: Tensor
    kl_nats: Tensor
    """estimate of KL(policy at the beginning || policy)"""
    clone_kl_nats: Tensor
    """KL(policy || clone); 0 without a clone"""
    clipped_share: Tensor
    """share of steps whose ratio has left the clip"""


def surrogate(
    policy: ControllerPolicy,
    batch: Batch,
    before: Tensor,
    advantage: Tensor,
    config: MetaTrainConfig,
    clone_log_probs: Tensor | None = None,
) -> Surrogate:
    """Return the clipped objective of one pass.

    Args:
        policy: what is trained.
        batch: of E episodes, S steps of which count.
        before: log-probabilities of the actions at the beginning of the update, [S].
        advantage: scaled, [S].
        config: the clip, and the weights of entropy and clone.
        clone_log_probs: of all combinations under the clone, [S, N]; None: no clone.
    """
    log_probs = batch.log_probs(policy)
    log_prob = batch.of_actions(log_probs)
    ratio = torch.exp(log_prob - before)
    clipped = torch.clamp(ratio, 1.0 - config.clip, 1.0 + config.clip)
    objective = torch.minimum(ratio * advantage, clipped * advantage).mean()
    entropy = entropy_nats(log_probs).mean()
    objective = objective + config.entropy_weight * entropy
    clone_kl = torch.zeros(())
    if clone_log_probs is not None:
        clone_kl = masked_kl_nats(log_probs, clone_log_probs).mean()
        objective = objective - config.clone_kl_weight * clone_kl
    return Surrogate(
        objective,
        entropy,
        (before - log_prob).mean(),
        clone_kl,
        (ratio != clipped).float().mean(),
    )


class Advantages(NamedTuple):
    """Advantages of the steps that count, [S] each, float64."""

    raw: Tensor
    """in units of the outer objective, with their importance weights"""
    scaled: Tensor
    """balanced between instances, then divided by their common spread"""
    truncated_share: float
    """share of steps whose importance weight was truncated"""


def corrected_advantages(
    groups: Sequence[Sequence[Trajectory]], batch: Batch, before: Tensor, block: int
) -> Advantages:
    """Return the advantages of every free step of the groups' rollouts, in their order.

    V-trace with the group's baseline as the value of a moment, and importance weights of at most 1:
    for a rollout of the current policy Monte-Carlo returns minus the baseline. Shorter returns
    would not cancel the noise of a measured return, which is in two rewards with opposite signs.
    Advantages are scaled by their common spread but not centred: the baseline has done that, and
    centring over the whole batch would let one game's luck leak into another.

    Args:
        groups: of rollouts.
        batch: the same rollouts.
        before: log-probabilities of the actions under the current policy, [S].
        block: how many rollouts of a group share their action noise.
    """
    trajectories = [trajectory for group in groups for trajectory in group]
    baselines = [row for group in groups for row in group_baselines(group, block)]
    acted = padded([trajectory.log_probs for trajectory in trajectories])
    now = torch.zeros_like(acted)  # a held step was no choice: its ratio is 1
    now[batch.counts] = before.double()
    rewards = padded([trajectory.discounted_rewards for trajectory in trajectories])
    advantage = vtrace(
        behaviour_logp_t=acted.T,
        target_logp_t=now.T,
        reward_t=rewards.T,
        discount_t=torch.ones_like(rewards.T),  # rewards are discounted to the start already
        value_t=padded(baselines).T,
        bootstrap_value=torch.zeros(len(trajectories), dtype=torch.float64),
    ).pg_advantage.T
    names = [trajectory.instance for trajectory in trajectories]
    each = [row[free].numpy() for row, free in zip(advantage, batch.counts, strict=True)]
    factors = torch.from_numpy(instance_factors(names, each))
    raw = advantage[batch.counts]
    scaled = (advantage * factors.unsqueeze(1))[batch.counts]
    ratio = torch.exp(now - acted)[batch.counts]
    # Ratios of fresh rollouts are 1 but for rounding, which is no truncation.
    truncated = (ratio > 1.0 + 1e-3).double().mean().item()
    return Advantages(raw, scaled / (scaled.std(correction=0) + 1e-8), truncated)


def update(
    policy: ControllerPolicy,
    optimizer: torch.optim.Optimizer,
    groups: Sequence[Sequence[Trajectory]],
    config: MetaTrainConfig,
    *,
    clone: ControllerPolicy | None = None,
) -> dict[str, float]:
    """Improve the policy on groups of rollouts and return what happened.

    Args:
        policy: trained in place.
        optimizer: of its parameters.
        groups: rollouts that share instance and seed, of this policy or of recent ones.
        config: how.
        clone: what the policy is kept near; None: nothing.

    Raises:
        UserError: the rollouts of a group do not belong together.
    """
    trajectories = [trajectory for group in groups for trajectory in group]
    batch = make_batch(
        policy.sizes, trajectories, [trajectory.chosen for trajectory in trajectories]
    )
    with torch.no_grad():
        before = batch.of_actions(batch.log_probs(policy))
        clone_log_probs = None if clone is None else batch.log_probs(clone)
    advantages = corrected_advantages(groups, batch, before, config.block)
    stats: dict[str, float] = {}
    for _ in range(config.epochs):
        scaled = advantages.scaled.float()
        found = surrogate(policy, batch, before, scaled, config, clone_log_probs)
        optimizer.zero_grad()
        (-found.objective).backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), config.max_gradient_norm)
        optimizer.step()
        stats = {
            name: value.item() for name, value in found._asdict().items() if name != "objective"
        }
    return {
        "advantage_std": advantages.raw.std(correction=0).item(),
        "truncated_share": advantages.truncated_share,
        **stats,
    }
