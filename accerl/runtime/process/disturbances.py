"""Disturbances: the events of a run on the real clock, really done to its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import thread_time

from accerl.errors import UserError
from accerl.runtime.conditions import Conditions, Moment
from accerl.runtime.process import disturber
from accerl.runtime.process.supervise import Worker, ignoring_interrupts

_Key = tuple[str, ...]  # what a disturber is started with
LEARNER = "learner"


class Disturbances:
    """Starts and ends the disturbers of a run as its clock moves on, and stops actors that leave.

    The process that a disturber acts upon may die and be replaced at any moment: what is wanted is
    compared with what is there whenever `follow` is called. Nothing outlives the run, however it
    ends (`disturber`).

    It is made before any process is kept off some of the cores.

    Args:
        conditions: of the run.
        own_actors: that act without an event.

    Raises:
        UserError: the system cannot do it.
    """

    def __init__(self, conditions: Conditions, own_actors: int) -> None:
        self._conditions = conditions
        self._own_actors = own_actors
        self._helpers: dict[_Key, subprocess.Popen[bytes]] = {}
        self._stopped: dict[str, int] = {}  # pid by name
        self._moment = Moment()
        self._cores: list[int] = []
        if not conditions.events:
            return
        if not hasattr(os, "sched_setaffinity"):
            raise UserError("--events: on the real clock they need Linux; use --runtime serial")
        # All of the run's: this process, the learner's, may be kept off the actors' later.
        self._cores = sorted(os.sched_getaffinity(0))

    def next_change(self, seconds: float) -> float:
        """Return when something next changes after a time of the run's clock; infinite: never."""
        return self._conditions.next_change(seconds)

    def is_present(self, actor: Worker) -> bool:
        """Whether an actor is to act now."""
        wanted = self._moment.actors or self._own_actors
        return actor.index is not None and actor.index < wanted

    @property
    def bandwidth(self) -> float:
        """The share of the link that is left now."""
        return self._moment.bandwidth

    def follow(
        self, seconds: float, workers: Sequence[Worker]
    ) -> tuple[list[Worker], list[Worker]]:
        """Have everything be as it is to be at a time of the run's clock.

        Args:
            seconds: the time.
            workers: the processes that are on the clock.

        Returns:
            the actors that have just left, which are stopped, and those that have just joined.
        """
        if not self._conditions.events:
            return [], []
        self._moment = self._conditions.at(seconds)
        left, joined = [], []
        for actor in (worker for worker in workers if worker.role == "actor"):
            is_away = self._stopped.get(actor.name)
            if self.is_present(actor):
                if is_away is not None:
                    joined.append(actor)
                    self._go_on(actor.name)
            elif actor.ready and is_away != actor.pid:
                self._stop(actor)
                left.append(actor)
        self._start_and_end(self._wanted(workers))
        return left, joined

    def _wanted(self, workers: Sequence[Worker]) -> set[_Key]:
        wanted = {
            ("burn", str(self._cores[index % len(self._cores)]), str(index))
            for index in range(self._moment.co_tenants)
        }
        for worker in workers:
            factor = self._moment.slowdown(worker.name)
            if worker.ready and factor > 1.0 and worker.name not in self._stopped:
                wanted.add(("slow", str(worker.pid), str(factor)))
        return wanted | {("guard", str(pid)) for pid in self._stopped.values()}

    def _start_and_end(self, wanted: set[_Key]) -> None:
        for key in [key for key in self._helpers if key not in wanted]:
            self._end(key)
        for key in sorted(wanted):
            if key in self._helpers and self._helpers[key].poll() is not None:
                self._end(key)  # killed: what it had stopped is not to stay so
            if key not in self._helpers:
                command = [sys.executable, "-I", "-S", str(Path(disturber.__file__)), *key]
                with ignoring_interrupts():
                    self._helpers[key] = subprocess.Popen(command, stdin=subprocess.PIPE)

    def _end(self, key: _Key) -> None:
        helper = self._helpers.pop(key)
        assert helper.stdin is not None
        helper.stdin.close()
        try:
            helper.wait(1.0)
        except subprocess.TimeoutExpired:
            helper.kill()
            helper.wait()
        if key[0] == "slow":
            with suppress(ProcessLookupError):
                os.kill(int(key[1]), signal.SIGCONT)

    def _stop(self, actor: Worker) -> None:
        self._stopped[actor.name] = actor.pid
        for key in [key for key in self._helpers if key[:2] == ("slow", str(actor.pid))]:
            self._end(key)  # which has it go on
        # Whoever is to have it go on after a kill of this process is there first.
        self._start_and_end({*self._helpers, ("guard", str(actor.pid))})
        with suppress(ProcessLookupError):
            os.kill(actor.pid, signal.SIGSTOP)

    def _go_on(self, name: str) -> None:
        pid = self._stopped.pop(name)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def slow_learner(self, cpu_seconds: float) -> None:
        """Have this process, the learner's, take as long as on a slower core.

        It cannot be stopped: a shell would take it for a job that was suspended.

        Args:
            cpu_seconds: that a piece of work has taken.
        """
        until = thread_time() + (self._moment.slowdown(LEARNER) - 1.0) * cpu_seconds
        while thread_time() < until:
            pass

    def close(self) -> None:
        """End all disturbers, and have everything go on. Safe to call twice."""
        for name in list(self._stopped):
            self._go_on(name)
        for key in list(self._helpers):
            self._end(key)
