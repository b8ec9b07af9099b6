"""The hand-set strategies: when they switch, when they return, how long they stay."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import FrozenInstanceError, dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from accerl.errors import UserError
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
from accerl.monitor.strategy import Strategy, events_of, explanation_of, fires
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


class Speaking:
    """A strategy that says of itself what it is given."""

    def __init__(self, said: dict[str, Any]) -> None:
        vars(self).update(said)

    def reset(self) -> None:
        pass

    def decide(self, features: object) -> Decision:
        return Decision.of(INT8)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"events": ["switched"]}, "^events of strategy Speaking: .* a dict, .* got 'switched'"),
        ({"events": 0}, "^events of strategy Speaking: .* not iterable"),
        ({"events": [{"acts": INT8}]}, "^events .* CompressionSpec cannot be recorded as JSON"),
        ({"explanation": "fast"}, "^explanation of strategy Speaking: .* by name .* got 'fast'"),
        ({"explanation": {"INT8": 2.0}}, r"numbers by name for each label: .* got 2\.0"),
        ({"explanation": {"INT8": {"score": "high"}}}, "numbers by name for each label"),
        ({"explanation": {"INT8": {"score": np.ones(2)}}}, "ndarray cannot be recorded as JSON"),
    ],
)
def test_what_a_strategy_says_of_itself_must_fit_a_record(
    said: dict[str, Any], message: str
) -> None:
    class Unrecorded(StrategyCompliance):
        def make(self) -> Strategy:
            return Speaking(said)

    for read in (
        lambda: (events_of(Speaking(said)), explanation_of(Speaking(said))),
        Unrecorded().test_what_it_says_of_itself_can_be_recorded,
    ):
        with pytest.raises(UserError, match=message) as refused:
            read()
        assert "\n" not in str(refused.value)


def test_numbers_of_numpy_and_tuples_are_read_as_records_have_them() -> None:
    speaking = Speaking(
        {
            "events": ({"at": np.float32(1.5), "specs": ("a", "b")},),
            "explanation": {"INT8": {"score": np.int64(2)}},
        }
    )
    assert events_of(speaking) == [{"at": 1.5, "specs": ["a", "b"]}]
    assert explanation_of(speaking) == {"INT8": {"score": 2}}


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


def test_kl_threshold_may_leave_staleness_out() -> None:
    """What was not measured now changes nothing; what diverged is the worst there too."""
    strategy = KLThresholdStrategy(indicator="compression_kl_nats", return_below_nats=1.0)
    measured = ((math.nan, 0.0), (0.0, 1.0), (14.1, 1.0), (0.0, 1.0), (14.1, 0.0))
    moments: list[tuple[float, dict[str, float]]] = [
        (
            float(second),
            {"kl_max_nats": 20.0, "compression_kl_nats": level, "compression_kl_is_new": is_new},
        )
        for second, (level, is_new) in enumerate(measured)
    ]
    assert dwelling(strategy, moments) == [INT8, INT8, BF16, INT8, INT8]
    diverged = {"compression_kl_nats": math.nan, "compression_kl_is_new": 1.0}
    assert dwelling(strategy, [(0.0, diverged)]) == [BF16]


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
        (LinearKLMixStrategy(), [(0.01, False), (0.3, True), (9.0, True), (0.0, False)]),
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
        names = ("kl_max_nats", "kl_mean_nats", "mix_kl_nats", "shadow_kl_nats")
        level = dict.fromkeys(names, kl_nats)
        strategy.decide(made_up_features(seconds=float(seconds), **level))
        assert fires(strategy) is expected
