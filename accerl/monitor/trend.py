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


class _Interval(NamedTuple):
    """What a regression needs of the episodes that ended together."""

    seconds: float
    episodes: int
    mean: float
    squares: float
    """sum of squared deviations from the mean"""


class TrendWindow:
    """Episode returns of the last intervals that had any, each at its interval's end.

    Args:
        intervals: how many are looked at, at least.
        seconds: how far back the window reaches, if those do not reach that far.
    """

    FEWEST_EPISODES = 8

    def __init__(self, intervals: int = 6, seconds: float = 0.0) -> None:
        if intervals < 2:
            raise ValueError(f"a trend needs at least 2 intervals, got {intervals}")
        self._fewest, self._seconds = intervals, seconds
        self._intervals: deque[_Interval] = deque()
        self._low, self._high = math.inf, -math.inf

    def add(self, seconds: float, returns: Iterable[float]) -> None:
        """Add the episodes that ended in the interval that ended at `seconds`."""
        scores = np.fromiter(returns, dtype=np.float64)
        if scores.size:
            mean = float(scores.mean())
            squares = float(np.square(scores - mean).sum())
            self._intervals.append(_Interval(seconds, scores.size, mean, squares))
            self._low, self._high = min(self._low, mean), max(self._high, mean)
        window = self._intervals
        while len(window) > self._fewest and window[0].seconds < seconds - self._seconds:
            window.popleft()

    def trend(self) -> Trend:
        """Return the line through the window's episodes."""
        window = self._intervals
        count = sum(each.episodes for each in window)
        if count < self.FEWEST_EPISODES:
            return UNKNOWN
        middle = sum(each.episodes * each.seconds for each in window) / count
        mean = sum(each.episodes * each.mean for each in window) / count
        # Sums of squares and products, about the means: of the times, of both, of the scores.
        offsets = [(each.episodes, each.seconds - middle, each.mean - mean) for each in window]
        spread = sum(n * x * x for n, x, _ in offsets)
        if spread == 0.0:  # one moment, or moments so close that squares vanish
            return UNKNOWN
        slope = sum(n * x * y for n, x, y in offsets) / spread
        scatter = sum(each.squares for each in window)
        scatter += sum(n * (y - slope * x) ** 2 for n, x, y in offsets)
        error = math.sqrt(scatter / (count - 2) / spread)
        straight = math.copysign(math.inf, slope) if slope else 0.0  # nothing is as sure
        span = self._high - self._low
        length = window[-1].seconds - window[0].seconds
        return Trend(
            slope_per_second=slope,
            slope_t=slope / error if error > 0.0 else straight,
            gain_share=slope * length / span if span > 0.0 else 0.0,
        )
