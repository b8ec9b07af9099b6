"""Compensation: the units that stay take over for the removed ones, by least squares."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from accerl.compress.layers import body_layers
from accerl.compress.pruning.matching import Match
from accerl.compress.quantization.quantize import spread
from accerl.errors import UserError
from accerl.networks.graph_policy import GraphPolicy, Policy
from accerl.networks.policy_net import PolicyNet, conv_spec
from accerl.networks.probe import FLOOR_NATS

RIDGE = 1e-1
"""share of the mean squared activation that is added to each: recorded states are few"""
SMALLEST_RIDGE = 1e-12
"""of inputs that are all zero: there is nothing to fit, and nothing changes"""
ROWS = 4096
"""equations per layer at most: a convolution has one for every place of every state"""
GRAPH_STATES = 256
"""states to which the head of a network that is no chain is fitted: its forward may be slow"""


@torch.no_grad()
def compensate(
    small: PolicyNet, original: PolicyNet, matches: Sequence[Match | None], obs: np.ndarray
) -> PolicyNet:
    """Adjust `small` in place so that its layers put out what `original`'s do; return it.

    Layer by layer, weights and bias become those nearest to the old ones that best map what the
    small network now puts in to what the original put out before its ReLU: channel pruning's
    reconstruction (He et al. 2017), in one step, without training.

    Args:
        small: has some of the units of `original`.
        original: the network to act like.
        matches: which units each hidden layer of `small` has; a layer without stays as it is.
        obs: recorded states [N, *shape].

    Raises:
        UserError: the weights are not finite.
    """
    states = torch.from_numpy(np.ascontiguousarray(obs)).to(original.device)
    scaled = original.scale(states)  # most of the time goes into turning pixels into floats
    wanted, logits, values = _outputs(original, scaled)
    alike = small.observation == original.observation
    inputs, previous = scaled if alike else small.scale(states), -1
    for layer, match in zip(body_layers(small), matches, strict=True):
        if layer.flatten:
            inputs = inputs.flatten(1)
        # What reads the states themselves has all its inputs.
        if match is not None and not (match.layer == 0 and previous == -1):
            fit(layer.module, inputs, wanted[match.layer][:, match.keep.to(inputs.device)])
        previous = -2 if match is None else match.layer
        inputs = layer.module(inputs)
        if layer.relu:
            inputs = inputs.relu()
    inputs = inputs.flatten(1)
    fit(small.policy_head, inputs, logits)
    fit(small.value_head, inputs, values)
    return small


def _outputs(net: PolicyNet, scaled: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
    """Return what each hidden layer puts out before its ReLU, and both heads."""
    outputs: list[Tensor] = []
    current = scaled
    for layer in body_layers(net):
        current = layer.module(current.flatten(1) if layer.flatten else current)
        outputs.append(current)
        current = current.relu() if layer.relu else current
    current = current.flatten(1)
    return outputs, net.policy_head(current), net.value_head(current)


def fit(layer: nn.Conv2d | nn.Linear, inputs: Tensor, wanted: Tensor) -> None:
    """Change weight and bias of `layer` so that it maps `inputs` to `wanted`, by ridge regression.

    With X the inputs and a column of ones, and R what is missing, the change is
    (X'X + kI)^-1 X'R, which equals X'(XX' + kI)^-1 R: the smaller of both systems is solved.

    Raises:
        UserError: the numbers are not finite.
    """
    missing = wanted - layer(inputs)
    if isinstance(layer, nn.Conv2d):
        patches = functional.unfold(
            inputs, layer.kernel_size, padding=conv_spec(layer).padding, stride=layer.stride
        )
        rows = patches.transpose(1, 2).flatten(0, 1)
        targets = missing.flatten(2).transpose(1, 2).flatten(0, 1)
    else:
        rows, targets = inputs, missing
    if len(rows) > ROWS:
        chosen = torch.linspace(0, len(rows) - 1, ROWS, device=rows.device).long()
        rows, targets = rows[chosen], targets[chosen]
    if layer.bias is not None:
        rows = functional.pad(rows, (0, 1), value=1.0)
    if not (bool(rows.isfinite().all()) and bool(targets.isfinite().all())):
        raise UserError("compress: the weights are not finite, so training has diverged")
    count, width = rows.shape
    # k relative to the mean square of an input: the same answer whatever the scale.
    ridge = (RIDGE * count * rows.square().mean()).clamp_min(SMALLEST_RIDGE)
    if count < width:
        change = rows.T @ _solve(rows @ rows.T, ridge, targets)
    else:
        change = _solve(rows.T @ rows, ridge, rows.T @ targets)
    if layer.bias is not None:
        layer.bias.add_(change[-1])
        change = change[:-1]
    layer.weight.add_(change.T.reshape(layer.weight.shape))


def _solve(gram: Tensor, ridge: Tensor, targets: Tensor) -> Tensor:
    """Return (gram + ridge I)^-1 targets; float32 resolves the products, but not the solution."""
    exact = gram.double()
    exact.diagonal().add_(ridge)
    factor = torch.linalg.cholesky(exact)
    return torch.cholesky_solve(targets.double(), factor).to(targets.dtype)


@torch.no_grad()
def fit_policy_head(net: Policy, original: Policy, obs: np.ndarray) -> None:
    """Fit the layer that puts out the logits of `net` to those of `original`, in place.

    It is all that is known of networks whose layers do not correspond. A network whose logits no
    linear layer of their own puts out stays as it is.

    Args:
        net: the network to change.
        original: the network to act like.
        obs: recorded states [N, *shape]; some of them are used.

    Raises:
        UserError: the weights are not finite.
    """
    heads = net.heads if isinstance(net, GraphPolicy) else (net.policy_head,)
    if not heads or heads[0].out_features != net.num_actions:
        return
    states = torch.from_numpy(np.ascontiguousarray(spread(obs, GRAPH_STATES))).to(net.device)
    wanted = original(states)[0]
    wanted = wanted.maximum(wanted.amax(1, keepdim=True) - FLOOR_NATS)
    features = net.outputs(states)[2]
    heads[0].weight.zero_()
    fit(heads[0], features, wanted)
