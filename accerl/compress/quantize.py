"""Static INT8: activation ranges from recorded states, per-channel symmetric weights.

Activations are unsigned with zero point 0 (every hidden layer ends in a ReLU, and clipping at 0
*is* that ReLU), weights are signed with zero point 0: the pair that AVX-512 VNNI multiplies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from accerl.compress.layers import body_layers
from accerl.errors import UserError
from accerl.networks import PolicyNet

Range = tuple[float, float]
CALIBRATION_STATES = 64
"""enough for ranges (256 gave the same KL on Pong), and four times cheaper per publication"""
INPUT_HEADROOM = 0.25
"""float observations drift while a policy learns: ranges reach a quarter further on each side"""


@dataclass(frozen=True)
class ActivationRanges:
    """What values flow through a network, as (low, high) with low <= 0 <= high."""

    input: Range
    """of the observation; (0, 0) for uint8, which needs none"""
    layers: tuple[Range, ...]
    """of each convolution's and linear layer's output, behind its ReLU"""
    heads_mean: tuple[float, ...] = ()
    """mean float32 logits and, last, mean value over the calibration states"""


@dataclass(frozen=True)
class Affine:
    """value = scale * (quantised - zero_point), quantised in [0, 255]."""

    scale: float
    zero_point: int


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


def calibrate(
    net: PolicyNet, obs: np.ndarray, *, percentile: float | None = None
) -> ActivationRanges:
    """Return the activation ranges of `net` on recorded states obs [N, *shape].

    Args:
        net: the network that will be quantised.
        obs: recorded states; recent ones, for ranges go stale as the policy moves.
        percentile: clip each layer's largest outputs at this percentile, such as 99.99; None
            keeps the maximum.

    Raises:
        UserError: there are no states, or they hold NaN or infinities.
    """
    if len(obs) == 0:
        raise UserError("quantise: no recorded states to calibrate on; call observe() first")
    if obs.dtype == np.uint8:
        input_range = (0.0, 0.0)
    else:
        low, high = float(obs.min()), float(obs.max())  # NaN if there is one
        if not (math.isfinite(low) and math.isfinite(high)):
            raise UserError("quantise: the recorded states hold NaN or infinite values")
        low, high = min(0.0, low), max(0.0, high)
        margin = INPUT_HEADROOM * (high - low)
        input_range = (low - margin if low < 0.0 else 0.0, high + margin if high > 0.0 else 0.0)
    ranges: list[Range] = []
    with torch.no_grad():
        states = torch.from_numpy(np.ascontiguousarray(obs))
        hidden = net.scale(states.to(net.policy_head.weight.device))
        for layer in body_layers(net):
            hidden = layer.module(hidden.flatten(1) if layer.flatten else hidden)
            if layer.relu:
                hidden = hidden.relu_()
            ranges.append(_observed_range(hidden, percentile))
        hidden = hidden.flatten(1)
        heads = torch.cat([net.policy_head(hidden), net.value_head(hidden)], dim=1)
    return ActivationRanges(input_range, tuple(ranges), tuple(heads.mean(0).tolist()))


def spread(obs: np.ndarray, states: int = CALIBRATION_STATES) -> np.ndarray:
    """Return at most `states` of the states obs [N, *shape], evenly spaced."""
    if len(obs) <= states:
        return obs
    return obs[np.linspace(0, len(obs) - 1, states).round().astype(int)]


def _observed_range(values: Tensor, percentile: float | None) -> Range:
    low, high = float(values.min()), float(values.max())  # NaN if there is one
    if not (math.isfinite(low) and math.isfinite(high)):
        raise UserError(
            "quantise: a layer outputs NaN or infinite values, so training has diverged; "
            "lower the learning rate or clip gradients"
        )
    if percentile is not None:
        flat = values.flatten()
        drop = int(len(flat) * (1.0 - percentile / 100.0))
        high = float(flat.topk(drop + 1).values[-1])
        low = float(flat.topk(drop + 1, largest=False).values[-1])
    return min(0.0, low), max(0.0, high)


def quantise_weight(weight: Tensor, bias: Tensor, input_scale: float) -> tuple[Tensor, Tensor]:
    """Return int8 weights and float32 scales [out], symmetric per output channel.

    The scale is normally max|w| / 127. It is raised where the int32 bias would overflow: a channel
    of zero weights still has to represent its bias.

    Args:
        weight: [out, ...], finite.
        bias: [out], finite.
        input_scale: scale of the layer's input.
    """
    largest = weight.flatten(1).abs().amax(1)
    smallest = bias.abs() / (input_scale * 2.0**30)
    scales = torch.maximum(largest / 127.0, smallest)
    scales = torch.where(scales > 1e-30, scales, torch.ones_like(scales))
    shape = (-1, *([1] * (weight.ndim - 1)))
    return (weight / scales.view(shape)).round_().clamp_(-127, 127).to(torch.int8), scales


def quantise_bias(bias: Tensor, input_scale: float, weight_scales: Tensor) -> Tensor:
    """Return the int32 bias, round(b / (s_x s_w))."""
    return (bias.double() / (input_scale * weight_scales.double())).round().to(torch.int32)
