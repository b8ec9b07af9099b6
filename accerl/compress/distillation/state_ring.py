"""StateRing: the newest states of all rollouts, each frame stored once, for everybody who distils.

A state of an Atari game is a stack of four frames, three of which the state before it holds too.
The ring stores each frame once, so that 16,384 states take 145 MB instead of 462. The learner's
process writes, the others read the same memory: no state goes through a pipe.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from multiprocessing.shared_memory import SharedMemory
from typing import Any, NamedTuple

import numpy as np
import torch

from accerl.acting.rollout import release
from accerl.networks.frames import new_frames
from accerl.networks.observation import ObservationSpec

FRAMES_PER_STATE = 1.25
"""room for the whole stacks with which rollouts and episodes begin"""
HELD_OUT = 16
"""every 16th state is kept for comparing: nobody learns from it"""
CHECKPOINT_BYTES = 32 << 20
"""of the newest states that a checkpoint holds: all of them in small games"""
_HEADER = ("states", "states_claimed", "frames", "frames_claimed", "first")
_STATES, _STATES_CLAIMED, _FRAMES, _FRAMES_CLAIMED, _FIRST = range(len(_HEADER))


class StateBatch(NamedTuple):
    """States, with what the learner made of them when it used them."""

    obs: np.ndarray  # [N, *shape]
    logits: np.ndarray  # [N, A] float32, the learner's
    version: np.ndarray  # [N] int64, learner updates when it put them out


class StateRing:
    """Holds the newest states; they are numbered from 0 in the order in which they came.

    One process adds; any number read. A reader copies first and looks afterwards whether the
    writer has claimed that memory meanwhile, so what it returns was never written over (on x86;
    see `SharedBlock` for what that relies on).
    """

    def __init__(
        self,
        observation: ObservationSpec,
        num_actions: int,
        capacity: int,
        name: str | None = None,
        *,
        shared: bool = False,
    ) -> None:
        """Make an empty ring, or open one.

        Args:
            observation: of the states.
            num_actions: A.
            capacity: states that are kept.
            name: of the memory of a ring that another process has made.
            shared: whether other processes are to open it.
        """
        self.observation = observation
        self.num_actions = num_actions
        self.capacity = capacity
        self.stack = observation.frames
        fields = _fields(observation, num_actions, capacity)
        self._frames_kept = fields["frames"][0][0]
        self._owner = name is None
        self._segment: SharedMemory | None = None
        buffer: Any = None
        if name is not None:
            self._segment = SharedMemory(name=name)
        elif shared:
            self._segment = SharedMemory(create=True, size=self.size_bytes)
        if self._segment is not None:
            buffer = self._segment.buf
        self._arrays: dict[str, np.ndarray] = {}
        offset = 0
        for field, (shape, dtype) in fields.items():
            # Fresh memory is zeros either way, and is taken from the machine when it is written to.
            self._arrays[field] = (
                np.zeros(shape, dtype)
                if buffer is None
                else np.ndarray(shape, dtype, buffer, offset)
            )
            offset += _aligned(math.prod(shape) * dtype.itemsize)
        self._header = self._arrays["header"]

    @property
    def size_bytes(self) -> int:
        """Memory that a full ring takes."""
        return ring_bytes(self.observation, self.num_actions, self.capacity)

    def handle(self) -> dict[str, Any]:
        """Return what another process needs for `StateRing(**handle)`."""
        assert self._segment is not None
        return {
            "observation": self.observation,
            "num_actions": self.num_actions,
            "capacity": self.capacity,
            "name": self._segment.name,
        }

    @property
    def total(self) -> int:
        """States that were ever added."""
        return int(self._header[_STATES])

    @property
    def first(self) -> int:
        """Number of the oldest state that is there."""
        return int(self._header[_FIRST])

    def __len__(self) -> int:
        return self.total - self.first

    def add(self, obs: np.ndarray, logits: np.ndarray, version: int) -> None:
        """Add the states of a rollout, environment by environment.

        Args:
            obs: [T, B, *shape], consecutive steps; a stack that does not continue the one before
                it (a new episode) is stored whole.
            logits: [T, B, A] of the learner.
            version: its updates when it put them out.

        Raises:
            ValueError: the rollout is larger than the ring.
        """
        steps, envs = obs.shape[:2]
        pieces = obs.reshape(steps, envs, self.stack, -1)
        is_new = new_frames(pieces)
        by_env = is_new.transpose(1, 0, 2)  # [B, T, stack]
        count, states = int(is_new.sum()), steps * envs
        if count > self._frames_kept or states > self.capacity:
            raise ValueError(f"a rollout of {states} states does not fit a ring of {self.capacity}")
        start = int(self._header[_FRAMES])
        last = start - 1 + np.cumsum(by_env, dtype=np.int64).reshape(by_env.shape)[:, :, -1]
        self._claim(states, start + count)
        frames = pieces.transpose(1, 0, 2, 3)[by_env]
        _write(self._arrays["frames"], start, frames)
        number = self.total
        _write(self._arrays["last_frame"], number, last.reshape(-1))
        _write(self._arrays["version"], number, np.full(states, version, np.int64))
        _write(self._arrays["logits"], number, logits.transpose(1, 0, 2).reshape(states, -1))
        self._header[_FRAMES] = start + count
        self._header[_STATES] = number + states

    def _claim(self, states: int, frames: int) -> None:
        """Let go of the states that what is about to be written takes the place of."""
        total = self.total + states
        first = max(self.first, total - self.capacity)
        while first < self.total and self._oldest_frame(first) < frames - self._frames_kept:
            first += 1
        self._header[_FIRST] = min(first, self.total)
        self._header[_STATES_CLAIMED], self._header[_FRAMES_CLAIMED] = total, frames

    def _oldest_frame(self, number: int) -> int:
        return int(self._arrays["last_frame"][number % self.capacity]) - self.stack + 1

    def draw(self, count: int, generator: torch.Generator) -> StateBatch:
        """Return `count` states at random, none of those that are held out.

        Raises:
            LookupError: the ring is empty.
        """

        def numbers() -> np.ndarray:
            first, total = self.first, self.total
            if first == total:
                raise LookupError("no state was recorded yet")
            drawn = torch.randint(first, total, (count,), generator=generator).numpy()
            moved = drawn + (drawn % HELD_OUT == 0)
            return np.where(moved < total, moved, drawn - 1 if total - first > 1 else drawn)

        while True:
            batch = self.take(numbers())
            if batch is not None:
                return batch

    def held_out(self, count: int) -> StateBatch | None:
        """Return the newest states that nobody learns from; None if there are none.

        Args:
            count: how many at most.
        """
        while True:
            newest = (self.total - 1) // HELD_OUT * HELD_OUT
            numbers = newest - HELD_OUT * np.arange(count)
            numbers = numbers[numbers >= self.first]
            if len(numbers) == 0:
                return None
            batch = self.take(numbers)
            if batch is not None:
                return batch

    def take(self, numbers: np.ndarray) -> StateBatch | None:
        """Return these states; None if one of them is not there, or was written over meanwhile."""
        slots = numbers % self.capacity
        last = self._arrays["last_frame"][slots]
        wanted = (last[:, None] - np.arange(self.stack - 1, -1, -1)) % self._frames_kept
        obs = self._arrays["frames"][wanted].reshape(len(numbers), *self.observation.shape)
        batch = StateBatch(obs, self._arrays["logits"][slots], self._arrays["version"][slots])
        oldest, newest = int(numbers.min()), int(numbers.max())
        kept = oldest >= int(self._header[_STATES_CLAIMED]) - self.capacity and newest < self.total
        whole = (
            int(last.min()) - self.stack + 1
            >= int(self._header[_FRAMES_CLAIMED]) - self._frames_kept
        )
        return batch if kept and whole else None

    def state_dict(self) -> dict[str, Any]:
        """Return the newest states, as many as a checkpoint holds, as a plain tree."""
        frame_bytes = self._arrays["frames"][0].nbytes
        most = max(int(CHECKPOINT_BYTES / (frame_bytes * FRAMES_PER_STATE)), 1)
        total, frames = self.total, int(self._header[_FRAMES])
        first = max(self.first, total - most)
        numbers = np.arange(first, total)
        oldest = self._oldest_frame(first) if len(numbers) else frames
        kept = np.arange(oldest, frames)
        return {
            "first": first,
            "total": total,
            "frames_total": frames,
            "frames": self._arrays["frames"][kept % self._frames_kept],
            **{
                name: self._arrays[name][numbers % self.capacity]
                for name in ("last_frame", "version", "logits")
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Hold what `state_dict` returned."""
        frames = np.asarray(state["frames"])
        total, end = int(state["total"]), int(state["frames_total"])
        _write(self._arrays["frames"], end - len(frames), frames)
        for name in ("last_frame", "version", "logits"):
            _write(self._arrays[name], int(state["first"]), np.asarray(state[name]))
        self._header[:] = (total, total, end, end, int(state["first"]))

    def close(self) -> None:
        """Let go of the memory; the owner also removes it. Safe to call twice."""
        if self._segment is None:
            return
        self._arrays, self._header = {}, np.zeros(len(_HEADER), np.int64)
        release(self._segment, unlink=self._owner)
        self._segment = None


def kept_states(observation: ObservationSpec, wanted: int, samples: int) -> int:
    """Return how many states a ring must hold so that every rollout fits into it.

    That is two rollouts at least: old states are dropped before new ones are written, and readers
    need others meanwhile.

    Args:
        observation: of the states; of a stack, all frames may be new.
        wanted: states, at least.
        samples: states of a rollout.
    """
    return max(wanted, samples * max(observation.frames, 2))


def ring_bytes(observation: ObservationSpec, num_actions: int, capacity: int) -> int:
    """Return the memory that a full ring of so many states takes."""
    fields = _fields(observation, num_actions, capacity).values()
    return sum(_aligned(math.prod(shape) * dtype.itemsize) for shape, dtype in fields)


def _fields(
    observation: ObservationSpec, num_actions: int, capacity: int
) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Return shape and type of each array of a ring."""
    stack = observation.frames
    frames = math.ceil(capacity * FRAMES_PER_STATE) if stack > 1 else capacity
    return {
        "header": ((len(_HEADER),), np.dtype(np.int64)),
        "last_frame": ((capacity,), np.dtype(np.int64)),
        "version": ((capacity,), np.dtype(np.int64)),
        "logits": ((capacity, num_actions), np.dtype(np.float32)),
        "frames": ((frames, math.prod(observation.shape) // stack), np.dtype(observation.dtype)),
    }


def _write(ring: np.ndarray, number: int, values: np.ndarray) -> None:
    """Write `values` from place `number` on; what reaches the end goes on at the beginning."""
    start = number % len(ring)
    first = min(len(values), len(ring) - start)
    ring[start : start + first] = values[:first]
    ring[: len(values) - first] = values[first:]


def _aligned(size: int) -> int:
    return -(-size // 64) * 64
