"""The paper's hand-set strategies: when they switch, when they return, and what they refuse."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from accerl.errors import UserError
from accerl.monitor.compliance import StrategyCompliance, made_up_features
from accerl.monitor.strategies import (
    STRATEGIES,
    FixedStrategy,
    KLThresholdStrategy,
    LinearKLMixStrategy,
    RewardGapStrategy,
    make_strategy,
)
from accerl.monitor.strategy import Strategy
from accerl.spec import IDENTITY, CompressionSpec, Decision

INT8, BF16 = CompressionSpec(bits=8), CompressionSpec(bits=16)


class TestFixed(StrategyCompliance):
    def make(self) -> Strategy:
        return FixedStrategy(INT8)


class TestKLThreshold(StrategyCompliance):
    def make(self) -> Strategy:
        return KLThresholdStrategy(return_below_nats=1.0)


class TestRewardGap(StrategyCompliance):
    def make(self) -> Strategy:
        return RewardGapStrategy()


class TestLinearKLMix(StrategyCompliance):
    def make(self) -> Strategy:
        return LinearKLMixStrategy()


class ForgetfulReset:
    """A strategy whose reset does nothing, though it remembers."""

    def __init__(self) -> None:
        self.seen = 0

    def reset(self) -> None:
        pass

    def decide(self, features: object) -> Decision:
        self.seen += 1
        return Decision.of(INT8 if self.seen > 3 else IDENTITY)


def test_the_compliance_suite_catches_a_memory_that_survives_reset() -> None:
    class Forgetful(StrategyCompliance):
        def make(self) -> Strategy:
            return ForgetfulReset()

    with pytest.raises(AssertionError):
        Forgetful().test_reset_forgets_the_last_run()


def test_fixed_strategy_never_moves() -> None:
    strategy = FixedStrategy(INT8)
    for kl_nats in (0.0, 100.0, math.nan):
        features = made_up_features(kl_max_nats=kl_nats)
        assert strategy.decide(features) == Decision.of(INT8)
    assert FixedStrategy().decide(made_up_features()) == Decision.of(IDENTITY)


def walk(strategy: Strategy, indicator: str, values: tuple[float, ...]) -> list[CompressionSpec]:
    strategy.reset()
    return [strategy.decide(made_up_features(**{indicator: value})).main for value in values]


def test_kl_threshold_goes_from_8_to_16_bits_above_14_nats_and_stays() -> None:
    specs = walk(KLThresholdStrategy(), "kl_max_nats", (0.1, 14.0, 14.1, 0.0, 0.0))
    assert specs == [INT8, INT8, BF16, BF16, BF16]


def test_kl_threshold_with_hysteresis_returns_only_well_below() -> None:
    strategy = KLThresholdStrategy(INT8, BF16, 14.0, return_below_nats=2.0)
    specs = walk(strategy, "kl_max_nats", (1.0, 20.0, 10.0, 2.0, 1.9, 10.0))
    assert specs == [INT8, BF16, BF16, BF16, INT8, INT8]


def test_kl_threshold_reads_the_indicator_it_was_given() -> None:
    strategy = KLThresholdStrategy(INT8, BF16, 0.2, indicator="kl_mean_nats")
    assert walk(strategy, "kl_max_nats", (50.0,)) == [INT8]
    assert walk(strategy, "kl_mean_nats", (0.3,)) == [BF16]


def test_kl_threshold_takes_a_diverged_network_for_the_worst() -> None:
    assert walk(KLThresholdStrategy(), "kl_max_nats", (math.nan, 0.0)) == [BF16, BF16]


def gaps(strategy: Strategy, pairs: list[tuple[float, float]]) -> list[float]:
    strategy.reset()
    return [
        strategy.decide(made_up_features(learner_return=learner, actor_return=actor)).main.sparsity
        for learner, actor in pairs
    ]


def test_reward_gap_goes_from_sparsity_half_to_a_fifth_at_ten_points() -> None:
    pairs = [(-20.0, -20.0), (0.0, -10.0), (1.0, -10.0), (20.0, 20.0)]
    assert gaps(RewardGapStrategy(), pairs) == [0.5, 0.5, 0.2, 0.2]


def test_reward_gap_waits_while_a_return_is_unknown() -> None:
    pairs = [(math.nan, -50.0), (50.0, math.nan), (50.0, 0.0), (math.nan, 50.0)]
    assert gaps(RewardGapStrategy(return_below=1.0), pairs) == [0.5, 0.5, 0.2, 0.2]


def test_reward_gap_may_be_a_share_of_the_games_range() -> None:
    strategy = RewardGapStrategy(gap=0.1, scale=40.0, return_below=0.0)
    assert gaps(strategy, [(4.0, 0.0), (4.1, 0.0), (1.0, 0.0), (0.0, 1.0)]) == [0.5, 0.2, 0.2, 0.5]


@pytest.mark.parametrize(
    ("kl_nats", "alpha"), [(0.0, 1.0), (0.2, 1.0), (0.4, 0.75), (0.8, 0.25), (1.0, 0.0), (9.0, 0.0)]
)
def test_linear_mix_falls_with_the_mean_kl(kl_nats: float, alpha: float) -> None:
    strategy = LinearKLMixStrategy(kl_low_nats=0.2, kl_high_nats=1.0)
    shares = {
        spec.student: share
        for spec, share in strategy.decide(made_up_features(kl_mean_nats=kl_nats)).mix
    }
    expected = {"net3": alpha, "original": 1.0 - alpha}
    assert shares == pytest.approx({key: share for key, share in expected.items() if share})


def test_linear_mix_acts_with_the_large_network_when_one_diverged() -> None:
    decision = LinearKLMixStrategy().decide(made_up_features(kl_mean_nats=math.nan))
    assert decision == Decision.of(IDENTITY)


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_every_name_makes_a_strategy_with_the_papers_parameters(name: str) -> None:
    assert isinstance(make_strategy(name).decide(made_up_features()), Decision)


def test_specs_may_be_given_as_json() -> None:
    strategy = make_strategy("kl-threshold", aggressive='{"student": "net2", "bits": 8}')
    assert strategy.decide(made_up_features()).main == CompressionSpec(student="net2", bits=8)
    strategy = make_strategy("fixed", spec={"sparsity": 0.5})
    assert strategy.decide(made_up_features()).main.sparsity == 0.5


def test_parameters_cannot_be_changed_later() -> None:
    strategy: Any = KLThresholdStrategy()
    with pytest.raises(FrozenInstanceError):
        strategy.threshold_nats = 1.0


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("kl-treshold", {}, "'kl-treshold' does not exist; did you mean 'kl-threshold'"),
        ("kl-threshold", {"threshold": 1}, "unknown parameter 'threshold'; did you mean 'thresh"),
        ("kl-threshold", {"_switch": 1}, "unknown parameter '_switch'"),
        ("kl-threshold", {"threshold_nats": -1.0}, r"threshold_nats must be .* at least 0.0, got"),
        ("kl-threshold", {"threshold_nats": math.nan}, "threshold_nats must be a number"),
        ("kl-threshold", {"threshold_nats": True}, "threshold_nats must be a number"),
        ("kl-threshold", {"threshold_nats": "14"}, "threshold_nats must be a number"),
        ("kl-threshold", {"indicator": "kl_max"}, "did you mean 'kl_max_nats'"),
        ("kl-threshold", {"return_below_nats": 15.0}, "must not exceed threshold_nats 14.0"),
        ("kl-threshold", {"conservative": INT8}, "aggressive and conservative are the same"),
        ("kl-threshold", {"conservative": 16}, "conservative must be a spec, got 16"),
        ("kl-threshold", {"conservative": '{"bits": 7}'}, "bits must be one of"),
        ("reward-gap", {"gap": -1.0}, "gap must be a number at least 0.0"),
        ("reward-gap", {"scale": 0.0}, "scale must be a number above 0.0"),
        ("reward-gap", {"return_below": 11.0}, "must not exceed gap 10.0"),
        ("reward-gap", {"return_below": math.inf}, "return_below must be a number, got inf"),
        ("linear-kl", {"kl_high_nats": 0.05}, "kl_high_nats must be a number above 0.05"),
        ("linear-kl", {"small": IDENTITY}, "small and large are the same spec"),
        ("fixed", {"spec": None}, "spec must be a spec, got None"),
    ],
)
def test_mistakes_are_named(name: str, params: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        make_strategy(name, **params)
    assert "\n" not in str(caught.value)
