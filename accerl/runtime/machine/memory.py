"""Memory of long-lived processes: what the allocator keeps, and what a process holds."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4  # glibc's malloc.h
_LARGE_BYTES = 4 * 2**20


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


def _mallopt(*settings: tuple[int, int]) -> bool:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return all(mallopt(name, value) for name, value in settings)
