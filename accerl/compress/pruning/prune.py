"""Structured pruning: whole convolution channels and hidden neurons are removed.

What remains is a narrower, dense network, so it is faster on any hardware (paper, section 2.2).
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import overload

import numpy as np
import torch
from torch import Tensor, nn

from accerl.compress.layers import body_layers
from accerl.compress.pruning.compensate import compensate
from accerl.compress.pruning.criteria import PruneMethod, keep_best, kept_counts, unit_scores
from accerl.compress.pruning.graph import prune_graph
from accerl.errors import UserError, require
from accerl.networks.graph_policy import GraphPolicy, Policy
from accerl.networks.policy_net import PolicyNet


def masks(net: PolicyNet, sparsity: float, method: PruneMethod = PruneMethod()) -> list[Tensor]:
    """Return which units of each hidden layer stay.

    Args:
        net: the network to judge.
        sparsity: fraction of units removed, in [0, 1).
        method: how to choose.

    Returns:
        One boolean tensor [units] per convolution and linear layer of the body.

    Raises:
        UserError: the sparsity is not allowed, or the criterion lacks gradients.
    """
    check_sparsity(sparsity)
    if not sparsity:  # rounding widths would remove units nobody asked to remove
        rows = [layer.module.weight for layer in body_layers(net)]
        return [torch.ones(len(row), dtype=torch.bool, device=row.device) for row in rows]
    scores = unit_scores(net, method)
    counts = kept_counts(scores, sparsity, method)
    return [keep_best(score, count) for score, count in zip(scores, counts, strict=True)]


def check_sparsity(sparsity: float) -> None:
    """Refuse what is no fraction that can be removed.

    Raises:
        UserError: it is not in [0, 1).
    """
    rule = "is the fraction removed and must lie in [0, 1)"
    require(0.0 <= sparsity < 1.0, "prune: sparsity", rule, sparsity)


@overload
def prune(
    net: PolicyNet,
    sparsity: float,
    method: PruneMethod = PruneMethod(),
    *,
    obs: np.ndarray | None = None,
) -> PolicyNet: ...


@overload
def prune(
    net: Policy,
    sparsity: float,
    method: PruneMethod = PruneMethod(),
    *,
    obs: np.ndarray | None = None,
) -> Policy: ...


def prune(
    net: Policy,
    sparsity: float,
    method: PruneMethod = PruneMethod(),
    *,
    obs: np.ndarray | None = None,
) -> Policy:
    """Return `net` without the fraction `sparsity` of its hidden units.

    Every consumer of a removed unit is rewired: the next convolution, the linear layer behind a
    flatten, the next linear layer and both heads. The order of the units that stay is kept. What
    is no chain of layers is pruned by `prune_graph`.

    Args:
        net: the network to prune; it stays as it is.
        sparsity: fraction of units removed, in [0, 1).
        method: how to choose them.
        obs: recorded states [N, *shape], for a method that compensates.

    Raises:
        UserError: the sparsity is not allowed, what the method needs is missing, or the network
            cannot be pruned.
    """
    check_sparsity(sparsity)
    if isinstance(net, GraphPolicy):
        return prune_graph(net, sparsity, method) if sparsity else copy.deepcopy(net)
    keep = masks(net, sparsity, method)
    if method.compensate and (obs is None or len(obs) == 0):
        raise UserError("prune: compensating needs recorded states; call observe() first")
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
    narrow = narrow.to_empty(device=net.device)
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
    if method.compensate and sparsity and obs is not None:
        compensate(narrow, net, keep, obs)
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
