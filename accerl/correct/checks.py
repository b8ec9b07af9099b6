"""Checks that every corrector makes before it computes."""

from __future__ import annotations

from torch import Tensor

from accerl.errors import require


def require_time_batch(*, lam: float | Tensor = 1.0, **tensors: Tensor) -> None:
    """Require non-empty floating tensors [T, B] of one shape and type; `lam` may be a number.

    Raises:
        ValueError: naming the first tensor that is not so.
        UserError: the number `lam` lies outside [0, 1].
    """
    if isinstance(lam, Tensor):
        tensors["lam"] = lam
    else:
        require_fraction("lam", lam)
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
        if tensor.dtype != reference.dtype:
            raise ValueError(f"{name} is {tensor.dtype} but {first} is {reference.dtype}")


def require_level(name: str, value: float) -> None:
    """Require a truncation level: at least 0, and infinity for none.

    Raises:
        UserError: `value` is negative or not a number.
    """
    require(value >= 0.0, name, "is a truncation level and must be at least 0", value)


def require_fraction(name: str, value: float) -> None:
    """Require a number in [0, 1].

    Raises:
        UserError: `value` lies elsewhere.
    """
    require(0.0 <= value <= 1.0, name, "must lie in [0, 1]", value)
