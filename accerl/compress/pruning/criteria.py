"""Which hidden units matter: the scores by which structured pruning chooses, and its budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from accerl.compress.layers import body_layers
from accerl.errors import UserError, require_choice, require_fields
from accerl.networks.graph_policy import Policy, hidden_layers
from accerl.networks.policy_net import PolicyNet

CRITERIA = ("l1", "l2", "taylor", "geometric-median", "random")
BUDGETS = ("uniform", "global")
LEAST_SHARE = 0.1
"""of a layer's units that a global budget leaves at least: an empty layer lets nothing through"""


@dataclass(frozen=True, kw_only=True)
class PruneMethod:
    """How structured pruning chooses what to remove.

    Raises:
        UserError: a value is not allowed.
    """

    criterion: str = "l1"
    """l1 or l2: sum of the absolute values, or of the squares, of a unit's weights and bias;
    taylor: first-order change of the loss without it (Molchanov et al. 2019; needs gradients);
    geometric-median: distance to all other units of its layer (He et al. 2019: what lies amid the
    others can be replaced by them); random"""
    budget: str = "uniform"
    """uniform: the same fraction of every layer; global: the lowest scores of the whole network,
    each divided by its layer's mean, but never more than nine tenths of a layer"""
    round_to: int = 1
    """widths are multiples of it where a layer is as wide: vector units make 9 channels cost 16"""
    compensate: bool = False
    """whether the units that stay take over for the others, by least squares"""
    seed: int = 0
    """of the random criterion"""

    def __post_init__(self) -> None:
        require_choice("prune: criterion", self.criterion, CRITERIA)
        require_choice("prune: budget", self.budget, BUDGETS)
        require_fields(self, "prune", "round_to", "must be at least 1", lambda n: n >= 1)


def unit_scores(net: PolicyNet, method: PruneMethod) -> list[Tensor]:
    """Return how much each hidden unit matters: one tensor [units] per layer of the body.

    Raises:
        UserError: the criterion needs gradients and the network has none.
    """
    generator = torch.Generator().manual_seed(method.seed)
    return [
        layer_scores(f"layer {index}", layer.module, method, generator)
        for index, layer in enumerate(body_layers(net))
    ]


def layer_scores(
    name: str, module: nn.Conv2d | nn.Linear, method: PruneMethod, generator: torch.Generator
) -> Tensor:
    """Return how much each unit of a layer matters [units].

    Args:
        name: what to call the layer.
        module: the layer.
        method: says what matters.
        generator: of the random criterion.

    Raises:
        UserError: the criterion needs gradients and the layer has none.
    """
    weight = _rows(module.weight, module.bias)
    if method.criterion == "random":
        return torch.rand(len(weight), generator=generator).to(weight.device)
    if method.criterion == "taylor":
        slope, bias = module.weight.grad, module.bias
        if slope is None or (bias is not None and bias.grad is None):
            raise UserError(
                f"prune: criterion 'taylor' needs gradients and {name} has none; the learner's "
                "policy has them after an update, another PolicyNet after backward(); of a module "
                "of your own they are not read"
            )
        gradient = _rows(slope, None if bias is None else bias.grad)
        return (weight * gradient).sum(1).abs()
    if method.criterion == "geometric-median":
        return torch.cdist(weight, weight).sum(1)
    power = 1 if method.criterion == "l1" else 2
    return weight.abs().pow(power).sum(1)


def has_gradients(net: Policy) -> bool:
    """Whether a network's hidden layers have gradients, and not all of them zero."""
    slopes = [layer.weight.grad for layer in hidden_layers(net).values()]
    return all(slope is not None and bool(slope.any()) for slope in slopes)


def _rows(weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return [units, inputs (+ 1)]: everything that belongs to each unit of a layer."""
    rows = weight.detach().flatten(1)
    return rows if bias is None else torch.cat([rows, bias.detach()[:, None]], dim=1)


def kept_counts(scores: Sequence[Tensor], sparsity: float, method: PruneMethod) -> list[int]:
    """Return how many units of each layer stay when the fraction `sparsity` is removed."""
    widths = [len(score) for score in scores]
    if method.budget == "uniform":
        return [kept_units(width, sparsity, round_to=method.round_to) for width in widths]
    relative = torch.cat([score / score.mean().clamp_min(1e-30) for score in scores])
    owner = torch.cat([torch.full((width,), layer) for layer, width in enumerate(widths)])
    counts = [max(1, math.ceil(LEAST_SHARE * width)) for width in widths]
    # The best of each layer are there already; the others compete for what is left.
    floor = torch.cat([_ranks(score) < count for score, count in zip(scores, counts, strict=True)])
    left = max(0, kept_units(sum(widths), sparsity) - sum(counts))
    order = torch.sort(relative.masked_fill(floor, -1.0), descending=True, stable=True).indices
    for layer in owner[order[:left].cpu()].tolist():
        counts[layer] += 1
    return [
        _rounded(count, width, method.round_to) for count, width in zip(counts, widths, strict=True)
    ]


def kept_units(units: int, sparsity: float, *, round_to: int = 1) -> int:
    """Return how many of `units` stay when the fraction `sparsity` is removed; at least one."""
    return _rounded(max(1, round(units * (1.0 - sparsity))), units, round_to)


def keep_best(score: Tensor, count: int) -> Tensor:
    """Return the mask [units] of the `count` highest scores."""
    return _ranks(score) < count


def _ranks(score: Tensor) -> Tensor:
    """Return each unit's place, 0 for the highest score; ties go to the lower index."""
    # A stable sort breaks ties by position, so equal seeds prune equal units everywhere.
    order = torch.sort(score, descending=True, stable=True).indices
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(len(order), device=order.device)
    return ranks


def _rounded(count: int, width: int, multiple: int) -> int:
    return min(width, max(multiple, multiple * round(count / multiple)))
