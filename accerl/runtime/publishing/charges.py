"""Charges: which network is distilled by which process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accerl.spec import CompressionSpec, StudentKey


class Charges:
    """Which distiller is in charge of which network; without distillers the compressor is."""

    def __init__(self, distillers: int) -> None:
        self._specs: list[dict[StudentKey, CompressionSpec]] = [{} for _ in range(distillers)]

    def assign(self, specs: Sequence[CompressionSpec]) -> None:
        """Put the least busy distiller in charge of each network that is new, if there are any."""
        for spec in specs if self._specs else ():
            key = spec.student_key
            if key is not None and not any(key in own for own in self._specs):
                min(self._specs, key=len)[key] = spec

    def keys(self, index: int) -> list[StudentKey]:
        """Return the networks of a distiller."""
        return list(self._specs[index])

    def work(self, index: int, acting: Sequence[CompressionSpec]) -> list[CompressionSpec]:
        """Return what a distiller is to distil now: those of its networks that act, else all."""
        used = {spec.student_key for spec in acting}
        own = self._specs[index]
        return [spec for key, spec in own.items() if key in used] or list(own.values())

    def left_to_compressor(self, acting: Sequence[CompressionSpec]) -> list[CompressionSpec]:
        """Return the specs that act whose network the compressor must distil itself."""
        return [] if self._specs else [spec for spec in acting if spec.student_key is not None]

    def state_dict(self) -> list[list[dict[str, Any]]]:
        """Return who is in charge of what."""
        return [[spec.to_json() for spec in own.values()] for own in self._specs]

    def load_state_dict(self, state: list[list[dict[str, Any]]]) -> None:
        """Go on from a state returned by `state_dict`."""
        specs = [[CompressionSpec.from_json(spec) for spec in own] for own in state]
        self._specs = [
            {key: spec for spec in own if (key := spec.student_key) is not None} for own in specs
        ]
