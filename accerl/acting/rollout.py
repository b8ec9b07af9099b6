"""Rollout: what actors hand to the learner; Slab: shared memory that holds many of them."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, fields
from multiprocessing.shared_memory import SharedMemory
from typing import TYPE_CHECKING, Any

import numpy as np

from accerl.networks.observation import ObservationSpec

if TYPE_CHECKING:
    from accerl.envs import Envs

POISON_BYTE = 0xA5  # a fresh slab is filled with it, so that reading unwritten memory shows


@dataclass(frozen=True, kw_only=True)
class RolloutShape:
    """Sizes of one rollout: T steps of B environments with A actions."""

    unroll: int
    num_envs: int
    num_actions: int
    observation: ObservationSpec

    @classmethod
    def of(cls, envs: Envs, unroll: int) -> RolloutShape:
        """Return the sizes of `unroll` steps of these environments."""
        return cls(
            unroll=unroll,
            num_envs=envs.num_envs,
            num_actions=envs.num_actions,
            observation=envs.observation,
        )

    @property
    def samples(self) -> int:
        """Transitions in one rollout, T * B."""
        return self.unroll * self.num_envs

    @property
    def size_bytes(self) -> int:
        """What one rollout takes in memory."""
        return sum(math.prod(size) * dtype.itemsize for size, dtype in self.fields().values())

    def fields(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Return shape and type of each array of a `Rollout`."""
        t, b = self.unroll, self.num_envs
        obs = np.dtype(self.observation.dtype)
        return {
            "obs": ((t + 1, b, *self.observation.shape), obs),
            "action": ((t, b), np.dtype(np.int64)),
            "reward": ((t, b), np.dtype(np.float32)),
            "terminated": ((t, b), np.dtype(np.bool_)),
            "truncated": ((t, b), np.dtype(np.bool_)),
            "life_lost": ((t, b), np.dtype(np.bool_)),
            "logits": ((t, b, self.num_actions), np.dtype(np.float32)),
            "log_prob": ((t, b), np.dtype(np.float32)),
            "episode_return": ((t, b), np.dtype(np.float32)),
            "header": ((len(HEADER),), np.dtype(np.float64)),
        }


HEADER = (
    "publication",
    "spec_index",
    "env_seconds",
    "infer_seconds",
    "write_seconds",
    "core_seconds",
)
"""the last: processor seconds of the actor's process in these; fewer where it had to share"""
ACTING_SECONDS = slice(2, 5)
"""where env, infer and write are in a header"""
CORE_SECONDS = 5
"""where the processor seconds are in it"""


@dataclass(frozen=True)
class Rollout:
    """Arrays [T, B, ...] of one unroll; logits and log_prob are what the acting engine produced."""

    obs: np.ndarray  # [T + 1, B, *shape]; the last row bootstraps
    action: np.ndarray  # [T, B] int64
    reward: np.ndarray  # [T, B] float32, raw game score
    terminated: np.ndarray  # [T, B] bool
    truncated: np.ndarray  # [T, B] bool
    life_lost: np.ndarray  # [T, B] bool, the game goes on
    logits: np.ndarray  # [T, B, A] float32, of the compressed engine that acted
    log_prob: np.ndarray  # [T, B] float32, log mu(action), from the same logits
    episode_return: np.ndarray  # [T, B] float32, score of an episode that ended here, else NaN
    header: np.ndarray  # [len(HEADER)] float64, see HEADER

    @classmethod
    def allocate(cls, shape: RolloutShape) -> Rollout:
        """Return a rollout in ordinary memory."""
        return cls(
            **{name: np.zeros(size, dtype) for name, (size, dtype) in shape.fields().items()}
        )

    @property
    def publication(self) -> int:
        """Number of the publication whose engine acted."""
        return int(self.header[0])

    @property
    def spec_index(self) -> int:
        """Which spec of that publication's mix acted."""
        return int(self.header[1])

    def returns(self) -> list[float]:
        """Return the scores of episodes that ended in this rollout, in time order."""
        scores = self.episode_return
        return scores[scores == scores].tolist()  # NaN is not equal to itself

    def copy(self) -> Rollout:
        """Return a copy in ordinary memory."""
        return Rollout(**{name: array.copy() for name, array in self.state_dict().items()})

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the arrays by name (not copied)."""
        return {item.name: getattr(self, item.name) for item in fields(self)}


class Slab:
    """`slots` rollouts in shared memory, one segment per field; processes exchange slot numbers.

    The creating process owns the segments and unlinks them in `close`.
    """

    def __init__(
        self, shape: RolloutShape, slots: int, names: dict[str, str] | None = None
    ) -> None:
        self.shape = shape
        self.slots = slots
        self._owner = names is None
        self._segments: dict[str, SharedMemory] = {}
        arrays: dict[str, np.ndarray] = {}
        for name, (size, dtype) in shape.fields().items():
            count = int(np.prod((slots, *size)))
            if names is None:
                segment = SharedMemory(create=True, size=max(count * dtype.itemsize, 1))
                np.ndarray((segment.size,), np.uint8, segment.buf)[:] = POISON_BYTE
            else:
                segment = SharedMemory(name=names[name])
            self._segments[name] = segment
            arrays[name] = np.ndarray((slots, *size), dtype, buffer=segment.buf)
        self._rollouts: list[Rollout] = [
            Rollout(**{name: array[slot] for name, array in arrays.items()})
            for slot in range(slots)
        ]

    def __getitem__(self, slot: int) -> Rollout:
        return self._rollouts[slot]

    def handle(self) -> dict[str, Any]:
        """Return what another process needs for `Slab(**handle)`."""
        names = {name: segment.name for name, segment in self._segments.items()}
        return {"shape": self.shape, "slots": self.slots, "names": names}

    def close(self) -> None:
        """Let go of the memory; the owner also removes it. Safe to call twice."""
        self._rollouts = []
        for segment in self._segments.values():
            release(segment, unlink=self._owner)
        self._segments = {}


def release(segment: SharedMemory, *, unlink: bool) -> None:
    """Close a segment, and remove it when `unlink`."""
    # While an exception unwinds, its frames may still view the memory: the mapping then goes with
    # them, and the name, which is what would leak, is removed all the same.
    with contextlib.suppress(BufferError):
        segment.close()
    if unlink:
        segment.unlink()
