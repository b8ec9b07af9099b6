"""Slots that are held back: fresher weights where the learner limits, nothing lost elsewhere."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from accerl.config import RunConfig
from accerl.runtime.conditions import Condition, Conditions
from accerl.runtime.latency.games import times_of_run
from accerl.runtime.latency.predict import predict
from accerl.runtime.process.run import ProcessRun
from accerl.runtime.run import IntervalReport
from accerl.runtime.serial.clock import VirtualClock
from accerl.runtime.serial.run import SerialRun
from accerl.spec import IDENTITY, Decision
from tests.fixtures.runs.inner_runs import (
    check_that_a_copy_goes_on_alike,
    fast_profile,
    tiny_catch,
)

ACTORS = 6
LEARNS = 72 * 60e-6
"""seconds of an update of `LIMITS`, in which two of its actors fill a rollout"""
LIMITS = replace(fast_profile(num_actors=ACTORS), learner_us_per_sample=60.0)
FREE = replace(fast_profile(num_actors=ACTORS), learner_us_per_sample=5.0)


def config(**runtime: Any) -> RunConfig:
    given = {"eval_episodes": 0, "patience_seconds": 0.0, "queue_rollouts": 0}
    return tiny_catch(**{**given, **runtime})


def play(profile: Any, own: RunConfig, seconds: float = 60 * LEARNS) -> IntervalReport:
    """Return the second of two intervals."""
    run = SerialRun(own, VirtualClock(profile))
    try:
        run.apply(Decision.of(IDENTITY))
        run.advance(seconds)
        return run.advance(seconds)
    finally:
        run.close()


@cache
def limited(*, hold_back: bool) -> IntervalReport:
    return play(LIMITS, config(hold_back=hold_back))


def test_where_the_learner_limits_weights_are_fresher_and_nothing_is_slower() -> None:
    plain, held = (limited(hold_back=given) for given in (False, True))
    assert held.learner_updates == pytest.approx(plain.learner_updates, abs=1)
    assert plain.policy_lag > 10.0
    assert held.policy_lag < 0.5 * plain.policy_lag


def test_where_actors_limit_none_of_them_waits() -> None:
    plain, held = (play(FREE, config(hold_back=given), 15 * LEARNS) for given in (False, True))
    assert held.env_steps == pytest.approx(plain.env_steps, rel=0.03)


def test_the_lag_is_what_is_predicted() -> None:
    for held in (False, True):
        own = config(hold_back=held)
        row = predict(times_of_run(LIMITS, own), own, IDENTITY)
        assert limited(hold_back=held).policy_lag == pytest.approx(row.policy_lag, abs=0.3)


def test_a_restored_run_is_bit_for_bit_the_same() -> None:
    run, other = (SerialRun(config(hold_back=True), VirtualClock(LIMITS)) for _ in range(2))
    run.advance(17.3 * LEARNS)
    check_that_a_copy_goes_on_alike(run, other, 20 * LEARNS)


def test_it_goes_on_when_those_leave_who_hold_the_slots() -> None:
    """One actor of six is left for a while, and then all are back."""
    away = Condition(kind="actors", amount=1, at_seconds=40 * LEARNS, lasts_seconds=40 * LEARNS)
    own = replace(config(hold_back=True), seconds=1.0, conditions=Conditions((away,)))
    run = SerialRun(own, VirtualClock(LIMITS))
    made = [run.advance(40 * LEARNS).learner_updates for _ in range(3)]
    run.close()
    assert [made[0], made[2]] == pytest.approx([40, 40], abs=3)
    assert made[1] >= 15


def test_processes_hold_back_too() -> None:
    """A learner that takes most of a core: its three actors fill far more than it uses."""
    own = replace(config(hold_back=True, num_actors=3), seconds=60.0)
    own = own.with_learner(reuse=8).with_runtime(runtime="process", clock="real")
    run = ProcessRun(own)
    owners: list[int] = []
    take = run._slots.take

    def taking(*, waited: bool = False) -> int:
        slot = take(waited=waited)
        owners.append(run._slots.owner(slot))
        return slot

    run._slots.take = taking  # type: ignore[method-assign]
    try:
        run.apply(Decision.of(IDENTITY))
        run.advance(1.5)
        while run.learner.updates < 20:  # it limits, and has done so for a while
            run.advance(0.5)
        assert run._slots.limit < len(run._slots)
        held_back = len(owners)
        while set(owners[held_back:]) != {0, 1, 2}:  # none of them starves
            run.advance(0.5)
    finally:
        run.close()
