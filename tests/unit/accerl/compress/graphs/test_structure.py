"""What a network's exported graph can depend on besides its weights."""

from __future__ import annotations

import copy
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from accerl.compress.graphs.structure import structure
from tests.unit.accerl.compress.graphs.test_graphs import Net


def test_a_structure_is_all_but_the_weights_values() -> None:
    first, second = Net(torch.relu), Net(torch.relu)
    assert structure(first) == structure(second)
    assert structure(first) != structure(Net(torch.tanh))
    second.conv.padding = (2, 2)
    assert structure(first) != structure(second)
    first.centre, second = 1.0, Net(torch.relu)  # pyright: ignore
    assert structure(first) != structure(second)


def test_functions_with_settings_are_known_by_these() -> None:
    """Copies of them are no others: a copy of a network must not be traced anew."""
    for one, other in (
        (partial(functional.leaky_relu, negative_slope=0.1), partial(functional.leaky_relu)),
        (Scaled(2.0), Scaled(3.0)),
        (functional.relu, functional.gelu),
    ):
        first, second = Net(one), Net(other)
        assert structure(copy.deepcopy(first)) == structure(first)
        assert structure(second) != structure(first)


class Scaled:
    """A user's function that has a setting."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __call__(self, x: Tensor) -> Tensor:
        return self.scale * x


def test_parts_in_lists_and_hooks_belong_to_a_structure() -> None:
    first = Net(torch.relu)
    first.parts, first.norm = [nn.Linear(2, 2), first], first.forward  # pyright: ignore
    known = structure(first)
    assert structure(copy.deepcopy(first)) == known
    second = copy.deepcopy(first)
    with torch.no_grad():
        second.parts[0].weight.add_(1.0)  # pyright: ignore
    assert structure(second) != known  # a constant of its graph
    second = copy.deepcopy(first)
    second.conv.register_forward_hook(lambda *given: 2.0 * given[-1])
    assert structure(second) != known
    assert structure(copy.deepcopy(second)) == structure(second)
