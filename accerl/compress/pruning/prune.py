"""Structured pruning: whole convolution channels and hidden neurons are removed.

What remains is a narrower, dense network, so it is faster on any hardware (paper, section 2.2).
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import overload

import numpy as np
import torch
from torch import Tensor

from accerl.compress.layers import body_layers
from accerl.compress.pruning.compensate import compensate, fit_policy_head
from accerl.compress.pruning.criteria import PruneMethod, keep_best, kept_counts, unit_scores
from accerl.compress.pruning.graph import prune_graph
from accerl.compress.pruning.matching import Match, copy_units, match_units
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
    if not scores:  # heads alone, which have no units to remove
        return []
    counts = kept_counts(scores, sparsity, method)
    return [keep_best(score, count) for score, count in zip(scores, counts, strict=True)]


def check_sparsity(sparsity: float) -> None:
    """Refuse what is no fraction that can be removed.

    Raises:
        UserError: it is not in [0, 1).
    """
    rule = "is the fraction removed and must lie in [0, 1)"
    is_number = isinstance(sparsity, int | float)
    require(is_number and 0.0 <= sparsity < 1.0, "prune: sparsity", rule, sparsity)


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
        return _prune_graph(net, sparsity, method, obs) if sparsity else copy.deepcopy(net)
    keep = masks(net, sparsity, method)
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
    matches = list(itertools.starmap(Match, enumerate(keep)))
    imitate(narrow, net, matches, method.compensate and sparsity > 0.0, obs)
    return narrow


def _prune_graph(
    net: GraphPolicy, sparsity: float, method: PruneMethod, obs: np.ndarray | None
) -> GraphPolicy:
    pruned = prune_graph(net, sparsity, method, obs)
    if method.compensate:
        fit_policy_head(pruned, net, _given(obs))
    return pruned


def shrink(
    small: PolicyNet, net: PolicyNet, method: PruneMethod, obs: np.ndarray | None
) -> PolicyNet:
    """Make of `small` the copy of `net` that its sizes allow, in place; return it.

    It gets the units of `net` that matter most. Layers that do not correspond to one of `net` stay
    as they are; what reads them is fitted, if the method compensates.

    Args:
        small: the network to change.
        net: the network to act like.
        method: how to choose units.
        obs: recorded states [N, *shape], for a method that compensates.

    Raises:
        UserError: what the method needs is missing.
    """
    matches = match_units(small.arch, net.arch, unit_scores(net, method))
    imitate(small, net, matches, method.compensate, obs)
    return small


def imitate(
    small: PolicyNet,
    net: PolicyNet,
    matches: Sequence[Match | None],
    fitted: bool,
    obs: np.ndarray | None,
) -> None:
    """Copy those units of `net` into `small`, and fit its layers to recorded states if asked to.

    Raises:
        UserError: there are no states to fit to.
    """
    states = _given(obs) if fitted else None
    copy_units(net, small, matches, blank=fitted)
    if matches and matches[0] is not None and matches[0].layer == 0:
        _see_alike(small, net)
    if states is not None:
        compensate(small, net, matches, states)


@torch.no_grad()
def _see_alike(small: PolicyNet, net: PolicyNet) -> None:
    """Have copies of the first layer's units, which see pixels with another centre and unit.

        w (x - c) / u + b = w' (x - c') / u' + b',   w' = w u' / u,   b' = b + sum w (c' - c) / u

    Zeros at a border are other pixels then, which is left to the fit of the next layers.
    """
    own, seen = small.observation, net.observation
    if own == seen or own.dtype != "uint8":
        return
    first = body_layers(small)[0].module
    if first.bias is not None:
        moved = (own.centre - seen.centre) / seen.unit
        first.bias.add_(moved * first.weight.flatten(1).sum(1))
    first.weight.mul_(own.unit / seen.unit)


def _given(obs: np.ndarray | None) -> np.ndarray:
    """Return the states to fit to.

    Raises:
        UserError: there are none.
    """
    if obs is None or len(obs) == 0:
        raise UserError("prune: compensating needs recorded states; call observe() first")
    return obs
