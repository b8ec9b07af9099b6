"""What the steps of a study cost: processor seconds of the inner runs that each needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accerl.records import read_json, write_json
from studies.jobs.executor import Outcome

COSTS = "costs.json"


class StepCosts:
    """Processor seconds by step, saved in the study's folder.

    Args:
        out: the folder.
    """

    def __init__(self, out: Path) -> None:
        self._path = out / COSTS
        self._seconds: dict[str, float] = read_json(self._path) if self._path.is_file() else {}
        self._current: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Count what is added meanwhile under `name`, each job once.

        A step that finds its results saved when a study goes on asks for fewer jobs: then what it
        had cost at first counts.
        """
        self._current = {}
        yield
        self._seconds[name] = max(self.spent, self._seconds.get(name, 0.0))
        write_json(self._path, self._seconds)

    def add(self, outcomes: Sequence[Outcome[Any]]) -> None:
        """Count jobs, whether they had to be done or were there already."""
        self._current |= {outcome.key: outcome.cpu_seconds for outcome in outcomes}

    def note(self, key: str, cpu_seconds: float) -> None:
        """Count what something had cost that is not done again."""
        self._current[key] = cpu_seconds

    @property
    def spent(self) -> float:
        """What the step has cost until now."""
        return sum(self._current.values())

    @property
    def longest(self) -> float:
        """What the most expensive job of the step has cost until now."""
        return max(self._current.values(), default=0.0)

    def __getitem__(self, name: str) -> float:
        return self._seconds[name]
