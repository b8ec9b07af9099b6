"""The outer objective: its definition, its limits, and the mistakes it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from accerl.errors import UserError
from controller.objective import (
    GameReference,
    default_beta,
    discounted_gain,
    gain_ratio,
    interval_starts,
    num_intervals,
    reward,
)


def test_discounted_gain_is_the_sum_written_out() -> None:
    times, returns, beta = [0.0, 2.0, 5.0], [1.0, 4.0, 3.0], 0.1
    expected = math.exp(-0.2) * 3.0 - math.exp(-0.5) * 1.0
    assert discounted_gain(times, returns, beta) == pytest.approx(expected)


def test_discounted_gain_is_a_weighted_area_under_the_curve() -> None:
    # Summation by parts: e^{-beta T} J_T - J_0 + beta * integral of e^{-beta t} J(t) dt.
    times = np.linspace(0.0, 10.0, 20001)
    returns, beta = 1.0 - np.exp(-0.3 * times), 0.2
    area = np.trapezoid(np.exp(-beta * times) * returns, times)
    expected = math.exp(-beta * 10.0) * returns[-1] - returns[0] + beta * area
    assert discounted_gain(times, returns, beta) == pytest.approx(expected, rel=1e-3)


def test_reference_puts_random_at_zero_and_itself_at_one() -> None:
    reference = GameReference(-21.0, 19.0)
    assert [reference.normalise(score) for score in (-21.0, 19.0, -1.0)] == [0.0, 1.0, 0.5]


@pytest.mark.parametrize("reference", [(0.0, 0.0), (1.0, -1.0), (0.0, math.nan)])
def test_reference_needs_a_positive_span(reference: tuple[float, float]) -> None:
    with pytest.raises(UserError, match="must be above"):
        GameReference(*reference)


def test_default_beta_discounts_half_the_horizon_by_e() -> None:
    assert math.exp(-default_beta(60.0) * 30.0) == pytest.approx(math.exp(-1.0))


@pytest.mark.parametrize(
    ("horizon", "interval", "count"), [(60, 3, 20), (1.0, 0.1, 10), (10, 4, 3)]
)
def test_num_intervals(horizon: float, interval: float, count: int) -> None:
    assert num_intervals(horizon, interval) == count


@pytest.mark.parametrize(
    ("lengths", "starts"),
    [
        ((60.0, 20.0), [0.0, 20.0, 40.0]),
        ((60.0, 20.0, 2.0), [0.0, 2.0, 22.0, 42.0]),
        ((62.0, 20.0, 2.0), [0.0, 2.0, 22.0, 42.0]),
        ((60.0, 20.0, 20.0), [0.0, 20.0, 40.0]),
        ((20.0, 20.0, 2.0), [0.0, 2.0]),
        ((0.41, 0.1, 0.01), [0.0, 0.01, 0.11, 0.21, 0.31]),  # sums of seconds round
    ],
)
def test_the_first_interval_may_be_short(lengths: tuple[float, ...], starts: list[float]) -> None:
    assert interval_starts(*lengths) == pytest.approx(starts)
    assert num_intervals(*lengths) == len(starts)


@pytest.mark.parametrize("first", [-1.0, 3.1, math.nan])
def test_the_first_interval_is_not_the_longest(first: float) -> None:
    with pytest.raises(UserError, match=r"first interval must lie in \[0, interval\]"):
        num_intervals(10.0, 3.0, first)


@pytest.mark.parametrize(("horizon", "interval"), [(10, 0), (10, -1), (1, 2), (math.inf, 1)])
def test_num_intervals_refuses_what_does_not_fit(horizon: float, interval: float) -> None:
    with pytest.raises(UserError, match="interval"):
        num_intervals(horizon, interval)


def test_mismatched_curves_are_refused() -> None:
    with pytest.raises(UserError, match="3 times and 2 returns"):
        discounted_gain([0.0, 1.0, 2.0], [0.0, 1.0], 0.1)
    with pytest.raises(UserError, match="must not decrease"):
        discounted_gain([1.0, 0.0], [0.0, 1.0], 0.1)


def test_a_gain_is_held_against_one_without_compression() -> None:
    assert gain_ratio(0.3, 0.1) == pytest.approx(0.4 / 0.2)
    assert gain_ratio(-0.2, 0.1) == 0.0
    # An equal run is as good, even where that one gained less than nothing.
    assert gain_ratio(-0.05, -0.05) == 1.0
    assert reward(gain_ratio(-0.05, -0.05)) == 0.0
    assert gain_ratio(0.0, -0.05) > 1.0
