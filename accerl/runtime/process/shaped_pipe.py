"""ShapedPipe: a link between learner and actors, where in truth there is shared memory.

Shared memory has no bandwidth, so whoever sends waits as long as the bytes would take. A link has
two directions, and each carries so many bytes a second, whoever sends: publications go down one
after the other, and of k actors that send rollouts up each has 1 / k of it. When the bandwidth
changes, what is on its way goes on with the new one.

An actor fills its next slots while the last one is on its way (`Uplink`), as with a network card.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from multiprocessing.shared_memory import SharedMemory
from queue import SimpleQueue
from threading import Thread
from time import perf_counter, sleep
from typing import Any

import numpy as np

from accerl.acting.rollout import RolloutShape, release
from accerl.runtime.process.wire import PeerGoneError

LOOK_SECONDS = 0.002
"""between two looks at the bandwidth that is left, and at who else sends"""
NO_SLOT = -1


class ShapedPipe:
    """Both directions, as the process of the learner made them and others opened them.

    Args:
        down_bytes_per_second: what all actors together can receive; 0: any number.
        up_bytes_per_second: what all actors together can send; 0: any number.
        actors: that may send.
        name: of the block that another process has made; None makes it.
    """

    def __init__(
        self,
        down_bytes_per_second: float,
        up_bytes_per_second: float,
        actors: int,
        name: str | None = None,
    ) -> None:
        self._down, self._up = down_bytes_per_second, up_bytes_per_second
        self._owner = name is None
        size = 8 * (1 + 2 * actors)
        self._segment: SharedMemory | None = (
            SharedMemory(create=True, size=size) if name is None else SharedMemory(name=name)
        )
        self._words = np.ndarray((1 + 2 * actors,), np.float64, self._segment.buf)
        self._sending, self._filling = np.split(self._words[1:], 2)
        if name is None:
            self._words[0], self._sending[:], self._filling[:] = 1.0, 0.0, NO_SLOT

    def handle(self) -> dict[str, Any]:
        """Return what another process needs for `ShapedPipe(**handle)`."""
        assert self._segment is not None
        return {
            "down_bytes_per_second": self._down,
            "up_bytes_per_second": self._up,
            "actors": len(self._sending),
            "name": self._segment.name,
        }

    def leave(self, share: float) -> None:
        """Have that share of the bandwidth be left from now on: the learner's process."""
        self._words[0] = share

    def forget(self, actor: int) -> None:
        """Take an actor as sending nothing: its process was stopped or has died."""
        self._sending[actor] = 0.0

    def fills(self, actor: int, slot: int = NO_SLOT) -> None:
        """Note which slot an actor is filling now: the actor's process."""
        self._filling[actor] = slot

    def filled_by(self, actor: int) -> int:
        """Return the slot that an actor is filling; `NO_SLOT`: none."""
        return int(self._filling[actor])

    def send_down(self, size_bytes: float) -> None:
        """Return when so many bytes have reached the actors."""
        left = size_bytes / self._down if self._down else 0.0
        while left > 0.0:
            left -= self._wait(left, float(self._words[0]))

    def send_up(
        self, actor: int, size_bytes: float, given_up: Callable[[], bool] = lambda: False
    ) -> bool:
        """Return when an actor's bytes have reached the learner, or sending them was given up.

        Returns:
            whether they have reached it.
        """
        left = size_bytes / self._up if self._up else 0.0
        while left > 0.0 and not given_up():
            self._sending[actor] = 1.0  # again and again: it may have been forgotten meanwhile
            senders = max(float(self._sending.sum()), 1.0)
            left -= self._wait(left, float(self._words[0]) / senders)
        self._sending[actor] = 0.0
        return left <= 0.0

    def _wait(self, left: float, rate: float) -> float:
        """Wait a moment; return the seconds of sending at full bandwidth that have passed in it."""
        before = perf_counter()
        sleep(min(left / rate, LOOK_SECONDS))
        return (perf_counter() - before) * rate

    def close(self) -> None:
        """Let go of the memory; the owner also removes it. Safe to call twice."""
        if self._segment is None:
            return
        self._words = self._sending = self._filling = np.empty(0)
        release(self._segment, unlink=self._owner)
        self._segment = None


class Uplink:
    """Sends what an actor has filled up the pipe, one rollout after the other, while it acts.

    Args:
        pipe: that others may use too.
        actor: who sends.
        size_bytes: of a rollout.
        arrived: called with the number of each slot that has reached the learner.
    """

    def __init__(
        self, pipe: ShapedPipe, actor: int, size_bytes: float, arrived: Callable[[int], None]
    ) -> None:
        self._pipe, self._actor, self._size_bytes = pipe, actor, size_bytes
        self._arrived = arrived
        self._filled: SimpleQueue[int | None] = SimpleQueue()
        self._closed = False
        self._thread = Thread(target=self._send_all, name=f"uplink-{actor}", daemon=True)
        self._thread.start()

    def send(self, slot: int) -> None:
        """Send a slot when all before it have arrived; returns at once."""
        self._filled.put(slot)

    def _send_all(self) -> None:
        with suppress(PeerGoneError):  # which the actor finds out when it next receives
            while (slot := self._filled.get()) is not None:
                if self._pipe.send_up(self._actor, self._size_bytes, lambda: self._closed):
                    self._arrived(slot)

    def close(self) -> None:
        """Give up what is on its way. Safe to call twice."""
        self._closed = True
        self._filled.put(None)
        self._thread.join()


def rollout_bytes(shape: RolloutShape) -> float:
    """Return what a rollout's states take on a link; of stacked images each frame counts once."""
    state = np.dtype(shape.observation.dtype).itemsize * float(np.prod(shape.observation.shape))
    return shape.samples * state / shape.observation.frames
