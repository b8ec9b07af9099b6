"""Rounding in float32: for bit widths that no kernel has, and for training that knows of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from accerl.compress.distillation.loss import distillation_loss
from accerl.compress.distillation.trainer import FixedStates, StateSource
from accerl.compress.layers import apply_layer, body_layers
from accerl.compress.quantization.quantize import affine
from accerl.compress.quantization.ranges import (
    ActivationRanges,
    Range,
    finite_range,
    layer_outputs,
    rounded_layers,
)
from accerl.errors import CannotCompressError, require
from accerl.networks.policy_net import PolicyNet

_Net = TypeVar("_Net", bound=nn.Module)

SIMULATED_BITS = range(2, 17)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_NORMS = (nn.LayerNorm, nn.RMSNorm)  # of images their weights are images
Outputs = Callable[[PolicyNet, Tensor], tuple[Tensor, Tensor]]
"""(network, states [B, *shape]) -> logits [B, A] and values [B], rounded on the way"""


def check_simulated_bits(bits: int) -> None:
    """Refuse what is not 2 to 16 bits.

    Raises:
        UserError: it is not.
    """
    require(bits in SIMULATED_BITS, "quantise: simulated bits", "must lie in 2..16", bits)


def affine_rounded(weight: Tensor, bits: int, *, per_channel: bool) -> Tensor:
    """Return `weight` rounded to 2^bits levels that cover its range and zero (QuaRL, section 3).

    With delta = (|min(W, 0)| + |max(W, 0)|) / 2^n and z = round(-min(W, 0) / delta), the integers
    are q = round(W / delta) + z, clipped to [0, 2^n - 1], and what is returned is delta (q - z).
    Gradients pass straight through the rounding; the range stands still for them.

    Args:
        weight: [out, ...].
        bits: n.
        per_channel: a range for each output channel, as QuaRL does for convolutions.
    """
    rows = weight.flatten(1) if per_channel else weight.reshape(1, -1)
    low = rows.detach().amin(1, keepdim=True).clamp_max(0.0)
    high = rows.detach().amax(1, keepdim=True).clamp_min(0.0)
    return _on_grid(rows, low, high, bits).view(weight.shape)


def _on_grid(values: Tensor, low: Tensor, high: Tensor, bits: int) -> Tensor:
    """Return values rounded to 2^bits levels over [low, high], which holds zero."""
    delta = ((high - low) / 2**bits).clamp_min(1e-30)
    zero = (-low / delta).round()
    integers = (_straight_through(values / delta) + zero).clamp(0, 2**bits - 1)
    return delta * (integers - zero)


def round_weights(net: _Net, bits: int) -> _Net:
    """Return a copy of `net` whose weights, those of the heads too, have `bits` bits.

    Biases, and what norms multiply with, stay in float32.

    Raises:
        UserError: that is not 2 to 16 bits.
        CannotCompressError: a layer computes its weights from others.
    """
    check_simulated_bits(bits)
    copied = copy.deepcopy(net)
    with torch.no_grad():
        for name, module in copied.named_modules():
            if is_parametrized(module):
                raise CannotCompressError(
                    f"simulated bits: the weights of {name!r} are parametrised (spectral norm, "
                    "say) and cannot be rounded; use plain layers, or simulate no bits"
                )
            for weight in module.parameters(recurse=False):
                if weight.ndim > 1 and not isinstance(module, _NORMS):
                    per_channel = isinstance(module, _CONVOLUTIONS)
                    weight.copy_(affine_rounded(weight, bits, per_channel=per_channel))
    return copied


def _rounded_weight(module: nn.Conv2d | nn.Linear, bits: int) -> Tensor:
    return affine_rounded(module.weight, bits, per_channel=isinstance(module, _CONVOLUTIONS))


def hidden_ranges(net: PolicyNet, states: Tensor) -> list[Range]:
    """Return (low, high) of what each layer of the body puts out behind its ReLU.

    Args:
        net: in float32.
        states: recorded ones [N, *shape].

    Raises:
        UserError: a layer puts out NaN or infinite values: training has diverged.
    """
    outputs, _ = layer_outputs(net, states, len(body_layers(net)))
    return [finite_range(values) for values in outputs]


def simulated_outputs(
    net: PolicyNet,
    states: Tensor,
    bits: int,
    *,
    weights: bool = True,
    ranges: Sequence[Range] | None = None,
) -> tuple[Tensor, Tensor]:
    """Return logits [B, A] and values [B] in `bits` bits by QuaRL's affine scheme, in float32.

    Observations and what the heads put out stay as they are. Gradients pass straight through.

    Args:
        net: the network.
        states: [B, *shape].
        bits: n of `affine_rounded`.
        weights: whether its weights, those of the heads too, are rounded here: not if they are.
        ranges: see `hidden_ranges`; what flows between layers is rounded to that many levels over
            them. None: it stays in float32.
    """
    hidden = net.scale(states)
    for index, layer in enumerate(body_layers(net)):
        module = layer.module
        weight = _rounded_weight(module, bits) if weights else module.weight
        hidden = apply_layer(layer, hidden, weight, module.bias)
        hidden = hidden.relu() if layer.relu else hidden
        if ranges is not None:
            low, high = (hidden.new_tensor(bound) for bound in ranges[index])
            hidden = _on_grid(hidden, low, high, bits)
    hidden = hidden.flatten(1)
    if not weights:
        return net.heads(hidden)
    logits, values = (
        nn.functional.linear(hidden, _rounded_weight(head, bits), head.bias)
        for head in (net.policy_head, net.value_head)
    )
    return logits, values.squeeze(-1)


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

    The biases of its heads give back what rounding takes on average, as `HeadShift` does for a
    network that was not trained. It is `net` itself where training did not come closer than that:
    Adam's first steps are as large for small errors as for large ones.

    Args:
        net: the network before quantisation.
        ranges: its activation ranges; they stay.
        obs: recorded states [N, *shape].
        levels: the largest integer weight.
        updates: gradient steps over all of `obs`.
        learning_rate: of Adam at first; it falls to nothing.
    """

    def outputs(tuned: PolicyNet, states: Tensor) -> tuple[Tensor, Tensor]:
        return rounded_outputs(tuned, ranges, states, levels=levels)

    tuned = tune_rounded(
        net,
        outputs,
        FixedStates(obs),
        batch=len(obs),
        updates=updates,
        learning_rate=learning_rate,
        anneals=True,
    )
    states = torch.from_numpy(np.ascontiguousarray(obs)).to(net.device)
    with torch.no_grad():
        wanted = net(states)
        before, _ = _shifted(outputs(net, states), wanted)
        after, (policy_shift, value_shift) = _shifted(outputs(tuned, states), wanted)
        errors = zip(_errors(after, wanted), _errors(before, wanted), strict=True)
        if not all(now < then for now, then in errors):  # NaN is no less, either
            return net
        tuned.policy_head.bias.add_(policy_shift)
        tuned.value_head.bias.add_(value_shift)
    return tuned


_Both = tuple[Tensor, Tensor]
"""logits and values"""


def _shifted(found: _Both, wanted: _Both) -> tuple[_Both, _Both]:
    """Return outputs without their mean error, and what was added to them."""
    logits, values = ((own - given).mean(0) for own, given in zip(wanted, found, strict=True))
    return (found[0] + logits, found[1] + values), (logits, values)


def _errors(found: _Both, wanted: _Both) -> tuple[float, float]:
    """Return what is minimised, and the squared error of logits, by which engines are checked."""
    loss = distillation_loss(*wanted, *found, entropy_cost=0.0)
    return float(loss), float((found[0] - wanted[0]).square().mean())


def tune_rounded(
    net: PolicyNet,
    outputs: Outputs,
    source: StateSource,
    *,
    batch: int,
    updates: int,
    learning_rate: float,
    anneals: bool = False,
    value_cost: float = 1.0,
    generator: torch.Generator | None = None,
) -> PolicyNet:
    """Return a copy of `net` that was trained to act, once it is rounded, as `net` does in float32.

    Rounding has no gradient, so it is passed straight through (Bengio et al. 2013); what is
    minimised is the distillation loss (paper, equation 1, without its entropy) to `net` itself.

    Args:
        net: the network before quantisation.
        outputs: how it acts once it is rounded.
        source: of recorded states.
        batch: states per update.
        updates: gradient steps.
        learning_rate: of Adam.
        anneals: whether it falls to nothing, in a straight line.
        value_cost: see `distillation_loss`.
        generator: of what is drawn.
    """
    tuned = copy.deepcopy(net).requires_grad_(True)
    optimiser = torch.optim.Adam(tuned.parameters(), lr=learning_rate)
    generator = generator or torch.Generator()
    taught: tuple[np.ndarray, Tensor, Tensor, Tensor] | None = None
    for update in range(updates):
        if anneals:
            optimiser.param_groups[0]["lr"] = learning_rate * (1.0 - update / updates)
        drawn = source.draw(batch, generator).obs
        if taught is None or drawn is not taught[0]:  # the same few states are taught once
            seen = torch.from_numpy(np.ascontiguousarray(drawn)).to(net.device)
            with torch.no_grad():
                taught = drawn, seen, *net(seen)
        _, states, logits, values = taught
        rounded, rounded_values = outputs(tuned, states)
        loss = distillation_loss(
            logits, values, rounded, rounded_values, entropy_cost=0.0, value_cost=value_cost
        )
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
