"""Effects: one unknown number for each of several things that are alike, learned from noisy values.

Thing i has the value x_i = m_i + u + v_i, with a known guess m_i, an effect u that all share and
one of its own v_i, independent and Gaussian:

    u ~ N(0, shared^2),  v_i ~ N(0, own^2)   =>   x ~ N(m, shared^2 1 1' + own^2 I)

A value y = x_i + noise of standard deviation s moves all of them, by Kalman's equations:

    gain = P e_i / (P_ii + s^2),   m <- m + gain (y - m_i),   P <- P - gain (P e_i)'

So what is seen of one spec says something of the others, and the more they share the more. In time
x drifts: its variance grows, but never beyond what it was at first. A value that is too far
off to be noise is a *change*: the shared effect is uncertain again as it was at first. A value that
was measured while the change came is a mix of before and after: with `waits`, the first that is too
far off is left out, and the next one believed if it is on the same side. The very first value has
no before: if it is far off, the guess was, and it is believed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

SURPRISE = 3.0
"""standard deviations from which on a value is a change"""


class Estimate(NamedTuple):
    """What is believed of one number."""

    mean: float
    sd: float


class Effects:
    """What is believed of the values of several things.

    Args:
        guesses: m, [N].
        shared: standard deviation of what all share.
        own: standard deviation of what each has of its own; one for all, or [N].
        shared_drift: standard deviation by which the shared effect moves between two values.
        own_drift: the same of each one's own.
    """

    def __init__(
        self,
        guesses: Sequence[float],
        *,
        shared: float,
        own: float | Sequence[float],
        shared_drift: float = 0.0,
        own_drift: float = 0.0,
    ) -> None:
        count = len(guesses)
        self._mean = np.array(guesses, dtype=np.float64)
        self._ones = np.ones((count, count))
        alone = np.broadcast_to(np.asarray(own, dtype=np.float64), (count,))
        self._covariance = shared**2 * self._ones + np.diag(alone**2)
        self._shared = shared
        self._side, self._seen = 0.0, False  # -1 or 1 after a value that was left out
        self._drift = shared_drift**2 * self._ones + own_drift**2 * np.eye(count)
        self._widest = np.diag(self._covariance).copy()

    def __getitem__(self, place: int) -> Estimate:
        """Return what is believed of one of them."""
        variance = max(float(self._covariance[place, place]), 0.0)
        return Estimate(float(self._mean[place]), math.sqrt(variance))

    def difference_sd(self, place: int, other: int, slopes: tuple[float, float]) -> float:
        """Return the standard deviation of a x_place - b x_other, with `slopes` (a, b)."""
        a, b = slopes
        both = self._covariance[np.ix_((place, other), (place, other))]
        return math.sqrt(max(float(np.array([a, -b]) @ both @ np.array([a, -b])), 0.0))

    def drift(self, share: float = 1.0) -> None:
        """Let some time pass.

        Args:
            share: of the drift's variance that passes.
        """
        wider = self._covariance + share * self._drift
        scale = np.sqrt(np.minimum(self._widest / np.diag(wider), 1.0))
        self._covariance = wider * np.outer(scale, scale)

    def skip(self) -> None:
        """Let a value be missing: a change is seen twice in a row or not at all."""
        self._side = 0.0

    def observe(
        self,
        place: int,
        value: float,
        noise: float,
        *,
        least: float = 0.0,
        waits: bool = False,
    ) -> bool:
        """Learn from a value of one of them; return whether it was a change.

        Args:
            place: of the one.
            value: of it.
            noise: standard deviation of what the value is off by.
            least: difference below which nothing counts as a change.
            waits: whether a change must be seen twice in a row, on the same side.
        """
        surprise = value - float(self._mean[place])
        spread = math.sqrt(float(self._covariance[place, place]) + noise**2)
        is_far = abs(surprise) > max(SURPRISE * spread, least)
        changed, self._seen = is_far and self._seen, True
        side = math.copysign(1.0, surprise) if changed and waits else 0.0
        self._side = side if side != self._side else 0.0
        if self._side:
            return False
        if is_far:
            self._covariance = self._covariance + self._shared**2 * self._ones
        column = self._covariance[:, place]
        gain = column / (column[place] + noise**2)
        self._mean = self._mean + gain * surprise
        self._covariance = self._covariance - np.outer(gain, column)
        return changed
