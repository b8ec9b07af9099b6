"""ONNX graphs authored by hand from a PolicyNet: publishing takes milliseconds, not seconds.

Both graphs take `obs` [batch, *shape] in its recorded type and return `logits` [batch, A] and
`value` [batch], float32. Every weight is a constant, so that ONNX Runtime can pack it once. A graph
is built once for each kind of network; from then on only its constants change, see `onnx_payload`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from onnx import TensorProto
from torch import Tensor, nn

from accerl.compress.graphs.builder import MICROSOFT, Builder, Mapping8
from accerl.compress.graphs.onnx_payload import HEAD_BIASES
from accerl.compress.layers import (
    Layer,
    body_layers,
    refuse_diverged,
    stacked_heads,
    weight_and_bias,
)
from accerl.compress.quantization.head_shift import HeadShift
from accerl.compress.quantization.quantize import (
    Affine,
    Probe,
    affine,
    exact_levels,
    quantise_bias,
    quantise_weight,
)
from accerl.compress.quantization.ranges import ActivationRanges, rounded_layers
from accerl.networks.policy_net import PolicyNet, conv_spec

OPSET = 17
IR_VERSION = 8


def onnx_fp32(
    net: PolicyNet, *, weights_only_int8: bool = False, batch: int | None = None
) -> bytearray:
    """Return the float32 graph of `net`; centre and unit of uint8 inputs fold into layer one.

    Args:
        net: the network.
        weights_only_int8: send the body's weights as integers of 8 bits, symmetric per output
            channel, which a session turns into float32 once, when it is made.
        batch: states per call, if it is always the same number; None: any.
    """
    graph = _Graph(net, "weights-only" if weights_only_int8 else "fp32", batch)
    current = "obs"
    pixels = net.observation.dtype == "uint8"
    if pixels:
        current = graph.add("Cast", [current], "floats", to=TensorProto.FLOAT)
    centre = net.observation.centre if pixels else 0
    if centre and net.arch.convs and net.arch.convs[0].padding:
        # Zeros at the border are added to centred pixels, so the centre cannot hide in the bias.
        current = graph.add("Sub", [current, graph.constant("centre", np.float32(centre))], "moved")
        centre = 0
    layers = body_layers(net)
    for index, layer in enumerate(layers):
        weight, bias = weight_and_bias(layer.module, f"layer {index}")
        if index == 0 and pixels:
            weight = weight / net.observation.unit
        if weights_only_int8:
            integers, scales = quantise_weight(weight, torch.zeros_like(bias), 1.0)
            weight = integers.float() * scales.view(-1, *([1] * (weight.ndim - 1)))
            zeros = graph.constant(f"w{index}_zero", np.zeros(len(scales), np.int8))
            names = [graph.constant(f"w{index}", integers)]
            names += [graph.constant(f"w{index}_scale", scales), zeros]
            name = graph.add("DequantizeLinear", names, f"w{index}_float", axis=0)
        else:
            name = graph.constant(f"w{index}", weight)
        if index == 0 and pixels:  # of the weights that act
            bias = bias - centre * weight.flatten(1).sum(1)
        constants = [name, graph.constant(f"b{index}", bias)]
        if isinstance(layer.module, nn.Conv2d):
            attributes = _conv_attributes(layer.module)
            current = graph.add("Conv", [current, *constants], f"conv{index}", **attributes)
        else:
            if layer.flatten:
                current = graph.add("Flatten", [current], f"flat{index}")
            current = graph.add("Gemm", [current, *constants], f"linear{index}", transB=1)
        if layer.relu:
            current = graph.add("Relu", [current], f"relu{index}")
    return graph.finish(current, pixels=pixels and not layers)


def onnx_int8(
    net: PolicyNet,
    ranges: ActivationRanges,
    *,
    states: np.ndarray | None = None,
    levels: int | None = None,
    batch: int | None = None,
) -> bytearray:
    """Return the static INT8 graph of `net`, up to the last hidden layer.

    That layer puts out float32 and both heads are computed in float32, see `rounded_layers`. uint8
    observations enter the first integer layer as they are, with their unit and centre; float32 ones
    are quantised with their calibrated range.

    Args:
        net: the float32 network.
        ranges: its activation ranges.
        states: the states that `ranges` were measured on. If given, the heads' biases are shifted
            until mean logits and values on them equal the float32 ones, see `head_shift`.
        levels: the largest integer weight; None: see `exact_levels`.
        batch: states per call, if it is always the same number; None: any.

    Raises:
        ValueError: `ranges` were measured on another network.
    """
    layers = body_layers(net)
    if len(ranges.layers) != len(layers):
        raise ValueError(f"{len(ranges.layers)} activation ranges for {len(layers)} layers")
    graph = _Graph(net, "int8", batch)
    levels = levels or exact_levels()
    current = "obs"
    if net.observation.dtype == "uint8":
        mapping = graph.mapping("obs", Affine(1.0 / net.observation.unit, net.observation.centre))
    else:
        mapping = graph.mapping("obs", affine(*ranges.input))
        current = graph.add("QuantizeLinear", [current, *mapping.names], "obs_q")
    shift = None if states is None else HeadShift(net, ranges, states, mapping.affine)
    rounded = rounded_layers(layers)
    for index, layer in enumerate(layers[:rounded]):
        output = graph.mapping(f"y{index}", affine(*ranges.layers[index]))
        integers = _Integers.of(layer, f"layer {index}", mapping.affine, levels)
        current = graph.add_integers(index, layer, integers, current, mapping, output)
        if shift is not None:
            shift.through(layer, *integers, output.affine)
        mapping = output
    if rounded == len(layers):
        current = graph.add("DequantizeLinear", [current, *mapping.names], "hidden")
    else:
        last = layers[-1]
        probe = None if shift is None else shift.probe(len(last.module.weight))
        integers = _Integers.of(last, f"layer {rounded}", mapping.affine, levels, probe)
        current = graph.add_integers(rounded, last, integers, current, mapping, None)
        current = graph.add("Relu", [current], "hidden") if last.relu else current
        if shift is not None:
            shift.finish(last, integers.bias)
    return graph.finish(current, shift)


class _Integers(NamedTuple):
    """A layer's weights as integers, and its bias in float32."""

    weight: Tensor
    scales: Tensor
    bias: Tensor

    @classmethod
    def of(
        cls, layer: Layer, name: str, x: Affine, levels: int, probe: Probe | None = None
    ) -> _Integers:
        weight, bias = weight_and_bias(layer.module, name, checked=False)
        integers, scales = quantise_weight(weight, bias, x.scale, levels=levels, probe=probe)
        refuse_diverged(name, scales, bias)
        return cls(integers, scales, bias)


def _conv_attributes(conv: nn.Conv2d) -> dict[str, Any]:
    sizes = conv_spec(conv)
    return {
        "kernel_shape": [sizes.kernel] * 2,
        "strides": [sizes.stride] * 2,
        "pads": [sizes.padding] * 4,
    }


class _Graph(Builder):
    """One policy graph of a chain of layers."""

    def __init__(self, net: PolicyNet, kind: str, batch: int | None) -> None:
        layers = tuple(_signature(module) for module in net.body)
        # Of the other kinds, ONNX Runtime fuses ReLUs, packs channels and unfolds weights.
        super().__init__(
            (kind, layers),
            net.observation,
            net.num_actions,
            opset=OPSET,
            ir_version=IR_VERSION,
            batch=batch,
            finished=kind == "int8",
        )
        self.net = net

    def add_integers(
        self,
        index: int,
        layer: Layer,
        integers: _Integers,
        current: str,
        x: Mapping8,
        y: Mapping8 | None,
    ) -> str:
        """Add an integer layer; its ReLU is folded into `y`, without which it puts out float32."""
        scales = integers.scales
        quantised = [
            self.constant(f"w{index}", integers.weight),
            self.constant(f"w{index}_scale", scales),
            self.constant(f"w{index}_zero", np.zeros(len(scales), np.int8)),
        ]
        rounded_bias = quantise_bias(integers.bias, x.affine.scale, scales)
        bias = self.constant(f"b{index}", rounded_bias)
        if isinstance(layer.module, nn.Conv2d):
            assert y is not None
            inputs = [current, *x.names, *quantised, *y.names, bias]
            return self.add("QLinearConv", inputs, f"conv{index}", **_conv_attributes(layer.module))
        if layer.flatten:
            current = self.add("Flatten", [current], f"flat{index}")
        inputs = [current, *x.names, *quantised, bias, *(y.names if y else [])]
        return self.add("QGemm", inputs, f"linear{index}", domain=MICROSOFT, transB=1)

    def finish(
        self, features: str, shift: HeadShift | None = None, *, pixels: bool = False
    ) -> bytearray:
        """Append both heads as one matrix product and return the payload.

        Args:
            features: what the heads read.
            shift: of the heads' biases.
            pixels: whether that are uint8 observations, whose centre and unit fold into the heads.
        """
        if not self.net.arch.hidden:
            features = self.add("Flatten", [features], "flat")
        weight, bias = stacked_heads(self.net)
        if shift is not None:
            bias += shift.of(weight)
        if pixels:
            weight = weight / self.net.observation.unit
            bias = bias - self.net.observation.centre * weight.sum(1)
        heads = [self.constant("heads_w", weight), self.constant(HEAD_BIASES, bias)]
        self.add("Gemm", [features, *heads], "heads", transB=1)
        sizes = self.axes("head_sizes", self.net.num_actions, 1)
        self.split("Split", ["heads", sizes], ["logits", "values"], axis=1)
        self.add("Squeeze", ["values", self.axes("value_axis", 1)], "value")
        return self.payload()


def _signature(module: nn.Module) -> tuple[Any, ...]:
    """Return what a module adds to the graph besides numbers."""
    if isinstance(module, nn.Conv2d):
        return ("conv", tuple(module.weight.shape), module.stride, module.padding)
    if isinstance(module, nn.Linear):
        return ("linear", tuple(module.weight.shape))
    return (type(module).__name__,)
