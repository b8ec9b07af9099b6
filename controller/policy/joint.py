"""The joint distribution of several heads, over the combinations that exist.

The score of a combination is the sum of its heads' logits, and its probability the softmax of the
scores over what exists. Where everything exists, that is the product of the heads' own softmaxes.
Combinations are in the order of `Actions.all_indices`: the last head's index runs fastest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F


def joint_matrix(sizes: Sequence[int]) -> Tensor:
    """Return [sum of sizes, N]: logits of all heads side by side, times this, are the scores."""
    combinations = torch.tensor(list(product(*map(range, sizes))))
    columns = [F.one_hot(combinations[:, head], size) for head, size in enumerate(sizes)]
    return torch.cat(columns, dim=1).float().T.contiguous()


def masked_log_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return log-probabilities [..., N] of scores [..., N]; minus infinity for what is missing.

    Args:
        scores: of every combination.
        mask: which exist, bool, of a shape that broadcasts; None: all.
    """
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return torch.log_softmax(scores, dim=-1)


def _finite(log_probs: Tensor) -> Tensor:
    """Return log-probabilities with 0 for what is missing: 0 log 0 is 0, also in the gradient."""
    return log_probs.masked_fill(log_probs == -math.inf, 0.0)


def entropy_nats(log_probs: Tensor) -> Tensor:
    """Return the entropy [...] of log-probabilities [..., N], in nats."""
    return -(log_probs.exp() * _finite(log_probs)).sum(-1)


def masked_kl_nats(log_probs: Tensor, other: Tensor) -> Tensor:
    """Return KL(p || q) [...] in nats of two log-probabilities [..., N] with one mask."""
    return (log_probs.exp() * (_finite(log_probs) - _finite(other))).sum(-1)


def cross_entropy_nats(weights: Tensor, log_probs: Tensor) -> Tensor:
    """Return -sum(weights * log p) [...]; `weights` [..., N] are 0 for what is missing."""
    return -(weights * _finite(log_probs)).sum(-1)


def draw(
    probs: np.ndarray, sizes: Sequence[int], mask: np.ndarray, uniforms: np.ndarray
) -> tuple[int, ...]:
    """Draw one combination by inverse CDF, head after head, each given those before it.

    Where everything exists, every head is drawn from its own softmax. What is missing is never
    drawn, whatever the rounding.

    Args:
        probs: of every combination, [N].
        sizes: levels per head.
        mask: which combinations exist, bool [N]; at least one does.
        uniforms: one number in [0, 1] per head; 1 - u mirrors the draw.
    """
    grid, exists = probs.reshape(sizes), mask.reshape(sizes)
    indices = []
    for uniform in uniforms:
        rest = tuple(range(1, grid.ndim))
        levels = np.flatnonzero(exists.any(axis=rest))
        edges = np.cumsum(grid.sum(axis=rest)[levels])
        # The last edge may round to just under the total; it is left out, so the draw is valid.
        place = np.searchsorted(edges[:-1] / edges[-1], uniform, side="right")
        index = int(levels[place])
        indices.append(index)
        grid, exists = grid[index], exists[index]
    return tuple(indices)
