"""What the steps of a study cost: the inner runs that each needs, and the seconds they took."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from accerl.records import read_json, write_json

COSTS = "costs.json"


class Meter:
    """The jobs that a step of a study needs, each once, and the seconds that they took."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def add(self, seconds: Mapping[str, float]) -> None:
        """Note jobs by their keys; one that is known already counts once."""
        self._seconds.update(seconds)

    @property
    def seconds(self) -> float:
        """Of all jobs together, each in a process of its own: processor seconds."""
        return sum(self._seconds.values())

    @property
    def jobs(self) -> int:
        """How many there are."""
        return len(self._seconds)


def keep_cost(out: Path, name: str, meter: Meter) -> float:
    """Note the processor seconds of a step in the study's folder; return them.

    A step that finds its results there when a study goes on asks for fewer jobs: then what it had
    cost at first counts.
    """
    path = out / COSTS
    costs = read_json(path) if path.is_file() else {}
    costs[name] = max(meter.seconds, costs.get(name, 0.0))
    write_json(path, costs)
    return costs[name]
