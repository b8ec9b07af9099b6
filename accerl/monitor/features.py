"""Features: what a strategy sees, raw by name and as a versioned vector without units."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

FEATURES_VERSION = 5
LIMIT = 3.0
"""every entry of the vector is clipped to [-LIMIT, LIMIT]"""


def _log(floor: float) -> Callable[[float], float]:
    """Return log10(x + floor) / 2 + 1: with floor 1e-4, 0 lies at -1 and 1 nat at 1."""
    return lambda value: math.log10(value + floor) / 2.0 + 1.0


@dataclass(frozen=True)
class Feature:
    """One entry of the vector: an indicator, made unitless."""

    name: str
    source: str
    """the raw indicator it is made of"""
    transform: Callable[[float], float] = float
    text: str = ""
    """the transform, for people"""
    unknown: float = 0.0
    """its value while the indicator is NaN"""

    def value(self, raw: Mapping[str, float]) -> float:
        """Return the entry, in [-LIMIT, LIMIT]."""
        value = raw[self.source]
        value = self.unknown if math.isnan(value) else self.transform(value)
        return min(max(value, -LIMIT), LIMIT)


_KL = (_log(1e-4), "log10(x + 0.0001) / 2 + 1")
_TIMES = (lambda x: math.log2(x) if x > 0.0 else 0.0, "log2(x)")
FEATURES = (
    # These three are 0 before the first rollout, so NaN says that a network has diverged.
    Feature("log_kl_mean", "kl_mean_nats", *_KL, unknown=LIMIT),
    Feature("log_kl_max", "kl_max_nats", *_KL, unknown=LIMIT),
    Feature(
        "log_kl_std",
        "kl_var",
        lambda x: _KL[0](math.sqrt(x)),
        "of its root, as log_kl_mean",
        unknown=LIMIT,
    ),
    Feature("entropy_fraction", "entropy_fraction", unknown=1.0),
    Feature("return_level", "return_level"),
    Feature("return_trend", "return_trend"),
    Feature("time_fraction", "time_fraction"),
    Feature(
        "log_speed",
        "speed_ratio",
        lambda x: math.log2(x) / 2.0 if x > 0.0 else -LIMIT,
        "log2(x) / 2",
    ),
    Feature("learner_idle", "learner_idle"),
    Feature("queue_fill", "queue_fill"),
    Feature("log_policy_lag", "policy_lag", lambda x: math.log10(x + 1.0), "log10(x + 1)"),
    Feature("bits_level", "bits_level"),
    Feature("sparsity", "sparsity"),
    Feature("student_level", "student_level"),
    Feature("since_switch", "intervals_since_switch", lambda x: min(x, 10.0) / 10.0, "x / 10"),
    # From here on: version 2.
    Feature("log_compression_kl", "compression_kl_nats", *_KL, unknown=-1.0),
    Feature("log_staleness_kl", "staleness_kl_nats", *_KL, unknown=-1.0),
    Feature("argmax_agreement", "argmax_agreement", unknown=1.0),
    Feature("ess_fraction", "ess_fraction", unknown=1.0),
    Feature("clipped_share", "clipped_share"),
    Feature("explained_variance", "explained_variance", lambda x: max(x, -1.0), "at least -1"),
    Feature("return_slope", "return_slope_t", lambda x: math.tanh(x / 3.0), "tanh(x / 3)"),
    Feature("stage", "stage", lambda x: x / 2.0, "x / 2"),
    Feature("infer_share", "infer_share"),
    Feature("publish_share", "publish_share"),
    Feature("switch_share", "switch_share"),
    # From here on: version 3. What a process sees of a machine whose conditions change.
    Feature("core_share", "core_share", unknown=1.0),
    Feature("log_env_slowdown", "env_slowdown", *_TIMES),
    Feature("log_infer_slowdown", "infer_slowdown", *_TIMES),
    Feature("log_learn_slowdown", "learn_slowdown", *_TIMES),
    Feature("log_publish_slowdown", "publish_slowdown", *_TIMES),
)
"""The vector, entry by entry; J is not in it: it is the outer reward, and a feature that shared
its noise would teach a controller regression to the mean. What is not known is 0 unless said."""
FEATURE_NAMES = tuple(feature.name for feature in FEATURES)


@dataclass(frozen=True, eq=False)
class Features:
    """Raw indicators by name (a KL of 14.0 nats is 14.0) and the unitless vector.

    `raw` holds the names of every indicator of the run's `Monitor`; NaN means not measured.
    """

    raw: Mapping[str, float]
    vector: np.ndarray

    @classmethod
    def of(cls, raw: Mapping[str, float]) -> Features:
        """Make the vector of raw indicators."""
        values = [feature.value(raw) for feature in FEATURES]
        return cls(raw=raw, vector=np.array(values, dtype=np.float32))

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same numbers; NaN (not measured) equals NaN."""
        if not isinstance(other, Features) or self.raw.keys() != other.raw.keys():
            return False
        mine, theirs = list(self.raw.values()), [other.raw[name] for name in self.raw]
        same = np.array_equal(mine, theirs, equal_nan=True)
        return same and np.array_equal(self.vector, other.vector)
