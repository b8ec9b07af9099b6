"""Intervals of means over runs or episodes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return mean and 95% t interval of values [N]; it is infinite below two of them."""
    found = np.asarray(values, dtype=float)
    if not len(found):
        return math.nan, -math.inf, math.inf
    mean = float(found.mean())
    if len(found) == 1:
        return mean, -math.inf, math.inf
    half = float(stats.t.ppf(0.975, len(found) - 1) * found.std(ddof=1) / math.sqrt(len(found)))
    return mean, mean - half, mean + half
