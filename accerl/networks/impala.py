"""The residual network of IMPALA (Espeholt et al. 2018, Figure 3, the large one) and smaller ones.

Sections of a convolution, a pooling that halves the image and two residual blocks; then one hidden
layer and two linear heads. It is written in plain torch operations: what reads a graph reads it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from accerl.errors import UserError
from accerl.networks.observation import ObservationSpec

BLOCKS = 2


@dataclass(frozen=True)
class ImpalaSizes:
    """Channels of each section, and units of the hidden layer."""

    channels: tuple[int, ...]
    hidden: int


IMPALA: dict[str, ImpalaSizes] = {
    "impala": ImpalaSizes((16, 32, 32), 256),
    "impala-small": ImpalaSizes((8, 16, 16), 128),
    "impala-tiny": ImpalaSizes((4, 8, 8), 64),
}


class ResidualBlock(nn.Module):
    """Adds what two convolutions make of an image to that image."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        """Return an image of the same shape [B, C, H, W]."""
        return image + self.conv2(torch.relu(self.conv1(torch.relu(image))))


class ImpalaNet(nn.Module):
    """Espeholt's ResNet for images [C, H, W] of any size: logits and a value.

    Raises:
        UserError: the observations are no images.
    """

    def __init__(self, sizes: ImpalaSizes, observation: ObservationSpec, num_actions: int) -> None:
        super().__init__()
        if len(observation.shape) != 3:
            raise UserError(
                f"network: impala reads images [C, H, W], not observations of shape "
                f"{observation.shape}; use --network original"
            )
        self.centre = float(observation.centre)
        self.unit = observation.unit
        self.scales = observation.dtype == "uint8"
        channels, height, width = observation.shape
        sections: list[nn.Module] = []
        for wide in sizes.channels:
            sections += [
                nn.Conv2d(channels, wide, 3, padding=1),
                nn.MaxPool2d(3, stride=2, padding=1),
                *(ResidualBlock(wide) for _ in range(BLOCKS)),
            ]
            channels, height, width = wide, math.ceil(height / 2), math.ceil(width / 2)
        self.sections = nn.Sequential(*sections)
        self.hidden = nn.Linear(channels * height * width, sizes.hidden)
        self.policy_head = nn.Linear(sizes.hidden, num_actions)
        self.value_head = nn.Linear(sizes.hidden, 1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits [B, A] and values [B] for states [B, C, H, W] as they are recorded."""
        image = obs.float()
        if self.scales:
            image = (image - self.centre) / self.unit
        features = torch.flatten(torch.relu(self.sections(image)), 1)
        hidden = torch.relu(self.hidden(features))
        return self.policy_head(hidden), self.value_head(hidden).squeeze(-1)


def make_impala(
    name: str, observation: ObservationSpec, num_actions: int, generator: torch.Generator
) -> ImpalaNet:
    """Return a fresh network: orthogonal weights, zero biases, small policy head.

    Args:
        name: a key of IMPALA.
        observation: of the states.
        num_actions: A.
        generator: of the weights.

    Raises:
        UserError: the observations are no images.
    """
    net = ImpalaNet(IMPALA[name], observation, num_actions)
    # No ReLU halves what a section's first convolution reads; and each block adds to its image,
    # so what the blocks put out must be small beside it.
    blocks = [block for block in net.sections if isinstance(block, ResidualBlock)]
    gains: dict[nn.Module, float] = {net.policy_head: 0.01, net.value_head: 1.0}
    gains |= {module: 1.0 for module in net.sections if isinstance(module, nn.Conv2d)}
    gains |= {block.conv2: len(blocks) ** -0.5 for block in blocks}
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                gain = gains.get(module, math.sqrt(2.0))
                nn.init.orthogonal_(module.weight, gain, generator=generator)
                assert module.bias is not None
                nn.init.zeros_(module.bias)
    return net
