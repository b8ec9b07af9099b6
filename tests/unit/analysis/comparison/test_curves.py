from __future__ import annotations

import math

import numpy as np
import pytest

from accerl.spec import Decision
from analysis.comparison import curves
from tests.fixtures.studies.synthetic_study import FULL, make_report

SECONDS = np.arange(0.0, 101.0, 10.0)


def straight(slope: float = 0.1) -> np.ndarray:
    """J = slope * t; its running mean of two lags by half an interval."""
    return slope * SECONDS


def test_curve_starts_at_the_random_return_and_skips_unmeasured_intervals() -> None:
    decision = Decision.of(FULL)
    reports = [
        make_report(0, 5.0, None, decision),
        make_report(1, 5.0, 3.0, decision),
        make_report(2, 5.0, 4.0, decision),
    ]
    curve = curves.learning_curve(reports, random_return=-1.0)
    assert curve.seconds.tolist() == [0.0, 10.0, 15.0]
    assert curve.returns.tolist() == [-1.0, 3.0, 4.0]
    assert curve.env_steps.tolist() == [0.0, 9000.0, 13500.0]


def test_noise_is_what_a_smooth_curve_does_not_have() -> None:
    line = np.linspace(0.0, 5.0, 40)
    assert curves.measurement_noise([line]) == pytest.approx(0.0, abs=1e-12)
    noisy = [line + np.random.default_rng(seed).normal(0.0, 0.3, 40) for seed in range(200)]
    assert curves.measurement_noise(noisy) == pytest.approx(0.3, rel=0.05)
    assert math.isnan(curves.measurement_noise([line[:4]]))
    assert math.isnan(curves.measurement_noise([]))


def test_running_mean_looks_back_only() -> None:
    assert curves.running_mean(np.array([4.0, 2.0, 6.0, 0.0])).tolist() == [4.0, 3.0, 4.0, 3.0]


def test_a_straight_line_reaches_the_target_half_an_interval_late() -> None:
    found = curves.seconds_to_target(SECONDS, straight(), target_return=5.0, horizon_seconds=100.0)
    assert found.seconds == pytest.approx(55.0)
    assert not found.censored


def test_a_curve_that_never_arrives_is_censored_at_the_horizon() -> None:
    assert curves.seconds_to_target(SECONDS, straight(), 11.0, 100.0) == curves.TimeToTarget(
        100.0, True
    )


def test_arriving_after_the_horizon_is_censored_too() -> None:
    assert curves.seconds_to_target(SECONDS, straight(), 5.0, 50.0).censored
    assert not curves.seconds_to_target(SECONDS, straight(), 5.0, 56.0).censored


def test_one_lucky_evaluation_does_not_count_as_arriving() -> None:
    returns = np.array([0.0, 0.0, 10.0, 0.0, 0.0, 10.0, 10.0])
    found = curves.seconds_to_target(np.arange(7.0), returns, 9.0, 6.0)
    assert found.seconds == pytest.approx(5.8)


def test_gain_per_second_is_equation_six_of_a_straight_line() -> None:
    levels = {"random_return": 0.0, "reference_return": 20.0}
    reached = curves.gain_per_second(SECONDS, straight(), 5.0, 100.0, **levels)
    assert reached == pytest.approx((5.0 / 20.0) / 55.0)
    missed = curves.gain_per_second(SECONDS, straight(), 50.0, 100.0, **levels)
    assert missed == pytest.approx((9.5 / 20.0) / 100.0)


def test_area_is_exact_for_lines_cut_at_or_held_to_the_horizon() -> None:
    line = straight(0.01)
    assert curves.area_under_curve(SECONDS, line, 100.0) == pytest.approx(0.5)
    assert curves.area_under_curve(SECONDS, line, 45.0) == pytest.approx(0.225)
    assert curves.area_under_curve(SECONDS, line, 200.0) == pytest.approx(0.75)


def test_area_does_not_depend_on_where_a_line_is_sampled() -> None:
    times = np.array([0.0, 3.0, 41.0, 77.5, 100.0])
    assert curves.area_under_curve(times, 0.01 * times, 100.0) == pytest.approx(0.5)


def test_final_return_is_the_mean_of_the_last_tenth() -> None:
    times = np.arange(0.0, 101.0, 5.0)
    returns = times.copy()
    assert curves.final_return(times, returns, 100.0) == pytest.approx(97.5)
    rounded = np.append(times[:-1], 100.0 + 1e-10)
    assert curves.final_return(rounded, returns, 100.0) == pytest.approx(97.5)


def test_final_return_is_at_least_the_last_interval() -> None:
    assert curves.final_return(np.array([0.0, 40.0, 80.0]), np.array([0.0, 1.0, 2.0]), 100.0) == 2.0


def test_normalised_return_is_zero_at_random_and_one_at_the_reference() -> None:
    assert curves.normalise(np.array([-21.0, 0.0, 21.0]), -21.0, 21.0).tolist() == [0.0, 0.5, 1.0]


def test_resampling_interpolates_and_marks_what_lies_beyond_a_curve() -> None:
    grid = np.array([0.0, 5.0, 20.0])
    pair = (np.array([0.0, 10.0]), np.array([0.0, 1.0]))
    assert np.array_equal(curves.resample([pair], grid), [[0.0, 0.5, np.nan]], equal_nan=True)
    assert curves.resample([pair], grid, hold=True).tolist() == [[0.0, 0.5, 1.0]]


def test_band_has_quartiles_iqm_and_stops_where_a_run_stops() -> None:
    values = np.array([[0.0, 1.0], [1.0, np.nan], [2.0, 3.0], [3.0, 4.0], [100.0, 5.0]])
    found = curves.band(values)
    assert found["low"][0] == 1.0
    assert found["high"][0] == 3.0
    assert found["iqm"][0] == pytest.approx(2.0)
    assert all(np.isnan(found[key][1]) for key in found)
