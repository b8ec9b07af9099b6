"""Supervision of small processes: death, hanging, giving up, messages, and no trace afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from accerl.errors import UserError
from accerl.runtime.events import RunEvent
from accerl.runtime.machine import forks
from accerl.runtime.process.messages import AskState, Ready, State
from accerl.runtime.process.supervise import (
    Supervised,
    Supervisor,
    Worker,
    ignoring_interrupts,
)
from accerl.runtime.process.wire import PeerGoneError
from tests.fixtures.runs.bodies import echo, hang
from tests.fixtures.runs.processes import alive, wait_for


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker("actor", 3, echo, lambda restarts: (f"number {restarts}",))
    yield worker
    worker.end()


def test_a_worker_speaks_and_ends_without_a_trace(worker: Worker) -> None:
    worker.end()  # before it was started there is nothing to end
    worker.start()  # the first start of all also starts Python's own process for shared memory
    worker.end()
    before = os.listdir("/proc/self/fd")
    worker.start()
    assert worker.name == "actor-3"
    assert not worker.ready
    assert (worker.receive(), worker.ready) == (Ready(), True)
    greeting = state(worker)
    assert greeting["greeting"] == "number 0"
    assert greeting["torch"] is False  # the program that started it stays outside
    worker.send(State({"x": [1, 2.5, None]}))
    assert worker.receive() == State({"x": [1, 2.5, None]})
    pid = worker.pid
    assert worker.end() == 0
    assert worker.end() is None
    assert not alive(pid)
    assert sorted(os.listdir("/proc/self/fd")) == sorted(before)


@pytest.mark.parametrize("role", ["actor", "compressor"])
def test_what_forks_finds_what_its_starter_has_now(
    role: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also where a server that was started before stands between them."""
    cores = os.sched_getaffinity(0)
    for news in ("old", "new"):
        monkeypatch.setenv("ACCERL_TEST_NEWS", news)
        worker = Worker(role, None, echo, lambda _, news=news: (f"hello {news}",))
        try:
            os.sched_setaffinity(0, {min(cores) if news == "old" else max(cores)})
            worker.start()
            assert worker.receive() == Ready()
            found = state(worker)
        finally:
            os.sched_setaffinity(0, cores)
            worker.end()
        assert found["news"] == news
        assert found["cores"] == [min(cores) if news == "old" else max(cores)]
        assert found["torch"] is (role != "actor" and forks.for_torch() is not forks.SPAWN)
        assert found["hears_interrupts"] is False
        assert f"hello {news}" in capfd.readouterr().err  # each test has a stderr of its own


def test_nothing_is_forked_where_it_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    here = forks.for_torch()
    monkeypatch.setattr("tempfile.tempdir", "/tmp/" + 71 * "x")
    assert forks.for_torch() is forks.SPAWN  # there would be no name for the server's socket
    monkeypatch.setattr("tempfile.tempdir", "/tmp/" + 70 * "x")
    assert forks.for_torch() is here
    if (child := os.fork()) == 0:  # whose parent's server is not its own
        os._exit(forks.for_torch() is not forks.SPAWN)
    assert os.waitpid(child, 0)[1] == 0


def test_ctrl_c_while_a_process_starts_is_heard_afterwards() -> None:
    started = []

    def start() -> None:
        with ignoring_interrupts():
            os.kill(os.getpid(), signal.SIGINT)
            started.append(True)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            start()
        assert started
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_pinned_actors_stay_off_the_learners_core_and_others_may_run_anywhere(
    worker: Worker,
) -> None:
    everywhere = os.sched_getaffinity(0)
    other = Worker("compressor", None, echo, lambda _: ("",))
    supervisor = Supervisor()
    supervisor.pin(1)
    try:
        for started in (worker, other):
            supervisor.start(started)
            started.receive()
        own = {max(everywhere)}
        assert os.sched_getaffinity(0) == own
        assert os.sched_getaffinity(worker.pid) == everywhere - own
        assert os.sched_getaffinity(other.pid) == everywhere
    finally:
        other.end()
        supervisor.unpin()
    assert os.sched_getaffinity(0) == everywhere
    with pytest.raises(UserError, match="pin_cores leaves no core for actors"):
        supervisor.pin(len(everywhere))
    assert os.sched_getaffinity(0) == everywhere


def test_a_mistake_of_the_user_is_said_by_the_parent(worker: Worker) -> None:
    worker.start()
    worker.receive()
    worker.send(State({"ask for": "net7"}))
    with pytest.raises(UserError, match="there is no net7; use another"):
        worker.receive()


def state(worker: Worker) -> dict[str, Any]:
    """Ask a worker for its state."""
    worker.send(AskState())
    answer = worker.receive()
    assert isinstance(answer, State)
    return answer.state


def kill(worker: Worker) -> None:
    """Kill a ready worker, and notice it."""
    while not worker.ready:
        worker.receive()
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(PeerGoneError):
        worker.receive()
    worker.send(State({"nobody": "reads this"}))


def test_a_dead_process_is_replaced_and_the_event_kept(
    worker: Worker, capsys: pytest.CaptureFixture[str]
) -> None:
    supervisor = Supervisor()
    supervisor.start(worker)
    kill(worker)
    supervisor.replace(worker, seconds=12.5, recovered="2 slots reclaimed")
    worker.receive()
    assert state(worker)["greeting"] == "number 1"
    worker.send(State({"exit": 7}))
    with pytest.raises(PeerGoneError):
        worker.receive()
    supervisor.replace(worker, seconds=13.0, recovered="nothing lost")
    events = supervisor.take_events()
    assert events[0] == RunEvent(
        role="actor",
        index=3,
        exit_code=-9,
        seconds=12.5,
        cause="died (exit code -9)",
        action="started it again, 2 slots reclaimed",
    )
    assert (events[1].exit_code, len(events)) == (7, 2)
    assert supervisor.take_events() == ()
    error = capsys.readouterr().err
    assert "actor-3 died (exit code -9); started it again, 2 slots reclaimed" in error


def test_five_deaths_in_a_minute_are_too_many_but_not_in_a_longer_time(worker: Worker) -> None:
    clock = Clock()
    supervisor = Supervisor(clock=clock)
    supervisor.start(worker)
    for _ in range(5):
        kill(worker)
        supervisor.replace(worker, seconds=0.0, recovered="")
        supervisor.worked(worker)
        clock.seconds += 15.1  # four of them in a minute at most
    kill(worker)
    supervisor.replace(worker, seconds=0.0, recovered="")
    kill(worker)
    with pytest.raises(UserError, match=r"processes died within 60 .* actor-3 died") as error:
        supervisor.replace(worker, seconds=0.0, recovered="")
    assert "\n" not in str(error.value)
    assert "--resume" in str(error.value)
    assert len(supervisor.take_events()) == 6
    assert not supervisor.take_events()


def test_a_process_that_never_gets_ready_is_killed_and_twice_ends_the_run() -> None:
    clock = Clock()
    supervisor = Supervisor(clock=clock)
    worker = Worker("compressor", None, hang, lambda _: ())
    supervisor.start(worker)
    first = worker.pid
    clock.seconds = 119.0
    assert not supervisor.hangs(worker)
    clock.seconds = 121.0
    assert supervisor.hangs(worker)
    supervisor.replace(worker, seconds=0.0, recovered="nothing lost")
    assert not alive(first)
    (event,) = supervisor.take_events()
    assert event.cause == "was not ready after 120 seconds"
    assert event.index is None
    assert (event.exit_code or 0) < 0
    assert not supervisor.hangs(worker)  # the new one has its own two minutes
    clock.seconds = 242.0
    second = worker.pid
    with pytest.raises(UserError, match="compressor was not ready after 120 seconds, twice"):
        supervisor.replace(worker, seconds=0.0, recovered="nothing lost")
    assert not alive(second)
    worker.end()


def test_a_process_that_hangs_ends_with_a_parent_that_is_killed() -> None:
    """Its environment may never return, so that it never sees that the pipe is closed."""
    code = (
        "import time; from accerl.runtime.process.supervise import Worker\n"
        "from tests.fixtures.runs.bodies import hang\n"
        "worker = Worker('actor', 0, hang, lambda _: ())\n"
        "worker.start(); print(worker.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert alive(child)
        parent.kill()
    try:
        wait_for(lambda: not alive(child), "it to end", 20.0)
    finally:
        if alive(child):
            os.kill(child, signal.SIGKILL)


def test_a_process_that_must_get_ready_again_has_the_time_of_a_start(worker: Worker) -> None:
    clock = Clock()
    supervisor = Supervisor(clock=clock)
    supervisor.start(worker)
    worker.receive()
    clock.seconds = 1000.0
    assert not supervisor.hangs(worker)
    supervisor.await_ready(worker)
    clock.seconds = 1119.0
    assert not supervisor.hangs(worker)
    clock.seconds = 1121.0
    assert supervisor.hangs(worker)
    worker.send(Ready())  # it echoes
    worker.receive()
    assert not supervisor.hangs(worker)


def test_hanging_once_is_forgiven_when_the_next_one_gets_ready(worker: Worker) -> None:
    clock = Clock()
    supervisor = Supervisor(clock=clock)
    supervisor.start(worker)
    for _ in range(3):
        clock.seconds += 121.0
        assert supervisor.hangs(worker)  # nobody has read that it is ready
        supervisor.replace(worker, seconds=0.0, recovered="")
        worker.receive()
        assert not supervisor.hangs(worker)
        kill(worker)
        supervisor.replace(worker, seconds=0.0, recovered="")


class Named(Supervised):
    """What a supervisor sees of a process, without the process."""

    def start(self) -> None:
        self.ready = False

    def end(self, patience_seconds: float = 2.0) -> int | None:
        return -9


def test_a_process_that_dies_five_times_and_finishes_nothing_is_too_much() -> None:
    clock = Clock()
    supervisor = Supervisor(clock=clock)
    evaluator, actor = Named("evaluator", None), Named("actor", 0)
    for worker in (evaluator, actor):
        supervisor.start(worker)

    def die(worker: Named) -> None:
        clock.seconds += 61.0  # no two of them in a minute
        worker.ready = True
        supervisor.replace(worker, seconds=0.0, recovered="")

    for _ in range(4):
        die(evaluator)
        die(actor)
    supervisor.worked(evaluator)
    for _ in range(4):
        die(evaluator)
    with pytest.raises(
        UserError, match=r"^evaluator failed 5 times in a row .* it died \(exit code -9\)"
    ) as error:
        die(evaluator)
    assert "\n" not in str(error.value)
    assert "--resume" in str(error.value)


def test_slow_starts_are_no_deaths() -> None:
    """A machine that is busy for two minutes slows them all."""
    clock = Clock()
    supervisor = Supervisor(clock=clock)
    workers = [Named("actor", index) for index in range(8)]
    for worker in workers:
        supervisor.start(worker)
    clock.seconds = 121.0
    for worker in workers:
        assert supervisor.hangs(worker)
        supervisor.replace(worker, seconds=0.0, recovered="")
    assert len(supervisor.take_events()) == 8
    clock.seconds = 242.0
    with pytest.raises(UserError, match=r"actor-7 was not .* twice in a row; is the machine out"):
        supervisor.replace(workers[7], seconds=0.0, recovered="")
