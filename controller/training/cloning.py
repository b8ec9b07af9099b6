"""Behaviour cloning: start meta-training from a hand-set strategy instead of from nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from accerl.errors import UserError
from accerl.monitor.strategy import Strategy
from controller.env.control_env import CompressionControlEnv
from controller.policy.joint import cross_entropy_nats
from controller.policy.policy import ControllerPolicy
from controller.training.batch import make_batch, padded
from controller.training.rollouts import RecordedEpisode, play_episode


def record(
    env: CompressionControlEnv, strategy: Strategy, seeds: Sequence[int]
) -> list[RecordedEpisode]:
    """Drive `env` with `strategy` and return its observations and choices, an episode per seed.

    A mix of specs is recorded as its main spec, because a controller chooses one spec at a time.

    Raises:
        UserError: the strategy chose a spec that the environment's action space lacks.
    """
    episodes = []
    for seed in seeds:
        strategy.reset()
        episodes.append(play_episode(env, seed, lambda *_: strategy.decide(env.features)))
    return episodes


def clone(
    policy: ControllerPolicy,
    episodes: Sequence[RecordedEpisode],
    *,
    smoothing: float = 0.1,
    steps: int = 300,
    learning_rate: float = 0.02,
) -> float:
    """Fit the policy to recorded choices; return the share of steps at which it repeats them.

    The normaliser is fitted first, then the weights by cross-entropy, every step weighing what its
    interval lasted. The target of a step is soft: `smoothing` of its probability is spread evenly
    over all existing combinations, so that a clone still explores. The choice itself must exist.

    Args:
        policy: trained in place.
        episodes: what `record` returned.
        smoothing: in [0, 1); 0 clones as hard as the steps allow.
        steps: of Adam, each on everything.
        learning_rate: of Adam.

    Raises:
        UserError: nothing was recorded, a choice does not exist, or `smoothing` is out of range.
    """
    if not episodes:
        raise UserError("cloning: nothing was recorded; give at least one seed")
    if not 0.0 <= smoothing < 1.0:
        raise UserError(f"cloning: smoothing must lie in [0, 1), got {smoothing:g}")
    policy.normaliser.fit(np.concatenate([episode.observations for episode in episodes]))
    batch = make_batch(policy.sizes, episodes)
    weights = padded([episode.seconds for episode in episodes])[batch.counts].float()
    weights = weights / weights.sum()
    places = batch.places[batch.counts]
    exists = batch.masks.expand(-1, batch.counts.shape[1], -1)[batch.counts]
    targets = _soft_targets(places, exists, smoothing)
    optimizer = torch.optim.Adam(policy.parameters(), lr=learning_rate)
    for _ in range(steps):
        loss = (weights * cross_entropy_nats(targets, batch.log_probs(policy))).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        repeated = batch.log_probs(policy).argmax(dim=-1) == places
    return repeated.float().mean().item()


def _soft_targets(places: Tensor, exists: Tensor, smoothing: float) -> Tensor:
    """Return target probabilities [S, N] of choices [S], given which combinations exist [S, N]."""
    if not bool(exists.gather(-1, places.unsqueeze(-1)).all()):
        raise UserError(
            "cloning: the strategy chose a combination that does not exist for its learner on its "
            "machine; clone one that keeps to `info['action_mask']`"
        )
    spread = smoothing * exists / exists.sum(-1, keepdim=True)
    chosen = torch.nn.functional.one_hot(places, exists.shape[1])
    return (1.0 - smoothing) * chosen + spread
