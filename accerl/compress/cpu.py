"""What the processor can do with 8-bit integers."""

from __future__ import annotations

import functools
import platform
from pathlib import Path

X86 = ("x86_64", "AMD64", "i686")
VNNI_FLAGS = {"avx512_vnni", "avx_vnni", "amx_int8"}


@functools.cache
def dots_bytes_exactly(
    machine: str = platform.machine(), cpuinfo: Path = Path("/proc/cpuinfo")
) -> bool:
    """Return whether products of unsigned and signed bytes add up without saturation.

    On x86 that takes VNNI: older processors add pairs of products in 16 bits, which overflow for
    weights of 8 bits and do not for weights of 7. Where it cannot be found out, the answer is no.
    """
    if machine not in X86:
        return True  # Arm multiplies into 16 bits and adds in 32
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return False
    flags = next((line for line in lines if line.startswith("flags")), "")
    return bool(VNNI_FLAGS & set(flags.split()))
