"""A PolicyNet's body as a list of layers: the one reading that every consumer shares."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from accerl.errors import DivergedError
from accerl.networks.policy_net import PolicyNet


class Layer(NamedTuple):
    """One convolution or linear layer of a body, with what happens right around it."""

    module: nn.Conv2d | nn.Linear
    flatten: bool
    """whether the input is flattened first"""
    relu: bool
    """whether a ReLU follows"""


def body_layers(net: PolicyNet) -> list[Layer]:
    """Return the convolutions and linear layers of `net.body` in execution order.

    Raises:
        TypeError: the body holds a module that no exporter knows.
    """
    layers: list[Layer] = []
    flatten = False
    for module in net.body:
        if isinstance(module, nn.Conv2d | nn.Linear):
            layers.append(Layer(module, flatten, relu=False))
            flatten = False
        elif isinstance(module, nn.ReLU):
            layers[-1] = layers[-1]._replace(relu=True)
        elif isinstance(module, nn.Flatten):
            flatten = True
        else:
            raise TypeError(f"a policy body may not contain {type(module).__name__}")
    return layers


def apply_layer(layer: Layer, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return what `layer` makes of `inputs` [N, ...] with another weight and bias, without ReLU."""
    module = layer.module
    if isinstance(module, nn.Conv2d):
        return nn.functional.conv2d(inputs, weight, bias, module.stride, module.padding)
    return nn.functional.linear(inputs.flatten(1) if layer.flatten else inputs, weight, bias)


def weight_and_bias(
    module: nn.Conv2d | nn.Linear, name: str, *, checked: bool = True
) -> tuple[Tensor, Tensor]:
    """Return a layer's weight and bias (zeros if it has none) in float32 on the CPU.

    They may share memory with the layer's.

    Args:
        module: the layer.
        name: what to call it.
        checked: whether values must be finite; without this, call `refuse_diverged`.

    Raises:
        UserError: a value is NaN or infinite: training has diverged.
    """
    weight = module.weight.detach().float().cpu()
    if module.bias is None:
        bias = torch.zeros(weight.shape[0])
    else:
        bias = module.bias.detach().float().cpu()
    if checked:
        refuse_diverged(name, weight, bias)
    return weight, bias


def refuse_diverged(name: str, *tensors: Tensor) -> None:
    """Refuse values that are not numbers.

    Raises:
        DivergedError: a value is NaN or infinite: training has diverged.
    """
    # A sum is NaN or infinite as soon as one term is, and is much cheaper than isfinite().all().
    if not all(bool(torch.isfinite(tensor.sum())) for tensor in tensors):
        raise DivergedError(
            f"compress: {name} holds NaN or infinite weights, so training has diverged; "
            f"lower the learning rate or clip gradients"
        )


def stacked_heads(net: PolicyNet) -> tuple[Tensor, Tensor]:
    """Return weight [A + 1, features] and bias [A + 1] of both heads; the value is the last row."""
    policy = weight_and_bias(net.policy_head, "policy head")
    value = weight_and_bias(net.value_head, "value head")
    return torch.cat([policy[0], value[0]]), torch.cat([policy[1], value[1]])
