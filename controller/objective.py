"""What the outer problem maximises: reward gain per wall-clock second (paper, eq. 6), discounted.

With a fixed interval, eq. 6 alone telescopes to the final return. Discounting every gain by the
clock turns the sum into a weighted area under the learning curve, so early gains count for more.
The Advanced Indicator is trained by the log of an episode's gain over an uncompressed one's
(`reward`), as games and machines differ in what can be gained.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from accerl.errors import UserError

Curve = Sequence[float] | np.ndarray
"""Numbers in time order."""
TIERS = ("analytic", "virtual", "real")
"""what an inner run is: closed forms, real learning on a virtual clock, or on this machine's"""
OFFSET = 0.1
"""of the game's scale, added to both gains: where an uncompressed run gains nothing, a ratio to it
would be noise"""
SLOWER = 0.97
"""of an uncompressed run's gain: reaching less is punished"""
PUNISHMENT = 4.0
LEAST_RATIO = 0.05


@dataclass(frozen=True)
class GameReference:
    """Two returns of one game that put every game on one scale: 0 is random, 1 is the reference.

    Raises:
        UserError: the reference is not above random, so the scale has no length.
    """

    random_return: float
    """mean return of the uniformly random policy"""
    reference_return: float
    """final return of training without compression"""

    def __post_init__(self) -> None:
        if not self.reference_return > self.random_return:
            raise UserError(
                f"game reference: the reference return ({self.reference_return:g}) must be above "
                f"the random return ({self.random_return:g}); train the reference for longer"
            )

    @property
    def span(self) -> float:
        """Raw score between random and reference."""
        return self.reference_return - self.random_return

    def normalise(self, score: float) -> float:
        """Return `score` on the scale where random play is 0 and the reference is 1."""
        return (score - self.random_return) / self.span

    def to_json(self) -> dict[str, Any]:
        """Return both returns as a JSON object."""
        return asdict(self)


def default_beta(horizon_seconds: float) -> float:
    """Return the discount rate per second at which a gain halfway through counts 1/e."""
    return 1.0 / (0.5 * horizon_seconds)


def num_intervals(
    horizon_seconds: float, interval_seconds: float, first_interval_seconds: float = 0.0
) -> int:
    """Return how many intervals fill the horizon; the last one may be shorter.

    Args:
        horizon_seconds: length of an episode.
        interval_seconds: length of an interval.
        first_interval_seconds: of the first one; 0: as long as the others.

    Raises:
        UserError: a length is not positive, an interval is longer than the horizon, or the first
            one longer than the others.
    """
    if not 0.0 < interval_seconds <= horizon_seconds or math.isinf(horizon_seconds):
        raise UserError(
            f"the interval must lie in (0, horizon], got interval {interval_seconds:g} s "
            f"and horizon {horizon_seconds:g} s"
        )
    if not 0.0 <= first_interval_seconds <= interval_seconds:
        raise UserError(
            f"the first interval must lie in [0, interval], got {first_interval_seconds:g} s "
            f"and interval {interval_seconds:g} s"
        )
    missing = interval_seconds - (first_interval_seconds or interval_seconds)
    return math.ceil((horizon_seconds + missing) / interval_seconds - 1e-9)


def interval_starts(
    horizon_seconds: float, interval_seconds: float, first_interval_seconds: float = 0.0
) -> np.ndarray:
    """Return when every interval begins that nothing delays, float64 [K]; see `num_intervals`."""
    count = num_intervals(horizon_seconds, interval_seconds, first_interval_seconds)
    missing = interval_seconds - (first_interval_seconds or interval_seconds)
    return np.maximum(np.arange(count) * interval_seconds - missing, 0.0)


def discounted_gain(times_seconds: Curve, returns: Curve, beta: float) -> float:
    """Return sum over k of exp(-beta t_k) (J_k - J_{k-1}), k = 1, ..., K.

    Args:
        times_seconds: clock t_0, ..., t_K of the measurements, not decreasing.
        returns: J_0, ..., J_K at these times; J_0 is the return before training.
        beta: discount rate per second; 0 gives J_K - J_0.

    Raises:
        UserError: there is not one return per time, or the times decrease.
    """
    times, levels = np.asarray(times_seconds, float), np.asarray(returns, float)
    if times.shape != levels.shape or times.ndim != 1 or times.size == 0:
        raise UserError(
            f"a learning curve needs one return per time, got {times.size} times "
            f"and {levels.size} returns"
        )
    if np.any(np.diff(times) < 0.0):
        raise UserError("the times of a learning curve must not decrease")
    return float(np.sum(np.exp(-beta * times[1:]) * np.diff(levels)))


def gain_ratio(gain: float, fp32_gain: float) -> float:
    """Return how much better an episode is than one without compression: 1 is as good.

    Both gains count from 0, or from `fp32_gain` where that is less, and `OFFSET` is added to each.
    """
    lost = min(fp32_gain, 0.0)  # what both are counted from: an equal run is never worse
    return max(gain - lost + OFFSET, 0.0) / (fp32_gain - lost + OFFSET)


def reward(ratio: float) -> float:
    """Return what training goes by, of r: an episode's gain over one's without compression.

        R = log r - punishment max(0, log 0.97 - log r),    r at least 0.05

    A factor counts the same wherever it is won, and losing against no compression five times.
    """
    log_ratio = math.log(max(ratio, LEAST_RATIO))
    return log_ratio - PUNISHMENT * max(0.0, math.log(SLOWER) - log_ratio)
