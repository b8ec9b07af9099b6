"""IndicatorPool: what the learner sees of every rollout, pooled over one interval."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor


@dataclass
class RunningMoments:
    """Mean, variance and maximum of everything added, exact in any order and grouping.

    Parts are pooled with the update of Chan, Golub and LeVeque (1983), which does not cancel.
    """

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    """sum of squared deviations from the mean"""
    maximum: float = -math.inf

    @property
    def variance(self) -> float:
        """Variance over the values themselves (not an estimate for a larger population)."""
        return self.squares / self.count if self.count else 0.0

    def add(self, values: Tensor) -> None:
        """Add every element of `values`."""
        if values.numel() == 0:
            return
        flat = values.detach().double()
        variance, mean = torch.var_mean(flat, correction=0)
        count = flat.numel()
        self.merge(
            RunningMoments(
                count=count,
                mean=mean.item(),
                squares=variance.item() * count,
                maximum=flat.max().item(),
            )
        )

    def add_mean(self, mean: float, count: int) -> None:
        """Add `count` values that all are `mean`, or of which no more than the mean matters."""
        self.merge(RunningMoments(count=count, mean=mean, maximum=mean))

    def merge(self, other: RunningMoments) -> None:
        """Take in what `other` has seen."""
        if other.count == 0:
            return
        count = self.count + other.count
        gap = other.mean - self.mean
        self.squares += other.squares + gap * gap * self.count * other.count / count
        self.mean += gap * other.count / count
        self.count = count
        # A diverged network must not hide behind an earlier, finite maximum.
        self.maximum = math.nan if math.isnan(other.maximum) else max(self.maximum, other.maximum)

    def state_dict(self) -> dict[str, Any]:
        """Return plain numbers; the maximum of nothing is None, as JSON has no infinity."""
        return asdict(self) | {"maximum": self.maximum if self.count else None}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> RunningMoments:
        """Read what `state_dict` returned."""
        maximum = -math.inf if state["maximum"] is None else state["maximum"]
        return cls(**{**state, "maximum": maximum})


class IntervalIndicators(NamedTuple):
    """The indicators of one interval, named as in IntervalReport."""

    kl_mean_nats: float
    kl_var: float
    kl_max_nats: float
    entropy_nats: float
    policy_lag: float


class IndicatorPool:
    """Pools what the learner sees of every rollout into the indicators of one interval.

    An interval that no rollout reached reports the last ones that were measured: a strategy must
    not take silence for agreement. Before the first rollout they are 0, and the entropy is
    `initial_entropy_nats` (log of the number of actions, for a network that starts uniform).
    """

    def __init__(self, initial_entropy_nats: float = 0.0) -> None:
        self._last = IntervalIndicators(0.0, 0.0, 0.0, initial_entropy_nats, 0.0)
        self._clear()

    def _clear(self) -> None:
        self._kl = RunningMoments()
        self._entropy = RunningMoments()
        self._lag = RunningMoments()

    def add_rollout(
        self, kl_nats: Tensor, entropy_nats: Tensor, policy_lag: float, samples: int
    ) -> None:
        """Add one rollout.

        Args:
            kl_nats: KL(learner || actor) of every state, [T, B]; empty if it was not measured.
            entropy_nats: entropy of the learner's policy in every state, likewise.
            policy_lag: learner updates between the acting weights and the learner's.
            samples: T * B, which the lag is weighted by: rollouts may differ in length.
        """
        self._lag.add_mean(float(policy_lag), samples)
        if kl_nats.numel():
            self._kl.add(kl_nats)
            self._entropy.add_mean(entropy_nats.mean().item(), entropy_nats.numel())

    def indicators(self) -> IntervalIndicators:
        """Return the indicators of everything since the last reset."""
        lag = self._lag.mean if self._lag.count else self._last.policy_lag
        if self._kl.count == 0:
            return self._last._replace(policy_lag=lag)
        return IntervalIndicators(
            kl_mean_nats=self._kl.mean,
            kl_var=self._kl.variance,
            kl_max_nats=self._kl.maximum,
            entropy_nats=self._entropy.mean,
            policy_lag=lag,
        )

    def reset(self) -> IntervalIndicators:
        """End the interval: return its indicators and start the next one."""
        self._last = self.indicators()
        self._clear()
        return self._last

    def state_dict(self) -> dict[str, Any]:
        """Return plain numbers."""
        return {
            "kl": self._kl.state_dict(),
            "entropy": self._entropy.state_dict(),
            "lag": self._lag.state_dict(),
            "last": list(self._last),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self._kl = RunningMoments.from_state_dict(state["kl"])
        self._entropy = RunningMoments.from_state_dict(state["entropy"])
        self._lag = RunningMoments.from_state_dict(state["lag"])
        self._last = IntervalIndicators(*state["last"])
