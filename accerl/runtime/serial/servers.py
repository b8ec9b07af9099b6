"""Servers: the processes of a run on a modelled machine, as discrete events.

Every process has one piece of work at a time, measured in core-seconds, that occupies w cores: one,
or as many as those have who fill a rollout side by side. While the work under way occupies K of C
cores, all of it gets

    min(1, C / K)

of them, as a fair scheduler shares them out; whoever waits takes none. A GPU has one core of its
own, of which each of n processes gets 1 / n; beside it, each takes a share g of the machine's
cores, and as a fair scheduler favours those that want little, less than that only where the others
get less than g too. The next event is the work that ends first. Nothing else happens on the clock,
so a run of events is determined to the bit by the order in which work is given.

Conditions change these rates at the very moment they begin or end. With j processes of others that
compute without pause, all get min(1, C / (K + j)); a core that is s times slower does 1 / s of a
core-second a second, and slows no GPU; what travels goes at the share of bandwidth that is left.

Processor seconds are those for which cores are occupied: what a slower core takes longer for, and
what a process does that a GPU computes for, count; waiting and sending do not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from accerl.json_fields import JsonFields
from accerl.runtime.conditions import UNCHANGING, Conditions


@dataclass
class _Work(JsonFields):
    left_seconds: float
    computes: bool
    began: float
    travels: bool = False
    cores: float = 1.0
    """that it occupies, if it computes; 0: on a machine of its own"""
    on_gpu: bool = False


class Servers:
    """Processes by name, what each is busy with, and the clock.

    Args:
        names: in the order in which simultaneous events happen.
        cores: that all share; infinite: each process has one to itself.
        conditions: what happens to the machine.
        gpu_core: share of a core that a process takes while the GPU computes for it.
    """

    def __init__(
        self,
        names: Sequence[str],
        cores: float = math.inf,
        conditions: Conditions = UNCHANGING,
        gpu_core: float = 1.0,
    ) -> None:
        self.now = 0.0
        self._cores = cores
        self._gpu_core = gpu_core
        self._works: dict[str, _Work | None] = dict.fromkeys(names)
        self._processor_seconds = dict.fromkeys(names, 0.0)
        self._conditions = conditions
        self._look()

    def _look(self) -> None:
        """See what the machine is like now, and until when."""
        self._moment = self._conditions.at(self.now)
        self._changes = self._conditions.next_change(self.now)

    def is_idle(self, name: str) -> bool:
        """Whether a process has nothing to do."""
        return self._works[name] is None

    def work(self, name: str, seconds: float, *, cores: float = 1.0, on_gpu: bool = False) -> None:
        """Have an idle process compute from now on.

        Args:
            name: of the process.
            seconds: that it takes with all the cores that it occupies, or the GPU, to itself.
            cores: that it occupies; 0: it is on another machine.
            on_gpu: whether the GPU computes, and the process occupies `gpu_core` of a core.
        """
        cores = self._gpu_core if on_gpu else cores
        self._begin(name, _Work(seconds, True, self.now, cores=cores, on_gpu=on_gpu))

    def pause(self, name: str, seconds: float) -> None:
        """Have an idle process wait for so many seconds, from now on."""
        self._begin(name, _Work(seconds, False, self.now))

    def send(self, name: str, seconds: float) -> None:
        """Have an idle process send what takes so many seconds at full bandwidth, from now on."""
        self._begin(name, _Work(seconds, False, self.now, travels=True))

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
        while True:
            rates = self._rates()
            first: tuple[float, str] | None = None
            for name, (work, rate, _) in rates.items():
                ends = self.now + work.left_seconds / rate
                if first is None or ends < first[0]:
                    first = (ends, name)
            reached = until if first is None or first[0] > until else first[0]
            changes = self._changes < reached
            reached = min(reached, self._changes)
            passed = max(reached - self.now, 0.0)
            for name, (work, rate, cores) in rates.items():
                work.left_seconds = max(work.left_seconds - passed * rate, 0.0)
                self._processor_seconds[name] += passed * cores
            self.now = max(self.now, reached)
            if self.now >= self._changes:
                self._look()
            if not changes:
                break
        if first is None or first[0] > until:
            return None
        ended = self._works[first[1]]
        assert ended is not None
        self._works[first[1]] = None
        return first[1], self.now - ended.began

    def take_processor_seconds(self) -> dict[str, float]:
        """Return those of every process that has taken any since the last call."""
        taken = {name: seconds for name, seconds in self._processor_seconds.items() if seconds}
        self._processor_seconds = dict.fromkeys(self._processor_seconds, 0.0)
        return taken

    def _rates(self) -> dict[str, tuple[_Work, float, float]]:
        """Return the work under way, how much of it is done in a second, and by how many cores."""
        busy = {name: work for name, work in self._works.items() if work is not None}
        moment = self._moment
        on_gpu = sum(work.on_gpu for work in busy.values())
        own = (work.cores for work in busy.values() if work.computes and not work.on_gpu)
        share, gpu_share = self._shares(sum(own) + moment.co_tenants, on_gpu)

        def rate(name: str, work: _Work) -> tuple[float, float]:
            if work.on_gpu:
                return gpu_share, min(self._gpu_core, share)
            if work.computes:
                given = share if work.cores else 1.0
                slower = moment.slowdown(name) if moment.throttles else 1.0
                return given / slower, given * (work.cores or 1.0)
            return moment.bandwidth if work.travels else 1.0, 0.0

        return {name: (work, *rate(name, work)) for name, work in busy.items()}

    def _shares(self, occupied: float, on_gpu: int) -> tuple[float, float]:
        """Return what everybody gets of a core, and what each process on the GPU gets of it.

        Args:
            occupied: cores that would be, by those that are not on the GPU.
            on_gpu: processes that are.
        """
        beside = on_gpu * self._gpu_core
        share = min(1.0, (self._cores - beside) / occupied) if occupied else 1.0
        if not on_gpu:
            return share, 1.0
        if share < self._gpu_core or beside > self._cores:  # all get the same
            share = min(1.0, self._cores / (occupied + on_gpu))
        return share, min(1.0, share / self._gpu_core, 1.0 / on_gpu)

    def state_dict(self) -> dict[str, Any]:
        """Return the clock and all work, as plain numbers; processor seconds are to be taken."""
        works = {name: work and work.to_json() for name, work in self._works.items()}
        return {"now": self.now, "works": works}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state returned by `state_dict`."""
        self.now = state["now"]
        self._processor_seconds = dict.fromkeys(self._processor_seconds, 0.0)
        works = state["works"]  # in the order of a file, and simultaneous events go by this one's
        self._works = {name: works[name] and _Work.from_json(works[name]) for name in self._works}
        self._look()
