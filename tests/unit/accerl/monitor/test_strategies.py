"""The hand-set strategies: when they switch, when they return, how long they stay."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Any, ClassVar

import pytest

from accerl.monitor.compliance import StrategyCompliance, made_up_features
from accerl.monitor.features import Features
from accerl.monitor.strategies import (
    AdviseKLCapStrategy,
    FixedStrategy,
    KLThresholdStrategy,
    LinearKLMixStrategy,
    RandomStrategy,
    RewardGapStrategy,
    ThreeStageStrategy,
)
from accerl.monitor.strategy import Strategy, fires
from accerl.spec import IDENTITY, CompressionSpec, Decision

INT8, BF16 = CompressionSpec(bits=8), CompressionSpec(bits=16)
NET3 = CompressionSpec(student="net3")


class TestFixed(StrategyCompliance):
    def make(self) -> Strategy:
        return FixedStrategy(INT8)


class TestKLThreshold(StrategyCompliance):
    def make(self) -> Strategy:
        return KLThresholdStrategy(return_below_nats=1.0)


class TestKLThresholdWithDwell(StrategyCompliance):
    def make(self) -> Strategy:
        return KLThresholdStrategy(return_below_nats=1.0, dwell_intervals=3)


class TestRewardGap(StrategyCompliance):
    def make(self) -> Strategy:
        return RewardGapStrategy(return_below=1.0)


class TestLinearKLMix(StrategyCompliance):
    def make(self) -> Strategy:
        return LinearKLMixStrategy()


class TestThreeStagesByTime(StrategyCompliance):
    def make(self) -> Strategy:
        return ThreeStageStrategy()


class TestThreeStagesByStage(StrategyCompliance):
    def make(self) -> Strategy:
        return ThreeStageStrategy(by="stage")


class TestAdviseKLCap(StrategyCompliance):
    def make(self) -> AdviseKLCapStrategy:
        return AdviseKLCapStrategy(specs=(NET3, INT8, IDENTITY))


class TestRandom(StrategyCompliance):
    def make(self) -> Strategy:
        return RandomStrategy((IDENTITY, INT8, BF16), seed=4, hold_intervals=3)


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


@dataclass
class Undeclared:
    """A strategy that leaves out of `specs` what it acts with, and whose copies share a memory."""

    specs: tuple[CompressionSpec, ...] = (INT8,)
    needs: str = "learner_return"
    seen: ClassVar[list[object]] = []

    def reset(self) -> None:
        self.seen.clear()

    def decide(self, features: object) -> Decision:
        self.seen.append(features)
        return Decision.of(INT8 if len(self.seen) > 9 else IDENTITY)


@pytest.mark.parametrize(
    "test",
    [
        "test_decisions_hold_only_declared_specs",
        "test_two_strategies_share_no_memory",
        "test_needs_are_names_in_a_collection",
    ],
)
def test_the_compliance_suite_catches_false_declarations(test: str) -> None:
    class Misleading(StrategyCompliance):
        def make(self) -> Any:
            return Undeclared()

    with pytest.raises(AssertionError):
        getattr(Misleading(), test)()


def test_fixed_strategy_never_moves() -> None:
    strategy = FixedStrategy(INT8)
    for kl_nats in (0.0, 100.0, math.nan):
        features = made_up_features(kl_max_nats=kl_nats)
        assert strategy.decide(features) == Decision.of(INT8)
    assert FixedStrategy().decide(made_up_features()) == Decision.of(IDENTITY)


def walk(strategy: Strategy, indicator: str, values: tuple[float, ...]) -> list[CompressionSpec]:
    moments = [(float(second), {indicator: value}) for second, value in enumerate(values)]
    return dwelling(strategy, moments)


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
    moments = [
        (float(second), {"learner_return": learner, "actor_return": actor})
        for second, (learner, actor) in enumerate(pairs)
    ]
    return [spec.sparsity for spec in dwelling(strategy, moments)]


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
    # The small one's shadow says when it may act again.
    assert decision == replace(Decision.of(IDENTITY), shadow=NET3)


@pytest.mark.parametrize(("small_nats", "alpha"), [(0.02, 1.0), (0.3, 4 / 9), (0.8, 0.0)])
def test_a_linear_mix_settles_where_the_small_network_s_own_kl_says(
    small_nats: float, alpha: float
) -> None:
    """The KL of all rollouts falls with the share, so a mix that went by it would swing."""
    strategy, stale = LinearKLMixStrategy(), 0.01
    shares, measured = [1.0], {"kl_mean_nats": small_nats + stale}
    for _ in range(6):
        decision = strategy.decide(made_up_features(staleness_kl_nats=stale, **measured))
        share = dict(decision.mix).get(NET3, 0.0)
        shares.append(share)
        shown = {} if decision.shadow is None else {"shadow_kl_nats": small_nats}
        measured = {"kl_mean_nats": share * small_nats + stale, **shown}
    assert shares[2:] == pytest.approx([alpha] * 5, abs=0.03)


def test_a_linear_mix_that_is_overruled_learns_nothing_of_its_small_network() -> None:
    strategy = LinearKLMixStrategy()
    first = strategy.decide(made_up_features(kl_mean_nats=0.3))
    strategy.overruled(Decision.of(INT8))
    assert strategy.decide(made_up_features(kl_mean_nats=5.0)).mix == first.mix


def test_parameters_cannot_be_changed_later() -> None:
    strategy: Any = KLThresholdStrategy()
    with pytest.raises(FrozenInstanceError):
        strategy.threshold_nats = 1.0


def dwelling(
    strategy: Strategy, moments: list[tuple[float, dict[str, float]]]
) -> list[CompressionSpec]:
    strategy.reset()
    return [
        strategy.decide(made_up_features(seconds=seconds, **raw)).main for seconds, raw in moments
    ]


def kl(*nats: float) -> list[dict[str, float]]:
    return [{"kl_max_nats": value} for value in nats]


def gap(*points: float) -> list[dict[str, float]]:
    return [{"actor_return": 0.0, "learner_return": value} for value in points]


@pytest.mark.parametrize(
    ("strategy", "levels"),
    [
        (
            KLThresholdStrategy(INT8, BF16, 14.0, return_below_nats=2.0, dwell_intervals=2),
            kl(20.0, 1.0, 1.0, 20.0, 20.0, 1.0, 20.0),
        ),
        (
            RewardGapStrategy(INT8, BF16, 14.0, return_below=2.0, dwell_intervals=2),
            gap(20.0, 1.0, 1.0, 20.0, 20.0, 1.0, 20.0),
        ),
    ],
    ids=["kl-threshold", "reward-gap"],
)
def test_a_switch_stays_for_its_dwell(strategy: Strategy, levels: list[dict[str, float]]) -> None:
    """The first switch is not delayed; a return asked for too early is made when it is due."""
    seconds = [0.0, 9.9, 10.0, 19.0, 20.0, 25.0, 30.0]
    expected = [BF16, BF16, INT8, INT8, BF16, BF16, BF16]
    for _ in range(2):  # a reset forgets when it last switched
        assert dwelling(strategy, list(zip(seconds, levels, strict=True))) == expected


def test_a_dwell_counts_from_the_switch_and_not_from_the_last_excess() -> None:
    strategy = KLThresholdStrategy(INT8, BF16, 14.0, return_below_nats=2.0, dwell_intervals=2)
    moments = list(zip([3.0, 8.0, 8.1], kl(20.0, 20.0, 1.0), strict=True))
    assert dwelling(strategy, moments) == [BF16, BF16, INT8]


def test_a_dwell_counts_intervals_however_often_it_is_asked() -> None:
    strategy = KLThresholdStrategy(INT8, BF16, 14.0, return_below_nats=2.0, dwell_intervals=2)
    moments = list(zip([1.0, 2.0, 2.0, 2.0, 90.0], kl(20.0, 1.0, 1.0, 1.0, 1.0), strict=True))
    assert dwelling(strategy, moments) == [BF16, BF16, BF16, BF16, INT8]


def test_three_stages_by_time_are_shares_of_the_horizon() -> None:
    strategy = ThreeStageStrategy(NET3, IDENTITY, INT8, improving_from=0.25, converged_from=0.5)
    moments: list[tuple[float, dict[str, float]]] = [
        (seconds, {"horizon_seconds": 8.0, "stage": 2.0})
        for seconds in (0.0, 1.9, 2.0, 3.9, 4.0, 8.0)
    ]
    assert dwelling(strategy, moments) == [NET3, NET3, IDENTITY, IDENTITY, INT8, INT8]


def test_three_stages_follow_the_detected_stage_wherever_it_goes() -> None:
    """By stage, the time plays no part; a stage that is missing or NaN is exploration."""
    strategy = ThreeStageStrategy(NET3, IDENTITY, INT8, by="stage")
    stages = (0.0, 1.0, 2.0, 1.0, math.nan, 2.0)
    moments: list[tuple[float, dict[str, float]]] = [(59.0, {}), (59.0, {"stage": 0.0})]
    moments += [(1.0, {"stage": stage}) for stage in stages]
    assert dwelling(strategy, moments) == [
        NET3, NET3, NET3, IDENTITY, INT8, IDENTITY, NET3, INT8
    ]  # fmt: skip


def test_three_stages_are_smallest_then_largest_then_fewer_bits_by_default() -> None:
    strategy = ThreeStageStrategy()
    assert dwelling(strategy, [(0.0, {}), (30.0, {}), (50.0, {})]) == [
        CompressionSpec(student="net3"), IDENTITY, INT8
    ]  # fmt: skip


EIGHT = tuple(
    CompressionSpec(student=student, sparsity=sparsity, bits=bits)
    for student in ("original", "net3")
    for sparsity in (0.0, 0.5)
    for bits in (32, 8)
)


def draws(strategy: RandomStrategy, count: int, every_seconds: float = 1.0) -> list[Decision]:
    strategy.reset()
    start = made_up_features()
    return [
        strategy.decide(Features({**start.raw, "seconds": every_seconds * step}, start.vector))
        for step in range(count)
    ]


def test_random_specs_are_uniform() -> None:
    """Pearson's statistic stays below the 0.999 quantile of 7 degrees of freedom."""
    counts = Counter(decision.main for decision in draws(RandomStrategy(EIGHT), 4000))
    assert set(counts) == set(EIGHT)
    assert sum((count - 500) ** 2 / 500 for count in counts.values()) < 24.3


def test_random_specs_depend_on_the_seed_alone() -> None:
    first = draws(RandomStrategy(EIGHT, seed=1), 30)
    assert draws(RandomStrategy(EIGHT, seed=1), 30) == first
    assert draws(RandomStrategy(EIGHT, seed=2), 30) != first


def test_a_random_spec_is_held() -> None:
    """For three intervals: as drawn without holding, each three times."""
    held = draws(RandomStrategy(EIGHT, hold_intervals=3), 30, every_seconds=0.1)
    drawn = draws(RandomStrategy(EIGHT), 10)
    assert held == [decision for decision in drawn for _ in range(3)]


@pytest.mark.parametrize(
    ("strategy", "timeline"),
    [
        (KLThresholdStrategy(return_below_nats=1.0), [(2.0, False), (20.0, True), (0.0, False)]),
        (LinearKLMixStrategy(), [(0.01, False), (0.3, True), (0.1, True), (0.0, False)]),
        (FixedStrategy(), [(0.0, True)]),
        (ThreeStageStrategy(), [(0.0, True)]),
        (RandomStrategy((INT8,)), [(0.0, True)]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_strategy_fires_while_it_is_away_from_rest(
    strategy: Strategy, timeline: list[tuple[float, bool]]
) -> None:
    strategy.reset()
    for seconds, (kl_nats, expected) in enumerate(timeline):
        level = {"kl_max_nats": kl_nats, "kl_mean_nats": kl_nats}
        strategy.decide(made_up_features(seconds=float(seconds), **level))
        assert fires(strategy) is expected


def capped(
    *timeline: tuple[float, float, float], is_new: Sequence[bool] = ()
) -> list[CompressionSpec]:
    """Decide at the start and after intervals of (seconds, KL of compression, served share).

    `is_new` says where the KL was measured; by default everywhere.
    """
    strategy = AdviseKLCapStrategy(specs=(NET3, INT8, IDENTITY), cap_nats=0.1, retry_fraction=0.5)
    strategy.reset()
    found = [strategy.decide(made_up_features()).main]
    measured = is_new or [True] * len(timeline)
    for (seconds, kl_nats, served), new in zip(timeline, measured, strict=True):
        raw = {"seconds": seconds, "compression_kl_nats": kl_nats, "served_share": served}
        raw["compression_kl_is_new"] = float(new)
        found.append(strategy.decide(made_up_features(**raw)).main)
    return found


def test_the_fastest_spec_acts_until_its_kl_exceeds_the_cap() -> None:
    assert capped((1.0, 0.05, 1.0), (2.0, 0.2, 1.0), (3.0, 0.01, 1.0)) == [NET3, NET3, INT8, INT8]


def test_a_spec_that_exceeded_the_cap_is_tried_again_after_a_while() -> None:
    """The horizon is 60 s: half of it after 2 s are over at 32 s; what is close now stays."""
    after = [(2.0, 0.2, 1.0), (31.0, 0.01, 1.0), (32.0, 0.02, 1.0), (33.0, 0.09, 1.0)]
    assert capped(*after) == [NET3, INT8, INT8, NET3, NET3]


def test_a_kl_that_was_not_measured_while_a_spec_acted_is_not_its_own() -> None:
    """An old value, and one of what acts while a student waits to be admitted, say nothing."""
    rows = ((1.0, 0.2, 0.1), (2.0, 0.2, 1.0), (3.0, 0.3, 1.0))
    waits = capped(*rows, is_new=(True, False, True))
    assert waits == [NET3, NET3, NET3, INT8]
    old = capped((1.0, 0.2, 1.0), (2.0, 0.2, 1.0), is_new=(True, False))
    assert old == [NET3, INT8, INT8]


def test_a_spec_that_is_tried_again_is_judged_by_what_is_measured_then() -> None:
    """Until something is sampled, the indicator shows its KL of long ago."""
    again = [(1.0, 0.5, 1.0), (20.0, 0.01, 1.0), (32.0, 0.01, 1.0), (34.0, 0.5, 1.0)]
    found = capped(*again, (36.0, 0.5, 1.0), is_new=(True, True, False, False, False))
    assert found == [NET3, INT8, INT8, NET3, NET3, NET3]


def test_a_kl_that_was_measured_while_another_spec_acted_instead_is_that_one_s() -> None:
    strategy = AdviseKLCapStrategy(specs=(NET3, INT8, IDENTITY), cap_nats=0.1)
    strategy.reset()
    strategy.decide(made_up_features())
    far = {"compression_kl_nats": 0.5, "compression_kl_is_new": 1.0, "served_share": 1.0}
    for instead in (BF16, INT8):  # a shield's, none of its own; and one of its own
        strategy.overruled(Decision.of(instead))
        assert strategy.decide(made_up_features(seconds=1.0, **far)).main == NET3
    strategy.overruled(Decision.of(NET3))
    assert strategy.decide(made_up_features(seconds=2.0, **far)).main == IDENTITY


def test_a_student_that_waits_too_far_away_is_not_waited_for() -> None:
    strategy = AdviseKLCapStrategy(specs=(NET3, INT8, IDENTITY), cap_nats=0.1)
    strategy.reset()
    waits = {"seconds": 1.0, "served_share": 0.0, "compression_kl_nats": 0.01}
    assert strategy.decide(made_up_features()).main == NET3
    assert strategy.decide(made_up_features(**waits, waiting_kl_nats=0.05)).main == NET3
    assert strategy.decide(made_up_features(**waits, waiting_kl_nats=2.0)).main == INT8


def test_where_all_exceed_the_cap_the_closest_acts() -> None:
    found = capped((1.0, 0.4, 1.0), (2.0, 0.2, 1.0), (3.0, 0.3, 1.0))
    assert found == [NET3, INT8, IDENTITY, INT8]
