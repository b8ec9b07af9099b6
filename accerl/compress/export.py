"""ONNX graphs authored by hand from a PolicyNet: publishing takes milliseconds, not seconds.

Both graphs take `obs` [batch, *shape] in its recorded type and return `logits` [batch, A] and
`value` [batch], float32. Every weight is a constant, so that ONNX Runtime can pack it once. A graph
is built once for each kind of network; from then on only its constants change, see `onnx_payload`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from accerl.compress.engine import open_session
from accerl.compress.layers import Layer, body_layers, stacked_heads, weight_and_bias
from accerl.compress.onnx_payload import Template, TemplateCache
from accerl.compress.quantize import (
    LEVELS,
    Affine,
    affine,
    quantise_bias,
    quantise_weight,
)
from accerl.compress.ranges import ActivationRanges
from accerl.networks import PolicyNet

OPSET = 17
IR_VERSION = 8
MICROSOFT = "com.microsoft"  # ONNX Runtime's own operators, QGemm among them
ONE_RUN_BYTES = 2_000_000
TEMPLATES = TemplateCache()
"""of this process; pruning to ever new widths must not fill its memory"""


def onnx_fp32(net: PolicyNet, *, weights_only_int8: bool = False) -> bytearray:
    """Return the float32 graph of `net`; centre and unit of uint8 inputs fold into layer one.

    Args:
        net: the network.
        weights_only_int8: send the body's weights as integers of 8 bits, symmetric per output
            channel, which a session turns into float32 once, when it is made.
    """
    graph = _Graph(net, "weights-only" if weights_only_int8 else "fp32")
    current = "obs"
    pixels = net.observation.dtype == "uint8"
    if pixels:
        current = graph.add("Cast", [current], "floats", to=TensorProto.FLOAT)
    for index, layer in enumerate(body_layers(net)):
        weight, bias = weight_and_bias(layer.module, f"layer {index}")
        if index == 0 and pixels:
            weight = weight / net.observation.unit
            bias = bias - net.observation.centre * weight.flatten(1).sum(1)
        if weights_only_int8:
            integers, scales = quantise_weight(weight, torch.zeros_like(bias), 1.0)
            zeros = graph.constant(f"w{index}_zero", np.zeros(len(scales), np.int8))
            names = [graph.constant(f"w{index}", integers)]
            names += [graph.constant(f"w{index}_scale", scales), zeros]
            name = graph.add("DequantizeLinear", names, f"w{index}_float", axis=0)
        else:
            name = graph.constant(f"w{index}", weight)
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
    return graph.finish(current)


def onnx_int8(
    net: PolicyNet,
    ranges: ActivationRanges,
    *,
    states: np.ndarray | None = None,
    levels: int = LEVELS,
) -> bytearray:
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
        levels: the largest integer weight.

    Raises:
        ValueError: `ranges` were measured on another network.
    """
    layers = body_layers(net)
    if len(ranges.layers) != len(layers):
        raise ValueError(f"{len(ranges.layers)} activation ranges for {len(layers)} layers")
    graph = _Graph(net, "int8")
    current = "obs"
    if net.observation.dtype == "uint8":
        mapping = graph.mapping("obs", Affine(1.0 / net.observation.unit, net.observation.centre))
    else:
        mapping = graph.mapping("obs", affine(*ranges.input))
        current = graph.add("QuantizeLinear", [current, *mapping.names], "obs_q")
    for index, (layer, limits) in enumerate(zip(layers, ranges.layers, strict=True)):
        last = index == len(layers) - 1 and isinstance(layer.module, nn.Linear)
        output = None if last else graph.mapping(f"y{index}", affine(*limits))
        current = _integer_layer(graph, index, layer, current, mapping, output, levels)
        if output is None:
            current = graph.add("Relu", [current], "hidden") if layer.relu else current
        else:
            mapping = output
    if isinstance(layers[-1].module, nn.Conv2d):
        current = graph.add("DequantizeLinear", [current, *mapping.names], "hidden")
    payload = graph.finish(current)
    if states is not None:
        # Rearranging large weights takes longer than the run; small ones are rearranged at once.
        session = open_session(payload, for_one_run=len(payload) > ONE_RUN_BYTES)
        logits, values = session.run(("logits", "value"), {"obs": states})
        mean = np.append(np.asarray(logits).mean(0), np.asarray(values).mean())
        bias = graph.place(payload, "heads_b")
        bias += (np.array(ranges.heads_mean) - mean).astype(np.float32)
    return payload


def _integer_layer(
    graph: _Graph,
    index: int,
    layer: Layer,
    current: str,
    x: _Mapping,
    y: _Mapping | None,
    levels: int,
) -> str:
    """Add one integer layer; the ReLU is folded into `y`, and without `y` it puts out float32."""
    weight, bias = weight_and_bias(layer.module, f"layer {index}")
    integers, scales = quantise_weight(weight, bias, x.affine.scale, levels=levels)
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
    """Collects the constants of one policy graph, and its nodes if its template is not known."""

    def __init__(self, net: PolicyNet, kind: str) -> None:
        self.net = net
        layers = tuple(_signature(module) for module in net.body)
        self._key = (kind, layers, net.observation, net.num_actions)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, np.ndarray] = {}

    def constant(self, name: str, value: np.ndarray | np.generic | Tensor) -> str:
        self._constants[name] = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
        return name

    def mapping(self, name: str, affine: Affine) -> _Mapping:
        scale = self.constant(f"{name}_scale", np.float32(affine.scale))
        zero = self.constant(f"{name}_zero", np.uint8(affine.zero_point))
        return _Mapping(affine, [scale, zero])

    def add(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self._nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def place(self, payload: bytearray, name: str) -> np.ndarray:
        """Return the constant `name` of a payload that `finish` returned, as a view of it."""
        return self._template().place(payload, name, self._constants[name])

    def finish(self, features: str) -> bytearray:
        """Append both heads as one matrix product and return the payload."""
        if not self.net.arch.hidden:
            features = self.add("Flatten", [features], "flat")
        weight, bias = stacked_heads(self.net)
        heads = [self.constant("heads_w", weight), self.constant("heads_b", bias)]
        self.add("Gemm", [features, *heads], "heads", transB=1)
        sizes = ["heads", "head_sizes"]
        self._nodes.append(helper.make_node("Split", sizes, ["logits", "values"], axis=1))
        self.add("Squeeze", ["values", "value_axis"], "value")
        return self._template().fill(self._constants)

    def _template(self) -> Template:
        return TEMPLATES.get(self._key, lambda: Template.of(self._model(), self._constants))

    def _model(self) -> onnx.ModelProto:
        actions, observation = self.net.num_actions, self.net.observation
        sizes = numpy_helper.from_array(np.array([actions, 1], np.int64), "head_sizes")
        axis = numpy_helper.from_array(np.array([1], np.int64), "value_axis")
        kind = TensorProto.UINT8 if observation.dtype == "uint8" else TensorProto.FLOAT
        graph = helper.make_graph(
            self._nodes,
            "policy",
            [helper.make_tensor_value_info("obs", kind, ["batch", *observation.shape])],
            [
                helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", actions]),
                helper.make_tensor_value_info("value", TensorProto.FLOAT, ["batch"]),
            ],
            [sizes, axis],
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def _signature(module: nn.Module) -> tuple[Any, ...]:
    """Return what a module adds to the graph besides numbers."""
    if isinstance(module, nn.Conv2d):
        return ("conv", tuple(module.weight.shape), module.stride)
    if isinstance(module, nn.Linear):
        return ("linear", tuple(module.weight.shape))
    return (type(module).__name__,)
