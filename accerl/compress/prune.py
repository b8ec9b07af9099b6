"""Structured L1 pruning: whole convolution channels and hidden neurons are removed.

What remains is a narrower, dense network, so it is faster on any hardware (paper, section 2.2).
"""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from torch import Tensor, nn

from accerl.compress.layers import body_layers
from accerl.errors import UserError, did_you_mean
from accerl.networks import PolicyNet

CRITERIA = ("l1", "l2")


def kept_units(units: int, sparsity: float) -> int:
    """Return how many of `units` stay when the fraction `sparsity` is removed; at least one."""
    return max(1, round(units * (1.0 - sparsity)))


def masks(net: PolicyNet, sparsity: float, *, criterion: str = "l1") -> list[Tensor]:
    """Return which units of each hidden layer stay: the ones with the largest incoming norm.

    Args:
        net: the network to judge.
        sparsity: fraction of units removed from every hidden layer, in [0, 1).
        criterion: ``l1`` or ``l2`` norm of a unit's weights and bias.

    Returns:
        One boolean tensor [units] per convolution and linear layer of the body.

    Raises:
        UserError: sparsity or criterion is not allowed.
    """
    if not 0.0 <= sparsity < 1.0:
        raise UserError(
            f"prune: sparsity is the fraction removed and must lie in [0, 1), got {sparsity!r}"
        )
    if criterion not in CRITERIA:
        hint = did_you_mean(criterion, list(CRITERIA))
        raise UserError(f"prune: criterion {criterion!r} does not exist; {hint}")
    power = CRITERIA.index(criterion) + 1
    found: list[Tensor] = []
    for layer in body_layers(net):
        weight = layer.module.weight.detach()
        score = weight.flatten(1).abs().pow(power).sum(1)
        if layer.module.bias is not None:
            score = score + layer.module.bias.detach().abs().pow(power)
        # A stable sort breaks ties by position, so equal seeds prune equal units everywhere.
        order = torch.sort(score, descending=True, stable=True).indices
        mask = torch.zeros(len(score), dtype=torch.bool, device=score.device)
        mask[order[: kept_units(len(score), sparsity)]] = True
        found.append(mask)
    return found


def masked_copy(net: PolicyNet, masks: list[Tensor]) -> PolicyNet:
    """Return a copy of `net` whose removed units output zero: what pruning must be equal to."""
    copied = copy.deepcopy(net)
    with torch.no_grad():
        for layer, mask in zip(body_layers(copied), masks, strict=True):
            layer.module.weight[~mask] = 0.0
            if layer.module.bias is not None:
                layer.module.bias[~mask] = 0.0
    return copied


def prune(net: PolicyNet, sparsity: float, *, criterion: str = "l1") -> PolicyNet:
    """Return `net` without the fraction `sparsity` of its hidden units.

    Every consumer of a removed unit is rewired: the next convolution, the linear layer behind a
    flatten, the next linear layer and both heads. The order of the units that stay is kept.

    Raises:
        UserError: sparsity or criterion is not allowed.
    """
    keep = masks(net, sparsity, criterion=criterion)
    counts = [int(mask.sum()) for mask in keep]
    convs = len(net.arch.convs)
    if len(keep) != convs + len(net.arch.hidden):
        raise ValueError("prune: only plain networks can be pruned; prune before factorising")
    arch = replace(
        net.arch,
        convs=tuple(
            conv._replace(channels=count)
            for conv, count in zip(net.arch.convs, counts[:convs], strict=True)
        ),
        hidden=tuple(counts[convs:]),
    )
    with torch.device("meta"):  # every weight is copied below: do not draw random ones first
        narrow = PolicyNet(arch, net.observation, net.num_actions)
    narrow = narrow.to_empty(device=net.policy_head.weight.device)
    inputs: Tensor | None = None  # mask over the input columns of the layer at hand; None: all
    with torch.no_grad():
        for old, new, mask in zip(body_layers(net), body_layers(narrow), keep, strict=True):
            _copy_units(old.module, new.module, mask, inputs)
            inputs = mask
        for old, new in (
            (net.policy_head, narrow.policy_head),
            (net.value_head, narrow.value_head),
        ):
            _copy_units(old, new, torch.ones(len(old.weight), dtype=torch.bool), inputs)
    return narrow


def _copy_units(
    old: nn.Conv2d | nn.Linear, new: nn.Conv2d | nn.Linear, units: Tensor, inputs: Tensor | None
) -> None:
    """Copy the rows `units` and the columns `inputs` of one layer."""
    units = units.to(old.weight.device)
    weight = old.weight[units]
    if inputs is not None:
        # Flatten is channel-major: behind it every channel owns height x width columns.
        weight = weight[:, inputs.repeat_interleave(weight.shape[1] // len(inputs))]
    new.weight.copy_(weight)
    if old.bias is not None and new.bias is not None:
        new.bias.copy_(old.bias[units])
