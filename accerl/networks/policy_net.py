"""Policy families: the paper's Original and Net1-3 (Table 6), and the same ladder for small games.

A network is fully described by its `Architecture`, so a pruned copy is simply a `PolicyNet`
of a narrower architecture, and every consumer (export, quantisation, engines) handles both alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from accerl.networks.observation import ObservationSpec


class ConvSpec(NamedTuple):
    """One convolution: output channels, square kernel, stride, zeros added on each side."""

    channels: int
    kernel: int
    stride: int
    padding: int = 0

    def side(self, length: int) -> int:
        """Return the height or width of what comes out where `length` goes in."""
        return (length + 2 * self.padding - self.kernel) // self.stride + 1


@dataclass(frozen=True)
class Architecture:
    """Layer sizes of one policy network; every hidden layer is followed by a ReLU."""

    convs: tuple[ConvSpec, ...]
    hidden: tuple[int, ...]


# Table 6 gives filters and kernels; strides 4/2/1 without padding give its 3136 -> 2048 layer.
PIXELS: dict[str, Architecture] = {
    "original": Architecture((ConvSpec(32, 8, 4), ConvSpec(64, 4, 2), ConvSpec(64, 3, 1)), (2048,)),
    "net1": Architecture((ConvSpec(16, 8, 4), ConvSpec(32, 4, 2)), (256,)),
    "net2": Architecture((ConvSpec(8, 8, 4), ConvSpec(16, 4, 2)), (128,)),
    "net3": Architecture((ConvSpec(4, 8, 4), ConvSpec(4, 4, 2)), (32,)),
}
# 10x10 boards; the multiply-accumulates fall about as they do in Table 6: 5, 12 and 32 times.
MINATAR: dict[str, Architecture] = {
    "original": Architecture((ConvSpec(32, 3, 1), ConvSpec(64, 3, 1)), (256,)),
    "net1": Architecture((ConvSpec(16, 3, 1), ConvSpec(32, 3, 1)), (64,)),
    "net2": Architecture((ConvSpec(16, 3, 1),), (64,)),
    "net3": Architecture((ConvSpec(8, 3, 1),), (32,)),
}
VECTOR: dict[str, Architecture] = {
    "original": Architecture((), (128, 128)),
    "net1": Architecture((), (64,)),
    "net2": Architecture((), (32,)),
    "net3": Architecture((), (16,)),
}


def architecture(student: str, observation: ObservationSpec) -> Architecture:
    """Return the layer sizes of `student` in the family that fits `observation`."""
    if observation.is_pixels:
        return PIXELS[student]
    return (MINATAR if len(observation.shape) == 3 else VECTOR)[student]


class PolicyNet(nn.Module):
    """Actor-critic network: shared body, linear policy head, linear value head.

    ``body`` is a plain Sequential of Conv2d / ReLU / Flatten / Linear, in execution order.
    """

    def __init__(self, arch: Architecture, observation: ObservationSpec, num_actions: int) -> None:
        super().__init__()
        self.arch = arch
        self.observation = observation
        self.num_actions = num_actions
        self.name: str | None = None
        """what `make_network` makes it of, if that is a user's function"""
        layers: list[nn.Module] = []
        if arch.convs:
            channels, height, width = observation.shape
            for conv in arch.convs:
                layers += [nn.Conv2d(channels, *conv), nn.ReLU()]
                channels, height, width = conv.channels, conv.side(height), conv.side(width)
            features = channels * height * width
        else:
            features = math.prod(observation.shape)
        layers.append(nn.Flatten())
        for size in arch.hidden:
            layers += [nn.Linear(features, size), nn.ReLU()]
            features = size
        self.body = nn.Sequential(*layers)
        self.policy_head = nn.Linear(features, num_actions)
        self.value_head = nn.Linear(features, 1)

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return self.policy_head.weight.device

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return policy logits [B, A] and state values [B] for observations [B, *shape].

        Pixels in bfloat16 are what `centred` returned; other floats are scaled already. Under
        autocast only the body runs in low precision: early values differ by less than what
        bfloat16 resolves, so both heads always compute in float32.
        """
        return self.heads(self.features(obs))

    def outputs(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits [B, A], values [B] and what both heads read [B, H]."""
        hidden = self.features(obs)
        return *self.heads(hidden), hidden

    def features(self, obs: Tensor) -> Tensor:
        """Return what the last hidden layer puts out [B, H] for observations [B, *shape]."""
        hidden = self._first(obs)
        for layer in list(self.body)[1:]:
            hidden = layer(hidden)
        return hidden

    def heads(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return policy logits [B, A] and state values [B] for features [B, H]; in float32."""
        hidden, kind = hidden.float(), hidden.device.type
        if torch.is_autocast_enabled(kind):  # what is exported is plainer without
            with torch.autocast(kind, enabled=False):
                return self.heads(hidden)
        return self.policy_head(hidden), self.value_head(hidden).squeeze(-1)

    def scale(self, obs: Tensor) -> Tensor:
        """Return observations as floats; uint8 ones become (obs - centre) / unit."""
        if obs.dtype != torch.uint8:
            return obs.float()
        return (obs.float() - self.observation.centre) / self.observation.unit

    def centred(self, obs: Tensor, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        """Return uint8 pixels minus their centre as floats, exact in bfloat16 too.

        Who passes pixels through several times in bfloat16 calls this once, before. What a network
        without convolutions reads, and what is a float already, is returned as it is.
        """
        if obs.dtype != torch.uint8 or not isinstance(self.body[0], nn.Conv2d):
            return obs
        pixels = obs.to(dtype)
        if self.observation.centre:
            pixels -= self.observation.centre
        return pixels

    def _first(self, obs: Tensor) -> Tensor:
        """Return what the first layer of the body makes of `obs`.

        The unit of pixels is folded into that layer's weights: dividing every pixel instead took
        a quarter of an update.
        """
        first = self.body[0]
        is_pixels = obs.dtype in (torch.uint8, torch.bfloat16) and self.observation.dtype == "uint8"
        if not is_pixels or not isinstance(first, nn.Conv2d):
            return first(self.scale(obs))
        kind = obs.device.type
        low = torch.is_autocast_enabled(kind)
        pixels = self.centred(obs, torch.get_autocast_dtype(kind) if low else torch.float32)
        weight = first.weight * (1.0 / self.observation.unit)
        return nn.functional.conv2d(pixels, weight, first.bias, first.stride, first.padding)


def make_policy(
    student: str, observation: ObservationSpec, num_actions: int, generator: torch.Generator
) -> PolicyNet:
    """Return a freshly initialised network: orthogonal weights, zero biases, small policy head."""
    net = PolicyNet(architecture(student, observation), observation, num_actions)
    with torch.no_grad():
        for module in net.body:
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.orthogonal_(module.weight, math.sqrt(2.0), generator=generator)
                assert module.bias is not None
                nn.init.zeros_(module.bias)
        nn.init.orthogonal_(net.policy_head.weight, 0.01, generator=generator)
        nn.init.orthogonal_(net.value_head.weight, 1.0, generator=generator)
        nn.init.zeros_(net.policy_head.bias)
        nn.init.zeros_(net.value_head.bias)
    return net


def is_plain(conv: nn.Conv2d) -> bool:
    """Whether a convolution has equal sides, one group, no holes and a padding of zeros."""
    square = all(
        isinstance(size, tuple) and len(set(size)) == 1
        for size in (conv.kernel_size, conv.stride, conv.padding)
    )
    return square and conv.groups == 1 and conv.dilation == (1, 1) and conv.padding_mode == "zeros"


def conv_spec(module: nn.Conv2d) -> ConvSpec:
    """Return the sizes of a convolution whose kernel, stride and padding are square."""
    padding = module.padding[0]
    assert isinstance(padding, int)
    return ConvSpec(module.out_channels, module.kernel_size[0], module.stride[0], padding)
