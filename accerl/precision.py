"""The floats that learners and students compute in: float32, bfloat16, or what is faster here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from accerl.compress.quantization.cpu import computes_bfloat16, gains_by_bfloat16

if TYPE_CHECKING:
    import torch

AUTO, FP32, BF16 = "auto", "fp32", "bf16"
PRECISIONS = (AUTO, FP32, BF16)
_auto_means: str | None = None
"""what auto means on processors; None: this machine decides"""


def choose_precision(wanted: str, device: str | torch.device = "cpu") -> str:
    """Return the precision that "auto", "fp32" or "bf16" means on a device of this machine.

    bfloat16 halves the time of an update on processors that are quick at it: those with AMX, AMD's
    with AVX-512. Others take longer than in float32, or emulate it (`autocast`).
    """
    if wanted != AUTO:
        return wanted
    if str(device).partition(":")[0] == "cuda":
        return BF16 if has_instructions("cuda") else FP32
    if _auto_means is not None:
        return _auto_means
    return BF16 if gains_by_bfloat16() else FP32


@contextmanager
def auto_means(precision: str | None) -> Iterator[None]:
    """Let "auto" mean a precision on processors meanwhile; None: what this machine decides.

    For runs that continue what another machine began.
    """
    global _auto_means
    before, _auto_means = _auto_means, precision
    try:
        yield
    finally:
        _auto_means = before


def note_on_precision(wanted: str, device: str | torch.device) -> str | None:
    """Say so if a precision is no faster than float32 on a device of this machine."""
    if wanted != BF16 or choose_precision(AUTO, device) == BF16:
        return None
    return (
        "bf16 is not faster than float32 on this machine; --precision auto leaves the choice to it"
    )


def has_instructions(kind: str) -> bool:
    """Return whether "cuda" or "cpu" computes in bfloat16 here, without emulating it."""
    if kind == "cuda":
        import torch  # takes seconds, and those who only choose for processors need none of it

        built = torch.backends.cuda.is_built()
        return built and torch.cuda.is_bf16_supported(including_emulation=False)
    return computes_bfloat16()
