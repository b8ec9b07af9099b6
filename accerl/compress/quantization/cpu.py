"""What the processor can do with integers of 8 bits and floats of 16."""

from __future__ import annotations

import functools
import platform
from pathlib import Path

X86 = ("x86_64", "AMD64", "i686")
BF16_FLAGS = {"avx512_bf16", "avx_ne_convert", "amx_bf16", "bf16"}
FAST_BF16_FLAGS = {"amx_bf16", "bf16"}
"""those with which it is faster: with AVX-512's alone an update took 1.3 to 1.5 times as long as in
float32 (Xeon, torch 2.13)"""
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
    return bool(VNNI_FLAGS & _flags(cpuinfo))


@functools.cache
def computes_bfloat16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether the processor multiplies bfloat16; where it cannot be found out, no."""
    return bool(BF16_FLAGS & _flags(cpuinfo))


@functools.cache
def gains_by_bfloat16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether it multiplies bfloat16 faster than float32; where nobody knows, no."""
    return bool(FAST_BF16_FLAGS & _flags(cpuinfo))


def _flags(cpuinfo: Path) -> set[str]:
    """Return what the first processor is said to have, on Linux; elsewhere nothing."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return set()
    return set(next((line for line in lines if line.startswith(("flags", "Features"))), "").split())
