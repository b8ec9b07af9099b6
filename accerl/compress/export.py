"""ONNX graphs authored by hand from a PolicyNet: publishing takes milliseconds, not seconds.

Both graphs take `obs` [batch, *shape] in its recorded type and return `logits` [batch, A] and
`value` [batch], float32. Every weight is a constant, so that ONNX Runtime can pack it once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from accerl.compress.engine import open_session
from accerl.compress.layers import Layer, body_layers, stacked_heads, weight_and_bias
from accerl.compress.quantize import (
    ActivationRanges,
    Affine,
    affine,
    quantise_bias,
    quantise_weight,
)
from accerl.networks import PolicyNet

OPSET = 17
IR_VERSION = 8
MICROSOFT = "com.microsoft"  # ONNX Runtime's own operators, QGemm among them


def onnx_fp32(net: PolicyNet) -> bytes:
    """Return the float32 graph of `net`; centre and unit of uint8 inputs fold into layer one."""
    graph = _Graph(net)
    current = "obs"
    pixels = net.observation.dtype == "uint8"
    if pixels:
        current = graph.add("Cast", [current], "floats", to=TensorProto.FLOAT)
    for index, layer in enumerate(body_layers(net)):
        weight, bias = weight_and_bias(layer.module, f"layer {index}")
        if index == 0 and pixels:
            weight = weight / net.observation.unit
            bias = bias - net.observation.centre * weight.flatten(1).sum(1)
        constants = [graph.constant(f"w{index}", weight), graph.constant(f"b{index}", bias)]
        if isinstance(layer.module, nn.Conv2d):
            attributes = _conv_attributes(layer.module)
            current = graph.add("Conv", [current, *constants], f"conv{index}", **attributes)
        else:
            if layer.flatten:
                current = graph.add("Flatten", [current], f"flat{index}")
            current = graph.add("Gemm", [current, *constants], f"linear{index}", transB=1)
        if layer.relu:
            current = graph.add("Relu", [current], f"relu{index}")
    return graph.finish(current).SerializeToString()


def onnx_int8(
    net: PolicyNet, ranges: ActivationRanges, *, states: np.ndarray | None = None
) -> bytes:
    """Return the static INT8 graph of `net`, up to the last hidden layer.

    That layer puts out float32 and both heads are computed in float32: rounding its output was the
    largest single error, and avoiding it costs nothing. uint8 observations enter the first integer
    layer as they are, with their unit and centre; float32 ones are quantised with their calibrated
    range.

    Args:
        net: the float32 network.
        ranges: its activation ranges.
        states: the states that `ranges` were measured on. If given, the graph runs on them and its
            head biases are shifted until mean logits and values equal the float32 ones: rounding
            errors add up to a bias, because every state shares most of its pixels, and removing
            it lowered the KL tenfold on Pong.

    Raises:
        ValueError: `ranges` were measured on another network.
    """
    layers = body_layers(net)
    if len(ranges.layers) != len(layers):
        raise ValueError(f"{len(ranges.layers)} activation ranges for {len(layers)} layers")
    graph = _Graph(net)
    current = "obs"
    if net.observation.dtype == "uint8":
        mapping = graph.mapping("obs", Affine(1.0 / net.observation.unit, net.observation.centre))
    else:
        mapping = graph.mapping("obs", affine(*ranges.input))
        current = graph.add("QuantizeLinear", [current, *mapping.names], "obs_q")
    for index, (layer, limits) in enumerate(zip(layers, ranges.layers, strict=True)):
        last = index == len(layers) - 1 and isinstance(layer.module, nn.Linear)
        output = None if last else graph.mapping(f"y{index}", affine(*limits))
        current = _integer_layer(graph, index, layer, current, mapping, output)
        if output is None:
            current = graph.add("Relu", [current], "hidden") if layer.relu else current
        else:
            mapping = output
    if isinstance(layers[-1].module, nn.Conv2d):
        current = graph.add("DequantizeLinear", [current, *mapping.names], "hidden")
    model = graph.finish(current)
    if states is not None:
        _correct_heads(model, states, np.array(ranges.heads_mean))
    return model.SerializeToString()


def _correct_heads(model: onnx.ModelProto, states: np.ndarray, target: np.ndarray) -> None:
    """Shift the head biases of `model` so that its mean outputs on `states` become `target`."""
    run = open_session(model.SerializeToString()).run
    logits, values = run(("logits", "value"), {"obs": states})
    mean = np.append(np.asarray(logits).mean(0), np.asarray(values).mean())
    (bias,) = (tensor for tensor in model.graph.initializer if tensor.name == "heads_b")
    shifted = (numpy_helper.to_array(bias) + target - mean).astype(np.float32)
    bias.CopyFrom(numpy_helper.from_array(shifted, "heads_b"))


def _integer_layer(
    graph: _Graph, index: int, layer: Layer, current: str, x: _Mapping, y: _Mapping | None
) -> str:
    """Add one integer layer; the ReLU is folded into `y`, and without `y` it puts out float32."""
    weight, bias = weight_and_bias(layer.module, f"layer {index}")
    integers, scales = quantise_weight(weight, bias, x.affine.scale)
    quantised = [
        graph.constant(f"w{index}", integers),
        graph.constant(f"w{index}_scale", scales),
        graph.constant(f"w{index}_zero", np.zeros(len(scales), np.int8)),
    ]
    constant_bias = graph.constant(f"b{index}", quantise_bias(bias, x.affine.scale, scales))
    if isinstance(layer.module, nn.Conv2d):
        if y is None:
            raise ValueError("a convolution needs a quantised output")
        inputs = [current, *x.names, *quantised, *y.names, constant_bias]
        attributes = _conv_attributes(layer.module)
        return graph.add("QLinearConv", inputs, f"conv{index}", **attributes)
    if layer.flatten:
        current = graph.add("Flatten", [current], f"flat{index}")
    inputs = [current, *x.names, *quantised, constant_bias, *(y.names if y else [])]
    return graph.add("QGemm", inputs, f"linear{index}", domain=MICROSOFT, transB=1)


def _conv_attributes(conv: nn.Conv2d) -> dict[str, Any]:
    return {"kernel_shape": list(conv.kernel_size), "strides": list(conv.stride)}


class _Mapping:
    """An activation's quantisation, and the constants that hold it."""

    def __init__(self, affine: Affine, names: list[str]) -> None:
        self.affine = affine
        self.names = names


class _Graph:
    """Collects the nodes and constants of one policy graph."""

    def __init__(self, net: PolicyNet) -> None:
        self.net = net
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, value: np.ndarray | np.generic | Tensor) -> str:
        array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def mapping(self, name: str, affine: Affine) -> _Mapping:
        scale = self.constant(f"{name}_scale", np.float32(affine.scale))
        zero = self.constant(f"{name}_zero", np.uint8(affine.zero_point))
        return _Mapping(affine, [scale, zero])

    def add(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def finish(self, features: str) -> onnx.ModelProto:
        """Append both heads as one matrix product and return the model."""
        actions = self.net.num_actions
        if not self.net.arch.hidden:
            features = self.add("Flatten", [features], "flat")
        weight, bias = stacked_heads(self.net)
        heads = [self.constant("heads_w", weight), self.constant("heads_b", bias)]
        self.add("Gemm", [features, *heads], "heads", transB=1)
        sizes = self.constant("head_sizes", np.array([actions, 1], np.int64))
        axis = self.constant("value_axis", np.array([1], np.int64))
        self.nodes.append(
            helper.make_node("Split", ["heads", sizes], ["logits", "values"], name="split", axis=1)
        )
        self.add("Squeeze", ["values", axis], "value")
        observation = self.net.observation
        kind = TensorProto.UINT8 if observation.dtype == "uint8" else TensorProto.FLOAT
        shape = ["batch", *observation.shape]
        graph = helper.make_graph(
            self.nodes,
            "policy",
            [helper.make_tensor_value_info("obs", kind, shape)],
            [
                helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", actions]),
                helper.make_tensor_value_info("value", TensorProto.FLOAT, ["batch"]),
            ],
            self.constants,
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
