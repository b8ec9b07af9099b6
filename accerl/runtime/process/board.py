"""Board: where a distiller's process shows its students to the compressor's."""

from __future__ import annotations

from typing import Any

import numpy as np

from accerl.runtime.process.wire import pack, unpack
from accerl.weights import SharedBlock


class Board(SharedBlock):
    """Students in shared memory, numbered by how often they were put there."""

    def __init__(self, capacity_bytes: int, name: str | None = None) -> None:
        super().__init__(capacity_bytes, 2, name)
        self._read = -1

    def handle(self) -> dict[str, Any]:
        """Return what another process needs for `Board(**handle)`."""
        return {"capacity_bytes": self.capacity_bytes, "name": self.name}

    def put(self, students: list[dict[str, Any]]) -> None:
        """Show `students`, as `StudentShares.entries` returns them."""
        data = np.frombuffer(pack(students), np.uint8)
        self.write(self.latest + 1, [data])

    def news(self) -> list[dict[str, Any]]:
        """Return what was put since the last call, if anything was."""
        if self.latest == self._read:
            return []
        self._read, students = self.read(lambda data: unpack(data.tobytes()))
        return students
