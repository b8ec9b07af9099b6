"""Networks whose images and vectors meet, or whose layers meet nothing: what of them is pruned.

`prune` itself compares every network that it makes with the whole one, see its module.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from accerl.compress.pruning.prune import prune
from accerl.networks.graph_policy import GraphPolicy
from accerl.networks.observation import ObservationSpec

BOARD = ObservationSpec((3, 11, 11), "float32")


class Headed(nn.Module):
    """A convolution of 16 channels, whatever is made of it, and two heads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.image = nn.Conv2d(3, 16, 3, stride=2)  # 5 x 5 pixels
        self.hidden = nn.Linear(width, 32)
        self.policy, self.value = nn.Linear(32, 4), nn.Linear(32, 1)

    def read(self, states: Tensor) -> Tensor:
        return torch.relu(self.image(states)).flatten(1)

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.relu(self.hidden(self.read(states)))
        return self.policy(hidden), self.value(hidden).squeeze(-1)


class TwoImages(Headed):
    def __init__(self) -> None:
        super().__init__(25 * (16 + 8))
        self.other = nn.Conv2d(3, 8, 3, stride=2)

    def read(self, states: Tensor) -> Tensor:
        parts = torch.relu(self.image(states)).flatten(1), torch.relu(self.other(states).flatten(1))
        return torch.cat(parts, 1)


class ImageAndVector(Headed):
    def __init__(self) -> None:
        super().__init__(25 * 16 + 8)
        self.vector = nn.Linear(3, 8)

    def read(self, states: Tensor) -> Tensor:
        vector = torch.relu(self.vector(states.mean((2, 3))))
        return torch.cat([vector, super().read(states)], 1)


class DroppedHead(Headed):
    """As of wrappers that return two of three outputs."""

    def __init__(self) -> None:
        super().__init__(25 * 16)
        self.reward = nn.Linear(32, 1)

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.relu(self.hidden(self.read(states)))
        self.reward(hidden)
        return self.policy(hidden), self.value(hidden).squeeze(-1)


class DepthwiseFirst(Headed):
    """The states' own channels cannot go, and those of a depthwise convolution are the same."""

    def __init__(self) -> None:
        super().__init__(25 * 16)
        self.each = nn.Conv2d(3, 3, 3, groups=3, padding=1)

    def read(self, states: Tensor) -> Tensor:
        return super().read(torch.relu(self.each(states / 9.0)))


@pytest.mark.parametrize(
    ("kind", "shapes"),
    [
        (TwoImages, {"image": (8, 3), "other": (4, 3), "hidden": (16, 25 * 12)}),
        (ImageAndVector, {"image": (8, 3), "vector": (4, 3), "hidden": (16, 25 * 8 + 4)}),
        (DroppedHead, {"image": (8, 3), "hidden": (16, 25 * 8), "reward": (1, 16)}),
        (DepthwiseFirst, {"each": (3, 1), "image": (8, 3), "hidden": (16, 25 * 8)}),
    ],
)
def test_half_of_what_can_go_goes(
    kind: type[nn.Module], shapes: dict[str, tuple[int, int]]
) -> None:
    torch.manual_seed(0)
    pruned = prune(GraphPolicy(kind(), BOARD), 0.5)
    assert isinstance(pruned, GraphPolicy)
    weights = {name: pruned.module.get_parameter(f"{name}.weight") for name in shapes}
    assert {name: tuple(each.shape[:2]) for name, each in weights.items()} == shapes
