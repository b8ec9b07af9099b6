"""Features: finite and bounded whatever a run reports, and blind to the outer reward."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accerl.errors import UserError
from accerl.monitor.features import FEATURE_NAMES, FEATURES, Features
from accerl.monitor.indicators import Raw, ReturnIndicator
from accerl.monitor.monitor import Monitor
from accerl.runtime.run import PHASES, IntervalReport
from accerl.spec import IDENTITY, CompressionSpec, Decision
from tests.fixtures.reports.reports import interval_report

REPORT = interval_report(episode_returns=(1.0, 3.0))


def builder() -> Monitor:
    return Monitor(num_actions=6, horizon_seconds=20.0)


def value(features: Features, name: str) -> float:
    return float(features.vector[FEATURE_NAMES.index(name)])


def test_raw_indicators_keep_their_units() -> None:
    raw = builder().update(REPORT).raw
    assert raw["kl_max_nats"] == 14.0
    assert raw["actor_return"] == 2.0
    assert math.isnan(raw["learner_return"])
    assert raw["env_steps_per_second"] == 200.0
    assert raw["learner_idle"] == 0.5
    assert builder().update(replace(REPORT, learner_return=7.5)).raw["learner_return"] == 7.5


def test_raw_names_are_the_same_before_and_after_the_first_interval() -> None:
    first = builder()
    assert set(first.start().raw) == set(first.update(REPORT).raw)


def test_the_vector_is_what_its_names_say() -> None:
    features = builder().update(REPORT)
    assert features.vector.shape == (len(FEATURE_NAMES),)
    assert features.vector.dtype == np.float32
    expected = {
        "log_kl_mean": math.log10(0.0101) / 2 + 1,
        "entropy_fraction": 0.5,
        "time_fraction": 0.1,
        "log_speed": 0.0,
        "learner_idle": 0.5,
        "queue_fill": 0.25,
        "log_policy_lag": 1.0,
        "bits_level": 0.0,
        "sparsity": 0.0,
        "student_level": 0.0,
        "since_switch": 0.0,
    }
    for name, wanted in expected.items():
        assert value(features, name) == pytest.approx(wanted, abs=1e-6), name


def test_a_standstill_is_the_lowest_speed() -> None:
    features = builder()
    features.update(REPORT)
    stopped = replace(REPORT, env_steps=0, index=1, total_seconds=2 * REPORT.total_seconds)
    assert value(features.update(stopped), "log_speed") == -3.0


def test_the_vector_describes_a_mix_by_its_shares() -> None:
    hard = CompressionSpec(student="net3", sparsity=0.5, bits=8)
    mix = Decision(((hard, 0.25), (IDENTITY, 0.75)))
    features = builder().update(replace(REPORT, decision=mix))
    assert value(features, "bits_level") == pytest.approx(0.25)
    assert value(features, "sparsity") == pytest.approx(0.125)
    assert value(features, "student_level") == pytest.approx(0.25)


def test_time_since_the_last_switch_counts_intervals() -> None:
    build = builder()
    other = Decision.of(CompressionSpec(bits=8))
    decisions = [REPORT.decision, REPORT.decision, REPORT.decision, other, other]
    counts = [
        value(build.update(replace(REPORT, decision=item)), "since_switch") for item in decisions
    ]
    assert counts == pytest.approx([0.0, 0.1, 0.2, 0.0, 0.1])


def test_returns_are_seen_on_their_own_range() -> None:
    levels, trends = [], []
    for scale in (1.0, 1000.0):
        build = builder()
        for actor_return in (-20.0, 0.0, 20.0):
            episodes = (actor_return * scale,) * ReturnIndicator.WINDOW
            features = build.update(replace(REPORT, episode_returns=episodes))
        levels.append(value(features, "return_level"))
        trends.append(value(features, "return_trend"))
    assert levels == [1.0, 1.0]
    assert trends == [1.0, 1.0]


@given(learner_return=st.none() | st.floats(-1e6, 1e6))
def test_the_vector_never_uses_j(learner_return: float | None) -> None:
    plain, told = builder(), builder()
    for step in range(3):
        report = replace(REPORT, index=step, episode_returns=(float(step),))
        expected = plain.update(replace(report, learner_return=None)).vector
        given_j = told.update(replace(report, learner_return=learner_return)).vector
        assert np.array_equal(expected, given_j)


NON_NEGATIVE = st.floats(0.0, 1e9)


@st.composite
def reports(draw: st.DrawFn) -> IntervalReport:
    changes: dict[str, Any] = {
        name: draw(NON_NEGATIVE)
        for name in ("seconds", "total_seconds", "policy_lag", "kl_mean_nats", "kl_var")
    }
    spec = draw(st.sampled_from([IDENTITY, CompressionSpec(student="net3", bits=8)]))
    return replace(
        REPORT,
        **changes,
        kl_max_nats=draw(NON_NEGATIVE),
        entropy_nats=draw(st.floats(0.0, math.log(6))),
        env_steps=draw(st.integers(0, 10**9)),
        queue_fill=draw(st.floats(0.0, 1.0)),
        phase_seconds={name: draw(NON_NEGATIVE) for name in PHASES},
        episode_returns=tuple(draw(st.lists(st.floats(-1e6, 1e6), max_size=3))),
        decision=Decision.of(spec),
    )


@given(st.lists(reports(), min_size=1, max_size=5))
def test_the_vector_is_finite_and_bounded(sequence: list[IntervalReport]) -> None:
    build = builder()
    assert np.isfinite(build.start().vector).all()
    for report in sequence:
        vector = build.update(report).vector
        assert np.isfinite(vector).all()
        assert np.abs(vector).max() <= 3.0


def test_every_entry_reads_an_indicator_of_the_monitor() -> None:
    raw = builder().start().raw
    assert {feature.source for feature in FEATURES} <= set(raw)
    assert len(FEATURE_NAMES) == len(set(FEATURE_NAMES)) == 31


def test_the_first_entries_are_those_of_version_1() -> None:
    first = "log_kl_mean log_kl_max log_kl_std entropy_fraction return_level return_trend "
    first += "time_fraction log_speed learner_idle queue_fill log_policy_lag bits_level sparsity "
    first += "student_level since_switch"
    assert FEATURE_NAMES[:15] == tuple(first.split())


def test_what_was_not_measured_has_its_own_value() -> None:
    start = builder().start()
    expected = {
        "log_compression_kl": -1.0,
        "argmax_agreement": 1.0,
        "ess_fraction": 1.0,
        "clipped_share": 0.0,
        "return_slope": 0.0,
        "stage": 0.0,
    }
    for name, wanted in expected.items():
        assert value(start, name) == wanted, name


def test_a_network_that_has_diverged_is_as_far_off_as_can_be() -> None:
    unknown = dict.fromkeys(("kl_mean_nats", "kl_max_nats", "kl_var"), math.nan)
    features = builder().update(replace(REPORT, **unknown))
    for name in ("log_kl_mean", "log_kl_max", "log_kl_std"):
        assert value(features, name) == 3.0
        assert value(builder().start(), name) == pytest.approx(-1.0)


class Deaths:
    """As a user would write it."""

    names = ("deaths",)

    def update(self, report: IntervalReport, raw: Raw) -> Raw:
        return {"deaths": float(len(report.events)) + 0.0 * raw["seconds"]}


def test_an_indicator_of_the_users_own_joins_the_others() -> None:
    monitor = Monitor(6, 20.0, [Deaths()])
    start = monitor.start()
    assert math.isnan(start.raw["deaths"])
    features = monitor.update(replace(REPORT, events=({"role": "actor"},)))
    assert features.raw["deaths"] == 1.0
    assert np.array_equal(features.vector, builder().update(REPORT).vector)


def test_an_indicator_may_not_take_the_name_of_another() -> None:
    class Clash(Deaths):
        names = ("kl_mean_nats",)

    with pytest.raises(UserError, match="choose another name"):
        Monitor(6, 20.0, [Clash()])


def test_an_indicator_must_return_what_it_names() -> None:
    class Forgetful(Deaths):
        names = ("deaths", "births")

    with pytest.raises(UserError, match="births"):
        Monitor(6, 20.0, [Forgetful()]).update(REPORT)


def test_what_is_known_is_finite_and_the_indicators_own() -> None:
    monitor = Monitor(6, 20.0, [Deaths()])
    known = monitor.known(monitor.update(REPORT))
    assert known["deaths"] == 0.0
    assert known["kl_max_nats"] == 14.0
    assert {"learner_return", "seconds", "horizon_seconds"} & set(known) == set()
    assert all(math.isfinite(number) for number in known.values())
