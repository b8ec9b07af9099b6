"""What processes use: memory and processor time, read from /proc where there is one."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Memory(NamedTuple):
    """Resident memory of one process, bytes."""

    rss: int
    """all of it: also libraries and shared memory, which other processes count as well"""
    private: int
    """what is neither (RssAnon); forks of one process share some of it, which counts in each"""


def memory(pid: int) -> Memory | None:
    """Return the resident memory of a process; None if it has ended, or without /proc."""
    fields = _lines(f"/proc/{pid}/status")
    if "RssAnon" not in fields:
        return None
    return Memory(*(1024 * int(fields[name].split()[0]) for name in ("VmRSS", "RssAnon")))


def descendants(pid: int) -> dict[int, str]:
    """Return the command lines of what a process has started, and of what those have, by pid."""
    parents = {
        int(entry.name): int(_lines(entry / "status").get("PPid", "0"))
        for entry in Path("/proc").glob("[0-9]*")
    }
    found, latest = {}, {pid}
    while latest:
        latest = {child for child, parent in parents.items() if parent in latest}
        for child in sorted(latest):
            with suppress(OSError):  # it has just ended
                line = Path(f"/proc/{child}/cmdline").read_bytes()
                found[child] = line.replace(b"\0", b" ").decode(errors="replace").strip()
    return found


def memory_by_name(pids: Mapping[str, int]) -> dict[str, Memory]:
    """Return the resident memory of several processes, as far as it is known."""
    found = {name: memory(pid) for name, pid in pids.items()}
    return {name: held for name, held in found.items() if held is not None}


def growth_per_minute(seconds: Sequence[float], held: Sequence[float]) -> float | None:
    """Return the slope of a least-squares line through `held`, per minute.

    Only the second half of the time counts: until then buffers fill and allocators settle. None
    if fewer than three points lie in it.
    """
    if not seconds:
        return None
    middle = (seconds[0] + seconds[-1]) / 2
    late = [(x, y) for x, y in zip(seconds, held, strict=True) if x >= middle]
    if len(late) < 3:
        return None
    x, y = np.array(late, dtype=np.float64).T
    x -= x.mean()
    return 60.0 * float(x @ (y - y.mean()) / (x @ x))


def cpu_seconds(pid: int) -> float | None:
    """Return user plus system seconds of a process, its threads included; None where unknown.

    A process that was killed is still known, until it has been waited for.
    """
    if pid == os.getpid():
        return time.process_time()
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _lines(path: str | Path) -> dict[str, str]:
    try:
        text = Path(path).read_text(errors="replace")  # a process may have any name
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # ended, or another user's
        return {}
    return {name: value for name, _, value in (line.partition(":") for line in text.splitlines())}


class CpuMeter:
    """Processor seconds by role, also when one process takes the place of another."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}
        self._used: defaultdict[str, float] = defaultdict(float)

    def forget(self, pids: Mapping[str, int]) -> None:
        """Take what these processes have used until now as not used for the run."""
        for name, pid in pids.items():
            seconds = cpu_seconds(pid)
            if seconds is not None:
                self._seen[name] = (pid, seconds)

    def note(self, pids: Mapping[str, int]) -> None:
        """Book what these processes have used since they were last seen.

        A process that has not been seen before has used all of it for the run.
        """
        for name, pid in pids.items():
            seconds = cpu_seconds(pid)
            if seconds is None:
                continue
            known, before = self._seen.get(name, (pid, 0.0))
            self._used[name] += seconds - (before if known == pid else 0.0)
            self._seen[name] = (pid, seconds)

    def take(self) -> dict[str, float]:
        """Return the seconds booked since the last call."""
        used, self._used = dict(self._used), defaultdict(float)
        return used
