"""Published weights: a versioned shared-memory mailbox from which torn reads are impossible."""

from __future__ import annotations

import json
import struct
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np

from accerl.compress.artifact import Artifact
from accerl.rollout import release

_PREFIX = struct.Struct("<I")


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
    def from_bytes(cls, data: bytes) -> Publication:
        """Read what `to_bytes` wrote."""
        (length,) = _PREFIX.unpack_from(data)
        header = json.loads(data[_PREFIX.size : _PREFIX.size + length])
        offset = _PREFIX.size + length
        artifacts = []
        for size in header["sizes"]:
            artifacts.append(Artifact.from_bytes(data[offset : offset + size]))
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


class Mailbox:
    """Two buffers and three counters in shared memory: one writer, any number of readers.

    The writer fills the buffer that is not current, then makes it current (a seqlock per buffer:
    the counter is odd while it is written). A reader that was overtaken twice sees the counter of
    its buffer change and reads again, so it never returns a mixture of two publications.
    """

    _COUNTERS = 5  # current publication, then (sequence, size) of each buffer

    def __init__(self, capacity_bytes: int, name: str | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self._owner = name is None
        header = self._COUNTERS * 8
        size = header + 2 * capacity_bytes
        self._segment = (
            SharedMemory(create=True, size=size) if name is None else SharedMemory(name=name)
        )
        self._name = self._segment.name
        self._closed = False
        self._counters = np.ndarray((self._COUNTERS,), np.int64, self._segment.buf)
        if name is None:
            self._counters[:] = 0
            self._counters[0] = -1
        self._buffers = [
            np.ndarray((capacity_bytes,), np.uint8, self._segment.buf, header + i * capacity_bytes)
            for i in range(2)
        ]

    def handle(self) -> dict[str, Any]:
        """Return what another process needs for `Mailbox(**handle)`."""
        return {"capacity_bytes": self.capacity_bytes, "name": self._name}

    @property
    def latest(self) -> int:
        """Number of the current publication; -1 before the first."""
        return int(self._counters[0])

    def put(self, publication: Publication) -> int:
        """Make `publication` current; return its size in bytes."""
        data = publication.to_bytes()
        if len(data) > self.capacity_bytes:
            raise ValueError(f"publication of {len(data)} bytes exceeds {self.capacity_bytes}")
        which = publication.number % 2
        self._counters[1 + 2 * which] += 1
        self._buffers[which][: len(data)] = np.frombuffer(data, np.uint8)
        self._counters[2 + 2 * which] = len(data)
        self._counters[1 + 2 * which] += 1
        self._counters[0] = publication.number
        return len(data)

    def get(self) -> Publication:
        """Return the current publication.

        Raises:
            LookupError: nothing has been published yet.
        """
        while True:
            number = self.latest
            if number < 0:
                raise LookupError("nothing has been published yet")
            which = number % 2
            before = int(self._counters[1 + 2 * which])
            data = self._buffers[which][: int(self._counters[2 + 2 * which])].tobytes()
            after = int(self._counters[1 + 2 * which])
            if before == after and before % 2 == 0:
                return Publication.from_bytes(data)

    def close(self) -> None:
        """Let go of the memory; the owner also removes it. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self._counters = np.zeros(self._COUNTERS, np.int64)
        self._buffers = []
        release(self._segment, unlink=self._owner)
