"""The float32 ONNX graph of any module that torch.export can read.

Why not torch.onnx: its graph would have to be searched for what became of each weight (batch norms
fold, divisors move) before a publication could exchange them; here every constant is written down
with what it is computed from. And its current exporter takes seconds and needs onnxscript.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from accerl.compress.graphs.builder import Builder
from accerl.compress.graphs.elementwise import Unsupported
from accerl.compress.graphs.operators import OPERATORS, adaptive_window, convolution_window
from accerl.compress.graphs.program import Op, Ref, Weight
from accerl.compress.graphs.traced import LAYERS, Traced, trace
from accerl.compress.layers import refuse_diverged
from accerl.compress.quantization.quantize import quantise_weight
from accerl.errors import first_line
from accerl.networks.observation import ObservationSpec

OPSET, IR_VERSION = 21, 10  # the first with group norms


def graph_fp32(
    module: nn.Module,
    observation: ObservationSpec,
    *,
    weights_only_int8: bool = False,
    batch: int | None = None,
) -> bytearray:
    """Return the float32 graph of `module` in evaluation mode, as a payload.

    Args:
        module: takes states [B, *shape] as recorded; returns logits [B, A] and values.
        observation: of the states.
        weights_only_int8: send the weights of its layers as integers of 8 bits, symmetric per
            output channel, which a session turns into float32 once, when it is made.
        batch: states per call, if it is always the same number; None: any.

    Raises:
        UserError: an operation has no counterpart, or weights are not finite.
    """
    structure, traced = trace(module, observation)
    kind = "weights-only" if weights_only_int8 else "fp32"
    graph = policy_builder((kind, structure), traced, batch)
    lowering = FloatLowering(traced, traced.weights(module), graph, rounded=weights_only_int8)
    for op in traced.ops:
        lowering.names[op.name] = lowering.lower(op)
    finish(graph, traced, lowering.names)
    return graph.payload()


def policy_builder(
    key: object, traced: Traced, batch: int | None, *, finished: bool = False
) -> Builder:
    """Return an empty builder for the graph of `traced`."""
    return Builder(
        key,
        traced.observation,
        traced.shapes[traced.logits][0],
        opset=OPSET,
        ir_version=IR_VERSION,
        batch=batch,
        finished=finished,
    )


def finish(graph: Builder, traced: Traced, names: Mapping[str, str]) -> None:
    """Give the graph its outputs, `logits` [B, A] and `value` [B]."""
    logits, values = names[traced.logits], names[traced.values]
    if traced.shapes[traced.values]:
        values = graph.add("Squeeze", [values, graph.axes("value_axis", 1)], "value_flat")
    if logits == values:  # one action
        values = graph.add("Identity", [values], "value_copy")
    graph.rename({logits: "logits", values: "value"})


class FloatLowering:
    """Writes operations on float32 tensors; images are [B, C, H, W]."""

    def __init__(
        self,
        traced: Traced,
        weights: Mapping[str, Tensor],
        graph: Builder,
        *,
        rounded: bool = False,
    ) -> None:
        self.traced = traced
        self.graph = graph
        self.names = {traced.obs: "obs"}
        """of the values that hold what each operation puts out"""
        self._weights = weights
        self._rounded = rounded

    def lower(self, op: Op) -> str:
        """Write one operation; return the name of its output.

        Raises:
            UserError: there is no counterpart; it says for what.
        """
        knowing_shapes = {
            "adaptive_avg_pool2d": self._adaptive_average,
            "conv1d": self._convolution_1d,
            "scaled_dot_product_attention": self._attention,
            "upsample_nearest2d": self._nearest,
        }
        try:
            if op.kind in LAYERS:
                return self._layer(op)
            if op.kind in knowing_shapes:
                return knowing_shapes[op.kind](op)
            if op.kind in OPERATORS:
                return OPERATORS[op.kind](op, self.graph, self.tensor)
            reason = "is not known here"
        except Unsupported as error:
            reason = str(error)
        except (LookupError, StopIteration, TypeError, ValueError) as error:
            reason = f"has a form that is not known here ({first_line(error)})"
        raise self.traced.refusal(f"{op.kind!r} ({op.name}) {reason}")

    def tensor(self, which: Ref | Weight) -> str:
        """Return the name of a value, or of a weight as a constant."""
        if isinstance(which, Ref):
            return self.names[which.name]
        return self.graph.constant(which.name, self._weights[which.name])

    def weight_and_bias(self, op: Op) -> tuple[Tensor, Tensor]:
        """Return weight and bias of a layer and the batch norm behind it; zeros for no bias."""
        weight = self._weights[op.args["weight"].name]
        bias = op.args["bias"]
        shift = torch.zeros(len(weight)) if bias is None else self._weights[bias.name]
        norm = op.args.get("norm")
        if norm is None:
            return weight, shift
        mean, variance = (self._weights[norm[f"running_{name}"].name] for name in ("mean", "var"))
        scale = (variance + norm["eps"]).rsqrt()
        if norm["weight"] is not None:
            scale = scale * self._weights[norm["weight"].name]
        shift = (shift - mean) * scale
        if norm["bias"] is not None:
            shift = shift + self._weights[norm["bias"].name]
        refuse_diverged(op.name, scale, shift)
        return weight * scale.view(-1, *([1] * (weight.ndim - 1))), shift

    def _layer(self, op: Op) -> str:
        inputs = op.args["input"]
        if not isinstance(op.args["weight"], Weight):
            raise Unsupported("takes weights that are computed from others")
        weight, bias = self.weight_and_bias(op)
        if weight.ndim < 2:
            raise Unsupported("by a vector of weights")
        flat = op.kind == "linear" and len(op.shape) == 1
        if op.kind == "linear" and not flat:
            weight = weight.t().contiguous()
        name = f"{op.name}.weight"
        if self._rounded:
            rows = weight if op.kind != "linear" or flat else weight.t()
            integers, scales = quantise_weight(rows, torch.zeros(len(rows)), 1.0)
            axis = 0 if rows is weight else 1
            integers = integers if rows is weight else integers.t().contiguous()
            names = [self.graph.constant(f"{name}.integers", integers)]
            names.append(self.graph.constant(f"{name}.scales", scales))
            self.graph.add("DequantizeLinear", names, name, axis=axis)
        else:
            self.graph.constant(name, weight)
        shift = self.graph.constant(f"{op.name}.bias", bias)
        current = self.tensor(inputs)
        if op.kind == "conv2d":
            kernel = tuple(weight.shape[2:])
            attributes = convolution_window(op, kernel).attributes() | {"group": op.args["groups"]}
            return self.graph.add("Conv", [current, name, shift], op.name, **attributes)
        if flat:
            return self.graph.add("Gemm", [current, name, shift], op.name, transB=1)
        product = self.graph.add("MatMul", [current, name], f"{op.name}.product")
        return self.graph.add("Add", [product, shift], op.name)

    def _adaptive_average(self, op: Op) -> str:
        current = self.tensor(op.args["self"])
        if op.shape[1:] == (1, 1):
            return self.graph.add("GlobalAveragePool", [current], op.name)
        window = adaptive_window(op, self.traced.shapes[op.args["self"].name])
        attributes = window.attributes()
        del attributes["dilations"]
        return self.graph.add("AveragePool", [current], op.name, **attributes)

    def _convolution_1d(self, op: Op) -> str:
        names = [self.tensor(op.args[name]) for name in ("input", "weight")]
        if op.args["bias"] is not None:
            names.append(self.tensor(op.args["bias"]))
        padding = op.args["padding"]
        if isinstance(padding, str):
            raise Unsupported(f"padding={padding!r}")
        return self.graph.add(
            "Conv",
            names,
            op.name,
            strides=list(op.args["stride"]),
            pads=2 * list(padding),
            dilations=list(op.args["dilation"]),
            group=op.args["groups"],
        )

    def _attention(self, op: Op) -> str:
        """Write softmax(Q K^T / sqrt(E) + mask) V."""
        query, key, value = (self.tensor(op.args[name]) for name in ("query", "key", "value"))
        shapes = [self.traced.shapes[op.args[name].name] for name in ("query", "key")]
        if op.args.get("enable_gqa"):
            raise Unsupported("with enable_gqa")
        if len({len(shape) for shape in (*shapes, op.shape)}) > 1:
            raise Unsupported("of tensors with unequal axes")
        rank = 1 + len(op.shape)
        scale = op.args.get("scale") or shapes[0][-1] ** -0.5
        axes = [*range(rank - 2), rank - 1, rank - 2]
        turned = self.graph.add("Transpose", [key], f"{op.name}.key", perm=axes)
        factor = self.graph.fixed(f"{op.name}.scale", np.float32(scale))
        scaled = self.graph.add("Mul", [query, factor], f"{op.name}.query")
        current = self.graph.add("MatMul", [scaled, turned], f"{op.name}.alike")
        if op.args["is_causal"]:
            sizes = shapes[0][-2], shapes[1][-2]
            later = np.triu(np.full(sizes, -np.inf, np.float32), 1)
            mask = self.graph.fixed(f"{op.name}.later", later)
            current = self.graph.add("Add", [current, mask], f"{op.name}.masked")
        elif op.args["attn_mask"] is not None:
            raise Unsupported("with a mask")
        shares = self.graph.add("Softmax", [current], f"{op.name}.shares", axis=-1)
        return self.graph.add("MatMul", [shares, value], op.name)

    def _nearest(self, op: Op) -> str:
        source = op.args["input"]
        before = self.traced.shapes[source.name][1:]
        factors = [after / size for after, size in zip(op.shape[1:], before, strict=True)]
        if not all(factor.is_integer() for factor in factors):
            return self._nearest_by_torch(op, before)
        scales = self.graph.fixed(f"{op.name}.scales", np.array([1.0, 1.0, *factors], np.float32))
        return self.graph.add(
            "Resize",
            [self.tensor(source), "", scales],
            op.name,
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )

    def _nearest_by_torch(self, op: Op, before: tuple[int, ...]) -> str:
        """Write which rows and columns torch takes: ONNX rounds other ratios otherwise."""
        places = torch.arange(before[0] * before[1], dtype=torch.float32).view(1, 1, *before)
        sizes = op.args["output_size"], op.args["scale_factors"]
        taken = torch.ops.aten.upsample_nearest2d.vec(places, *sizes)[0, 0].long().numpy()
        current = self.tensor(op.args["input"])
        rows = self.graph.fixed(f"{op.name}.rows", taken[:, 0] // before[1])
        current = self.graph.add("Gather", [current, rows], f"{op.name}.of_rows", axis=2)
        columns = self.graph.fixed(f"{op.name}.columns", taken[0] % before[1])
        return self.graph.add("Gather", [current, columns], op.name, axis=3)
