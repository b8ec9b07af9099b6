"""Shielded: a fallback that does not fit the run, old readings, and strategies that fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.monitor.compliance import made_up_features
from accerl.monitor.features import Features
from accerl.monitor.strategies import FixedStrategy
from accerl.monitor.strategy import (
    bind,
    events_of,
    explanation_of,
    fires,
    overrule,
    reject,
    reset,
    specs_of,
)
from accerl.presets import load_preset
from accerl.spec import IDENTITY, CompressionSpec, Decision
from accerl.training.run import check_startable
from controller.shield import Shielded

INT8, BF16 = CompressionSpec(bits=8), CompressionSpec(bits=16)
NET1, NET3 = CompressionSpec(student="net1", bits=16), CompressionSpec(student="net3", bits=8)
SMALL = replace(load_preset("pong"), network="net1")
"""a run that cannot act with `NET1`, which is no smaller than its learner"""


class Own:
    """A strategy with nothing but what it must have."""

    def reset(self) -> None:
        pass

    def decide(self, features: Features) -> Decision:
        return Decision.of(INT8)


class Narrowing(Own):
    """A strategy that finds out only when it is bound what it can act with."""

    specs = (NET1, NET3)

    def bind(self, config: RunConfig, times: object) -> None:
        self.specs = (NET3, INT8)


def test_a_fallback_that_the_run_would_refuse_is_refused_before_it_begins() -> None:
    shielded = Shielded(FixedStrategy(INT8), fallback=NET1)
    with pytest.raises(UserError, match="student 'net1' is not smaller than the learner's network"):
        check_startable(SMALL, shielded)
    check_startable(SMALL, Shielded(FixedStrategy(INT8), fallback=BF16))


def test_the_default_fallback_is_what_the_strategy_can_act_with_in_the_run() -> None:
    shielded = Shielded(Narrowing())
    assert shielded.fallback == NET1
    bind(shielded, SMALL, None)
    assert shielded.fallback == INT8
    assert specs_of(shielded) == (NET3, INT8)
    named = Shielded(Narrowing(), fallback=BF16)
    bind(named, SMALL, None)
    assert named.fallback == BF16


def test_a_large_kl_that_is_only_repeated_counts_once() -> None:
    """An interval in which the learner used no rollout shows the last one."""
    shielded = Shielded(Own())
    shielded.reset()
    news = (1.0, 0.0, 0.0, 0.0, 1.0)
    specs = [
        shielded.decide(made_up_features(kl_max_nats=30.0, kl_is_new=is_new)).main
        for is_new in news
    ]
    assert specs == [IDENTITY, INT8, INT8, INT8, IDENTITY]
    assert [event["interval"] for event in shielded.events] == [0, 4]


class Failing(Own):
    """A strategy that decides well, and whose every other attribute fails where it is asked to."""

    def __init__(self, failing: str) -> None:
        self.failing = failing

    def _found(self, attribute: str, value: Any) -> Any:
        if attribute == self.failing:
            raise ValueError("boom")
        return value

    events = property(lambda self: self._found("events", []))
    explanation = property(lambda self: self._found("explanation", {"original INT8": {"is": 1}}))
    fires = property(lambda self: self._found("fires", False))

    def overruled(self, decision: Decision) -> None:
        self._found("overruled", None)

    def rejected(self, spec: CompressionSpec) -> None:
        self._found("rejected", None)


@pytest.mark.parametrize("failing", ["events", "explanation", "fires", "overruled", "rejected", ""])
def test_whatever_fails_the_run_goes_on_with_the_fallback(failing: str) -> None:
    shielded = Shielded(Failing(failing))
    shielded.reset()
    overrule(shielded, Decision.of(BF16))
    reject(shielded, NET3)
    decision = shielded.decide(made_up_features(seconds=2.0))
    events = events_of(shielded)
    assert fires(shielded) is bool(failing)
    if not failing:
        assert (decision.main, events) == (INT8, [])
        assert explanation_of(shielded) == {"original INT8": {"is": 1}}
        return
    assert decision.main == IDENTITY
    assert "ValueError: boom" in str(events[0]["value"])
    assert {event["cause"] for event in events} == {"error"}
    assert all((event["interval"], event["spec"]) == (0, IDENTITY.to_json()) for event in events)
    assert explanation_of(shielded).get("original INT8", {}).get("chosen", 0.0) == 0.0


def test_what_failed_between_two_decisions_makes_the_fallback_act_once() -> None:
    shielded = Shielded(Failing("rejected"))
    shielded.reset()
    shielded.decide(made_up_features(seconds=2.0))
    reject(shielded, NET3)
    specs = [shielded.decide(made_up_features(seconds=at)).main for at in (4.0, 6.0)]
    assert specs == [IDENTITY, INT8]
    (event,) = shielded.events
    assert (event["interval"], event["seconds"]) == (1, 2.0)


def test_a_strategy_that_cannot_begin_is_named_in_one_line() -> None:
    class NoReset(Own):
        def reset(self) -> None:
            raise KeyError("seed")

    with pytest.raises(UserError, match="strategy NoReset: KeyError: 'seed'"):
        reset(Shielded(NoReset()))
