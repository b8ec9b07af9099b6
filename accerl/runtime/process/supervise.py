"""Supervision of a run's processes: start, notice death, start again, give up, end."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import types
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from time import monotonic
from typing import Any

from accerl.errors import GameError, UserError
from accerl.runtime.events import RunEvent
from accerl.runtime.machine.cores import LearnersCores
from accerl.runtime.machine.forks import SPAWN, call_in, for_torch, surroundings
from accerl.runtime.process.messages import Message, Mistake, Ready
from accerl.runtime.process.wire import Channel, PeerGoneError

MAX_DEATHS = 5
"""deaths of processes, whatever their roles, within WINDOW_SECONDS that end a run; so do as many of
one process that finishes nothing in between, however far apart"""
WINDOW_SECONDS = 60.0
RESUME = "the run goes on from its checkpoint (--resume), if it has a folder"
START_UP_SECONDS = 120.0
"""a process that is not ready by then hangs"""

Body = Callable[..., None]
"""what a process does: called with its channel and its arguments; importable by name"""


ASKS_THE_GROUP = (signal.SIGINT, signal.SIGHUP)
"""signals that a terminal sends to the whole process group: Ctrl-C, and that it was closed"""


def start_tracker() -> None:
    """Start Python's tracker of shared memory; a closed terminal does not end it.

    A process that makes shared memory calls it before.
    """
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        resource_tracker.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


@contextmanager
def ignoring_interrupts() -> Iterator[None]:
    """Keep Ctrl-C from processes that are started meanwhile; this one hears of it afterwards.

    Ctrl-C reaches the whole process group, as does the end of its terminal; the parent decides when
    its children end. A signal that is blocked stays so across fork and exec.
    """
    start_tracker()  # it unblocks Ctrl-C where it starts its own process
    heard: list[int] = []
    # Another thread of C may be given the signal, which the handler then hears of all the same.
    is_main = threading.current_thread() is threading.main_thread()
    handlers = {}
    if is_main:
        for sign in ASKS_THE_GROUP:
            handlers[sign] = signal.signal(sign, lambda number, _: heard.append(number))
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ASKS_THE_GROUP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for sign, handler in handlers.items():
            signal.signal(sign, handler)
    for sign in dict.fromkeys(heard):
        signal.raise_signal(sign)


def leave_interrupts() -> None:
    """Have this process go on when its group is asked to end: its parent decides.

    The signals were blocked until now, see `ignoring_interrupts`; libraries may unblock them.
    """
    for sign in ASKS_THE_GROUP:
        signal.signal(sign, signal.SIG_IGN)


_HIDING = threading.Lock()
"""held while the main module is hidden: another thread's would be lost"""


@contextmanager
def hiding_main_module() -> Iterator[None]:
    """Keep spawned processes from importing the program that started them.

    They would import all of it (torch, Optuna, a user's script without a main guard) before
    they do anything; what they run is found by its own module's name.
    """
    with _HIDING:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


def end_with_parent() -> None:
    """End this process as soon as its parent is dead: a game that never returns reads no pipe."""
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def process_main(body: Body, channel: Channel, arguments: tuple[Any, ...]) -> None:
    """Run `body` until it returns or the parent has closed its end; the parent's death ends it."""
    leave_interrupts()
    end_with_parent()
    try:
        with suppress(PeerGoneError):
            body(channel, *arguments)
    except UserError as error:  # a mistake of the user's is no death: the parent shall say it
        with suppress(PeerGoneError):  # it no longer listens, as at the end of a run
            channel.send(Mistake(str(error), getattr(error, "details", None)))
    sys.stderr.flush()
    os._exit(0)  # the body has tidied up; taking torch down would last longer than a second


class Supervised(ABC):
    """What a `Supervisor` watches: a process, wherever it runs."""

    slow_start = "is the machine out of memory or overloaded?"
    """what to look at where it does not get ready"""

    def __init__(self, role: str, index: int | None) -> None:
        """Name it, such as ``actor-0``; roles that exist once have no index."""
        self.role = role
        self.index = index
        self.name = role if index is None else f"{role}-{index}"
        self.restarts = 0
        self.ready = False

    @abstractmethod
    def start(self) -> None:
        """Start it; it gets ready by itself."""

    @abstractmethod
    def end(self, patience_seconds: float = 2.0) -> int | None:
        """End it, whatever it does; return its exit code, if that is known."""


class Worker(Supervised):
    """One process of this machine, and its pipe."""

    def __init__(
        self,
        role: str,
        index: int | None,
        body: Body,
        arguments: Callable[[int], tuple[Any, ...]],
    ) -> None:
        """Describe the process; `arguments` is called with the number of restarts so far."""
        super().__init__(role, index)
        self._body = body
        self._arguments = arguments
        self._process: Any = None
        self.channel: Channel

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    def start(self) -> None:
        """Start the process; it says by a message that it is `Ready`."""
        # Actors import no torch, and are small without.
        context = SPAWN if self.role == "actor" else for_torch()
        ours, theirs = context.Pipe()
        self.channel = Channel(ours)
        arguments = self._body, Channel(theirs), self._arguments(self.restarts)
        process = context.Process(
            target=call_in,
            args=(surroundings(context), process_main, *arguments),
            daemon=True,
            name=f"accerl-{self.name}",
        )
        with ignoring_interrupts(), hiding_main_module():
            try:
                process.start()
            except EOFError as error:
                raise UserError(
                    "the process that imports torch for the others died at its start; is the "
                    "machine out of memory? Its message is above"
                ) from error
            self._process = process
            theirs.close()
            self.ready = False

    def send(self, message: Message) -> None:
        """Send a message; if nobody is there to read it, `receive` will say so."""
        try:
            self.channel.send(message)
        except PeerGoneError:
            return  # what it had sent before it died is still to be read, in order

    def receive(self) -> Message:
        """Return the next message.

        Raises:
            PeerGoneError: the process has died.
            UserError: it has found a mistake of the user's.
            GameError: its environments have failed.
        """
        message = self.channel.receive()
        if isinstance(message, Mistake):
            if message.details is not None:
                raise GameError(f"{self.name}: {message.text}", message.details)
            raise UserError(message.text)
        if isinstance(message, Ready):
            self.ready = True
        return message

    def hang_up(self) -> None:
        """Close the pipe, upon which the process ends when it next looks at it."""
        if self._process is not None:
            self.channel.close()

    def end(self, patience_seconds: float = 2.0) -> int | None:
        """End the process: ask by closing the pipe, then insist; return its exit code.

        It is safe to call twice, and without a start.
        """
        if self._process is None:
            return None
        self.hang_up()
        self._process.join(patience_seconds)
        for insist in (self._process.terminate, self._process.kill):
            if self._process.is_alive():
                insist()
                self._process.join(1.0)
        self._process.join()
        exit_code = self._process.exitcode
        self._process.close()  # its descriptors too
        self._process = None
        self.ready = False
        return exit_code


class Supervisor:
    """Replaces processes that die or never get ready, until too many do; keeps the events.

    Raises:
        UserError: `max_deaths` within `WINDOW_SECONDS` of `clock`, or of one process that finished
            nothing in between; or a process that did not get ready twice in a row.
    """

    def __init__(
        self,
        *,
        max_deaths: int = MAX_DEATHS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.max_deaths = max_deaths
        self._cores: LearnersCores | None = None
        self._clock = clock
        self._deaths: deque[float] = deque()
        self._in_a_row: Counter[str] = Counter()  # deaths since it last finished work
        self._started: dict[str, float] = {}
        self._hung: set[str] = set()
        self._events: list[RunEvent] = []

    def pin(self, threads: int) -> None:
        """Keep this thread on the last `threads` cores, and actors that are started off them."""
        self._cores = LearnersCores(threads)

    def unpin(self) -> None:
        """Let this thread run anywhere again."""
        if self._cores is not None:
            self._cores.release()
            self._cores = None

    def start(self, worker: Supervised) -> None:
        """Start a process and watch it from now on."""
        with nullcontext() if self._cores is None else self._cores.place(worker.role):
            worker.start()
        self._started[worker.name] = self._clock()

    def await_ready(self, worker: Supervised) -> None:
        """Have a process say anew, within the time of a start, that it is ready."""
        worker.ready = False
        self._started[worker.name] = self._clock()

    def worked(self, worker: Supervised) -> None:
        """Note that a process has finished a piece of its work."""
        self._in_a_row.pop(worker.name, None)

    def hangs(self, worker: Supervised) -> bool:
        """Whether a process should have become ready by now."""
        if worker.ready:
            self._hung.discard(worker.name)
            return False
        return self._clock() - self._started[worker.name] > START_UP_SECONDS

    def replace(
        self,
        worker: Supervised,
        *,
        seconds: float,
        recovered: str,
        found: str = "",
        stuck: str = "",
        counts: bool = True,
    ) -> None:
        """Start a new process in place of one that died or hangs.

        Args:
            worker: what to replace.
            seconds: the run's clock, for the event.
            recovered: what was done besides, in words.
            found: what it died of, where there is no exit code.
            stuck: what it did instead of its work, if it lives.
            counts: whether it is a death of its own, and not one of several that a node's death
                brought about.
        """
        hangs = self.hangs(worker)
        exit_code = worker.end(patience_seconds=0.0 if hangs or stuck else 2.0)
        cause = stuck or f"died ({found or f'exit code {exit_code}'})"
        if hangs:
            cause = f"was not ready after {START_UP_SECONDS:.0f} seconds"
            if worker.name in self._hung:
                raise UserError(
                    f"{worker.name} {cause}, twice in a row; {worker.slow_start} When that is "
                    f"solved, {RESUME}"
                )
            self._hung.add(worker.name)
        now = self._clock()
        if counts and not hangs:  # several may start slowly at once
            self._deaths.append(now)
            self._in_a_row[worker.name] += 1
        while self._deaths and now - self._deaths[0] > WINDOW_SECONDS:
            self._deaths.popleft()
        if len(self._deaths) >= self.max_deaths:
            raise UserError(
                f"{len(self._deaths)} processes died within {WINDOW_SECONDS:.0f} seconds; "
                f"the last: {worker.name} {cause}; their messages are above; when that is solved, "
                f"{RESUME}"
            )
        if self._in_a_row[worker.name] >= self.max_deaths:
            raise UserError(
                f"{worker.name} failed {self._in_a_row[worker.name]} times in a row and finished "
                f"nothing in between; the last time it {cause}; its messages are above; when that "
                f"is solved, {RESUME}"
            )
        worker.restarts += 1
        self.start(worker)
        action = f"started it again, {recovered}"
        print(f"{worker.name} {cause}; {action}", file=sys.stderr)
        self._events.append(
            RunEvent(
                role=worker.role,
                index=worker.index,
                exit_code=exit_code,
                seconds=seconds,
                cause=cause,
                action=action,
            )
        )

    def take_events(self) -> tuple[RunEvent, ...]:
        """Return the events since the last call."""
        events, self._events = tuple(self._events), []
        return events
