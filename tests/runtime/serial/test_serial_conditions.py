"""Events during a serial run: exact seconds, actors that come and go, checkpoints in between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accerl.checkpoint import load_checkpoint, save_checkpoint
from accerl.errors import UserError
from accerl.runtime.conditions import Condition, Conditions
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.run import IntervalReport
from accerl.runtime.serial.clock import VirtualClock
from accerl.runtime.serial.run import SerialRun
from accerl.spec import IDENTITY, CompressionSpec, Decision
from accerl.training.episode import Episode
from tests.fixtures.runs.inner_runs import fast_profile, tiny_catch, weights_hash

ROLLOUT = 9 * 8 * (30e-6 + 60e-6)
"""seconds of one, of one actor"""
FIRST = 1e-3
"""publication, before anybody acts"""


def event(kind: str, amount: float, at: float, lasts: float, process: str = "") -> Condition:
    return Condition(at_seconds=at, lasts_seconds=lasts, kind=kind, amount=amount, process=process)


@contextmanager
def catch(
    profile: LatencyProfile, *events: Condition, seed: int = 0, **runtime: Any
) -> Iterator[SerialRun]:
    config = tiny_catch(seed, seconds=1.0, **{"eval_episodes": 0, "publish_every": 1000, **runtime})
    run = SerialRun(replace(config, conditions=Conditions(events)), VirtualClock(profile))
    try:
        yield run
    finally:
        run.close()


def line(report: IntervalReport) -> str:
    return json.dumps(report.to_json(), sort_keys=True)


@pytest.mark.parametrize(
    ("happens", "left"),
    [
        (event("throttle", 2.0, 0.03, 0.05), 0.5),
        (event("throttle", 4.0, 0.03, 0.05, "actor-0"), 0.25),
        (event("throttle", 4.0, 0.03, 0.05, "compressor"), 1.0),
        # The learner takes little beside the one actor.
        (event("co-tenant", 3, 0.03, 0.05), 0.5),
        (event("bandwidth", 0.2, 0.03, 0.05), 1.0),
    ],
)
def test_an_actor_is_slowed_down_between_two_moments_and_not_a_moment_longer(
    happens: Condition, left: float
) -> None:
    """One actor, a learner that is always free: every number can be worked out by hand."""
    cheap = replace(fast_profile(num_actors=1), learner_us_per_sample=1e-6, cores=2)
    with catch(cheap, happens) as run:
        # In pieces that end in the middle of the event.
        reports = [run.advance(seconds) for seconds in (0.05, 0.02, 0.05)]
    expected = (0.12 - FIRST - (1.0 - left) * 0.05) / ROLLOUT
    assert sum(report.learner_updates for report in reports) == int(expected)
    acting = sum(report.phase_seconds["env"] + report.phase_seconds["infer"] for report in reports)
    assert acting == pytest.approx(int(expected) * ROLLOUT + (1.0 - left) * 0.05)
    words = [[entry["words"] for entry in report.conditions] for report in reports]
    assert words == [[happens.words]] * 3
    assert reports[0].conditions[0]["at_seconds"] == 0.03


def test_a_co_tenant_of_an_actor_s_machine_slows_that_actor_alone() -> None:
    """Each of two actors has a machine; for 4 rollouts one of them gets half of its core."""
    apart = replace(fast_profile(num_actors=2), num_hosts=2, learner_us_per_sample=1e-3)
    found = []
    for beside in ((), (event("co-tenant", 1, FIRST, 4 * ROLLOUT, process="actor-1"),)):
        with catch(apart, *beside) as run:
            run.apply(Decision.of(IDENTITY))
            report = run.advance(FIRST + 4.5 * ROLLOUT)
            found.append((report.learner_updates, round(report.actor_core_seconds / ROLLOUT)))
    assert found == [(8, 8), (6, 6)]
    here = event("co-tenant", 1, FIRST, ROLLOUT, process="actor-1")
    with pytest.raises(UserError, match="actor-1 is on the learner's machine"):
        catch(fast_profile(num_actors=2), here).__enter__()


def test_a_publication_takes_longer_where_bandwidth_is_left_to_a_fifth() -> None:
    paper = fast_profile(num_actors=1)
    rows = tuple(replace(row, size_bytes=1000) for row in paper.specs)
    linked = replace(paper, specs=rows, num_hosts=1, down_bytes_per_second=1e5)  # 10 ms
    seconds = []
    for events in ((), (event("bandwidth", 0.2, 0.006, 0.02),)):
        with catch(linked, *events) as run:
            while not run.publishing.current:
                run.advance(0.0005)
            seconds.append(run.advance(0.05).phase_seconds["publish"] + run.now)
            assert run.publishing.settled == 0
    assert seconds[1] - seconds[0] == pytest.approx(0.016, abs=0.001)


def test_actors_that_leave_lose_their_rollout_and_start_with_the_newest_weights() -> None:
    free = replace(fast_profile(num_actors=4), learner_us_per_sample=1e-6)
    with catch(free, event("actors", 1, 0.03, 0.05), publish_every=1) as run:
        run.advance(0.03)  # three have left
        left = run.snapshot()
        assert [run.servers.is_idle(f"actor-{index}") for index in range(4)] == [False, *[True] * 3]
        assert [actor["filling"] is None for actor in left["actors"]] == [False, *[True] * 3]
        assert all(len(actor["inbox"]) >= 1 for actor in left["actors"][1:])
        seen = [actor.publication_number for actor in run.actors[1:]]
        away = run.advance(0.0499)
        assert away.learner_updates == pytest.approx(0.05 / ROLLOUT, abs=1)
        assert [actor.publication_number for actor in run.actors[1:]] == seen
        run.advance(0.0002)
        newest = run.publishing.current
        assert newest is not None
        assert newest.number > max(seen)
        joined = [actor.publication_number for actor in run.actors[1:]]
        assert joined == [newest.number] * 3
        back = run.advance(0.05)
        assert back.learner_updates == pytest.approx(4 * 0.05 / ROLLOUT, abs=4)
        states = run.snapshot()["slots"]["states"]
        assert states.count("filling") >= 4  # no slot was lost


def test_more_actors_than_the_machine_has_may_join() -> None:
    free = replace(fast_profile(num_actors=1), learner_us_per_sample=1e-6)
    with catch(free, event("actors", 3, 0.02, 0.03)) as run:
        counts = [run.advance(seconds).learner_updates for seconds in (0.02, 0.03, 0.03)]
        assert len(run.actors) == 3
    assert counts[0] == pytest.approx((0.02 - FIRST) / ROLLOUT, abs=1)
    assert counts[1] == pytest.approx(3 * 0.03 / ROLLOUT, abs=3)
    assert counts[2] == pytest.approx(0.03 / ROLLOUT, abs=1)


def test_an_event_that_never_comes_changes_nothing() -> None:
    with (
        catch(fast_profile()) as plain,
        catch(fast_profile(), event("actors", 3, 0.9, 0.1)) as late,
    ):
        assert line(plain.advance(0.05)) == line(late.advance(0.05))
        assert weights_hash(plain.learner.policy) == weights_hash(late.learner.policy)


EVERYTHING = (
    event("co-tenant", 2, 0.004, 0.03),
    event("throttle", 2.0, 0.01, 0.02, "learner"),
    event("actors", 6, 0.002, 0.015),
    event("actors", 2, 0.02, 0.015),
    event("bandwidth", 0.2, 0.0, 0.5),
)


def test_a_run_that_is_resumed_in_the_middle_of_events_goes_on_bit_by_bit(tmp_path: Path) -> None:
    paper = fast_profile()
    rows = tuple(replace(row, size_bytes=1000) for row in paper.specs)
    profile = replace(paper, specs=rows, num_hosts=4, down_bytes_per_second=2.5e6, cores=3)
    int8 = Decision.of(CompressionSpec(bits=8))

    def go_on(run: SerialRun) -> tuple[list[str], str]:
        lines = [line(run.advance(0.006)) for _ in range(6)]
        return lines, weights_hash(run.learner.policy)

    runtime = {"publish_every": 1, "eval_episodes": 2}
    with (
        catch(profile, *EVERYTHING, seed=1, **runtime) as run,
        catch(profile, *EVERYTHING, seed=2, **runtime) as fresh,
        catch(profile, seed=1, **runtime) as plain,
    ):
        run.apply(int8)
        for _ in range(3):
            run.advance(0.004)
        save_checkpoint(tmp_path / "checkpoint", run.snapshot())
        expected = go_on(run)
        fresh.restore(load_checkpoint(tmp_path / "checkpoint"))
        assert go_on(fresh) == expected
        plain.apply(int8)
        plain.advance(0.012)
        assert go_on(plain) != expected


def test_strategies_see_what_processes_see_and_not_the_event() -> None:
    """What a monitor knows is equal whether the report names the events or not."""
    happens = event("bandwidth", 0.2, 0.0, 0.9)  # which has no effect without a link
    features = []
    for events in ((), (happens,)):
        with catch(fast_profile(), *events) as run:
            episode = Episode(run, horizon_seconds=0.06, interval_seconds=0.02)
            found = [episode.step(Decision.of(IDENTITY)) for _ in range(3)]
        assert [len(report.conditions) for _, report in found] == [len(events)] * 3
        features.append([features for features, _ in found])
    assert features[0] == features[1]


def test_a_throttled_core_shows_in_what_processes_see_of_it() -> None:
    with catch(fast_profile(num_actors=1), event("throttle", 2.0, 0.04, 0.04)) as run:
        episode = Episode(run, horizon_seconds=0.12, interval_seconds=0.02)
        raw = [episode.step(Decision.of(IDENTITY))[0].raw for _ in range(4)]
    assert [each["core_share"] for each in raw] == pytest.approx([1.0, 1.0, 0.5, 0.5], abs=0.05)
    for name in ("env_slowdown", "infer_slowdown", "learn_slowdown"):
        assert raw[1][name] == pytest.approx(1.0)
        assert raw[2][name] == pytest.approx(2.0, rel=0.1)


def test_a_process_that_the_run_does_not_have_is_refused() -> None:
    with (
        pytest.raises(UserError, match=r"no process 'actor-7'; did you mean 'actor-\d'"),
        catch(fast_profile(), event("throttle", 2.0, 0.0, 0.1, "actor-7")),
    ):
        pass
