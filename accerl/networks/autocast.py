"""Forward passes in bfloat16, where a processor has no instructions for it too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from accerl.precision import has_instructions

_PRODUCTS = frozenset(
    {
        torch.nn.functional.linear,
        torch.conv1d,
        torch.conv2d,
        torch.conv3d,
        torch.conv_transpose1d,
        torch.conv_transpose2d,
        torch.conv_transpose3d,
        torch.matmul,
        torch.mm,
        torch.bmm,
        torch.addmm,
        torch.baddbmm,
        Tensor.matmul,
        Tensor.__matmul__,
        Tensor.mm,
        Tensor.bmm,
        torch.nn.functional.scaled_dot_product_attention,
    }
)
"""functions that autocast computes in bfloat16"""


@contextmanager
def autocast(device: torch.device, *, low: bool) -> Iterator[None]:
    """Compute a forward pass, and what its gradients need, in bfloat16 meanwhile if `low`.

    A processor without instructions for it multiplies rounded numbers in float32, which is what
    such instructions do: they add up in float32 too. torch's own kernels for those processors
    take ten times as long and lose most of a convolution's gradient, because they add it up in
    bfloat16, state by state.
    """
    emulated = low and device.type == "cpu" and not has_instructions("cpu")
    with (
        torch.autocast(device.type, dtype=torch.bfloat16, enabled=low),
        _RoundedProducts() if emulated else nullcontext(),
    ):
        yield


class _RoundedProducts(TorchFunctionMode):
    """Computes what autocast would in float32, with operands and results rounded to bfloat16."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        given = (*args, *kwargs.values())
        # What computes in float64 autocast leaves alone.
        exact = any(isinstance(each, Tensor) and each.dtype == torch.float64 for each in given)
        if exact or func not in _PRODUCTS or not torch.is_autocast_enabled("cpu"):
            return func(*args, **kwargs)
        with torch.autocast("cpu", enabled=False):
            rounded = {name: _rounded(value) for name, value in kwargs.items()}
            return func(*map(_rounded, args), **rounded).bfloat16()


def _rounded(value: Any) -> Any:
    """Return a tensor of floats as float32 numbers that bfloat16 has; anything else unchanged."""
    if isinstance(value, Tensor) and value.dtype in (torch.float32, torch.bfloat16):
        return value.bfloat16().float()
    return value
