"""Shielded: when it steps in, what it lets through, and what it leaves in the records."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accerl.errors import UserError
from accerl.monitor.compliance import StrategyCompliance, made_up_features
from accerl.monitor.features import FEATURE_NAMES, Features
from accerl.monitor.strategies import FixedStrategy, KLThresholdStrategy, RewardGapStrategy
from accerl.monitor.strategy import Strategy, bind, events_of, fires, needs_of, specs_of
from accerl.records import read_json, read_metrics
from accerl.spec import IDENTITY, CompressionSpec, Decision
from accerl.training.run import run_training
from controller.bundle.serving import ServedStrategy
from controller.comparators.bandits import SlidingWindowUCB
from controller.comparators.credit import JOINT_SPECS
from controller.indicator.strategy import AdvancedIndicator
from controller.shield import Shielded
from controller.shipped import shipped_indicator
from tests.fixtures.controllers.made_bundles import make_indicator
from tests.fixtures.runs.inner_runs import fast_profile, tiny_catch

INT8, BF16 = CompressionSpec(bits=8), CompressionSpec(bits=16)
NET3 = CompressionSpec(student="net3", bits=8)


class Silent:
    """A strategy that declares nothing, and counts what it is asked."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error, self.asked, self.resets = error, 0, 0

    def reset(self) -> None:
        self.resets += 1

    def decide(self, features: Features) -> Decision:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return Decision.of(INT8)


class TestShieldedBandit(StrategyCompliance):
    def make(self) -> Strategy:
        return Shielded(SlidingWindowUCB())


class TestShieldedThreshold(StrategyCompliance):
    def make(self) -> Strategy:
        inner = KLThresholdStrategy(threshold_nats=1.0, return_below_nats=0.1)
        return Shielded(inner, fallback=IDENTITY)


class TestShieldedSilent(StrategyCompliance):
    def make(self) -> Strategy:
        return Shielded(Silent())


class TestShieldedFailing(StrategyCompliance):
    def make(self) -> Strategy:
        return Shielded(Silent(RuntimeError("a bug")))


def with_vector(**changes: float) -> Features:
    features = made_up_features(seconds=4.0)
    vector = features.vector.copy()
    for name, value in changes.items():
        vector[FEATURE_NAMES.index(name)] = value
    return Features(raw=features.raw, vector=vector)


def test_the_paper_s_rule_lasts_for_an_interval_at_a_time() -> None:
    shielded = Shielded(FixedStrategy(INT8), fallback=BF16)
    shielded.reset()
    specs = [
        shielded.decide(made_up_features(seconds=2.0 * step, kl_max_nats=kl)).main
        for step, kl in enumerate((0.1, 14.0, 14.5, 3.0, math.inf))
    ]
    assert specs == [INT8, INT8, BF16, INT8, BF16]
    same: dict[str, Any] = {"cause": "kl", "spec": BF16.to_json()}
    assert shielded.events == [
        {"interval": 2, "seconds": 4.0, "value": 14.5, **same},
        {"interval": 4, "seconds": 8.0, "value": "inf", **same},
    ]


def test_what_is_large_while_the_fallback_acts_is_not_the_strategy_s_doing() -> None:
    """Weights are as stale without compression: acting milder for longer would mend nothing."""
    shielded = Shielded(Silent())
    specs = [
        shielded.decide(made_up_features(kl_max_nats=kl)).main for kl in (1.0, 20.0, 20.0, 20.0)
    ]
    assert specs == [INT8, IDENTITY, INT8, IDENTITY]
    assert [event["interval"] for event in shielded.events] == [1, 3]
    resting = Shielded(FixedStrategy(IDENTITY))
    for _ in range(3):
        resting.decide(made_up_features(kl_max_nats=20.0))
    assert [event["interval"] for event in resting.events] == [0]  # nobody decided before it
    resting.reset()
    resting.decide(made_up_features(kl_max_nats=20.0))
    assert [event["interval"] for event in resting.events] == [0]
    within = Shielded(Silent())
    within.decide(made_up_features(kl_max_nats=1.0))
    within.overruled(Decision.of(IDENTITY))  # by a shield around it
    assert within.decide(made_up_features(kl_max_nats=20.0)) == Decision.of(INT8)


@pytest.mark.parametrize(
    ("mean", "compression", "is_new", "steps_in"),
    [
        (0.2, 0.001, 1.0, False),  # INT8, whose weights are seven updates old
        (0.4, 0.25, 1.0, True),  # a student that was not distilled for long enough
        (0.2, 0.001, 0.0, True),  # of what acted before
        (0.2, math.nan, 1.0, True),
        (math.inf, 0.001, 1.0, True),
        (math.nan, 0.001, 1.0, True),
    ],
)
def test_what_stale_weights_make_is_not_compression_s_doing(
    mean: float, compression: float, is_new: float, steps_in: bool
) -> None:
    shielded = Shielded(Silent())
    measured = {"compression_kl_nats": compression, "compression_kl_is_new": is_new}
    decided = shielded.decide(made_up_features(kl_max_nats=20.0, kl_mean_nats=mean, **measured))
    assert decided.main == (IDENTITY if steps_in else INT8)


def test_of_a_mix_one_part_may_be_the_cause_that_was_not_measured() -> None:
    inner: Any = Silent()
    inner.decide = lambda features: Decision(((INT8, 0.5), (NET3, 0.5)))
    shielded = Shielded(inner)
    stale = {"kl_mean_nats": 0.2, "compression_kl_nats": 0.001, "compression_kl_is_new": 1.0}
    shielded.decide(made_up_features(kl_max_nats=1.0))
    assert shielded.decide(made_up_features(kl_max_nats=20.0, **stale)).main == IDENTITY


def test_after_a_high_kl_the_strategy_is_asked_all_the_same() -> None:
    inner = Silent()
    shielded = Shielded(inner)
    assert shielded.decide(made_up_features(kl_max_nats=20.0)).main == IDENTITY
    assert inner.asked == 1


def test_events_of_a_shield_within_are_told() -> None:
    """As of a bundle that brings its own, under a laxer one."""
    inner = Silent()
    shielded = Shielded(ServedStrategy(Shielded(inner, 14.0), {}), 20.0)
    for kl_nats, error in ((1.0, None), (15.0, None), (math.nan, None), (1.0, None), (21.0, "no")):
        inner.error = None if error is None else RuntimeError(error)
        decision = shielded.decide(made_up_features(kl_max_nats=kl_nats))
        assert decision == Decision.of(INT8 if kl_nats == 1.0 else IDENTITY)
        assert fires(shielded)  # that strategy does not say whether it rests
    assert [(event["interval"], event["cause"]) for event in shielded.events] == [
        *[(1, "kl"), (2, "nan"), (4, "kl"), (4, "kl"), (4, "error")],
    ]
    shielded.reset()
    assert shielded.events == []


def test_a_shield_round_a_shield_replaces_it() -> None:
    """What acts is what the records say, for the indicator that ships under a shield as well."""
    shielded = Shielded(Shielded(FixedStrategy(INT8), 14.0, BF16), 20.0)
    decided = [shielded.decide(made_up_features(kl_max_nats=kl)).main for kl in (15.0, 21.0)]
    assert decided == [INT8, IDENTITY]
    assert [event["value"] for event in shielded.events] == [21.0]
    assert shielded.to_json() == Shielded(FixedStrategy(INT8), 20.0).to_json()
    laxer = Shielded.from_json(shipped_indicator(), {"threshold_nats": 20.0})
    assert isinstance(laxer.strategy, AdvancedIndicator)


def test_an_error_is_told_and_survived() -> None:
    shielded = Shielded(Silent(KeyError("returns")), fallback=BF16)
    assert shielded.decide(made_up_features()).main == BF16
    (event,) = shielded.events
    assert (event["cause"], event["value"]) == ("error", "KeyError: 'returns'")


def test_what_is_no_decision_is_told_and_survived() -> None:
    inner: Any = Silent()
    inner.decide = lambda features: None
    shielded = Shielded(inner, fallback=BF16)
    assert shielded.decide(made_up_features()).main == BF16
    (event,) = shielded.events
    assert event["cause"] == "error"
    assert event["value"] == "TypeError: decide() must return a Decision, got NoneType"


def test_a_student_that_the_run_would_refuse_is_told_and_survived() -> None:
    inner: Any = Silent()
    inner.decide = lambda features: Decision.of(NET3)
    shielded = Shielded(inner, fallback=BF16)
    assert shielded.decide(made_up_features()).main == NET3  # nobody knows the learner yet
    bind(shielded, replace(tiny_catch(), network="net3"), None)
    assert shielded.decide(made_up_features()).main == BF16
    (event,) = shielded.events
    assert event["cause"] == "error"
    assert "student 'net3' is not smaller than the learner's network" in event["value"]


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_is_no_error(interrupt: type[BaseException]) -> None:
    shielded = Shielded(Silent(interrupt()))
    with pytest.raises(interrupt):
        shielded.decide(made_up_features())
    assert shielded.events == []


@pytest.mark.parametrize(
    ("features", "cause", "value"),
    [
        (with_vector(return_level=math.nan), "nan", "return_level"),
        (with_vector(queue_fill=math.inf), "nan", "queue_fill"),
        (made_up_features(kl_max_nats=math.nan), "nan", "kl_max_nats"),
        (with_vector(log_speed=-3.5), "range", "log_speed -3.5"),
        (with_vector(log_speed=3.0), None, None),
        (made_up_features(return_slope_t=math.inf), None, None),  # returns on a line
        (made_up_features(policy_lag=math.inf), "range", "policy_lag inf"),
        (
            Features(raw=made_up_features().raw, vector=np.zeros(25, dtype=np.float32)),
            "range",
            "(25,) is not 31 features",
        ),
    ],
)
def test_damaged_features_are_kept_from_the_strategy(
    features: Features, cause: str | None, value: str | None
) -> None:
    inner = Silent()
    shielded = Shielded(inner)
    decided = shielded.decide(features).main
    if cause is None:
        assert (decided, shielded.events, inner.asked) == (INT8, [], 1)
    else:
        (event,) = shielded.events
        assert (decided, event["cause"], event["value"]) == (IDENTITY, cause, value)
        assert inner.asked == 0


def test_a_reset_forgets_the_events_and_resets_the_strategy() -> None:
    inner = Silent()
    shielded = Shielded(inner)
    shielded.decide(made_up_features(kl_max_nats=20.0))
    shielded.reset()
    assert (shielded.events, inner.resets) == ([], 1)
    shielded.decide(made_up_features(kl_max_nats=20.0))
    assert [event["interval"] for event in shielded.events] == [0]


@pytest.mark.parametrize(
    ("inner", "fallback"),
    [
        (SlidingWindowUCB((NET3, BF16, INT8)), BF16),
        (SlidingWindowUCB(), IDENTITY),
        (RewardGapStrategy(), CompressionSpec(sparsity=0.2)),
        (FixedStrategy(INT8), IDENTITY),  # one spec alone is not milder than itself
        (Silent(), IDENTITY),
    ],
)
def test_the_fallback_is_the_mildest_spec(inner: Strategy, fallback: CompressionSpec) -> None:
    assert Shielded(inner).fallback == fallback


def test_what_the_strategy_declares_is_passed_on() -> None:
    shielded = Shielded(RewardGapStrategy(), fallback=INT8)
    assert specs_of(shielded) == (*RewardGapStrategy().specs, INT8)
    assert needs_of(shielded) == {"learner_return", "actor_return"}
    assert specs_of(Shielded(SlidingWindowUCB())) == JOINT_SPECS
    assert not hasattr(Shielded(Silent()), "specs")  # nobody knows
    assert shielded.name == "reward-gap"


def test_it_fires_when_either_does() -> None:
    shielded = Shielded(KLThresholdStrategy(threshold_nats=5.0))
    shielded.reset()
    fired = []
    for kl_nats in (1.0, 6.0, 1.0):
        shielded.decide(made_up_features(kl_max_nats=kl_nats))
        fired.append(fires(shielded))
    assert fired == [False, True, True]
    resting = Shielded(KLThresholdStrategy(threshold_nats=50.0))
    resting.decide(made_up_features(kl_max_nats=20.0))
    assert fires(resting)


def test_json_there_and_back() -> None:
    inner = KLThresholdStrategy(threshold_nats=3.0)
    told = json.loads(json.dumps(Shielded(inner, 7.5, NET3).to_json()))
    assert told == {
        **inner.to_json(),
        "shield": {"threshold_nats": 7.5, "fallback": NET3.to_json()},
    }
    again = Shielded.from_json(inner, told["shield"])
    assert (again.threshold_nats, again.fallback) == (7.5, NET3)
    default = Shielded.from_json(inner, {})
    assert (default.threshold_nats, default.fallback) == (14.0, BF16)
    assert Shielded(Silent()).to_json()["name"] == "Silent"


@pytest.mark.parametrize(
    ("shield", "message"),
    [
        ({"threshold": 1.0}, "unknown parameter 'threshold'; did you mean 'threshold_nats'"),
        ({"threshold_nats": -1.0}, "threshold_nats must be a number at least 0.0, got -1.0"),
        ({"threshold_nats": math.nan}, "threshold_nats must be a number"),
        ({"fallback": {"bits": 7}}, "bits must be one of"),
        (14.0, "expected an object such as"),
    ],
)
def test_mistakes_are_named(shield: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Shielded.from_json(FixedStrategy(), shield)


def test_a_fallback_must_be_a_spec() -> None:
    fallback: Any = {"bits": 8}
    with pytest.raises(UserError, match="fallback must be a spec"):
        Shielded(FixedStrategy(), fallback=fallback)


def run(out: Path, seconds: float, **options: Any) -> Shielded:
    config = tiny_catch(seconds=seconds, interval_seconds=0.004)
    shielded = Shielded(FixedStrategy(INT8), threshold_nats=1e-4)
    run_training(config, shielded, out=out, profile=fast_profile(), **options)
    return shielded


def test_a_run_records_every_event(tmp_path: Path) -> None:
    shielded = run(tmp_path, 0.02)
    summary, reports = read_json(tmp_path / "summary.json"), list(read_metrics(tmp_path))
    assert summary["strategy_events"] == shielded.events == events_of(shielded)
    stepped_in = {event["interval"] for event in shielded.events}
    assert 0 < len(stepped_in) < len(reports) == 5  # before the first there is no KL
    for report in reports:
        assert report.decision.main == (IDENTITY if report.index in stepped_in else INT8)
        before = sum(interval <= report.index for interval in stepped_in)
        assert report.indicators["strategy_events"] == before


def test_a_resumed_run_tells_all_events(tmp_path: Path) -> None:
    run(tmp_path / "parts", 0.02)
    run(tmp_path / "parts", 0.04, resume=True)
    run(tmp_path / "whole", 0.04)
    events = [
        read_json(tmp_path / name / "summary.json")["strategy_events"]
        for name in ("parts", "whole")
    ]
    assert events[0] == events[1]
    assert len(events[0]) >= 3


def test_a_run_without_a_shield_has_no_events(tmp_path: Path) -> None:
    config = tiny_catch(seconds=0.008, interval_seconds=0.004)
    result = run_training(config, FixedStrategy(INT8), profile=fast_profile())
    assert result.summary["strategy_events"] == []
    assert "strategy_events" not in result.reports[-1].indicators


def test_an_infinite_indicator_is_noticed_behind_its_clipped_feature() -> None:
    features = made_up_features(seconds=4.0, policy_lag=math.inf)
    assert np.isfinite(features.vector).all()
    shielded = Shielded(FixedStrategy(INT8), fallback=BF16)
    shielded.reset()
    assert shielded.decide(features).main == BF16
    assert [(event["cause"], event["value"]) for event in shielded.events] == [
        ("range", "policy_lag inf")
    ]


def test_an_indicator_whose_weights_are_damaged_is_caught() -> None:
    damaged = make_indicator()
    for parameter in damaged.scorer.parameters():
        parameter.data.fill_(math.nan)
    shielded = Shielded(damaged)
    bind(shielded, tiny_catch(), None)
    shielded.reset()
    with pytest.raises(ValueError, match="not numbers"):
        damaged.decide(made_up_features(seconds=4.0))
    assert shielded.decide(made_up_features(seconds=4.0)).main == IDENTITY
    (event,) = shielded.events
    assert event["cause"] == "error"
