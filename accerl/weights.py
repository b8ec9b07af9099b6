"""Published weights: versioned shared memory from which torn reads are impossible.

Two things are published. The learner's process puts its full-precision weights, as one flat vector
(`WeightVector`), where the compressor and the evaluator find them; whoever compresses puts the
artifacts (`Mailbox`), where actors find them. Both are a `SharedBlock`.
"""

from __future__ import annotations

import json
import platform
import struct
import zlib
from collections.abc import Callable, Sequence
from multiprocessing.shared_memory import SharedMemory
from time import sleep
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from accerl.acting.rollout import release
from accerl.compress.artifact import Artifact
from accerl.errors import UserError

if TYPE_CHECKING:
    from accerl.networks.graph_policy import Policy

T = TypeVar("T")
_PREFIX = struct.Struct("<I")
ORDERED_STORES = platform.machine() in ("x86_64", "AMD64", "i686")
"""whether one core sees the stores of another in the order in which they were made"""


class Publication:
    """What actors act with: one artifact per spec of the decision, and their shares."""

    def __init__(self, number: int, artifacts: list[Artifact], shares: list[float]) -> None:
        self.number = number
        self.artifacts = artifacts
        self.shares = shares

    def to_bytes(self) -> bytes:
        """Return a length-prefixed JSON header followed by the artifacts."""
        bodies = [artifact.to_bytes() for artifact in self.artifacts]
        sizes = [len(body) for body in bodies]
        header = {"number": self.number, "shares": self.shares, "sizes": sizes}
        text = json.dumps(header).encode()
        return b"".join([_PREFIX.pack(len(text)), text, *bodies])

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Publication:
        """Read what `to_bytes` wrote; nothing of `data` is kept."""
        view = memoryview(data)
        (length,) = _PREFIX.unpack_from(view)
        header = json.loads(bytes(view[_PREFIX.size : _PREFIX.size + length]))
        offset = _PREFIX.size + length
        artifacts = []
        for size in header["sizes"]:
            artifacts.append(Artifact.from_bytes(view[offset : offset + size]))
            offset += size
        return cls(header["number"], artifacts, header["shares"])


def publication_state(publication: Publication | None) -> np.ndarray | None:
    """Return a publication as an array of bytes, for a checkpoint."""
    if publication is None:
        return None
    return np.frombuffer(bytearray(publication.to_bytes()), np.uint8)  # writable, as torch wants it


def publication_from_state(state: np.ndarray | None) -> Publication | None:
    """Read what `publication_state` returned."""
    return None if state is None else Publication.from_bytes(state.tobytes())


class SharedBlock:
    """Numbered contents in shared memory: one writer at a time, any number of readers.

    Each buffer is guarded by a seqlock: its counter is odd while it is written. A reader that sees
    the counter change while it copies starts again, so it never returns a mixture. With two
    buffers the writer fills the one that is not current and then makes it current: a reader starts
    again only if it was overtaken twice, and a writer that was killed in the middle leaves the
    current contents whole; the next writer simply goes on.

    What this relies on: aligned 64-bit loads and stores are atomic, and stores become visible in
    the order in which they were made. x86 guarantees both, and numpy's copies are calls, which no
    compiler moves (glibc fences the streaming stores of large ones). Elsewhere, on aarch64 say, the
    counter could become visible before the contents, and numpy has no fences: there every
    contents carries a CRC-32 that readers verify, at about a millisecond per megabyte.
    """

    _WORDS = 4  # of each buffer: sequence, number, size, checksum
    _ATTEMPTS = 10_000

    def __init__(
        self,
        capacity_bytes: int,
        buffers: int,
        name: str | None = None,
        *,
        checked: bool = not ORDERED_STORES,
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self._count = buffers
        self._checked = checked
        self._owner = name is None
        words = self._words_of(buffers)
        size = self.segment_bytes(capacity_bytes, buffers)
        start = size - buffers * capacity_bytes
        self._segment = (
            SharedMemory(create=True, size=size) if name is None else SharedMemory(name=name)
        )
        self.name = self._segment.name
        """what another process needs to open the same block"""
        self._closed = False
        self._words = np.ndarray((words,), np.int64, self._segment.buf)
        if name is None:
            self._words[:] = 0
            self._words[0] = self._words[-1] = -1
        self._buffers = [
            np.ndarray((capacity_bytes,), np.uint8, self._segment.buf, start + i * capacity_bytes)
            for i in range(buffers)
        ]

    @classmethod
    def segment_bytes(cls, capacity_bytes: int, buffers: int) -> int:
        """Return the shared memory that such a block takes."""
        return 64 * -(-cls._words_of(buffers) * 8 // 64) + buffers * capacity_bytes

    @classmethod
    def _words_of(cls, buffers: int) -> int:
        # The first says what is current, the last what is settled.
        return 2 + cls._WORDS * buffers

    @property
    def latest(self) -> int:
        """Number of the current contents; -1 before the first."""
        return int(self._words[0]) // self._count

    def write(self, number: int, parts: Sequence[np.ndarray]) -> int:
        """Make the bytes of `parts`, one behind the other, current; return how many they are."""
        size = sum(part.nbytes for part in parts)
        if size > self.capacity_bytes:
            raise UserError(
                f"what is published has {size:,} bytes, and there is room for "
                f"{self.capacity_bytes:,}, by the network's weights and buffers; make large "
                "constants buffers of it, or use --runtime serial"
            )
        which = (int(self._words[0]) + 1) % self._count
        head = self._words[1 + which * self._WORDS :][: self._WORDS]
        head[0] |= 1  # odd already if a writer was killed here
        offset, checksum = 0, 0
        for part in parts:
            data = part.reshape(-1).view(np.uint8)
            self._buffers[which][offset : offset + len(data)] = data
            offset += len(data)
            checksum = zlib.crc32(data.data, checksum) if self._checked else 0
        head[1:] = (number, size, checksum)
        head[0] += 1
        self._words[0] = number * self._count + which
        self._words[-1] = number
        return size

    @property
    def settled(self) -> int:
        """Number of the newest contents that nobody need wait for; -1 before the first.

        They are current, or would have been the same (`settle`).
        """
        return int(self._words[-1])

    def settle(self, number: int) -> None:
        """Note that contents of this number would be what is current already."""
        self._words[-1] = number

    def read(self, copy: Callable[[np.ndarray], T]) -> tuple[int, T]:
        """Return the current number and what `copy` makes of the current bytes.

        `copy` is called again if what it copied was being written, and may then fail; what it keeps
        must be a copy.

        Raises:
            LookupError: nothing has been published yet.
            TimeoutError: the writer has stopped in the middle.
        """
        for attempt in range(self._ATTEMPTS):
            current = int(self._words[0])
            if current < 0:
                raise LookupError("nothing has been published yet")
            which = current % self._count
            head = self._words[1 + which * self._WORDS :][: self._WORDS]
            before = int(head[0])
            number, size, checksum = (int(word) for word in head[1:])
            if before % 2 == 0 and 0 <= size <= self.capacity_bytes:
                data = self._buffers[which][:size]
                copied = failure = None
                try:
                    copied = copy(data)
                except Exception as error:  # bytes that change meanwhile can look like anything
                    failure = error
                intact = not self._checked or zlib.crc32(data.data) == checksum
                if intact and int(head[0]) == before:
                    if failure is not None:
                        raise failure
                    return number, cast(T, copied)
            if attempt >= 100:
                sleep(0.001)  # somebody else needs this core to finish
        raise TimeoutError("a publication has been in the making for ten seconds")

    def close(self) -> None:
        """Let go of the memory; the owner also removes it. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self._words = np.zeros(len(self._words), np.int64)
        self._buffers = []
        release(self._segment, unlink=self._owner)


class Mailbox(SharedBlock):
    """The newest publication, for actors."""

    def __init__(
        self, capacity_bytes: int, name: str | None = None, *, checked: bool = not ORDERED_STORES
    ) -> None:
        super().__init__(capacity_bytes, 2, name, checked=checked)

    def handle(self) -> dict[str, Any]:
        """Return what another process needs for `Mailbox(**handle)`."""
        capacity, checked = self.capacity_bytes, self._checked
        return {"capacity_bytes": capacity, "name": self.name, "checked": checked}

    def settle_or_put(self, number: int, publication: Publication | None) -> None:
        """Make publication `number` current; without one, the current publication serves on."""
        if publication is None:
            self.settle(number)
        else:
            self.put(publication)

    def put(self, publication: Publication) -> int:
        """Make `publication` current; return its size in bytes."""
        data = np.frombuffer(publication.to_bytes(), np.uint8)
        return self.write(publication.number, [data])

    def get(self) -> Publication:
        """Return the current publication.

        Raises:
            LookupError: nothing has been published yet.
        """
        return self.read(lambda data: Publication.from_bytes(data.data))[1]


class WeightVector(SharedBlock):
    """The learner's weights as one flat float32 vector, numbered by its updates.

    With `gradients`, those of its last step follow: the Taylor criterion of pruning reads them.

    One buffer is enough: the learner writes far less often than a copy takes, and a reader that is
    overtaken starts again.
    """

    def __init__(self, size: int, name: str | None = None, *, gradients: bool = False) -> None:
        self.size = size
        self.gradients = gradients
        super().__init__(4 * size * (2 if gradients else 1), 1, name)

    def handle(self) -> dict[str, Any]:
        """Return what another process needs for `WeightVector(**handle)`."""
        return {"size": self.size, "name": self.name, "gradients": self.gradients}

    def put(self, version: int, policy: Policy) -> None:
        """Make the weights of `policy` current; gradients it does not have yet are zeros."""
        arrays = weight_arrays(policy, gradients=self.gradients)
        self.write(version, arrays)

    def load_into(self, policy: Policy) -> int:
        """Copy the current weights into `policy`; return their version.

        Raises:
            LookupError: there are none yet.
        """

        def copy(data: np.ndarray) -> None:
            offset = 0
            vector = data.view(np.float32)
            for target in _weights_to_write(policy, gradients=self.gradients):
                target[...] = vector[offset : offset + target.size].reshape(target.shape)
                offset += target.size

        version, _ = self.read(copy)
        return version


def weight_arrays(policy: Policy, *, gradients: bool = False) -> list[np.ndarray]:
    """Return the arrays that a policy consists of, in float32; on the CPU they are no copies.

    Weights of another precision, which a user's network may have, are rounded.

    Args:
        policy: whose.
        gradients: whether those of its last step follow; what has none yet has zeros.
    """
    arrays = [tensor.detach().cpu().float().numpy() for tensor in _tensors(policy)]
    if gradients:
        arrays += [
            np.zeros(tuple(weight.shape), np.float32)
            if weight.grad is None
            else weight.grad.cpu().float().numpy()
            for weight in policy.parameters()
        ]
    return arrays


def load_weights(policy: Policy, arrays: Sequence[np.ndarray], *, gradients: bool = False) -> None:
    """Copy what `weight_arrays` returned into another policy of the same network, on the CPU."""
    targets = _weights_to_write(policy, gradients=gradients)
    for target, array in zip(targets, arrays, strict=True):
        target[...] = array


def _weights_to_write(policy: Policy, *, gradients: bool) -> list[np.ndarray]:
    tensors = _tensors(policy)
    if gradients:
        for weight in policy.parameters():
            if weight.grad is None:
                weight.grad = weight.detach().clone()
            tensors.append(weight.grad)
    return [tensor.detach().numpy() for tensor in tensors]


def count_weights(policy: Policy) -> int:
    """Return the size of a policy's `WeightVector`."""
    return sum(tensor.numel() for tensor in _tensors(policy))


def _tensors(policy: Policy) -> list[Any]:
    """Return everything a policy consists of, in a fixed order.

    Integers are left out: they count what a batch norm has seen, and in evaluation mode no buffer
    moves.
    """
    return [tensor for tensor in policy.state_dict().values() if tensor.is_floating_point()]
