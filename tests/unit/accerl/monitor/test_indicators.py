"""Indicators: what reports say, by hand; and what an interval without data must not change."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from accerl.errors import UserError
from accerl.monitor.indicators import Raw
from accerl.monitor.monitor import Monitor
from accerl.monitor.trend import TrendWindow
from accerl.runtime.run import PHASES, IntervalReport
from accerl.spec import IDENTITY, CompressionSpec, Decision
from tests.fixtures.reports.reports import interval_report

INT8 = CompressionSpec(bits=8)
REPORT = interval_report(
    phase_seconds=dict.fromkeys(PHASES, 0.0), decision=Decision.of(INT8), spec_seconds={}
)


def raw_after(*changes: dict[str, Any]) -> Raw:
    """Return the raw indicators after reports with these changes, one after the other."""
    monitor = Monitor(num_actions=6, horizon_seconds=100.0)
    features = monitor.start()
    for step, change in enumerate(changes):
        at = {"index": step, "total_seconds": 2.0 * (step + 1)}
        features = monitor.update(replace(REPORT, **(at | change)))
    return features.raw


def test_the_paper_s_indicators_have_their_units() -> None:
    raw = raw_after({})
    assert (raw["kl_mean_nats"], raw["kl_var"], raw["kl_max_nats"]) == (0.01, 0.0001, 14.0)
    assert raw["entropy_nats"] == math.log(6) / 2
    assert raw["entropy_fraction"] == pytest.approx(0.5)


def test_a_kl_that_an_interval_did_not_measure_is_not_new() -> None:
    measured = {"acted_kl_nats": {INT8: 0.01}}
    assert raw_after(measured)["kl_is_new"] == 1.0
    assert raw_after(measured, {})["kl_is_new"] == 0.0
    assert math.isnan(raw_after()["kl_is_new"])


def test_a_game_with_one_action_has_no_share_of_entropy() -> None:
    monitor = Monitor(num_actions=1, horizon_seconds=100.0)
    monitor.start()
    raw = monitor.update(replace(REPORT, entropy_nats=0.0)).raw
    assert raw["entropy_fraction"] == 0.0


def test_compression_kl_is_the_mix_s_and_stays_known() -> None:
    mix = Decision(((INT8, 0.75), (IDENTITY, 0.25)))
    measured = {
        "decision": mix,
        "compression_kl_nats": {INT8: 0.4, IDENTITY: 0.0},
        "staleness_kl_nats": 0.02,
    }
    raw = raw_after(measured, {"decision": mix})
    assert raw["compression_kl_nats"] == pytest.approx(0.3)
    assert raw["staleness_kl_nats"] == 0.02
    assert math.isnan(raw_after({})["compression_kl_nats"])
    # What has not been sampled yet says nothing about what has.
    only = raw_after({"decision": mix, "compression_kl_nats": {INT8: 0.4}})
    assert only["compression_kl_nats"] == pytest.approx(0.4)


def test_the_kl_of_what_waits_is_known_while_it_waits() -> None:
    mix = Decision(((INT8, 1.0),))
    waits = {"decision": mix, "spec_seconds": {IDENTITY: 2.0}, "waiting_kl_nats": {INT8: 3.5}}
    acted = {"compression_kl_nats": {IDENTITY: 0.0}}
    raw = raw_after(waits | acted)
    assert raw["waiting_kl_nats"] == 3.5
    assert (raw["compression_kl_nats"], raw["waits"]) == (0.0, 1.0)
    unknown = raw_after(waits | {"waiting_kl_nats": {INT8: None}})
    assert (math.isnan(unknown["waiting_kl_nats"]), unknown["waits"]) == (True, 1.0)
    acts = raw_after(waits, {"decision": mix})
    assert (math.isnan(acts["waiting_kl_nats"]), acts["waits"]) == (True, 0.0)


def test_a_shadows_kl_is_known_in_the_interval_that_measured_it() -> None:
    bf16 = CompressionSpec(bits=16)
    shadowed = {"decision": Decision(((INT8, 1.0),), bf16)}
    measured = shadowed | {"shadow_kl_nats": {bf16: 0.25, IDENTITY: 0.0}}
    assert raw_after(measured)["shadow_kl_nats"] == 0.25
    assert math.isnan(raw_after(measured, shadowed)["shadow_kl_nats"])
    # What a former shadow was measured at late is not this one's.
    assert math.isnan(raw_after({"shadow_kl_nats": {bf16: 0.25}})["shadow_kl_nats"])
    assert math.isnan(raw_after()["shadow_kl_nats"])


def test_a_change_of_the_shadow_alone_is_no_switch() -> None:
    took = {"phase_seconds": dict.fromkeys(PHASES, 0.0) | {"infer": 2.0}, "env_steps": 100}
    shadows = [None, IDENTITY, CompressionSpec(bits=16)]
    reports = [took | {"decision": Decision(((INT8, 1.0),), shadow)} for shadow in shadows]
    raw = raw_after(*reports)
    assert raw["intervals_since_switch"] == raw_after(took, took, took)["intervals_since_switch"]
    assert raw["infer_slowdown"] == 1.0
    assert raw["bits_level"] == 1.0


def test_correction_indicators_outlive_an_interval_without_rollouts() -> None:
    losses = {
        "argmax_agreement": 0.9,
        "ess_fraction": 0.8,
        "clipped_share": 0.3,
        "value_error": 0.2,
        "explained_variance": 0.7,
    }
    raw = raw_after({"losses": losses}, {"losses": {}})
    assert {name: raw[name] for name in losses} == losses


def test_returns_are_quantiles_means_and_a_gap() -> None:
    scores = tuple(float(score) for score in range(40))
    raw = raw_after({"episode_returns": scores, "learner_return": 50.0})
    assert raw["actor_return"] == np.mean(scores[-20:])
    low, median, high = np.quantile(scores, (0.1, 0.5, 0.9))
    found = (raw["actor_return_low"], raw["actor_return_median"], raw["actor_return_high"])
    assert found == pytest.approx((low, median, high))
    assert raw["reward_gap"] == pytest.approx(50.0 - 29.5)
    assert raw["actor_return_new"] == raw["actor_return"]
    few = raw_after({"episode_returns": scores}, {"episode_returns": (90.0, 92.0)})
    assert few["actor_return_new"] == 91.0
    assert few["actor_return"] == np.mean([*scores[-18:], 90.0, 92.0])
    assert math.isnan(raw_after({"episode_returns": scores}, {})["actor_return_new"])
    # J is measured now and then: the last one counts until the next.
    later = raw_after({"episode_returns": scores, "learner_return": 50.0}, {})
    assert later["reward_gap"] == raw["reward_gap"]
    assert raw["learner_return_new"] == later["learner_return"] == 50.0
    assert math.isnan(later["learner_return_new"])


def test_the_machine_s_shares_add_up() -> None:
    phases = {"env": 3.0, "infer": 1.0, "write": 0.0, "wait": 0.5, "learn": 1.5}
    phases |= {"compress": 0.4, "publish": 0.2}
    changes = {"phase_seconds": phases, "publication_bytes": 1000, "switch_seconds": 0.5}
    raw = raw_after(changes, changes | {"env_steps": 800})
    assert (raw["env_share"], raw["infer_share"], raw["write_share"]) == (0.75, 0.25, 0.0)
    assert raw["learner_idle"] == 0.25
    assert raw["publish_share"] == pytest.approx(0.3)
    assert raw["bytes_per_second"] == 500.0
    assert (raw["switch_seconds"], raw["switch_share"]) == (0.5, 0.25)
    assert (raw["env_steps_per_second"], raw["speed_ratio"]) == (400.0, 2.0)


def test_speed_is_compared_with_the_first_interval_of_full_length() -> None:
    short = {"seconds": 0.2, "total_seconds": 0.2, "env_steps": 10}
    late = {"seconds": 2.1, "env_steps": 840}
    cases = [
        ([short], 1.0),
        ([short, {"env_steps": 400}], 1.0),
        ([short, {"env_steps": 400}, {"env_steps": 100}], 0.25),
        ([short, {"env_steps": 400}, late], 2.0),
        ([short, {"env_steps": 400}, late | short], 0.25),
        # One that was held up is no new measure, nor is one after others as long.
        ([{}, {}, {"seconds": 8.0}, {}], 1.0),
        ([{}, {"seconds": 3.1, "env_steps": 1240}, {}], 0.5),
    ]
    for reports, ratio in cases:
        assert raw_after(*reports)["speed_ratio"] == pytest.approx(ratio)


def test_work_is_compared_with_what_it_took_before() -> None:
    def took(factor: float, **changes: Any) -> dict[str, Any]:
        phases = {"env": 2.0 * factor, "infer": 1.0, "learn": 3.0 * factor, "publish": 0.5 * factor}
        counts = {"env_steps": 100, "learner_updates": 10, "publications": 2}
        return {"phase_seconds": dict.fromkeys(PHASES, 0.0) | phases, **counts, **changes}

    names = ("env_slowdown", "infer_slowdown", "learn_slowdown", "publish_slowdown")
    first = raw_after(took(1.0))
    assert all(math.isnan(first[name]) for name in names)
    slower = raw_after(took(1.0), took(1.0), took(2.0))
    assert [slower[name] for name in names] == pytest.approx([2.0, 1.0, 2.0, 2.0])
    # What another spec takes says nothing about the machine, nor does what did not happen.
    other = raw_after(took(1.0), took(2.0, decision=Decision.of(IDENTITY), learner_updates=0))
    assert other["env_slowdown"] == pytest.approx(2.0)
    assert all(math.isnan(other[name]) for name in names[1:])


def test_a_core_share_is_processor_seconds_over_the_clock_s() -> None:
    phases = dict.fromkeys(PHASES, 0.0) | {"env": 3.0, "infer": 1.0}
    assert raw_after({"phase_seconds": phases, "actor_core_seconds": 2.0})["core_share"] == 0.5
    assert raw_after({"phase_seconds": phases, "actor_core_seconds": 4.1})["core_share"] == 1.0
    assert math.isnan(raw_after({"phase_seconds": phases})["core_share"])


@pytest.mark.parametrize("apart", [0.0, 1e-288])
def test_moments_that_are_hardly_apart_show_no_trend(apart: float) -> None:
    window = TrendWindow()
    for step in range(3):
        window.add(apart * step, [1.0, 2.0, 3.0])
    assert math.isnan(window.trend().slope_per_second)


def test_slope_and_its_t_are_those_of_a_regression() -> None:
    generator = np.random.default_rng(0)
    window = TrendWindow(intervals=4)
    times: list[float] = []
    scores: list[float] = []
    for step in range(6):
        seconds, found = 5.0 * step, generator.normal(0.3 * step, 1.0, 7)
        window.add(seconds, found)
        if step >= 2:
            times += [seconds] * 7
            scores += found.tolist()
    expected: Any = stats.linregress(times, scores)
    trend = window.trend()
    assert trend.slope_per_second == pytest.approx(expected.slope)
    assert trend.slope_t == pytest.approx(expected.slope / expected.stderr)


def test_a_long_run_looks_further_back() -> None:
    short, long = TrendWindow(intervals=2), TrendWindow(intervals=2, seconds=25.0)
    for step in range(5):
        for window in (short, long):
            # It has risen by 10 points and rests since.
            window.add(10.0 * step, [10.0 * min(step, 1) + noise for noise in (-1.0, 1.0)] * 5)
    assert short.trend().slope_per_second == 0.0
    assert long.trend() == short.trend()  # 20, 30 and 40 seconds: at rest as well
    longer = TrendWindow(intervals=2, seconds=40.0)
    for step in range(5):
        longer.add(10.0 * step, [10.0 * min(step, 1)] * 10)
    assert longer.trend().slope_per_second > 0.0


def test_slope_is_unknown_until_enough_episodes_ended_at_two_times() -> None:
    window = TrendWindow()
    window.add(1.0, [1.0] * 20)
    window.add(2.0, [])
    assert all(math.isnan(number) for number in window.trend())
    window.add(3.0, [2.0])
    assert window.trend().slope_per_second == pytest.approx(0.5)


def test_a_gain_is_a_share_of_the_range_so_far() -> None:
    window = TrendWindow(intervals=2)
    for seconds, score in ((1.0, 0.0), (2.0, 8.0), (3.0, 10.0)):
        window.add(seconds, [score] * 10)
    assert window.trend().gain_share == pytest.approx(0.2)
    assert window.trend().slope_t == math.inf


def stages(means: list[float], *, noise: float = 0.5, seed: int = 0) -> list[float]:
    """Return the stage after each interval of 8 episodes around a mean."""
    generator = np.random.default_rng(seed)
    monitor = Monitor(num_actions=6, horizon_seconds=1000.0)
    found = []
    for step, mean in enumerate(means):
        episodes = tuple(generator.normal(mean, noise, 8).tolist())
        report = replace(REPORT, total_seconds=10.0 * (step + 1), episode_returns=episodes)
        found.append(monitor.update(report).raw["stage"])
    return found


CURVE = [-21.0] * 8 + [-21.0 + 2.0 * step for step in range(1, 21)] + [19.0] * 18


@pytest.mark.parametrize("seed", range(5))
def test_a_learning_curve_has_three_stages(seed: int) -> None:
    found = stages(CURVE, seed=seed)
    assert found[:8] == [0.0] * 8
    assert found[12:28] == [1.0] * 16
    assert found[-5:] == [2.0] * 5
    assert found == sorted(found)


def test_a_stage_does_not_flicker() -> None:
    """A plateau of a few intervals in the middle of learning is not convergence."""
    curve = [-21.0, -19.0, -17.0, -15.0, -13.0, -13.0, -13.0, -11.0, -9.0, -7.0, -5.0]
    assert stages(curve)[4:] == [1.0] * 7


def test_learning_that_goes_on_after_a_plateau_is_improving_again() -> None:
    found = stages([*CURVE, *(19.0 + 2.0 * step for step in range(1, 9))])
    assert found[len(CURVE) - 1] == 2.0
    assert found[-1] == 1.0


def test_a_collapse_is_no_convergence() -> None:
    found = stages([*CURVE[:28], *(19.0 - 2.0 * step for step in range(1, 12))])
    assert found[27:] == [1.0] * 12


def test_intervals_without_episodes_are_no_evidence() -> None:
    monitor = Monitor(num_actions=6, horizon_seconds=1000.0)
    found = []
    for step in range(12):
        # Only the first two intervals have episodes: one rise, repeated ten times.
        episodes = (-21.0 + 10.0 * step,) * 8 if step < 2 else ()
        report = replace(REPORT, total_seconds=10.0 * (step + 1), episode_returns=episodes)
        found.append(monitor.update(report).raw["stage"])
    assert found == [0.0] * 12


@pytest.mark.parametrize("seed", range(10))
def test_noise_alone_is_exploration(seed: int) -> None:
    assert max(stages([0.0] * 40, noise=3.0, seed=seed)) == 0.0


def test_what_is_recorded_of_an_indicator_can_be_read_again() -> None:
    class Alarm:
        names = ("alarm", "third")

        def update(self, report: IntervalReport, raw: Raw) -> dict[str, Any]:
            return {"alarm": raw["kl_max_nats"] > 1.0, "third": Fraction(1, 4)}

    monitor = Monitor(num_actions=6, horizon_seconds=100.0, indicators=[Alarm()])
    raw = monitor.update(REPORT).raw
    found = replace(REPORT, indicators={name: raw[name] for name in Alarm.names})
    again = IntervalReport.from_json(json.loads(json.dumps(found.to_json())))
    assert again.indicators == {"alarm": 1.0, "third": 0.25}


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        (None, r"is to return numbers of \['mine'\], it returned None"),
        ({"mine": None}, "'mine' is None, and a number is needed"),
        ({"other": 1.0}, r"is to return \['mine'\], it returned \['other'\]"),
        (KeyError("gone"), "KeyError: 'gone'"),
    ],
)
def test_mistakes_in_an_indicator_of_ones_own_name_it(returned: Any, reason: str) -> None:
    class Mine:
        names = ("mine",)

        def update(self, report: IntervalReport, raw: Raw) -> Raw:
            if isinstance(returned, Exception):
                raise returned
            return returned

    monitor = Monitor(num_actions=6, horizon_seconds=100.0, indicators=[Mine()])
    with pytest.raises(UserError, match=f"^indicator Mine:? {reason}"):
        monitor.update(REPORT)
