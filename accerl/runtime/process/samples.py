"""SampleRing: recorded states on their way to the compressor's process, in shared memory."""

from __future__ import annotations

from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np

from accerl.acting.rollout import release
from accerl.networks.observation import ObservationSpec


class SampleRing:
    """The newest `capacity` states that the learner's process has put there.

    Writer and reader take turns: between `lend` and the reader's word that it has copied what was
    lent, the writer adds nothing (`add` is then without effect: the next rollout has states too).
    """

    def __init__(
        self, observation: ObservationSpec, capacity: int, name: str | None = None
    ) -> None:
        self._observation = observation
        self._capacity = capacity
        self._owner = name is None
        size = capacity * observation.size_bytes
        self._segment: SharedMemory | None = (
            SharedMemory(create=True, size=size) if name is None else SharedMemory(name=name)
        )
        shape = (capacity, *observation.shape)
        self._states = np.ndarray(shape, observation.dtype, self._segment.buf)
        self._next = 0
        self._fresh = 0  # states that were not lent yet
        self._lent = False

    def handle(self) -> dict[str, Any]:
        """Return what another process needs for `SampleRing(**handle)`."""
        assert self._segment is not None
        name = self._segment.name
        return {"observation": self._observation, "capacity": self._capacity, "name": name}

    def add(self, states: np.ndarray) -> None:
        """Copy states [N, *shape] into the ring, over the oldest."""
        if self._lent:
            return
        states = states[-self._capacity :]
        first = min(len(states), self._capacity - self._next)
        self._states[self._next : self._next + first] = states[:first]
        self._states[: len(states) - first] = states[first:]
        self._next = (self._next + len(states)) % self._capacity
        self._fresh = min(self._fresh + len(states), self._capacity)

    def lend(self) -> tuple[int, int]:
        """Return (index, number) of the states that were added since the last call."""
        span = ((self._next - self._fresh) % self._capacity, self._fresh)
        self._fresh = 0
        self._lent = True
        return span

    def returned(self) -> None:
        """The reader has copied what was lent, or is dead."""
        self._lent = False

    def lent(self, index: int, number: int) -> np.ndarray:
        """Return a copy of lent states [number, *shape], oldest first: the reader's side."""
        return self._states[(index + np.arange(number)) % self._capacity]

    def close(self) -> None:
        """Let go of the memory; the owner also removes it. Safe to call twice."""
        if self._segment is None:
            return
        self._states = np.empty(0)
        release(self._segment, unlink=self._owner)
        self._segment = None
