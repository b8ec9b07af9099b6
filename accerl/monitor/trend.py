"""Trend: whether returns rise, how fast, and how surely."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np


class Trend(NamedTuple):
    """The least-squares line through recent episodes; NaN while there are too few."""

    slope_per_second: float
    """points of the game per second of the run's clock"""
    slope_t: float
    """slope over its standard error"""
    gain_share: float
    """rise over the window as a share of the range that interval means have had so far"""


UNKNOWN = Trend(math.nan, math.nan, math.nan)


class TrendWindow:
    """Episode returns of the last few intervals that had any, each at its interval's end."""

    FEWEST_EPISODES = 8

    def __init__(self, intervals: int = 6) -> None:
        if intervals < 2:
            raise ValueError(f"a trend needs at least 2 intervals, got {intervals}")
        self._intervals: deque[tuple[float, tuple[float, ...]]] = deque(maxlen=intervals)
        self._low, self._high = math.inf, -math.inf

    def add(self, seconds: float, returns: Iterable[float]) -> None:
        """Add the episodes that ended in the interval that ended at `seconds`."""
        scores = tuple(returns)
        if scores:
            self._intervals.append((seconds, scores))
            mean = sum(scores) / len(scores)
            self._low, self._high = min(self._low, mean), max(self._high, mean)

    def trend(self) -> Trend:
        """Return the line through the window's episodes."""
        times = np.array([time for time, scores in self._intervals for _ in scores])
        scores = np.array([score for _, scores in self._intervals for score in scores])
        if len(scores) < self.FEWEST_EPISODES or times[0] == times[-1]:
            return UNKNOWN
        centred = times - times.mean()
        spread = float(centred @ centred)
        slope = float(centred @ (scores - scores.mean())) / spread
        residuals = scores - scores.mean() - slope * centred
        error = math.sqrt(float(residuals @ residuals) / (len(scores) - 2) / spread)
        straight = math.copysign(math.inf, slope) if slope else 0.0  # nothing is as sure
        slope_t = slope / error if error > 0.0 else straight
        length = self._intervals[-1][0] - self._intervals[0][0]
        span = self._high - self._low
        return Trend(slope, slope_t, slope * length / span if span > 0.0 else 0.0)
