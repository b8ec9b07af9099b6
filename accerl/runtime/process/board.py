"""Board: where a distiller's process shows its students to the compressor's."""

from __future__ import annotations

from typing import Any

import numpy as np

from accerl.runtime.process.wire import pack, unpack
from accerl.weights import SharedBlock


class Board:
    """Students in shared memory, numbered by how often they were put there."""

    def __init__(self, capacity_bytes: int, name: str | None = None) -> None:
        self._block = SharedBlock(capacity_bytes, 2, name)
        self._read = -1

    def handle(self) -> dict[str, Any]:
        """Return what another process needs for `Board(**handle)`."""
        return {"capacity_bytes": self._block.capacity_bytes, "name": self._block.name}

    def put(self, students: list[dict[str, Any]]) -> None:
        """Show `students`, as `Compressor.students` returns them."""
        data = np.frombuffer(pack(students), np.uint8)
        self._block.write(self._block.latest + 1, [data])

    def news(self) -> list[dict[str, Any]]:
        """Return what was put since the last call, if anything was."""
        if self._block.latest == self._read:
            return []
        self._read, students = self._block.read(lambda data: unpack(data.tobytes()))
        return students

    def close(self) -> None:
        """See `SharedBlock.close`."""
        self._block.close()
