"""A frozen feature normaliser that travels with the policy: (x - mean) / std, clipped."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from accerl.errors import UserError


class FeatureNormaliser(nn.Module):
    """Normalises feature vectors [..., F] with constants; the identity unless fitted.

    The constants are buffers, so they are saved, exported and hashed with the weights and no
    gradient reaches them. They never move during a run: a controller must see the same scale
    when it is trained and when it is used.
    """

    mean: Tensor
    std: Tensor
    limit: Tensor

    def __init__(self, num_features: int) -> None:
        """Make the identity; it still clips at 10, beyond every feature's own range."""
        super().__init__()
        self.register_buffer("mean", torch.zeros(num_features))
        self.register_buffer("std", torch.ones(num_features))
        self.register_buffer("limit", torch.tensor(10.0))

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the normalised vectors, same shape."""
        return torch.clamp((vectors - self.mean) / self.std, -self.limit, self.limit)

    def fit(self, vectors: np.ndarray, *, limit: float = 5.0) -> None:
        """Freeze mean and standard deviation of `vectors` [N, F]; constant features keep std 1.

        Raises:
            UserError: there are no vectors, or one is not finite.
        """
        vectors = np.asarray(vectors, dtype=np.float64)
        if vectors.ndim != 2 or len(vectors) == 0 or vectors.shape[1] != len(self.mean):
            raise UserError(
                f"normaliser: expected vectors of shape [N, {len(self.mean)}] with N > 0, "
                f"got {list(vectors.shape)}"
            )
        if not np.isfinite(vectors).all():
            raise UserError("normaliser: the feature vectors contain NaN or infinity")
        std = vectors.std(axis=0)
        std[std < 1e-3] = 1.0
        self.mean.copy_(torch.from_numpy(vectors.mean(axis=0)))
        self.std.copy_(torch.from_numpy(std))
        self.limit.fill_(limit)
