"""The comparison of the clocks: its arithmetic, and one real case on the virtual clock."""

from __future__ import annotations

import signal
from dataclasses import replace
from time import sleep
from typing import Any

import numpy as np
import pytest

from accerl.errors import UserError
from accerl.runtime.latency.compare import drift, middle
from accerl.spec import IDENTITY, CompressionSpec
from analysis.comparison.stats import spearman
from analysis.figures.bench import clock_fidelity
from studies.benchmarks.clocks import clock as bench_clock
from studies.benchmarks.clocks.clock_cases import (
    LEARNED,
    SECONDS,
    SPECS,
    all_specs,
    cases_of,
    clock_config,
)
from studies.benchmarks.repeats import apart
from studies.jobs.cache import ResultCache
from tests.fixtures.runs.beside_a_gpu import Started, put_beside_a_gpu
from tests.fixtures.runs.bodies import die
from tests.fixtures.runs.inner_runs import fast_profile


def row(label: str, real: float, virtual: float, **fields: Any) -> dict[str, Any]:
    lag = {"real_mean": 1.0, "virtual_mean": 1.0, "distance_updates": 0.0}
    return {
        "game": "pong",
        "label": label,
        "real": real,
        "virtual": virtual,
        "error": virtual / real - 1.0,
        "real_all": [real],
        "virtual_all": [virtual],
        "lag": lag,
        **fields,
    }


def test_errors_are_relative_to_the_real_clock_and_what_disagrees_is_named() -> None:
    rows = [row("a", 100.0, 104.0), row("b", 200.0, 150.0), row("c", 400.0, 396.0)]
    found = bench_clock._agreement(rows)
    assert found["time_error_median"] == pytest.approx(0.04)
    assert found["time_error_max"] == pytest.approx(0.25)
    (line,) = found["disagreements"]
    assert line.startswith("pong b: the virtual clock is 25% slower")
    assert found["spearman"] is None  # nothing was learned
    assert found["by_game"]["pong"]["spearman_speed"] == 1.0


def test_a_lag_that_is_off_by_more_than_an_update_is_named() -> None:
    lag = {"real_mean": 1.0, "virtual_mean": 3.5, "distance_updates": 2.5}
    (line,) = bench_clock._agreement([row("a", 100.0, 100.0, lag=lag)])["disagreements"]
    assert "policy lag 3.5 against 1.0" in line


def test_ranks_of_gains_agree_or_do_not_and_the_interval_says_how_surely() -> None:
    rng = np.random.default_rng(0)
    gains = np.arange(8.0)[:, None] + 0.01 * rng.normal(size=(8, 3))
    rows = [
        row(str(i), 1.0, 1.0, return_real_all=list(own), return_virtual_all=list(2.0 * own))
        for i, own in enumerate(gains)
    ]
    agreed = bench_clock._agreement(rows)
    assert agreed["spearman"] == 1.0
    assert agreed["spearman_low"] > 0.7
    for each, own in zip(rows, rng.permutation(gains), strict=True):
        each["return_virtual_all"] = list(own)
    muddled = bench_clock._agreement(rows)
    assert muddled["spearman"] < 0.9
    assert muddled["spearman_low"] < agreed["spearman_low"]


def test_distance_of_lags_is_the_area_between_their_distributions() -> None:
    """All rollouts one update later is a distance of one update."""
    real, virtual = [{"lags": {1: 5, 2: 5}}], [{"lags": {2: 10, 3: 10}}]
    lags = bench_clock._lags(real, virtual)
    assert lags["distance_updates"] == pytest.approx(1.0)
    assert (lags["real_mean"], lags["virtual_mean"]) == (1.5, 2.5)
    assert bench_clock._lags(real, real)["distance_updates"] == 0.0


def test_rank_correlation_shares_ranks_between_ties() -> None:
    assert spearman([1.0, 2.0, 3.0], [1.0, 3.0, 2.0]) == pytest.approx(0.5)
    assert spearman([1.0, 1.0, 2.0], [5.0, 6.0, 7.0]) == pytest.approx(np.sqrt(0.75))
    assert np.isnan(spearman([1.0, 1.0], [1.0, 2.0]))


@pytest.mark.parametrize("game", SECONDS)
def test_at_least_eight_specs_and_two_strategies_run_on_both_clocks(game: str) -> None:
    cases = cases_of(game)
    assert len(SPECS[game]) >= 8
    assert [case.strategy for case in cases].count("fixed") == len(SPECS[game])
    assert {case.strategy for case in cases} >= {"three-stage", "random"}
    config = clock_config(game, 8.0)
    assert (config.runtime.runtime, config.runtime.clock) == ("process", "real")
    assert bool(config.runtime.eval_episodes) == (game in LEARNED)
    assert CompressionSpec(student="net3") in all_specs(game)  # the strategies' specs too


@pytest.mark.parametrize("game", SECONDS)
def test_the_virtual_clock_needs_no_gpu(game: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put_beside_a_gpu(monkeypatch, bench_clock)
    for profile, device in ((None, "cuda"), (fast_profile().to_json(), "cpu")):
        with pytest.raises(Started, match=device):
            bench_clock._run(cases_of(game)[0], 8.0, 0, profile)


def test_the_middle_of_two_profiles_lies_between_them() -> None:
    before = fast_profile()
    slower = [
        replace(
            each,
            infer_us={batch: 3.0 * us for batch, us in each.infer_us.items()},
            publish_ms=5.0 * each.publish_ms,
        )
        for each in before.specs
    ]
    after = replace(before, env_step_us=2.0 * before.env_step_us, specs=tuple(slower))
    between = middle(before, after)
    assert between.env_step_us == pytest.approx(1.5 * before.env_step_us)
    assert between.specs[0].infer_us[1] == pytest.approx(2.0 * before.specs[0].infer_us[1])
    assert between.specs[0].publish_ms == pytest.approx(3.0 * before.specs[0].publish_ms)
    assert drift(before, after) == pytest.approx(
        {"env_step_us": 2.0, "learner_us_per_sample": 1.0, "infer_us": 3.0}
    )


def test_the_figure_has_a_panel_for_speeds_and_one_for_returns() -> None:
    gains = {"return_real_all": [0.1, 0.2, 0.3], "return_virtual_all": [0.1, 0.1, 0.2]}
    figure = clock_fidelity({"rows": [row("a", 100.0, 104.0, **gains), row("b", 50.0, 49.0)]})
    assert {each["panel"] for each in figure.table} == {
        "Env steps per second, pong",
        "Mean return over the run, pong",
    }
    assert {
        "panel": "Mean return over the run, pong",
        "label": "a",
        "real": 0.2,
        "virtual": 0.1,
    } in (list(figure.table))


def test_cases_that_share_a_colour_have_other_shapes() -> None:
    rows = [row(str(index), 100.0, 104.0) for index in range(16)]
    (panel,) = clock_fidelity({"rows": rows}).spec["hconcat"]
    encoding = panel["layer"][1]["encoding"]
    colours, shapes = (encoding[name]["scale"]["range"] for name in ("color", "shape"))
    assert len(set(zip(colours, shapes, strict=True))) == 16


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"games": ["pong", "pung"]}, "no game 'pung'"),
        ({"seeds": 0}, "are positive"),
        ({"games": []}, "name a game"),
        ({"seconds": 1.0}, "must lie in 4..3600"),
    ],
)
def test_mistakes_are_told_before_anything_runs(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        bench_clock.bench_clock(**fields)


@pytest.mark.slow
def test_a_killed_process_costs_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="the process that measured 'int8' was killed: is there"):
        apart(die, what="'int8'")
    monkeypatch.setattr(bench_clock, "_run", die)
    case = bench_clock.Case("catch", "fp32", "fixed", {"spec": IDENTITY.to_json()})
    machine = {"catch": fast_profile()}
    with pytest.raises(UserError, match="that measured the virtual clock was killed"):
        bench_clock._predicted([(case, 0)], {"catch": 1.0}, machine, 1, ResultCache(None))


@pytest.mark.slow
def test_a_measurement_that_nobody_waits_for_is_given_up() -> None:
    """By Ctrl-C or SIGTERM, which only this process may have been sent."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 4.0)
        with pytest.raises(KeyboardInterrupt):
            apart(sleep, 600.0, what="nothing")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
