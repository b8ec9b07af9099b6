"""Which process does something, so that others can tell whether it still lives."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any


def this_process() -> dict[str, Any]:
    """Return what tells this process from every other one, in plain JSON."""
    pid = os.getpid()
    return {"host": platform.node(), "machine": _machine(), "pid": pid, "started": _started(pid)}


def has_ended(process: dict[str, Any]) -> bool | None:
    """Whether a process that `this_process` described has ended; None if it cannot be seen here."""
    if process["machine"] != _machine():
        return None
    return _started(process["pid"]) != process["started"]


def _machine() -> str:
    """Return where a process number means one process: a boot of a machine, or of a container."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{platform.node()} {boot} {Path('/proc/self/ns/pid').readlink()}"


def _started(pid: int) -> int | None:
    """Return when a process started, in clock ticks since the boot; None if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])
