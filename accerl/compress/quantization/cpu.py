"""What the processor can do with integers of 8 bits and floats of 16."""

from __future__ import annotations

import functools
import platform
from pathlib import Path

X86 = ("x86_64", "AMD64", "i686")
BF16_FLAGS = {"avx512_bf16", "avx_ne_convert", "amx_bf16", "bf16"}
FAST_BF16_FLAGS = {"amx_bf16", "bf16"}
"""those with which it is faster, whoever makes the processor"""
FAST_BF16_FLAGS_OF_AMD = FAST_BF16_FLAGS | {"avx512_bf16"}
"""With AVX-512's alone an update of Original takes 0.44 of its time in float32 on an EPYC (model
17), one of Net3 0.64; on a Xeon 1.3 to 1.5 times as long (torch 2.13)."""
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
    is_amd = _first_processor(cpuinfo).get("vendor_id") == "AuthenticAMD"
    return bool((FAST_BF16_FLAGS_OF_AMD if is_amd else FAST_BF16_FLAGS) & _flags(cpuinfo))


def _flags(cpuinfo: Path) -> set[str]:
    """Return what the first processor is said to have."""
    processor = _first_processor(cpuinfo)
    return set(processor.get("flags", processor.get("Features", "")).split())


def _first_processor(cpuinfo: Path) -> dict[str, str]:
    """Return what Linux says of the first processor, by name; elsewhere nothing."""
    try:
        first, _, _ = cpuinfo.read_text().partition("\n\n")
    except OSError:
        return {}
    parts = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in parts}
