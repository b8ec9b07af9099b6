"""Memory of long-lived processes: what the allocator keeps, and what is left of the machine's."""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
from contextlib import suppress
from pathlib import Path

from accerl.errors import UserError

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4  # glibc's malloc.h
_LARGE_BYTES = 4 * 2**20
SHARED_MEMORY = "/dev/shm"


def available_bytes() -> int:
    """Return the memory that is free for new processes: the machine's, or a container's."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(line for line in lines if line.startswith("MemAvailable:"))
        found = 1024 * int(free.split()[1])
    group = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):  # no container, or one without a limit ("max")
        limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        with suppress(OSError, ValueError):
            stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            used -= int(stat.get("inactive_file", 0))  # cached files, which give way
        found = min(found, max(0, limit - used))
    return found


def require_shared_memory(what: str, need: int, lower: str = "") -> None:
    """Refuse to begin what shared memory has no room for: whoever writes past its end is killed.

    Args:
        what: is to lie there.
        need: bytes that it may take.
        lower: setting that makes it smaller, besides those of every run's rollouts.

    Raises:
        UserError: fewer are free.
    """
    if not os.path.isdir(SHARED_MEMORY):
        return
    disk = shutil.disk_usage(SHARED_MEMORY)
    if disk.free < need:
        enough = -(-(disk.used + need) // 2**20)
        settings = ", ".join(filter(None, (lower, "runtime.num_actors", "runtime.num_envs")))
        raise UserError(
            f"{what} may take {need / 2**20:,.0f} MB, and {SHARED_MEMORY} has "
            f"{disk.free / 2**20:,.0f} MB; lower {settings} or runtime.queue_rollouts, "
            f"or give a container more of it (docker run --shm-size={enough}m)"
        )


def keep_freed_memory() -> bool:
    """Let malloc keep freed blocks instead of handing them back; return whether it agreed.

    An update allocates and frees the same activations every time. By default glibc gives blocks
    above 32 MB back to the kernel, which must then clear every page again: up to a third of an
    update on pixels. Elsewhere than on glibc nothing happens.
    """
    return _mallopt((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2**31 - 1))


def give_back_large_blocks() -> bool:
    """Let malloc hand blocks of the size of weights back at once; return whether it agreed.

    An actor allocates such blocks only when it loads a publication. Left to itself, glibc soon
    keeps them between others: an actor of Original held its weights seven times.
    """
    return _mallopt((_M_MMAP_THRESHOLD, _LARGE_BYTES))


def release_memory() -> None:
    """Free what only cycles of references hold, and hand back what malloc has kept of it.

    A process that does one run after another would grow by half a gigabyte with each.
    """
    gc.collect()
    with suppress(OSError, AttributeError):  # elsewhere than on glibc
        ctypes.CDLL(None).malloc_trim(0)


def _mallopt(*settings: tuple[int, int]) -> bool:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return all(mallopt(name, value) for name, value in settings)
