"""Shape checks that every corrector makes before it computes."""

from __future__ import annotations

from torch import Tensor


def require_time_batch(**tensors: Tensor) -> None:
    """Require non-empty floating tensors [T, B] of one shape.

    Raises:
        ValueError: naming the first tensor that is not so.
    """
    first, reference = next(iter(tensors.items()))
    for name, tensor in tensors.items():
        if tensor.ndim != 2 or tensor.numel() == 0:
            raise ValueError(f"{name} must be a non-empty [T, B], got {tuple(tensor.shape)}")
        if not tensor.is_floating_point():
            raise ValueError(f"{name} must be floating point, got {tensor.dtype}")
        if tensor.shape != reference.shape:
            raise ValueError(
                f"{name} is {tuple(tensor.shape)} but {first} is {tuple(reference.shape)}"
            )
