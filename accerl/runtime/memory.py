"""Memory of long-lived processes: what the allocator keeps, and what a process holds."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # glibc's malloc.h


def keep_freed_memory() -> bool:
    """Let malloc keep freed blocks instead of handing them back; return whether it agreed.

    An update allocates and frees the same activations every time. By default glibc gives blocks
    above 32 MB back to the kernel, which must then clear every page again: up to a third of an
    update on pixels. Elsewhere than on glibc nothing happens.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))
