"""Events on the real clock: what disturbers do to a process, and that nothing stays disturbed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter, thread_time

import pytest

from accerl.acting.rollout import RolloutShape
from accerl.errors import UserError
from accerl.networks.observation import ObservationSpec
from accerl.runtime.conditions import Condition, Conditions
from accerl.runtime.process import disturber
from accerl.runtime.process.disturbances import Disturbances
from accerl.runtime.process.run import ProcessRun
from accerl.runtime.process.shaped_pipe import NO_SLOT, ShapedPipe, Uplink, rollout_bytes
from accerl.runtime.run import IntervalReport
from accerl.runtime.slots import SlotState
from tests.fixtures.runs.process_runs import quick_catch
from tests.fixtures.runs.processes import alive, children, wait_for

DISTURBER = [sys.executable, "-I", "-S", disturber.__file__]


def event(kind: str, amount: float, at: float, lasts: float, process: str = "") -> Condition:
    return Condition(at_seconds=at, lasts_seconds=lasts, kind=kind, amount=amount, process=process)


def state(pid: int) -> str:
    """One letter of /proc: T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[bytes]]:
    """A process that computes without pause."""
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", "while True: pass"])
    yield process
    process.kill()
    process.wait()


def started(*arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*DISTURBER, *map(str, arguments)], stdin=subprocess.PIPE)


def command_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def ended(helper: subprocess.Popen[bytes]) -> None:
    assert helper.stdin is not None
    helper.stdin.close()
    assert helper.wait(20) == 0


def test_a_core_that_is_slower_is_busy_for_the_rest(busy: subprocess.Popen[bytes]) -> None:
    """By processor seconds, which do not depend on what else the machine does."""
    wait_for(lambda: disturber.cpu_seconds(busy.pid) > 0.05, "it to compute")
    helper = started("slow", busy.pid, 2.0)
    wait_for(lambda: disturber.cpu_seconds(helper.pid) > 0.15, "it to be slowed down")
    mine, theirs = disturber.cpu_seconds(helper.pid), disturber.cpu_seconds(busy.pid)
    wait_for(lambda: disturber.cpu_seconds(helper.pid) > mine + 1.0, "a while to pass")
    used = disturber.cpu_seconds(helper.pid) - mine
    assert used / (disturber.cpu_seconds(busy.pid) - theirs) == pytest.approx(1.0, rel=0.35)
    ended(helper)
    assert state(busy.pid) != "T"


def test_a_burner_burns_on_its_core_until_its_parent_is_gone() -> None:
    core = min(os.sched_getaffinity(0))
    code = (
        "import subprocess, sys, time\n"
        f"helper = subprocess.Popen({[*DISTURBER, 'burn', str(core)]!r}, stdin=subprocess.PIPE)\n"
        "print(helper.pid, flush=True)\n"
        "time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    try:
        wait_for(lambda: disturber.cpu_seconds(pid) > 0.1, "it to burn")
        assert os.sched_getaffinity(pid) == {core}
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    wait_for(lambda: not Path(f"/proc/{pid}").exists() or state(pid) == "Z", "it to end")


def test_what_was_stopped_goes_on_when_its_guard_has_nobody_left(
    busy: subprocess.Popen[bytes],
) -> None:
    guard = started("guard", busy.pid)
    os.kill(busy.pid, signal.SIGSTOP)
    wait_for(lambda: state(busy.pid) == "T", "it to stop")
    ended(guard)
    assert state(busy.pid) != "T"
    busy.kill()
    busy.wait()
    ended(started("guard", busy.pid))  # nobody is left to go on
    ended(started("slow", busy.pid, 2.0))


def test_a_pipe_takes_as_long_as_the_bytes_would() -> None:
    pipe = ShapedPipe(1e6, 0.0, 2)
    other = ShapedPipe(**pipe.handle())
    try:
        waited: list[float] = []
        pipe._wait = lambda left, rate: waited.append(min(left / rate, 0.002)) or waited[-1] * rate
        pipe.send_down(20_000)
        assert sum(waited) == pytest.approx(0.02)
        waited.clear()
        other.leave(0.2)
        pipe.send_down(20_000)
        assert sum(waited) == pytest.approx(0.1)
        waited.clear()
        pipe.send_up(0, 1e9)  # that direction has no limit
        assert waited == []
    finally:
        other.close()
        pipe.close()


def test_actors_that_send_at_once_share_a_link() -> None:
    pipe = ShapedPipe(0.0, 1e6, 2)
    try:
        waited: list[float] = []
        pipe._wait = lambda left, rate: waited.append(left / rate) or left
        pipe._sending[1] = 1.0  # another is sending
        pipe.send_up(0, 1000)
        pipe.forget(1)
        pipe.send_up(0, 1000)
        assert waited == pytest.approx([0.002, 0.001])
        assert list(pipe._sending) == [0.0, 0.0]
    finally:
        pipe.close()
    frames = ObservationSpec((4, 84, 84), "uint8", frames=4)
    shape = RolloutShape(unroll=20, num_envs=8, num_actions=6, observation=frames)
    assert rollout_bytes(shape) == 160 * 84 * 84


def test_an_actor_acts_on_while_its_rollouts_are_on_their_way() -> None:
    pipe, arrived = ShapedPipe(0.0, 1e6, 1), SimpleQueue[tuple[int, float]]()
    uplink = Uplink(pipe, 0, 50_000, lambda slot: arrived.put((slot, perf_counter())))
    try:
        pipe.leave(1e-9)  # one would take years
        for slot in (3, 1, 2):
            uplink.send(slot)
        assert arrived.empty()
        began = perf_counter()
        pipe.leave(1.0)
        slots, times = zip(*(arrived.get(timeout=30.0) for _ in range(3)), strict=True)
        assert slots == (3, 1, 2)
        assert all(after - before >= 0.045 for before, after in pairwise((began, *times)))
        pipe.leave(1e-9)
        uplink.send(0)
        uplink.close()
        assert arrived.empty()
        assert list(pipe._sending) == [0.0]
    finally:
        uplink.close()
        pipe.close()


def test_bandwidth_of_shared_memory_cannot_fall() -> None:
    slow = Conditions((event("bandwidth", 0.2, 0.1, 0.1),))
    with pytest.raises(UserError, match="down_bytes_per_second"):
        replace(quick_catch(), conditions=slow)
    replace(quick_catch(), conditions=replace(slow, up_bytes_per_second=1.0))
    with pytest.raises(UserError, match="Ray's nodes"):
        replace(quick_catch(runtime="ray"), conditions=slow)
    with pytest.raises(UserError, match="--clock virtual"):
        replace(quick_catch(runtime="serial"), conditions=slow)


def test_another_program_takes_the_actors_core_also_where_the_learner_has_its_own() -> None:
    cores = sorted(os.sched_getaffinity(0))
    two = Disturbances(Conditions((event("co-tenant", 1, 0.0, 9.0),)), 1)
    try:
        os.sched_setaffinity(0, cores[-1:])  # as `pin_cores` does to the learner's process
        two.follow(1.0, [])
        (burner,) = [pid for pid in children(os.getpid()) if b"burn" in command_of(pid)]
        wait_for(lambda: os.sched_getaffinity(burner) == {cores[0]}, "the burner on the first core")
        assert os.sched_getaffinity(0) == {cores[-1]}
    finally:
        os.sched_setaffinity(0, cores)
        two.close()


def test_a_core_is_slower_where_its_process_is(busy: subprocess.Popen[bytes]) -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(busy.pid, cores[:1])
    os.sched_setaffinity(0, cores[-1:])
    try:
        slow = started("slow", busy.pid, 2.0)
    finally:
        os.sched_setaffinity(0, cores)
    wait_for(lambda: os.sched_getaffinity(slow.pid) == {cores[0]}, "it to follow the process")
    ended(slow)
    assert os.sched_getaffinity(busy.pid) == {cores[0]}


def test_the_learner_is_slowed_down_by_what_it_computes() -> None:
    slow = Disturbances(Conditions((event("throttle", 3.0, 0.0, 9.0, "learner"),)), 1)
    slow.follow(1.0, [])
    before = thread_time()
    slow.slow_learner(0.05)
    assert thread_time() - before == pytest.approx(0.1, rel=0.3)
    slow.follow(9.5, [])
    before = thread_time()
    slow.slow_learner(0.05)
    assert thread_time() - before < 0.02
    slow.close()


def test_events_of_every_kind_come_and_go_on_the_real_clock() -> None:
    """The run's clock is set to where events begin and end."""
    conditions = Conditions(
        (
            event("actors", 1, 100.0, 100.0),
            event("throttle", 3.0, 100.0, 100.0),
            event("bandwidth", 0.5, 100.0, 100.0),
            event("actors", 3, 300.0, 100.0),
            event("co-tenant", 1, 300.0, 100.0),
        ),
        down_bytes_per_second=1e8,
        up_bytes_per_second=1e8,
    )
    config = replace(quick_catch(num_actors=2), seconds=500.0, conditions=conditions)
    run = ProcessRun(config)
    try:
        actors = run._actors

        def at(seconds: float) -> tuple[IntervalReport, list[bool], list[str]]:
            """Act for a moment from there; return the report, who is stopped, and disturbers."""
            run.now = seconds
            before = run.learner.updates
            report = run.advance(0.1)
            while run.learner.updates < before + 5:  # it goes on learning
                run.advance(0.05)
            # What is stopped is not dead, and nobody starts it anew.
            assert report.events == ()
            stopped = [state(actor.pid) == "T" for actor in actors]
            return report, stopped, sorted(key[0] for key in run._disturbances._helpers)

        report, stopped, helpers = at(0.0)
        assert (report.conditions, stopped[1:], helpers) == ((), [False, True], ["guard"])
        report, stopped, helpers = at(100.0)
        found = sorted(entry["words"] for entry in report.conditions)
        assert found == ["1 actor", "all cores 3 times slower", "bandwidth at 50%"]
        assert stopped[1:] == [True, True]
        assert helpers == ["guard", "guard", "slow", "slow"]  # an actor and the compressor
        assert run._pipe is not None
        assert run._pipe._words[0] == 0.5
        report, stopped, helpers = at(200.0)
        assert (report.conditions, stopped, helpers) == ((), [False, False, True], ["guard"])
        report, stopped, helpers = at(300.0)
        assert (stopped, helpers) == ([False, False, False], ["burn"])
        # Whatever dies under an event is replaced as ever.
        os.kill(actors[2].pid, signal.SIGKILL)
        while actors[2].restarts == 0:
            run.advance(0.02)
        pids = [helper.pid for helper in run._disturbances._helpers.values()]
        pids += [worker.pid for worker in run.workers]
        assert len(pids) == 5
    finally:
        run.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_an_actor_that_leaves_while_it_is_throttled_is_stopped() -> None:
    """What slows it down has it go on after each slice, also when that ends."""
    events = (event("throttle", 3.0, 0.0, 400.0), event("actors", 1, 100.0, 100.0))
    config = replace(quick_catch(num_actors=2), seconds=500.0, conditions=Conditions(events))
    run = ProcessRun(config)
    try:
        found = []
        for run.now in (0.0, 100.0, 101.0, 250.0):
            run.advance(0.3)
            found.append([state(actor.pid) == "T" for actor in run._actors[1:]])
        helpers = sorted(key[0] for key in run._disturbances._helpers)
        assert found[1:3] == [[True], [True]]
        assert helpers.count("slow") == 3  # two actors and the compressor
        actor = run._actors[1]
        assert actor.restarts == 0
        used = disturber.cpu_seconds(actor.pid)
        while disturber.cpu_seconds(actor.pid) == used:  # it acts again, slowly
            run.advance(0.1)
    finally:
        run.close()


def test_what_an_actor_has_filled_before_it_leaves_counts() -> None:
    """It waits for the link; only the one that was being filled is filled anew."""
    quick, events = quick_catch(num_actors=2, queue_rollouts=3), (event("actors", 1, 100.0, 100.0),)
    shape = ProcessRun(quick)
    link = rollout_bytes(shape._shape) / 0.6  # bytes a second: a rollout takes 0.6 s
    shape.close()
    conditions = Conditions(events, up_bytes_per_second=link)
    run = ProcessRun(replace(quick, seconds=500.0, conditions=conditions))
    try:
        run.advance(1.0)
        run.now = 100.0
        run.advance(0.3)
        name = run._actors[1].name
        waiting = run._slots.of(1, SlotState.FILLING)
        assert len(waiting) > 1
        assert len(run._begun[name]) == 1
        run.now = 250.0
        for _ in range(40):
            run.advance(0.3)
            if run._begun[name] <= {NO_SLOT}:
                break
        assert run._begun[name] <= {NO_SLOT}
    finally:
        run.close()


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_nothing_stays_disturbed_however_a_run_ends(end: signal.Signals, tmp_path: Path) -> None:
    """An actor is stopped, another slowed down, and a core burns, when the run is ended."""
    events = [event("actors", 1, 0.0, 600.0), event("throttle", 2.0, 0.0, 600.0)]
    events.append(event("co-tenant", 1, 0.0, 600.0))
    file, out = tmp_path / "events.json", tmp_path / "run"
    file.write_text(json.dumps({"events": [each.to_json() for each in events]}))
    settings = ["runtime.num_actors=2", "runtime.interval_seconds=1", "runtime.eval_episodes=0"]
    command = [sys.executable, "-m", "studies.cli", "train", "catch", "--runtime", "process"]
    command += ["--seconds", "600", "--events", str(file), "--out", str(out)]
    command += [word for setting in settings for word in ("--set", setting)]
    run = subprocess.Popen(
        command,
        start_new_session=True,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    metrics = out / "metrics.jsonl"
    try:
        wait_for(lambda: metrics.is_file() and metrics.stat().st_size > 0, "a first interval")
        started = children(run.pid)
        disturbers = [pid for pid in started if disturber.__file__.encode() in command_of(pid)]
        assert len(disturbers) == 4
        assert "T" in [state(pid) for pid in started]
        if end == signal.SIGKILL:
            run.kill()
        else:
            os.killpg(run.pid, end)
        run.wait(60)
        wait_for(lambda: not any(map(alive, started)), "everything to end")
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
