"""Which units of a network a smaller one has: the copy that pruning and students begin with."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from accerl.compress.layers import body_layers
from accerl.compress.pruning.criteria import keep_best
from accerl.networks.policy_net import Architecture, ConvSpec, PolicyNet


class Match(NamedTuple):
    """A hidden layer of the large network, and those of its units that the small one has."""

    layer: int
    """its place in the large network's body"""
    keep: Tensor
    """mask [units]"""


def matching_layers(small: Architecture, large: Architecture) -> list[int | None]:
    """Return the layer of `large` whose units each hidden layer of `small` can have.

    Convolutions correspond as long as kernels, strides and padding are equal, from the first one
    on; linear layers correspond in order. Neither corresponds to what has fewer units.
    """
    found: list[int | None] = []
    for mine, other in itertools.zip_longest(small.convs, large.convs[: len(small.convs)]):
        alike = other is not None and _narrower(mine, other) and None not in found
        found.append(len(found) if alike else None)
    first = len(large.convs)
    for index, width in enumerate(small.hidden):
        fits = index < len(large.hidden) and width <= large.hidden[index]
        found.append(first + index if fits else None)
    return found


def _narrower(mine: ConvSpec, other: ConvSpec) -> bool:
    return mine.channels <= other.channels and mine[1:] == other[1:]


def match_units(
    small: Architecture, large: Architecture, scores: Sequence[Tensor]
) -> list[Match | None]:
    """Return the units of `large` that matter most, as many as `small` has room for.

    Args:
        small: the sizes of the network that is to act like `large`.
        large: the sizes of that one.
        scores: how much each of its units matters, one tensor [units] per hidden layer.
    """
    widths = [conv.channels for conv in small.convs] + list(small.hidden)
    return [
        None if layer is None else Match(layer, keep_best(scores[layer], width))
        for layer, width in zip(matching_layers(small, large), widths, strict=True)
    ]


@torch.no_grad()
def copy_units(
    large: PolicyNet, small: PolicyNet, matches: Sequence[Match | None], *, blank: bool
) -> None:
    """Copy the weights of the matched units into `small`, whose other units read nothing of them.

    A layer has copies if what it reads are units of the layer that they read in `large`.

    Args:
        large: where units come from.
        small: where they go to.
        matches: which, for each hidden layer of `small`.
        blank: whether layers without copies become zeros, so that a fit finds the smallest
            weights; else they stay.
    """
    before: Match | None = None  # of the layer that the one at hand reads; None: the states
    reads = -1  # that layer's place in the large network; -2: it has no match
    old_layers = [layer.module for layer in body_layers(large)]
    new_layers = [layer.module for layer in body_layers(small)]
    for new, match in zip(new_layers, matches, strict=True):
        if match is not None and match.layer == reads + 1:
            _copy(old_layers[match.layer], new, match.keep, before)
        elif match is not None and blank:
            _blank(new)
        before, reads = match, -2 if match is None else match.layer
    for old, new in (
        (large.policy_head, small.policy_head),
        (large.value_head, small.value_head),
    ):
        if reads + 1 == len(old_layers):
            _copy(old, new, torch.ones(len(old.weight), dtype=torch.bool), before)
        elif blank:
            _blank(new)


def _blank(layer: nn.Conv2d | nn.Linear) -> None:
    layer.weight.zero_()
    if layer.bias is not None:
        layer.bias.zero_()


def _copy(
    old: nn.Conv2d | nn.Linear, new: nn.Conv2d | nn.Linear, units: Tensor, inputs: Match | None
) -> None:
    """Copy the rows `units` and the columns that read `inputs` of one layer."""
    weight = old.weight[units.to(old.weight.device)]
    if inputs is not None:
        # Flatten is channel-major: behind it every channel owns height x width columns.
        columns = inputs.keep.to(weight.device)
        weight = weight[:, columns.repeat_interleave(weight.shape[1] // len(columns))]
    new.weight.copy_(weight)
    if old.bias is not None and new.bias is not None:
        new.bias.copy_(old.bias[units.to(old.bias.device)])
