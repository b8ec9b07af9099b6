"""Learning curves and the four numbers that a contest compares; pure functions on arrays.

A learning curve is J, the return of the learner's full-precision policy, over the seconds of the
run's own clock (or over env steps). It starts at (0, random_return): before the first update the
policy is random.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from accerl.runtime.run import IntervalReport
from analysis.comparison.stats import iqm

SMOOTHING_POINTS = 2
FINAL_FRACTION = 0.1


@dataclass(frozen=True)
class Curve:
    """J at the points where it was measured: seconds [N], env_steps [N], returns [N]."""

    seconds: np.ndarray
    env_steps: np.ndarray
    returns: np.ndarray


@dataclass(frozen=True)
class TimeToTarget:
    """Seconds until the target was reached; the horizon if it was not (censored)."""

    seconds: float
    censored: bool


def learning_curve(reports: Iterable[IntervalReport], random_return: float) -> Curve:
    """Return J over time, from (0, random_return); intervals without a J are skipped."""
    measured = [item for item in reports if item.learner_return is not None]
    return Curve(
        seconds=np.array([0.0, *(item.total_seconds for item in measured)]),
        env_steps=np.array([0.0, *(float(item.total_env_steps) for item in measured)]),
        returns=np.array(
            [random_return, *(float(item.learner_return or 0.0) for item in measured)]
        ),
    )


def running_mean(values: np.ndarray) -> np.ndarray:
    """Return the mean of each value [N] and up to `SMOOTHING_POINTS` - 1 before it (causal)."""
    sums = np.cumsum(np.concatenate([[0.0], values]))
    end = np.arange(1, len(values) + 1)
    start = np.maximum(end - SMOOTHING_POINTS, 0)
    smooth = (sums[end] - sums[start]) / (end - start)
    smooth[0] = values[0]
    return smooth


def measurement_noise(curves: Iterable[np.ndarray]) -> float:
    """Return the standard deviation of a single J, from the later halves of curves [N] of it.

    Of a smooth curve J(k-1) - 2 J(k) + J(k+1) is next to nothing, and of independent errors it has
    six times their variance. What all measurements of a run share, as the starts and the dice of
    their episodes, is not in it, so J is off by more. NaN: no half has three points.
    """
    turns = [np.diff(returns[len(returns) // 2 :], n=2) for returns in curves]
    found = np.concatenate(turns) if turns else np.zeros(0)
    return float(np.sqrt(np.mean(found**2) / 6.0)) if len(found) else math.nan


def normalise(
    returns: np.ndarray | float, random_return: float, reference_return: float
) -> np.ndarray:
    """Return (J - random) / (reference - random): 0 is a random policy, 1 the fp32 reference."""
    return (np.asarray(returns, dtype=float) - random_return) / (reference_return - random_return)


def seconds_to_target(
    seconds: np.ndarray, returns: np.ndarray, target_return: float, horizon_seconds: float
) -> TimeToTarget:
    """Return when the curve first reaches the target, censored at the horizon.

    J is noisy, and the first lucky evaluation would reward noise: the curve [N] is the running
    mean of two points, each at the time of the later one, joined by straight lines.
    """
    smooth = running_mean(returns)
    reached = np.flatnonzero(smooth >= target_return)
    if len(reached) == 0:
        return TimeToTarget(horizon_seconds, True)
    after = int(reached[0])
    if after == 0:
        return TimeToTarget(float(seconds[0]), False)
    before = after - 1
    part = (target_return - smooth[before]) / (smooth[after] - smooth[before])
    time = float(seconds[before] + part * (seconds[after] - seconds[before]))
    if time > horizon_seconds:
        return TimeToTarget(horizon_seconds, True)
    return TimeToTarget(time, False)


def gain_per_second(
    seconds: np.ndarray,
    returns: np.ndarray,
    target_return: float,
    horizon_seconds: float,
    *,
    random_return: float,
    reference_return: float,
) -> float:
    """Return the normalised return gained per second until the target or the horizon.

    Paper, equation 6, over the stretch of the run that matters: (J(t) - J(0)) / t with t the
    seconds to target. J(t) is read from the same smoothed curve.
    """
    end = seconds_to_target(seconds, returns, target_return, horizon_seconds)
    value = float(np.interp(end.seconds, seconds, running_mean(returns)))
    gained = float(normalise(value, random_return, reference_return))
    return gained / max(end.seconds, 1e-9)


def area_under_curve(seconds: np.ndarray, values: np.ndarray, horizon_seconds: float) -> float:
    """Return the mean of the curve over [0, horizon] by the trapezoid rule.

    A curve that ends early keeps its last value; one that goes on is cut at the horizon.
    """
    inside = seconds < horizon_seconds
    times = np.append(seconds[inside], horizon_seconds)
    heights = np.append(values[inside], np.interp(horizon_seconds, seconds, values))
    return float(np.trapezoid(heights, times) / horizon_seconds)


def final_return(
    seconds: np.ndarray,
    returns: np.ndarray,
    horizon_seconds: float,
) -> float:
    """Return the mean J of the last `FINAL_FRACTION` of the horizon, at least of the last point."""
    start = (1.0 - FINAL_FRACTION) * horizon_seconds
    slack = 1e-9 * horizon_seconds  # sums of intervals end a rounding error off the horizon
    last = returns[(seconds > start + slack) & (seconds <= horizon_seconds + slack)]
    return float(np.mean(last)) if len(last) else float(returns[-1])


def resample(
    curves: Sequence[tuple[np.ndarray, np.ndarray]], grid: np.ndarray, *, hold: bool = False
) -> np.ndarray:
    """Interpolate curves (x [N], y [N]) on a common grid [G].

    Args:
        curves: pairs of abscissae and values; their lengths may differ.
        grid: where to read them.
        hold: keep the last value beyond a curve's end; otherwise it is NaN there.

    Returns:
        values [curves, G].
    """
    right = None if hold else np.nan
    return np.stack([np.interp(grid, x, y, right=right) for x, y in curves])


def band(values: np.ndarray) -> dict[str, np.ndarray]:
    """Return lower quartile, interquartile mean and upper quartile of [runs, G].

    A grid point that any run does not reach is NaN: a mean over fewer and fewer runs would bend
    the curve towards those that lasted.
    """
    complete = ~np.isnan(values).any(axis=0)
    result = {key: np.full(values.shape[1], np.nan) for key in ("low", "iqm", "high")}
    inside = values[:, complete]
    if inside.size:
        low, high = np.quantile(inside, [0.25, 0.75], axis=0)
        result["low"][complete] = low
        result["high"][complete] = high
        result["iqm"][complete] = iqm(inside)
    return result


def discounted_gain(seconds: np.ndarray, values: np.ndarray, horizon_seconds: float) -> float:
    """Return sum over k of exp(-2 t_k / T) (J_k - J_{k-1}) within the horizon T.

    The controller's own objective, and what an oracle gap is measured in. Curves [N] start at 0 s.
    """
    inside = seconds <= horizon_seconds * (1.0 + 1e-9)  # intervals end a rounding error off
    weights = np.exp(-2.0 * seconds[inside][1:] / horizon_seconds)
    return float(np.sum(weights * np.diff(values[inside])))
