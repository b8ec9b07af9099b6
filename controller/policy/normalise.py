"""A frozen feature normaliser that travels with the policy: (x - mean) / std, clipped.

It also decides which features a policy sees at all (`FEATURE_SETS`), for ablations: the others are
divided by so much that nothing of them is left. That is a constant like any other, so weights,
exports and hashes need to know nothing of it.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from accerl.errors import UserError, did_you_mean
from accerl.monitor.features import FEATURE_NAMES

UNSEEN_STD = 1e30
"""what a feature that is not seen is divided by: any float32 sum loses what is left of it"""

_OWN = ("bits_level", "sparsity", "student_level", "since_switch", "time_fraction")
_DIVERGENCE = (
    "log_kl_mean",
    "log_kl_max",
    "log_kl_std",
    "log_compression_kl",
    "log_staleness_kl",
    "argmax_agreement",
    "ess_fraction",
    "clipped_share",
    "entropy_fraction",
)
_RETURN = ("return_level", "return_trend", "return_slope", "stage", "explained_variance")
_MACHINE = (
    "log_speed",
    "learner_idle",
    "queue_fill",
    "log_policy_lag",
    "infer_share",
    "publish_share",
    "switch_share",
)
FEATURE_SETS: dict[str, tuple[str, ...]] = {
    "all": FEATURE_NAMES,
    "kl": _DIVERGENCE + _OWN,
    "reward": _RETURN + _OWN,
    "machine": _MACHINE + _OWN,
}
"""What a policy may see: how far compressed and learned policy are apart (and how sharp they are),
how returns come along, where the seconds go, or all of it. What the controller is doing, since
when, and how late it is, belongs to every set."""


def features_seen(name: str) -> np.ndarray:
    """Return which entries of the feature vector are in a set, bool [F].

    Raises:
        UserError: there is no such set.
    """
    if name not in FEATURE_SETS:
        hint = did_you_mean(name, list(FEATURE_SETS))
        raise UserError(f"feature set {name!r} does not exist; {hint}")
    return np.isin(FEATURE_NAMES, FEATURE_SETS[name])


class FeatureNormaliser(nn.Module):
    """Normalises feature vectors [..., F] with constants; the identity unless fitted.

    The constants are buffers, so they are saved, exported and hashed with the weights and no
    gradient reaches them. They never move during a run: a controller must see the same scale
    when it is trained and when it is used.
    """

    mean: Tensor
    std: Tensor
    limit: Tensor

    def __init__(self, num_features: int, seen: np.ndarray | None = None) -> None:
        """Make the identity; it still clips at 10, beyond every feature's own range.

        Args:
            num_features: F.
            seen: which features come through, bool [F]; None: all.
        """
        super().__init__()
        std = torch.ones(num_features)
        if seen is not None:
            std[torch.from_numpy(~seen)] = UNSEEN_STD
        self.register_buffer("mean", torch.zeros(num_features))
        self.register_buffer("std", std)
        self.register_buffer("limit", torch.tensor(10.0))

    @property
    def seen(self) -> np.ndarray:
        """Which features come through, bool [F]."""
        return (self.std < 0.5 * UNSEEN_STD).numpy()

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the normalised vectors, same shape."""
        return torch.clamp((vectors - self.mean) / self.std, -self.limit, self.limit)

    def fit(self, vectors: np.ndarray, *, limit: float = 5.0) -> None:
        """Freeze mean and standard deviation of `vectors` [N, F]; constant features keep std 1.

        Features that are not seen stay so.

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
        seen = self.seen
        std = vectors.std(axis=0)
        std[std < 1e-3] = 1.0
        self.mean.copy_(torch.from_numpy(np.where(seen, vectors.mean(axis=0), 0.0)))
        self.std.copy_(torch.from_numpy(np.where(seen, std, UNSEEN_STD)))
        self.limit.fill_(limit)
