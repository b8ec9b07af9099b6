"""The floats that learners and students compute in: float32, bfloat16, or what is faster here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from accerl.compress.quantization.cpu import computes_bfloat16

AUTO, FP32, BF16 = "auto", "fp32", "bf16"
PRECISIONS = (AUTO, FP32, BF16)
_auto_means: str | None = None
"""what auto means on processors; None: this machine decides"""


def choose_precision(wanted: str, device: str | torch.device = "cpu") -> str:
    """Return the precision that "auto", "fp32" or "bf16" means on a device of this machine.

    bfloat16 halves the time of an update where there are instructions for it. A processor without
    them emulates it, and takes ten times as long as in float32.
    """
    if wanted != AUTO:
        return wanted
    if torch.device(device).type == "cuda":
        built = torch.backends.cuda.is_built()
        has = built and torch.cuda.is_bf16_supported(including_emulation=False)
        return BF16 if has else FP32
    if _auto_means is not None:
        return _auto_means
    return BF16 if computes_bfloat16() else FP32


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
    """Say so if a precision is emulated on a device of this machine."""
    if wanted != BF16 or choose_precision(AUTO, device) == BF16:
        return None
    return (
        "bf16 has no instructions here and is emulated, which takes some ten times as long as "
        "float32; --precision auto leaves the choice to the machine"
    )
