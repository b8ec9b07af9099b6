"""Actors that fill nothing: after how long they count as stuck."""

from __future__ import annotations

from time import monotonic

from accerl.runtime.stuck import (
    LEAST_PUBLICATION_SECONDS,
    MANY,
    MORE,
    PAUSED_SECONDS,
    STUCK_SECONDS,
    StuckWorkers,
    Watch,
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_actor_is_stuck_after_many_times_what_its_rollouts_took() -> None:
    clock = Clock()
    actors = StuckWorkers(clock)
    assert actors.seconds("actor-0") is None
    actors.lent("actor-0")
    clock.now = 10.0
    actors.lent("actor-0")  # more, while it fills
    actors.filled("actor-0", has_more=True)
    clock.now = 10.0 + MANY * 10.0
    assert actors.seconds("actor-0") is None
    clock.now += 1.0
    assert actors.seconds("actor-0") == MANY * 10.0 + 1.0


def test_a_link_may_become_slow_later() -> None:
    clock = Clock()
    actors = StuckWorkers(clock, link_seconds=500.0)
    actors.lent("actor-0")
    actors.filled("actor-0", has_more=True)
    clock.now = STUCK_SECONDS + 500.0
    assert actors.seconds("actor-0") is None
    clock.now += 1.0
    assert actors.seconds("actor-0") == STUCK_SECONDS + 501.0


def test_what_fills_fast_or_nothing_yet_is_given_a_least_time() -> None:
    clock = Clock()
    actors = StuckWorkers(clock)
    actors.lent("fast")
    actors.lent("new")
    actors.filled("fast", has_more=True)
    clock.now = STUCK_SECONDS + 1.0
    assert actors.seconds("fast") == STUCK_SECONDS + 1.0
    assert actors.seconds("new") is None
    clock.now = 2.0 * STUCK_SECONDS + 1.0
    assert actors.seconds("new") == 2.0 * STUCK_SECONDS + 1.0


def test_who_has_nothing_to_fill_is_never_stuck() -> None:
    clock = Clock()
    actors = StuckWorkers(clock)
    for name in ("waits", "away"):
        actors.lent(name)
    actors.filled("waits", has_more=False)
    actors.forget("away")
    clock.now = 1e6
    assert actors.seconds("waits") is None
    assert actors.seconds("away") is None


def test_a_run_that_was_suspended_blames_nobody() -> None:
    """Ctrl-Z and fg, a paused container: nobody looked meanwhile, and nobody worked."""
    clock = Clock()
    actors = StuckWorkers(clock)
    actors.look()
    actors.lent("actor-0")
    actors.filled("actor-0", has_more=True)
    for clock.now in (1.0, 3_600.0):
        actors.look()
    assert actors.seconds("actor-0") is None
    passed = 0.0
    while passed <= STUCK_SECONDS:
        assert actors.seconds("actor-0") is None
        passed += 0.9 * PAUSED_SECONDS
        clock.now += 0.9 * PAUSED_SECONDS
        actors.look()
    assert actors.seconds("actor-0") is not None


def test_a_measurement_may_take_longer_at_first() -> None:
    clock = Clock()
    evaluators = StuckWorkers(clock, first_seconds=600.0)
    evaluators.lent("evaluator")
    clock.now = 600.0
    assert evaluators.seconds("evaluator") is None
    clock.now = 601.0
    assert evaluators.seconds("evaluator") == 601.0


def test_who_was_stuck_is_given_longer_until_it_finishes_something() -> None:
    """A measurement that is repeated takes as long again: it was slow, and never stuck."""
    clock = Clock()
    evaluators = StuckWorkers(clock)
    evaluators.lent("evaluator")
    evaluators.filled("evaluator", has_more=False)
    given = STUCK_SECONDS
    for _ in range(2):
        began = clock.now
        evaluators.lent("evaluator")
        clock.now = began + given
        assert evaluators.seconds("evaluator") is None
        clock.now += 1.0
        assert evaluators.seconds("evaluator") == given + 1.0
        evaluators.forget("evaluator")
        given = MORE * (given + 1.0)
    evaluators.lent("evaluator")
    clock.now += given
    evaluators.filled("evaluator", has_more=False)
    evaluators.lent("evaluator")
    clock.now += MANY * given
    assert evaluators.seconds("evaluator") is None
    clock.now += 1.0
    assert evaluators.seconds("evaluator") is not None


def test_an_environment_that_hangs_again_and_again_is_found_as_early_each_time() -> None:
    clock = Clock()
    actors = StuckWorkers(clock)
    for _ in range(3):
        actors.lent("actor-0")
        actors.filled("actor-0", has_more=True)
        clock.now += STUCK_SECONDS + 1.0
        assert actors.seconds("actor-0") == STUCK_SECONDS + 1.0
        actors.forget("actor-0")


def test_a_learner_whose_updates_take_long_has_not_been_suspended() -> None:
    clock, busy = Clock(), Clock()
    actors = StuckWorkers(clock, busy=busy)
    actors.look()
    actors.lent("actor-0")
    actors.filled("actor-0", has_more=True)
    for clock.now in (20.0, 40.0, 60.0, 80.0):
        busy.now += 18.0
        actors.look()
    assert actors.seconds("actor-0") == 80.0
    clock.now += 3_610.0  # an hour of them suspended, in the middle of an update
    busy.now += 10.0
    actors.look()
    assert actors.seconds("actor-0") == 90.0


def test_whoever_is_not_done_is_named_with_what_it_has_to_do() -> None:
    watch = Watch()
    watch.publications.filled("compressor", has_more=False)  # it was not asked for anything
    watch.publications.lent("compressor")
    watch.rollouts.lent("actor-0")
    assert watch.unfinished("compressor") == ""
    for each in (watch.rollouts, watch.publications):
        each._clock = lambda: monotonic() + 2.0 * STUCK_SECONDS + 1.0
    assert watch.unfinished("actor-0") == "finished no rollout in 121 seconds"
    assert watch.unfinished("compressor") == ""  # the first may take an hour
    watch.publications._clock = monotonic
    watch.publications.filled("compressor", has_more=True)
    watch.publications._clock = lambda: monotonic() + LEAST_PUBLICATION_SECONDS + 1.0
    assert watch.unfinished("compressor") == "finished no publication in 601 seconds"
    watch.forget("compressor")
    assert watch.unfinished("compressor") == ""


def test_who_pauses_has_finished_nothing() -> None:
    """As a distiller that says at first that it has distilled nothing yet."""
    clock = Clock()
    distillers = StuckWorkers(clock, first_seconds=600.0)
    distillers.lent("distiller")
    clock.now = 1.0
    distillers.paused("distiller")
    clock.now = 1e6
    assert distillers.seconds("distiller") is None
    distillers.lent("distiller")
    clock.now += 600.0
    assert distillers.seconds("distiller") is None
    clock.now += 1.0
    assert distillers.seconds("distiller") == 601.0
