"""Static INT8: activation ranges from recorded states, per-channel symmetric weights.

Activations are unsigned; behind a ReLU their zero point is 0, and clipping at 0 *is* that ReLU.
Weights are signed with zero point 0: the pair that AVX-512 VNNI multiplies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from accerl.compress.quantization.cpu import dots_bytes_exactly
from accerl.compress.quantization.ranges import RangeMethod
from accerl.errors import UserError, require_fields

CALIBRATION_STATES = 64
"""enough for ranges that are measured once (256 gave the same KL on Pong)"""
LEVELS, SAFE_LEVELS = 127, 63
"""largest quantised weight, and the largest that needs no VNNI (see `cpu.py`)"""
_ROWS = 128


@dataclass(frozen=True, kw_only=True)
class QuantiseMethod:
    """How a network becomes integers.

    Raises:
        UserError: a value is out of range.
    """

    ranges: RangeMethod = RangeMethod()
    """how activation ranges follow from recorded states"""
    reduce_range: bool | None = None
    """weights of 7 bits, whose products cannot saturate; None: where the CPU lacks VNNI"""
    tuning_updates: int = 0
    """gradient steps by which what is published is trained to be rounded"""
    tuning_learning_rate: float = 1e-4
    """of these steps"""
    weights_only: bool = False
    """integers on the way to the actors only, which act in float32: a quarter of the bytes"""

    def __post_init__(self) -> None:
        check = partial(require_fields, self, "quantise")
        check("tuning_updates", "must not be negative", lambda updates: updates >= 0)
        check("tuning_learning_rate", "must be positive", lambda rate: 0.0 < rate < math.inf)
        if self.weights_only and self.reduce_range:
            raise UserError(
                "quantise: reduce_range is for products of integers, which weights_only does not "
                "have; leave one of them out"
            )
        if self.weights_only and self.tuning_updates:
            raise UserError(
                "quantise: tuning trains for rounded activations, which weights_only does not "
                "have; leave one of them out"
            )

    @property
    def levels(self) -> int:
        """The largest quantised weight."""
        if self.reduce_range is None:
            return exact_levels()
        return SAFE_LEVELS if self.reduce_range else LEVELS


def exact_levels() -> int:
    """Return the largest integer weight whose products add up exactly on this processor."""
    return LEVELS if dots_bytes_exactly() else SAFE_LEVELS


@dataclass(frozen=True)
class Affine:
    """value = scale * (quantised - zero_point), quantised in [0, 255]."""

    scale: float
    zero_point: int

    def rounded(self, values: Tensor) -> Tensor:
        """Return what is left of `values` in eight bits."""
        integers = (values / self.scale).add_(self.zero_point).round_().clamp_(0, 255)
        return integers.sub_(self.zero_point).mul_(self.scale)


def affine(low: float, high: float) -> Affine:
    """Return the unsigned 8-bit mapping that covers [low, high] with zero exactly representable.

    A range of zero width (a dead layer) gets scale 1/255: any scale represents its zeros.

    Raises:
        ValueError: the range is not finite, or does not contain zero.
    """
    if not (math.isfinite(low) and math.isfinite(high) and low <= 0.0 <= high):
        raise ValueError(f"a range must be finite and contain zero, got ({low}, {high})")
    span = high - low
    if span < 1e-30:
        return Affine(1.0 / 255.0, 0)
    scale = span / 255.0
    return Affine(scale, min(255, max(0, round(-low / scale))))


def spread(obs: np.ndarray, states: int = CALIBRATION_STATES) -> np.ndarray:
    """Return at most `states` of the states obs [N, *shape], evenly spaced."""
    if len(obs) <= states:
        return obs
    return obs[np.linspace(0, len(obs) - 1, states).round().astype(int)]


class Probe:
    """What a linear layer makes of the same states in float32 and rounded.

    Its weights are read once for both, while they are in the cache: on its own, either product
    takes as long as rounding the weights.
    """

    def __init__(self, exact: Tensor, rounded: Tensor, units: int) -> None:
        """Take the layer's inputs [N, in] before and after rounding."""
        self._inputs = exact.contiguous(), rounded.contiguous()
        self.exact = torch.empty(len(exact), units)
        """W x for the exact inputs [N, units]"""
        self.rounded = torch.empty(len(exact), units)
        """the same of rounded weights for rounded inputs"""

    def see(self, start: int, weight: Tensor, integers: Tensor, scale: Tensor) -> None:
        """Take the rows `weight` [R, in] from `start` on, equal to about scale * `integers`."""
        rows = slice(start, start + len(weight))
        exact, rounded = self._inputs
        self.exact[:, rows] = exact @ weight.t()
        self.rounded[:, rows] = (rounded @ integers.t()).mul_(scale)


def quantise_weight(
    weight: Tensor,
    bias: Tensor,
    input_scale: float,
    *,
    levels: int = LEVELS,
    probe: Probe | None = None,
) -> tuple[Tensor, Tensor]:
    """Return int8 weights and float32 scales [out], symmetric per output channel.

    The scale is normally max|w| / levels. It is raised where the int32 bias would overflow: a
    channel of zero weights still has to represent its bias. Weights that are not finite give
    scales that are not.

    Args:
        weight: [out, ...].
        bias: [out].
        input_scale: scale of the layer's input.
        levels: largest integer, at most 127.
        probe: what wants to see a linear layer's rows beside what they are rounded to.
    """
    rows = weight.flatten(1)
    integers, scales = torch.empty(rows.shape, dtype=torch.int8), torch.empty(len(rows))
    smallest = bias.abs() / (input_scale * 2.0**30)
    scratch = torch.empty((min(_ROWS, len(rows)), rows.shape[1]))
    # Some rows at a time: what stays in the cache is read five times for the price of one.
    for start in range(0, len(rows), _ROWS):
        part = rows[start : start + _ROWS]
        work = scratch[: len(part)]
        largest = torch.abs(part, out=work).amax(1)
        scale = torch.maximum(largest / levels, smallest[start : start + _ROWS])
        scale = torch.where(scale <= 1e-30, torch.ones_like(scale), scale)  # NaN stays
        torch.div(part, scale[:, None], out=work).round_()  # |w| / scale <= levels
        integers[start : start + _ROWS] = work
        scales[start : start + _ROWS] = scale
        if probe is not None:
            probe.see(start, part, work, scale)
    return integers.view(weight.shape), scales


def quantise_bias(bias: Tensor, input_scale: float, weight_scales: Tensor) -> Tensor:
    """Return the int32 bias, round(b / (s_x s_w))."""
    return (bias.double() / (input_scale * weight_scales.double())).round().to(torch.int32)
