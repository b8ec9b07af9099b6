"""Which cores a run's processes use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from accerl.errors import UserError

CPU_MAX = Path("/sys/fs/cgroup/cpu.max")
"""a container's quota of processor time and its period, in microseconds"""


def usable_cores() -> int:
    """Return how many cores this process may use: its affinity, and a container's quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cores = count or 1
    with suppress(OSError, ValueError):
        quota, period = CPU_MAX.read_text().split()
        if quota != "max":
            cores = min(cores, max(1, int(quota) // int(period)))
    return cores


class LearnersCores:
    """Keeps the learner on a machine's last cores and the actors off them.

    A learner that slept is otherwise often woken on the core of an actor, which then stands still
    for as long. Other processes run anywhere. Only for a machine with nothing else to do: two such
    runs would share the same cores.

    Raises:
        UserError: it would leave no core for actors, or the system cannot do it.
    """

    def __init__(self, threads: int) -> None:
        """Keep this thread, and those that it starts, on the last `threads` cores."""
        if not hasattr(os, "sched_setaffinity"):
            raise UserError("runtime: pin_cores needs Linux; set it to false")
        self._all = os.sched_getaffinity(0)
        cores = sorted(self._all)
        self._actors, self._own = cores[:-threads], cores[-threads:]
        if not self._actors:
            raise UserError(
                f"runtime: pin_cores leaves no core for actors ({len(cores)} here, "
                f"learner_threads {threads}); set it to false"
            )
        os.sched_setaffinity(0, self._own)

    @contextmanager
    def place(self, role: str) -> Iterator[None]:
        """Have a process that is started meanwhile run where its role belongs."""
        os.sched_setaffinity(0, self._actors if role == "actor" else self._all)
        try:
            yield
        finally:
            os.sched_setaffinity(0, self._own)

    def release(self) -> None:
        """Let this thread run anywhere again."""
        os.sched_setaffinity(0, self._all)
