"""Supervision of actor processes: start, notice death, start again, end."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import torch

from accerl.actor import Actor
from accerl.envs import make_envs
from accerl.errors import UserError
from accerl.rollout import Slab
from accerl.weights import Mailbox

# Never fork: torch and ONNX Runtime hold threads that a fork would leave in mid-step.
_SPAWN = multiprocessing.get_context("spawn")


@contextmanager
def ignoring_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C meanwhile: processes that are started inherit it from their first moment on.

    Ctrl-C reaches the whole process group; the parent decides when its children end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def actor_main(
    pipe: Connection,
    slab_handle: dict[str, Any],
    mailbox_handle: dict[str, Any],
    game: str,
    seed: int,
    threads: int,
) -> None:
    """Body of an actor process: receive a slot number, fill the slot, send the number back.

    It ends when its pipe closes, which also happens when the learner's process dies.
    """
    torch.set_num_threads(threads)
    slab = Slab(**slab_handle)
    mailbox = Mailbox(**mailbox_handle)
    try:
        actor = Actor(make_envs(game, slab.shape.num_envs), seed, threads=threads)
        pipe.send(None)  # ready
        while True:
            slot = pipe.recv()
            if mailbox.latest != actor.publication_number:
                actor.load(mailbox.get())
            actor.collect(slab[slot])
            pipe.send(slot)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the learner has closed its end
    finally:
        mailbox.close()
        slab.close()


class ActorProcess:
    """One actor process, its pipe, and the slots that are on its side of it."""

    MAX_RESTARTS = 5

    def __init__(self, index: int, slots: list[int], arguments: tuple[Any, ...], seed: int) -> None:
        self.index = index
        self.slots = slots
        self.restarts = 0
        self._arguments = arguments
        self._seed = seed
        self._start()

    def _start(self) -> None:
        slab_handle, mailbox_handle, game, threads = self._arguments
        self.pipe, theirs = _SPAWN.Pipe()
        # A restarted actor must not replay the episodes of the one that died.
        seed = self._seed + 500 * self.restarts
        self.process = _SPAWN.Process(
            target=actor_main,
            args=(theirs, slab_handle, mailbox_handle, game, seed, threads),
            daemon=True,
            name=f"accerl-actor-{self.index}",
        )
        with ignoring_interrupts():
            self.process.start()
        theirs.close()
        self.ready = False

    def send_free(self, slots: list[int]) -> None:
        """Give slots to the actor to fill, in order."""
        for slot in slots:
            self.pipe.send(slot)

    def receive(self) -> int | None:
        """Return the number of a slot that was filled, or None when the actor became ready.

        Raises:
            EOFError: the process has died.
        """
        slot = self.pipe.recv()
        if slot is None:
            self.ready = True
        return slot

    def restart(self) -> int | None:
        """Start a new process in place of a dead one; return the exit code of the old one.

        Raises:
            UserError: it keeps dying.
        """
        self.end()
        exit_code = self.process.exitcode
        self.restarts += 1
        if self.restarts > self.MAX_RESTARTS:
            raise UserError(
                f"actor {self.index} died {self.restarts} times (last exit code {exit_code}); its "
                "messages are above; when that is solved, --resume goes on from the checkpoint"
            )
        self._start()
        return exit_code

    def end(self, patience_seconds: float = 2.0) -> None:
        """End the process: ask by closing the pipe, then insist."""
        self.pipe.close()
        self.process.join(patience_seconds)
        if self.process.is_alive():
            self.process.terminate()
            self.process.join(1.0)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
