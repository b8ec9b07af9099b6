"""Intervals of means over runs or episodes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

ENOUGH_GAMES = 3
"""for an interval over games"""


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return mean and 95% t interval of values [N]; it is infinite below two of them."""
    found = np.asarray(values, dtype=float)
    if not len(found):
        return math.nan, -math.inf, math.inf
    mean = float(found.mean())
    if len(found) == 1:
        return mean, -math.inf, math.inf
    half = float(stdtrit(len(found) - 1, 0.975) * found.std(ddof=1) / math.sqrt(len(found)))
    return mean, mean - half, mean + half


def median_interval(values: Sequence[float] | np.ndarray) -> tuple[float, float, float]:
    """Return median and 95% interval of values [N], by the sign test: it is infinite below six."""
    from scipy.stats import binom  # takes a second to import, in every process of a study

    found = np.sort(np.asarray(values, dtype=float))
    count = len(found)
    median = float(np.median(found)) if count else math.nan
    rank = int(binom.ppf(0.025, count, 0.5))  # from the least, and from the most
    if not rank:
        return median, -math.inf, math.inf
    return median, float(found[rank - 1]), float(found[-rank])


def mean_over_games(by_game: Sequence[Sequence[float]]) -> tuple[float, float, float, str]:
    """Return the mean of what games' runs gave, its 95% t interval, and what that is over.

    From `ENOUGH_GAMES` games on every game counts once, with the mean of its seeds, and the
    interval is over games. With fewer it is over seeds: it says nothing of other games.

    Args:
        by_game: one value a seed, for each game; games without values are left out.
    """
    known = [values for values in by_game if len(values)]
    if len(known) < ENOUGH_GAMES:
        return *mean_interval([value for values in known for value in values]), "seeds"
    return *mean_interval([float(np.mean(values)) for values in known]), "games"
