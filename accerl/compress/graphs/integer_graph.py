"""The static INT8 ONNX graph of any module that torch.export can read.

Why not ONNX Runtime's quantiser: it takes a second, it would have to run again for new weights, and
leaves residual sums and their ReLUs between conversions. Here images are [B, H, W, C] from the
first layer to the last (one transposition), sums, pools and concatenations add up integers, and
every constant is known by what it is computed from, so that a publication computes those alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from accerl.compress.engine import open_session
from accerl.compress.graphs.builder import MICROSOFT, Builder, Mapping8
from accerl.compress.graphs.elementwise import ELEMENTWISE
from accerl.compress.graphs.float_graph import FloatLowering, finish, policy_builder
from accerl.compress.graphs.operators import convolution_window, pooling_window
from accerl.compress.graphs.program import Op
from accerl.compress.graphs.traced import Traced, trace
from accerl.compress.quantization.graph_plan import Plan, plan_of
from accerl.compress.quantization.quantize import (
    affine,
    exact_levels,
    quantise_bias,
    quantise_weight,
)
from accerl.compress.quantization.ranges import ActivationRanges
from accerl.compress.quantization.widen import Wider, widen
from accerl.errors import CannotCompressError, one_line
from accerl.networks.observation import ObservationSpec

IN_FLOAT = "accerl.float32"
"""metadata of a graph: what stays float32 between its integer layers"""


def graph_int8(
    module: nn.Module,
    observation: ObservationSpec,
    ranges: ActivationRanges,
    *,
    states: np.ndarray | None = None,
    levels: int | None = None,
    batch: int | None = None,
) -> bytearray:
    """Return the static INT8 graph of `module` in evaluation mode, as a payload.

    Heads stay float32. uint8 pixels enter the first layer as they are if only numbers were
    subtracted and divided before it.

    Args:
        module: takes states [B, *shape] as recorded; returns logits [B, A] and values.
        observation: of the states.
        ranges: what `measure_graph` measured of it.
        states: the states that `ranges` were measured on. If given, the heads' biases are shifted
            until mean logits and values on them equal the float32 ones, see `head_shift`.
        levels: the largest integer weight; None: see `exact_levels`.
        batch: states per call, if it is always the same number; None: any.

    Raises:
        UserError: an operation has no counterpart, or weights are not finite.
        ValueError: `ranges` were measured on another network.
    """
    structure, traced = trace(module, observation)
    plan = plan_of(traced)
    graph = policy_builder(("int8", structure), traced, batch, finished=True)
    lowering = IntegerLowering(
        traced, plan, ranges, traced.weights(module), graph, levels or exact_levels()
    )
    for op in traced.ops:
        lowering.write(op)
    finish(
        graph, traced, {name: lowering.in_float(name) for name in (traced.logits, traced.values)}
    )
    payload = graph.payload({IN_FLOAT: plan.in_float})
    heads = traced.heads
    if states is None or ranges.means is None or not heads:
        return payload
    try:
        acted = _acted(payload, states, batch or len(states))
    except Exception as error:  # whatever a runtime throws: it may not end a run
        name = type(module).__name__
        raise CannotCompressError(f"{name} does not run in INT8: {one_line(error)}") from error
    shift = torch.from_numpy(ranges.means - acted.mean(0))
    for head, part in zip(heads, (shift[:-1], shift[-1:]), strict=True):
        graph.constant(f"{head.name}.bias", lowering.bias(head) + part)
    return graph.payload()


def _acted(payload: bytearray, states: np.ndarray, many: int) -> np.ndarray:
    """Return logits and, last, the values of states [N, A + 1], computed `many` at a time."""
    session = open_session(payload)
    # A graph of a fixed batch takes no other: states that came already fill up the last one.
    places = np.arange(-(-len(states) // many) * many) % len(states)
    found: list[np.ndarray] = []
    for part in places.reshape(-1, many):
        outputs = session.run(("logits", "value"), {"obs": np.ascontiguousarray(states[part])})
        found.append(np.concatenate([np.asarray(one).reshape(many, -1) for one in outputs], 1))
    return np.concatenate(found)[: len(states)]


@dataclass(frozen=True)
class Value:
    """A tensor of the graph in one of the forms that it is needed in."""

    name: str
    mapping: Mapping8 | None = None
    """how its integers are meant; None: float32"""
    last: bool = False
    """whether channels are the last axis, in an image or in what was flattened from one"""
    image: tuple[int, ...] = ()
    """the image [C, H, W] that it is or was flattened from, if channels are its last axis"""


class IntegerLowering:
    """Writes each operation on integers where the plan says so, and else in float32."""

    def __init__(
        self,
        traced: Traced,
        plan: Plan,
        ranges: ActivationRanges,
        weights: Mapping[str, Tensor],
        graph: Builder,
        levels: int,
    ) -> None:
        if len(ranges.layers) != len(plan.measured):
            raise ValueError(f"{len(ranges.layers)} ranges for {len(plan.measured)} tensors")
        self._traced, self._plan, self._graph = traced, plan, graph
        self._floats = FloatLowering(traced, weights, graph)
        self._levels = levels
        found = dict(zip(plan.measured, (affine(*pair) for pair in ranges.layers), strict=True))
        if traced.obs not in plan.entry:
            found[traced.obs] = affine(*ranges.input)
        self._ranges = found
        self._values: dict[str, list[Value]] = {}
        """what each operation puts out, in every form that something needed so far"""
        entry = plan.entry.get(traced.obs)
        mapping = None if entry is None else self._graph.mapping(traced.obs, entry)
        self._values[traced.obs] = [Value("obs", mapping)]

    def write(self, op: Op) -> None:
        """Write one operation."""
        plan = self._plan
        if op.name in plan.entry:
            value = Value("obs", self._graph.mapping(op.name, plan.entry[op.name]))
        elif op.name in plan.integer or op.name in plan.floating_layers:
            value = self._on_integers(op)
        else:
            value = self._on_floats(op)
        self._values[op.name] = [value]

    def in_float(self, name: str) -> str:
        """Return the name of what an operation puts out in float32, channels first."""
        return self._value(name, integers=False, last=False).name

    def bias(self, head: Op) -> Tensor:
        """Return the bias of a head."""
        return self._floats.weight_and_bias(head)[1]

    def _on_integers(self, op: Op) -> Value:
        if op.kind == "conv2d":
            return self._convolution(op)
        if op.kind == "linear":
            return self._linear(op)
        if op.kind == "relu":
            return self._relu(op)
        if op.kind == "add":
            return self._sum(op)
        if op.kind == "cat":
            return self._concatenation(op)
        if op.kind in ("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d"):
            return self._pool(op)
        return self._flattened(op)

    def _on_floats(self, op: Op) -> Value:
        """Write an operation in float32; elementwise ones take images as they come."""
        if not op.inputs:
            return Value(self._floats.lower(op))
        source = self._values[op.inputs[0]][0]
        last = op.kind in ELEMENTWISE and source.last
        for name in op.inputs:
            self._floats.names[name] = self._value(name, integers=False, last=last).name
        return Value(self._floats.lower(op), None, last, source.image if last else ())

    def _convolution(self, op: Op) -> Value:
        source = self._value(op.args["input"].name, integers=True, last=True)
        weight, bias = self._floats.weight_and_bias(op)
        window = convolution_window(op, tuple(weight.shape[2:]))
        wider = widen(weight.shape, window, op.args["groups"], op.shape[2])
        (quantised, shift), target = self._layer_constants(op, source, weight, bias, wider)
        assert target is not None
        inputs = [source.name, *_mapping(source).names, *quantised, *target.names, shift]
        attributes = {**wider.window.attributes(), "group": op.args["groups"]}
        current = self._graph.add(
            "QLinearConv", inputs, f"{op.name}.q", domain=MICROSOFT, channels_last=1, **attributes
        )
        if wider.columns > 1:
            sides = np.array([-1, *op.shape[1:], op.shape[0]], np.int64)
            shape = self._graph.fixed(f"{op.name}.sides", sides)
            current = self._graph.add("Reshape", [current, shape], f"{op.name}.narrow")
        return Value(current, target, True, op.shape)

    def _linear(self, op: Op) -> Value:
        source = self._value(op.args["input"].name, integers=True)
        weight, bias = self._floats.weight_and_bias(op)
        (quantised, shift), target = self._layer_constants(op, source, weight, bias)
        inputs = [source.name, *_mapping(source).names, *quantised, shift]
        inputs += [] if target is None else target.names
        name = f"{op.name}.q"
        self._graph.add("QGemm", inputs, name, domain=MICROSOFT, transB=1)
        return Value(name, target)

    def _layer_constants(
        self, op: Op, source: Value, weight: Tensor, bias: Tensor, wider: Wider | None = None
    ) -> tuple[tuple[list[str], str], Mapping8 | None]:
        """Return the names of a layer's weights, scales and zeros, and bias; and its output's."""
        target = None if op.name in self._plan.floating_layers else self._own(op.name)
        scale = _mapping(source).affine.scale
        integers, scales = quantise_weight(weight, bias, scale, levels=self._levels)
        rounded = quantise_bias(bias, scale, scales)
        if op.kind == "linear" and source.last:
            # Columns in the order in which the image lies in memory.
            integers = integers.view(-1, *source.image).permute(0, 2, 3, 1).flatten(1)
        if wider is not None and wider.columns > 1:
            integers = wider.weight(integers)
            scales, rounded = scales.repeat(wider.columns), rounded.repeat(wider.columns)
        constant = self._graph.constant
        quantised = [
            constant(f"{op.name}.w", integers),
            constant(f"{op.name}.w_scale", scales),
            self._graph.fixed(f"{op.name}.w_zero", np.zeros(len(scales), np.int8)),
        ]
        return (quantised, constant(f"{op.name}.b", rounded)), target

    def _relu(self, op: Op) -> Value:
        source = self._value(op.inputs[0], integers=True)
        if op.name in self._plan.folded:
            return source
        name = self._graph.add("Max", [source.name, _mapping(source).names[1]], f"{op.name}.q")
        return replace(source, name=name)

    def _sum(self, op: Op) -> Value:
        last = len(op.shape) == 3
        inputs = [
            self._value(name, integers=True, last=last)
            for name in (op.args["self"].name, op.args["other"].name)
        ]
        target = self._own(op.name)
        names = _with_mappings(inputs)
        output = f"{op.name}.q"
        self._graph.add("QLinearAdd", [*names, *target.names], output, domain=MICROSOFT)
        return Value(output, target, last, op.shape if last else ())

    def _concatenation(self, op: Op) -> Value:
        last = len(op.shape) == 3
        refs = [ref.name for ref in op.args["tensors"]]
        inputs = [self._value(name, integers=True, last=last) for name in refs]
        target = self._own(op.name)
        names = _with_mappings(inputs)
        output, axis = f"{op.name}.q", 3 if last else 1
        inputs = [*target.names, *names]
        self._graph.add("QLinearConcat", inputs, output, domain=MICROSOFT, axis=axis)
        return Value(output, target, last, op.shape if last else ())

    def _pool(self, op: Op) -> Value:
        source = self._value(op.inputs[0], integers=True, last=True)
        output = f"{op.name}.q"
        if op.kind == "max_pool2d":
            attributes = pooling_window(op).attributes()
            self._graph.add("NhwcMaxPool", [source.name], output, domain=MICROSOFT, **attributes)
            return Value(output, source.mapping, True, op.shape)
        target = self._own(op.name)
        inputs = [source.name, *_mapping(source).names, *target.names]
        kind, attributes = "QLinearGlobalAveragePool", {}
        if op.kind == "avg_pool2d":
            kind, attributes = "QLinearAveragePool", pooling_window(op).attributes()
            del attributes["dilations"]
        self._graph.add(kind, inputs, output, domain=MICROSOFT, channels_last=1, **attributes)
        return Value(output, target, True, op.shape)

    def _flattened(self, op: Op) -> Value:
        source = self._value(op.inputs[0], integers=True)
        return replace(source, name=self._graph.add("Flatten", [source.name], f"{op.name}.q"))

    def _own(self, name: str) -> Mapping8:
        return self._graph.mapping(name, self._ranges[name])

    def _value(self, name: str, *, integers: bool, last: bool | None = None) -> Value:
        """Return what an operation puts out in this form, converted if it is not there yet.

        Args:
            name: of the operation.
            integers: rather than float32.
            last: whether channels are the last axis; None: as it is.
        """
        forms = self._values[name]
        if last is None:
            last = forms[0].last
        found = [v for v in forms if (v.mapping is not None, v.last) == (integers, last)]
        if found:
            return found[0]
        value = forms[0]
        if integers and value.mapping is None:
            value = next((v for v in forms if v.mapping is not None), None) or self._quantised(
                value, name
            )
        if value.last != last:  # before it becomes float32: integers move faster
            value = self._moved(value, name)
        if not integers and value.mapping is not None:
            value = self._dequantised(value, name)
        forms.append(value)
        return value

    def _quantised(self, value: Value, name: str) -> Value:
        mapping, output = self._own(name), f"{self._base(value, name)}.int8"
        self._graph.add("QuantizeLinear", [value.name, *mapping.names], output)
        return replace(value, name=output, mapping=mapping)

    def _dequantised(self, value: Value, name: str) -> Value:
        output = f"{self._base(value, name)}.fp32"
        self._graph.add("DequantizeLinear", [value.name, *_mapping(value).names], output)
        return replace(value, name=output, mapping=None)

    def _base(self, value: Value, name: str) -> str:
        """Return what the other forms of a value are named after.

        Several operations may stand for the states as they come: each has forms of its own.
        """
        return name if value.name == "obs" else value.name

    def _moved(self, value: Value, name: str) -> Value:
        """Return a value with its channels moved to the other end."""
        to = "first" if value.last else "last"
        graph, output = self._graph, f"{self._base(value, name)}.{to}"
        shape = self._traced.shapes[name]
        if not value.last:
            graph.add("Transpose", [value.name], output, perm=[0, 2, 3, 1])
            return replace(value, name=output, last=True, image=shape)
        current = value.name
        if len(shape) == 1:  # flattened: back into an image
            channels, height, width = value.image
            sides = graph.fixed(f"{output}.sides", np.array([-1, height, width, channels]))
            current = graph.add("Reshape", [current, sides], f"{output}.image")
        flat = len(shape) == 1
        moved = f"{output}.moved" if flat else output
        current = graph.add("Transpose", [current], moved, perm=[0, 3, 1, 2])
        if flat:
            graph.add("Flatten", [current], output)
        return replace(value, name=output, last=False, image=())


def _mapping(value: Value) -> Mapping8:
    assert value.mapping is not None
    return value.mapping


def _with_mappings(values: list[Value]) -> list[str]:
    """Return the names of integers, each with its scale and zero point behind it."""
    return [name for value in values for name in (value.name, *_mapping(value).names)]
