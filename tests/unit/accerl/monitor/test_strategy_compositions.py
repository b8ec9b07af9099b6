"""FirstThatFires: who decides, who keeps watching meanwhile, and what the whole declares."""

from __future__ import annotations

from typing import Any

import pytest

from accerl.errors import UserError
from accerl.monitor.compliance import StrategyCompliance, made_up_features
from accerl.monitor.strategies import (
    FirstThatFires,
    FixedStrategy,
    KLThresholdStrategy,
    LinearKLMixStrategy,
    RandomStrategy,
    RewardGapStrategy,
    ThreeStageStrategy,
    make_strategy,
)
from accerl.monitor.strategy import (
    Strategy,
    check_needs,
    declares,
    events_of,
    needs_of,
    overrule,
    specs_of,
)
from accerl.spec import IDENTITY, CompressionSpec, Decision

INT8, BF16 = CompressionSpec(bits=8), CompressionSpec(bits=16)
NET3, SPARSE = CompressionSpec(student="net3"), CompressionSpec(sparsity=0.5)


def alarms() -> FirstThatFires:
    """16 bits above 14 nats, else full size above 10 points, else half the channels."""
    return FirstThatFires(
        (
            KLThresholdStrategy(INT8, BF16, return_below_nats=2.0, dwell_intervals=3),
            RewardGapStrategy(SPARSE, IDENTITY, return_below=1.0),
        )
    )


class TestComposition(StrategyCompliance):
    def make(self) -> Strategy:
        return alarms()


class TestNestedComposition(StrategyCompliance):
    def make(self) -> Strategy:
        random = RandomStrategy((INT8, NET3), seed=1, hold_intervals=3)
        return FirstThatFires((alarms(), LinearKLMixStrategy(), ThreeStageStrategy(), random))


def walk(strategy: Strategy, rows: list[tuple[float, float, float]]) -> list[CompressionSpec]:
    """Decide at (seconds, largest KL, gap of returns)."""
    strategy.reset()
    return [
        strategy.decide(
            made_up_features(seconds=seconds, kl_max_nats=kl, actor_return=0.0, learner_return=gap)
        ).main
        for seconds, kl, gap in rows
    ]


def test_the_first_that_fires_wins_and_at_rest_the_last_decides() -> None:
    rows = [(0.0, 0.0, 0.0), (1.0, 0.0, 20.0), (2.0, 20.0, 20.0)]
    rows += [(seconds, 0.0, 20.0) for seconds in (3.0, 4.0, 5.0)]
    assert walk(alarms(), rows) == [SPARSE, IDENTITY, BF16, BF16, BF16, IDENTITY]


def test_a_rule_keeps_watching_while_another_one_decides() -> None:
    """The gap opens and closes while the KL rules: at its end the gap is back at rest."""
    rows = [(0.0, 20.0, 20.0), (5.0, 0.0, 20.0), (9.0, 0.0, 0.0), (10.0, 0.0, 5.0)]
    assert walk(alarms(), rows) == [BF16, BF16, BF16, SPARSE]


def test_the_dwell_of_a_rule_that_does_not_decide_goes_on() -> None:
    first = RewardGapStrategy(SPARSE, IDENTITY, return_below=1.0)
    second = KLThresholdStrategy(INT8, BF16, return_below_nats=2.0, dwell_intervals=3)
    rows = [(0.0, 20.0, 20.0), (9.0, 0.0, 20.0), (9.5, 0.0, 0.0), (10.0, 0.0, 0.0)]
    assert walk(FirstThatFires((first, second)), rows) == [IDENTITY, IDENTITY, BF16, INT8]


def test_a_composition_inside_another_fires_while_one_of_its_rules_does() -> None:
    strategy = FirstThatFires((alarms(), FixedStrategy(NET3)))
    rows = [(0.0, 0.0, 0.0), (1.0, 20.0, 0.0), (2.0, 0.0, 0.0), (3.0, 0.0, 0.0), (4.0, 0.0, 0.0)]
    assert walk(strategy, rows) == [NET3, BF16, BF16, BF16, NET3]


class Own:
    """A user's strategy: reset and decide, nothing else."""

    def reset(self) -> None:
        pass

    def decide(self, features: object) -> Decision:
        return Decision.of(NET3)


def test_a_users_strategy_always_fires() -> None:
    rows = [(0.0, 0.0, 0.0), (1.0, 20.0, 20.0)]
    assert walk(FirstThatFires((Own(), alarms())), rows) == [NET3, NET3]
    assert walk(FirstThatFires((alarms(), Own())), rows) == [NET3, BF16]


class Wrong(Own):
    """A strategy that forgets to return what it decides, and cannot be overruled."""

    def decide(self, features: object) -> Decision:
        return None  # pyright: ignore[reportReturnType]

    def overruled(self, decision: Decision) -> None:
        raise KeyError("acts")


def test_a_rule_that_is_broken_is_named_at_its_first_decision() -> None:
    strategy = FirstThatFires((Wrong(), FixedStrategy()))
    strategy.reset()
    with pytest.raises(UserError, match=r"strategy Wrong: decide\(\) must return a Decision"):
        strategy.decide(made_up_features())
    with pytest.raises(UserError, match="strategy Wrong: KeyError"):
        overrule(strategy, Decision.of(NET3))


class Unreadable(Own):
    """A strategy whose optional attributes cannot be read."""

    @property
    def fires(self) -> bool:
        raise ValueError("boom")

    events = specs = fires


@pytest.mark.parametrize("needs", [5, "kl_mean_nats", ("kl_mean_nats", 5), [["kl_mean_nats"]]])
def test_needs_that_are_no_names_are_named_in_one_line(needs: Any) -> None:
    strategy: Any = Own()
    strategy.needs = needs
    with pytest.raises(UserError, match="needs of strategy Own: TypeError"):
        check_needs(FirstThatFires((strategy, FixedStrategy())), 1)


@pytest.mark.parametrize("attribute", ["fires", "events", "specs"])
def test_an_attribute_that_cannot_be_read_is_named_in_one_line(attribute: str) -> None:
    with pytest.raises(UserError, match=f"{attribute} of strategy Unreadable: ValueError: boom"):
        declares(Unreadable(), attribute)
    if attribute == "fires":
        with pytest.raises(UserError, match="fires of strategy Unreadable: ValueError: boom"):
            FirstThatFires((Unreadable(), Own())).decide(made_up_features())


def test_a_users_strategy_is_told_by_its_path() -> None:
    own = FirstThatFires((Own(), FixedStrategy())).to_json()["params"]["rules"][0]
    assert own == {"name": f"{__name__}:Own"}


def test_a_composition_declares_what_its_rules_do() -> None:
    strategy = FirstThatFires((alarms(), FixedStrategy(INT8)))
    assert specs_of(strategy) == (INT8, BF16, SPARSE, IDENTITY)
    assert needs_of(strategy) == {"learner_return", "actor_return"}
    assert needs_of(FirstThatFires((Own(), KLThresholdStrategy()))) == frozenset()


class Counting(Own):
    """A strategy that notes some of its decisions."""

    def __init__(self, name: str, *noted: int) -> None:
        self.name, self.noted = name, noted
        self.reset()

    def reset(self) -> None:
        self.decided, self.events = 0, list[dict[str, Any]]()

    def decide(self, features: object) -> Decision:
        self.decided += 1
        self.events += [{self.name: self.decided}] * (self.decided in self.noted)
        return super().decide(features)


def test_a_composition_says_what_happens_to_its_rules() -> None:
    strategy = FirstThatFires((Counting("first", 2, 3), alarms(), Counting("last", 1, 3)))
    for _ in range(2):
        strategy.reset()
        told = []
        for _ in range(3):
            strategy.decide(made_up_features())
            told.append(events_of(strategy))
        assert told[-1] == [{"last": 1}, {"first": 2}, {"first": 3}, {"last": 3}]
        assert [len(events) for events in told] == [1, 2, 4]
    assert not declares(alarms(), "events")  # nothing ever happens to these rules


class TestUndeclaring(StrategyCompliance):
    def make(self) -> Strategy:
        return FirstThatFires((alarms(), Own()))


def test_a_composition_with_a_rule_that_may_act_with_anything_may_do_so() -> None:
    strategy = FirstThatFires((FirstThatFires((alarms(), Own())), FixedStrategy(INT8)))
    assert not declares(strategy, "specs")
    assert specs_of(strategy) == ()


def test_a_composition_of_nothing_new_decides_like_its_rule() -> None:
    rows = [(float(step), kl, 0.0) for step, kl in enumerate((0.0, 20.0, 0.0, 1.0))]
    params: dict[str, Any] = {"return_below_nats": 0.5}
    rule = {"name": "kl-threshold", "params": params}
    composed = make_strategy("first-that-fires", rules=[rule])
    assert walk(composed, rows) == walk(make_strategy("kl-threshold", **params), rows)
    assert walk(composed, rows) == [INT8, BF16, INT8, INT8]
