"""The sizes of a network's layers as JSON: what another process needs besides its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from accerl.errors import UserError, first_line
from accerl.networks.graph_policy import GraphPolicy, Policy, Scripts
from accerl.networks.make import make_network
from accerl.networks.observation import ObservationSpec
from accerl.networks.policy_net import Architecture, ConvSpec, PolicyNet

_SIZES = (
    "in_channels",
    "out_channels",
    "groups",
    "in_features",
    "out_features",
    "num_features",
    "num_channels",
    "num_groups",
    "num_parameters",
    "normalized_shape",
)
"""what torch's layers call their sizes"""


def describe(net: Policy) -> dict[str, Any]:
    """Return everything about a network but its weights, as a JSON object.

    A chain is its layers' sizes. Any other network is its name and what pruning has left of each
    of its layers.
    """
    if isinstance(net, PolicyNet):
        shown = net.observation
        return {**architecture_to_json(net.arch), "centre": shown.centre, "unit": shown.unit}
    sizes: dict[str, dict[str, Any]] = {}
    for name, module in net.module.named_modules():
        found = {size: _plain(getattr(module, size)) for size in _SIZES if hasattr(module, size)}
        for key, tensor in _own_tensors(module).items():
            found[key] = list(tensor.shape)
        if found:
            sizes[name] = found
    return {"network": net.name, "sizes": sizes}


def rebuild(
    description: Mapping[str, Any], observation: ObservationSpec, num_actions: int
) -> Policy:
    """Return a network for the weights of the one that `describe` was given.

    Raises:
        UserError: that has no name from which it could be made again, or other layers now.
    """
    if "network" not in description:
        seen = replace(observation, centre=description["centre"], unit=description["unit"])
        return PolicyNet(architecture_from_json(description), seen, num_actions)
    if description["network"] is None:
        raise UserError(
            "network: this one was given as an object; other processes, and a resumed run, need "
            "its import path, as in mynets:small"
        )
    net = make_network(description["network"], observation, num_actions)
    assert isinstance(net, GraphPolicy)
    net.scripts = Scripts()
    for name, sizes in description["sizes"].items():
        try:
            _resize(net.module.get_submodule(name), sizes)
        except (AttributeError, KeyError) as error:
            how = f"at {name or 'the top'}: {first_line(error)}"
            raise _changed(description["network"], how) from error
    return net


def load_saved(net: Policy, weights: Mapping[str, torch.Tensor]) -> None:
    """Load weights that were saved: the code of a network may have changed since.

    Raises:
        UserError: its layers are others now.
    """
    try:
        net.load_state_dict(weights)
    except RuntimeError as error:  # a line of what failed, then one for each tensor
        which = (str(error).partition("\n")[2] or str(error)).strip().splitlines()[0]
        name = net.name if isinstance(net, GraphPolicy) else None
        raise _changed(name, which.rstrip(".")) from error


def _changed(network: str | None, how: str) -> UserError:
    name = "the network" if network is None else f"network {network!r}"
    return UserError(
        f"{name}: its layers are not those that were saved ({how}); change them back, or start a "
        "new run"
    )


def _resize(module: nn.Module, sizes: Mapping[str, Any]) -> None:
    for size in _SIZES:
        if size in sizes and _plain(getattr(module, size)) != sizes[size]:
            value = sizes[size]
            setattr(module, size, tuple(value) if isinstance(value, list) else value)
    for key, tensor in _own_tensors(module).items():
        if list(tensor.shape) != sizes[key]:
            _replace(module, key, sizes[key])


def architecture_to_json(arch: Architecture) -> dict[str, Any]:
    """Return layer sizes as a JSON object."""
    return {"convs": [list(conv) for conv in arch.convs], "hidden": list(arch.hidden)}


def architecture_from_json(data: Mapping[str, Any]) -> Architecture:
    """Read layer sizes written by `architecture_to_json`."""
    convs = tuple(ConvSpec(*(int(number) for number in conv)) for conv in data["convs"])
    return Architecture(convs, tuple(int(size) for size in data["hidden"]))


def _own_tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return a module's parameters and buffers, not those of its submodules."""
    parameters = dict(module.named_parameters(recurse=False))
    return parameters | dict(module.named_buffers(recurse=False))


def _replace(module: nn.Module, key: str, shape: list[int]) -> None:
    old = getattr(module, key)
    empty = torch.zeros(shape, dtype=old.dtype, device=old.device)
    setattr(module, key, nn.Parameter(empty) if isinstance(old, nn.Parameter) else empty)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
