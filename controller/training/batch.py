"""Episodes of any length as tensors, padded at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from controller.policy.policy import ControllerPolicy
from controller.training.rollouts import RecordedEpisode


def padded(arrays: Sequence[np.ndarray]) -> Tensor:
    """Return arrays [K_e, ...] as one tensor [episodes, max K, ...], zeros after their ends."""
    length = max(len(array) for array in arrays)
    rows = [np.pad(a, [(0, length - len(a))] + [(0, 0)] * (a.ndim - 1)) for a in arrays]
    return torch.from_numpy(np.stack(rows))


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Observations and choices of E episodes of up to K steps; S of all their steps count."""

    vectors: Tensor
    """float32 [E, K, F]"""
    places: Tensor
    """int64 [E, K]: what was chosen, in the order of `Actions.all_indices`"""
    masks: Tensor
    """bool [E, 1, N]: which combinations exist"""
    counts: Tensor
    """bool [E, K]: whether a step exists and was free to choose; S are"""

    def log_probs(self, policy: ControllerPolicy) -> Tensor:
        """Return the log-probabilities of all combinations at the steps that count, [S, N]."""
        return policy.log_probs(self.vectors, self.masks)[self.counts]

    def of_actions(self, log_probs: Tensor) -> Tensor:
        """Return the log-probabilities [S] of what was chosen, out of `log_probs` [S, N]."""
        return log_probs.gather(-1, self.places[self.counts].unsqueeze(-1)).squeeze(-1)


def make_batch(
    sizes: Sequence[int],
    episodes: Sequence[RecordedEpisode],
    chosen: Sequence[np.ndarray] | None = None,
) -> Batch:
    """Return a batch of episodes.

    Args:
        sizes: levels per head.
        episodes: one or more.
        chosen: which steps of each episode were free to choose, bool [K]; None: all.
    """
    if chosen is None:
        chosen = [np.ones(len(episode.actions), dtype=bool) for episode in episodes]
    return Batch(
        vectors=padded([episode.observations for episode in episodes]),
        places=padded([_places(episode.actions, sizes) for episode in episodes]),
        masks=torch.from_numpy(np.stack([episode.mask for episode in episodes])).unsqueeze(1),
        counts=padded(chosen),
    )


def _places(actions: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Return the places [K] in `Actions.all_indices` of level indices [K, heads]."""
    return np.asarray(np.ravel_multi_index(tuple(actions.T), tuple(sizes)))
