"""Servers: the processes of a run on a modelled machine, as discrete events.

Every process has one piece of work at a time, measured in core-seconds. While k of them compute on
C cores, each gets

    min(1, C / k)

of a core, as a fair scheduler shares them out; whoever waits takes none. The next event is the
work that ends first. Nothing else happens on the clock, so a run of events is determined to the
bit by the order in which work is given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass
class _Work:
    left_seconds: float
    computes: bool
    began: float


class Servers:
    """Processes by name, what each is busy with, and the clock.

    Args:
        names: in the order in which simultaneous events happen.
        cores: cores that all share; 0: each process has one to itself.
    """

    def __init__(self, names: Sequence[str], cores: int = 0) -> None:
        self.now = 0.0
        self._cores = cores or len(names)
        self._works: dict[str, _Work | None] = dict.fromkeys(names)

    def is_idle(self, name: str) -> bool:
        """Whether a process has nothing to do."""
        return self._works[name] is None

    def work(self, name: str, seconds: float) -> None:
        """Have an idle process compute for so many core-seconds, from now on."""
        self._begin(name, _Work(seconds, True, self.now))

    def pause(self, name: str, seconds: float) -> None:
        """Have an idle process wait for so many seconds, from now on."""
        self._begin(name, _Work(seconds, False, self.now))

    def _begin(self, name: str, work: _Work) -> None:
        if self._works[name] is not None:
            raise ValueError(f"{name} is busy")
        if not 0.0 <= work.left_seconds < math.inf:
            raise ValueError(f"{name} cannot take {work.left_seconds} seconds")
        self._works[name] = work

    def stop(self, name: str) -> None:
        """End what a process does, unfinished."""
        self._works[name] = None

    def advance(self, until: float) -> tuple[str, float] | None:
        """Move the clock to the next event, or to `until` if that comes first.

        Returns:
            whose work has ended, and the seconds since it began; None if nothing ended by `until`.
        """
        busy = [(name, work) for name, work in self._works.items() if work is not None]
        computing = sum(work.computes for _, work in busy)
        rate = min(1.0, self._cores / computing) if computing else 1.0
        first: tuple[float, str] | None = None
        for name, work in busy:
            ends = self.now + work.left_seconds / (rate if work.computes else 1.0)
            if first is None or ends < first[0]:
                first = (ends, name)
        reached = until if first is None or first[0] > until else first[0]
        passed = max(reached - self.now, 0.0)
        for _, work in busy:
            used = passed * (rate if work.computes else 1.0)
            work.left_seconds = max(work.left_seconds - used, 0.0)
        self.now = max(self.now, reached)
        if first is None or first[0] > until:
            return None
        ended = self._works[first[1]]
        assert ended is not None
        self._works[first[1]] = None
        return first[1], self.now - ended.began

    def state_dict(self) -> dict[str, Any]:
        """Return the clock and all work, as plain numbers."""
        works = {
            name: None if work is None else [work.left_seconds, work.computes, work.began]
            for name, work in self._works.items()
        }
        return {"now": self.now, "works": works}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state returned by `state_dict`."""
        self.now = state["now"]
        self._works = {
            name: None if work is None else _Work(float(work[0]), bool(work[1]), float(work[2]))
            for name, work in state["works"].items()
        }
