"""Networks as bytes: safetensors with the architecture in the metadata."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import nn

from accerl.compress.layers import body_layers, stacked_heads, weight_and_bias
from accerl.compress.quantization.cpu import computes_bfloat16
from accerl.errors import UserError, first_line
from accerl.networks.observation import ObservationSpec
from accerl.networks.policy_net import PolicyNet, conv_spec
from accerl.networks.structure import architecture_from_json, architecture_to_json


def pack_torch(
    net: PolicyNet,
    *,
    bits: int,
    head_shift: np.ndarray | None = None,
    bfloat16: bool | None = None,
) -> bytes:
    """Return a policy as safetensors with its architecture in the metadata.

    At 16 bits the body is stored in bfloat16, with the unit of uint8 inputs folded into the first
    layer: -255..255 are exact in bfloat16, their 255ths are not. Both heads stay float32. Where
    the processor has no bfloat16 the body is stored in float16 instead, which halves the bytes and
    is turned into float32 before it acts: no faster.

    Args:
        net: the network.
        bits: 32 or 16.
        head_shift: added to the biases of the logits and, last, of the value [A + 1].
        bfloat16: whether 16 bits are bfloat16; None: if the processor multiplies them.
    """
    stored = torch.float32
    if bits == 16:
        wanted = computes_bfloat16() if bfloat16 is None else bfloat16
        stored = torch.bfloat16 if wanted else torch.float16
    unit = net.observation.unit
    scale = 1.0
    if stored == torch.bfloat16 and net.observation.dtype == "uint8" and body_layers(net):
        unit, scale = 1.0, 1.0 / unit
    tensors: dict[str, torch.Tensor] = {}
    description: list[list[Any]] = []
    for index, module in enumerate(net.body):
        description.append(_describe(module))
        if isinstance(module, nn.Conv2d | nn.Linear):
            weight, bias = weight_and_bias(module, f"layer {index}")
            weight, scale = weight * scale, 1.0
            # A student may be channels last in memory, which safetensors refuses.
            tensors[f"body.{index}.weight"] = weight.to(stored).contiguous()
            tensors[f"body.{index}.bias"] = bias.to(stored)
    weight, bias = stacked_heads(net)
    if head_shift is not None:
        bias = bias + torch.from_numpy(head_shift).float()
    actions = net.num_actions
    for name, rows in (("policy_head", slice(actions)), ("value_head", slice(actions, None))):
        # Copies: safetensors refuses tensors that share memory.
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = (
            weight[rows].clone(),
            bias[rows].clone(),
        )
    network = {
        "arch": architecture_to_json(net.arch),
        "body": description,
        "shape": list(net.observation.shape),
        "dtype": net.observation.dtype,
        "centre": net.observation.centre,
        "unit": unit,
        "num_actions": net.num_actions,
    }
    return save_tensors(tensors, metadata={"network": json.dumps(network)})


def unpack_torch(payload: bytes | bytearray) -> PolicyNet:
    """Return the network that `pack_torch` wrote, in its stored precision.

    Raises:
        UserError: the payload is damaged.
    """
    try:
        header_bytes = struct.unpack("<Q", payload[:8])[0]  # the safetensors format
        metadata = json.loads(payload[8 : 8 + header_bytes])["__metadata__"]
        network = json.loads(metadata["network"])
        arch = architecture_from_json(network["arch"])
        observation = ObservationSpec(
            tuple(network["shape"]),
            str(network["dtype"]),
            int(network["centre"]),
            float(network["unit"]),
        )
        with torch.device("meta"):  # weights follow: do not draw random ones first
            net = PolicyNet(arch, observation, int(network["num_actions"]))
            net.body = nn.Sequential(*(_module(entry) for entry in network["body"]))
        net.load_state_dict(load_tensors(bytes(payload)), assign=True)
    except (ValueError, KeyError, TypeError, struct.error, SafetensorError, RuntimeError) as error:
        reason = first_line(error)
        raise UserError(f"artifact: the torch payload is damaged ({reason})") from error
    return net.requires_grad_(False)


def _describe(module: nn.Module) -> list[Any]:
    if isinstance(module, nn.Conv2d):
        return ["conv", module.in_channels, *conv_spec(module)]
    if isinstance(module, nn.Linear):
        return ["linear", module.in_features, module.out_features]
    return [type(module).__name__.lower()]


def _module(entry: list[Any]) -> nn.Module:
    makers = {"conv": nn.Conv2d, "linear": nn.Linear, "relu": nn.ReLU, "flatten": nn.Flatten}
    return makers[entry[0]](*(int(size) for size in entry[1:]))
