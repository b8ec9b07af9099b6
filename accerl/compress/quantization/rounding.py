"""Rounding in float32: for bit widths that no kernel has, and for training that knows of it."""

from __future__ import annotations

import copy
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from accerl.compress.distillation.trainer import distillation_loss
from accerl.compress.layers import apply_layer, body_layers
from accerl.compress.quantization.quantize import affine
from accerl.compress.quantization.ranges import ActivationRanges, rounded_layers
from accerl.errors import require
from accerl.networks.policy_net import PolicyNet

_Net = TypeVar("_Net", bound=nn.Module)

SIMULATED_BITS = range(2, 9)


def check_simulated_bits(bits: int) -> None:
    """Refuse what is not 2 to 8 bits.

    Raises:
        UserError: it is not.
    """
    require(bits in SIMULATED_BITS, "quantise: simulated bits", "must lie in 2..8", bits)


def affine_rounded(weight: Tensor, bits: int, *, per_channel: bool) -> Tensor:
    """Return `weight` rounded to 2^bits levels that cover its range and zero (QuaRL, section 3).

    With delta = (|min(W, 0)| + |max(W, 0)|) / 2^n and z = round(-min(W, 0) / delta), the integers
    are q = round(W / delta) + z, clipped to [0, 2^n - 1], and what is returned is delta (q - z).

    Args:
        weight: [out, ...].
        bits: n.
        per_channel: a range for each output channel, as QuaRL does for convolutions.
    """
    rows = weight.flatten(1) if per_channel else weight.reshape(1, -1)
    low = rows.amin(1, keepdim=True).clamp_max(0.0)
    high = rows.amax(1, keepdim=True).clamp_min(0.0)
    delta = ((high - low) / 2**bits).clamp_min(1e-30)
    zero = (-low / delta).round()
    integers = ((rows / delta).round() + zero).clamp(0, 2**bits - 1)
    return (delta * (integers - zero)).view(weight.shape)


def round_weights(net: _Net, bits: int) -> _Net:
    """Return a copy of `net` whose weights, those of the heads too, have `bits` bits.

    Raises:
        UserError: that is not 2 to 8 bits.
    """
    check_simulated_bits(bits)
    copied = copy.deepcopy(net)
    with torch.no_grad():
        for module in copied.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                convolution = isinstance(module, nn.Conv2d)
                module.weight.copy_(affine_rounded(module.weight, bits, per_channel=convolution))
    return copied


def tune_for_integers(
    net: PolicyNet,
    ranges: ActivationRanges,
    obs: np.ndarray,
    *,
    levels: int,
    updates: int,
    learning_rate: float,
) -> PolicyNet:
    """Return a copy of `net` that was trained to act, once it is INT8, as `net` does in float32.

    Rounding has no gradient, so it is passed straight through (Bengio et al. 2013); what is
    minimised is the distillation loss (paper, equation 1, without its entropy) to `net` itself.

    Args:
        net: the network before quantisation.
        ranges: its activation ranges; they stay.
        obs: recorded states [N, *shape].
        levels: the largest integer weight.
        updates: gradient steps over all of `obs`.
        learning_rate: of Adam.
    """
    tuned = copy.deepcopy(net)
    optimiser = torch.optim.Adam(tuned.parameters(), lr=learning_rate)
    states = torch.from_numpy(np.ascontiguousarray(obs)).to(net.device)
    with torch.no_grad():
        logits, values = net(states)
    for _ in range(updates):
        rounded, rounded_values = rounded_outputs(tuned, ranges, states, levels=levels)
        loss = distillation_loss(logits, values, rounded, rounded_values, entropy_cost=0.0)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
    return tuned.requires_grad_(False)


def rounded_outputs(
    net: PolicyNet, ranges: ActivationRanges, states: Tensor, *, levels: int
) -> tuple[Tensor, Tensor]:
    """Return logits and values as the INT8 graph computes them, with gradients straight through."""
    hidden = net.scale(states)
    if net.observation.dtype != "uint8":
        hidden = _round_activation(hidden, ranges.input)
    layers = body_layers(net)
    for index, (layer, limits) in enumerate(zip(layers, ranges.layers, strict=True)):
        module = layer.module
        weight = _round_weight(module.weight, levels)
        hidden = apply_layer(layer, hidden, weight, module.bias)
        hidden = hidden.relu() if layer.relu else hidden
        if index < rounded_layers(layers):
            hidden = _round_activation(hidden, limits)
    return net.heads(hidden.flatten(1))


def _round_activation(values: Tensor, limits: tuple[float, float]) -> Tensor:
    mapping = affine(*limits)
    integers = (values / mapping.scale + mapping.zero_point).clamp(0, 255)
    return mapping.scale * (_straight_through(integers) - mapping.zero_point)


def _round_weight(weight: Tensor, levels: int) -> Tensor:
    largest = weight.detach().flatten(1).abs().amax(1).clamp_min(1e-30)
    scale = (largest / levels).view(-1, *([1] * (weight.ndim - 1)))
    return scale * _straight_through(weight / scale)


def _straight_through(values: Tensor) -> Tensor:
    """Return rounded values whose gradient is that of the values."""
    return values + (values.round() - values).detach()
