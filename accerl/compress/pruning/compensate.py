"""Compensation: the units that stay take over for the removed ones, by least squares."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from accerl.compress.layers import body_layers
from accerl.networks.policy_net import PolicyNet, conv_spec

RIDGE = 1e-2
"""share of the mean squared activation that is added to each: recorded states are few"""
ROWS = 4096
"""equations per layer at most: a convolution has one for every place of every state"""


@torch.no_grad()
def compensate(
    pruned: PolicyNet, original: PolicyNet, keep: list[Tensor], obs: np.ndarray
) -> PolicyNet:
    """Adjust `pruned` in place so that its layers put out what `original`'s do; return it.

    Layer by layer, weights and bias become those nearest to the old ones that best map what the
    pruned network now puts in to what the original put out before its ReLU: channel pruning's
    reconstruction (He et al. 2017), in one step, without training.

    Args:
        pruned: `original` without the units that `keep` leaves out.
        original: the network that was pruned.
        keep: which units of each hidden layer stayed, as `masks` returns them.
        obs: recorded states [N, *shape].
    """
    device = original.device
    states = torch.from_numpy(np.ascontiguousarray(obs)).to(device)
    before, after = original.scale(states), pruned.scale(states)
    for index, (old, new, mask) in enumerate(
        zip(body_layers(original), body_layers(pruned), keep, strict=True)
    ):
        if old.flatten:
            before, after = before.flatten(1), after.flatten(1)
        before = old.module(before)
        if index > 0:  # the first layer's inputs are all there
            _fit(new.module, after, before[:, mask.to(device)])
        after = new.module(after)
        if old.relu:
            before, after = before.relu(), after.relu()
    before, after = before.flatten(1), after.flatten(1)
    for old_head, new_head in (
        (original.policy_head, pruned.policy_head),
        (original.value_head, pruned.value_head),
    ):
        _fit(new_head, after, old_head(before))
    return pruned


def _fit(layer: nn.Conv2d | nn.Linear, inputs: Tensor, wanted: Tensor) -> None:
    """Change weight and bias of `layer` so that it maps `inputs` to `wanted`, by ridge regression.

    With X the inputs and a column of ones, and R what is missing, the change is
    (X'X + kI)^-1 X'R, which equals X'(XX' + kI)^-1 R: the smaller of both systems is solved.
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
    rows = functional.pad(rows, (0, 1), value=1.0).double()
    targets = targets.double()
    count, width = rows.shape
    # k relative to the mean square of an input: the same answer whatever the scale.
    ridge = RIDGE * count * rows.square().mean()
    if count < width:
        gram = rows @ rows.T
        gram.diagonal().add_(ridge)
        change = rows.T @ torch.linalg.solve(gram, targets)
    else:
        gram = rows.T @ rows
        gram.diagonal().add_(ridge)
        change = torch.linalg.solve(gram, rows.T @ targets)
    layer.weight += change[:-1].T.reshape(layer.weight.shape).to(layer.weight.dtype)
    if layer.bias is not None:
        layer.bias += change[-1].to(layer.bias.dtype)
