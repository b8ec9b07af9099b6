"""Features: what a strategy sees, raw by name and as a versioned vector without units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from accerl.runtime.run import IntervalReport
from accerl.spec import STUDENTS

FEATURES_VERSION = 1
FEATURE_NAMES = (
    "log_kl_mean",
    "log_kl_max",
    "log_kl_std",
    "entropy_fraction",
    "return_level",
    "return_trend",
    "time_fraction",
    "log_speed",
    "learner_idle",
    "queue_fill",
    "log_policy_lag",
    "bits_level",
    "sparsity",
    "student_level",
    "since_switch",
)
"""The unitless vector: every entry lies in about [-2, 2] for every game and machine."""


@dataclass(frozen=True, eq=False)
class Features:
    """Raw indicators by name (a KL of 14.0 nats is 14.0) and the unitless vector.

    `raw` holds at least: kl_mean_nats, kl_var, kl_max_nats, entropy_nats, actor_return (mean of
    recent episodes acted by the compressed policy, NaN before the first), learner_return (J, NaN
    if not measured), seconds, horizon_seconds, env_steps, env_steps_per_second, queue_fill,
    policy_lag, learner_idle.
    """

    raw: Mapping[str, float]
    vector: np.ndarray
    version: int = FEATURES_VERSION

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same numbers; NaN (not measured) equals NaN."""
        if not isinstance(other, Features) or self.raw.keys() != other.raw.keys():
            return False
        mine, theirs = list(self.raw.values()), [other.raw[name] for name in self.raw]
        return (
            self.version == other.version
            and np.array_equal(mine, theirs, equal_nan=True)
            and np.array_equal(self.vector, other.vector)
        )


class FeatureBuilder:
    """Turns interval reports into Features; remembers only what the vector needs.

    The vector never uses J: J is the outer reward, and a feature that shares its noise would
    teach a controller regression to the mean.
    """

    RETURN_WINDOW = 20  # episodes

    def __init__(self, num_actions: int, horizon_seconds: float) -> None:
        self.num_actions = num_actions
        self.horizon_seconds = horizon_seconds
        self._episodes: list[float] = []
        self._levels: list[float] = []
        self._low = math.inf
        self._high = -math.inf
        self._first_speed = 0.0
        self._last_mix: str | None = None
        self._since_switch = 0

    def start(self) -> Features:
        """Return the features before the first interval: nothing measured yet."""
        raw = dict.fromkeys(
            ("kl_mean_nats", "kl_var", "kl_max_nats", "seconds", "env_steps", "queue_fill"), 0.0
        )
        raw |= dict.fromkeys(("policy_lag", "learner_idle", "env_steps_per_second"), 0.0)
        raw |= {"entropy_nats": math.log(self.num_actions), "horizon_seconds": self.horizon_seconds}
        raw |= {"actor_return": math.nan, "learner_return": math.nan}
        vector = np.zeros(len(FEATURE_NAMES), dtype=np.float32)
        vector[FEATURE_NAMES.index("entropy_fraction")] = 1.0
        return Features(raw=raw, vector=vector)

    def update(self, report: IntervalReport) -> Features:
        """Return the features after `report`."""
        speed = report.env_steps / max(report.seconds, 1e-9)
        if self._first_speed == 0.0 and speed > 0.0:
            self._first_speed = speed
        self._episodes = (self._episodes + list(report.episode_returns))[-self.RETURN_WINDOW :]
        actor_return = float(np.mean(self._episodes)) if self._episodes else math.nan
        level, trend = self._return_features(actor_return)
        mix = str(report.decision.to_json())
        self._since_switch = self._since_switch + 1 if mix == self._last_mix else 0
        self._last_mix = mix
        phases = report.phase_seconds
        learner_busy = phases.get("learn", 0.0) + phases.get("wait", 0.0)
        idle = phases.get("wait", 0.0) / learner_busy if learner_busy > 0.0 else 0.0
        shares = report.decision.mix
        students = max(len(STUDENTS) - 1, 1)
        vector = np.array(
            [
                math.log10(report.kl_mean_nats + 1e-4) / 2.0 + 1.0,
                math.log10(report.kl_max_nats + 1e-4) / 2.0 + 1.0,
                math.log10(math.sqrt(report.kl_var) + 1e-4) / 2.0 + 1.0,
                report.entropy_nats / math.log(self.num_actions),
                level,
                trend,
                report.total_seconds / self.horizon_seconds,
                math.log2(max(speed, 1e-9) / max(self._first_speed, 1e-9)) / 2.0
                if speed > 0.0
                else 0.0,
                idle,
                report.queue_fill,
                math.log10(report.policy_lag + 1.0),
                sum(share * (5 - math.log2(spec.bits)) / 2.0 for spec, share in shares),
                sum(share * spec.sparsity for spec, share in shares),
                sum(share * spec.size_rank / students for spec, share in shares),
                min(self._since_switch, 10) / 10.0,
            ],
            dtype=np.float32,
        )
        raw = {
            "kl_mean_nats": report.kl_mean_nats,
            "kl_var": report.kl_var,
            "kl_max_nats": report.kl_max_nats,
            "entropy_nats": report.entropy_nats,
            "actor_return": actor_return,
            "learner_return": math.nan if report.learner_return is None else report.learner_return,
            "seconds": report.total_seconds,
            "horizon_seconds": self.horizon_seconds,
            "env_steps": float(report.total_env_steps),
            "env_steps_per_second": speed,
            "queue_fill": report.queue_fill,
            "policy_lag": report.policy_lag,
            "learner_idle": idle,
        }
        return Features(raw=raw, vector=np.clip(vector, -3.0, 3.0))

    def _return_features(self, actor_return: float) -> tuple[float, float]:
        """Level of the return within its own running range, and its recent change on that range."""
        if math.isnan(actor_return):
            return 0.0, 0.0
        self._low = min(self._low, actor_return)
        self._high = max(self._high, actor_return)
        span = self._high - self._low
        level = (actor_return - self._low) / span if span > 0.0 else 0.0
        self._levels = [*self._levels, actor_return][-4:]
        trend = (actor_return - self._levels[0]) / span if span > 0.0 else 0.0
        return level, trend

    def state_dict(self) -> dict[str, Any]:
        """Return the builder's memory as plain numbers and lists."""
        return {
            "episodes": list(self._episodes),
            "levels": list(self._levels),
            "low": None if math.isinf(self._low) else self._low,
            "high": None if math.isinf(self._high) else self._high,
            "first_speed": self._first_speed,
            "last_mix": self._last_mix,
            "since_switch": self._since_switch,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a memory returned by `state_dict`."""
        self._episodes = list(state["episodes"])
        self._levels = list(state["levels"])
        self._low = math.inf if state["low"] is None else state["low"]
        self._high = -math.inf if state["high"] is None else state["high"]
        self._first_speed = state["first_speed"]
        self._last_mix = state["last_mix"]
        self._since_switch = state["since_switch"]
