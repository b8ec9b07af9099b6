"""ATen operations as ONNX operators in float32: one function for each kind, in one table.

Each takes the operation, the builder, and what names the tensors that it reads: a function from
`Ref` and `Weight` to a value's name. Images are [B, C, H, W] here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from accerl.compress.graphs.builder import Builder
from accerl.compress.graphs.traced import Op, Ref, Weight

Tensors = Callable[[Ref | Weight], str]
Lower = Callable[[Op, Builder, Tensors], str]


class Unsupported(Exception):
    """An operation has settings that have no counterpart here; the message says which."""


class Window(NamedTuple):
    """What slides over an image, as (height, width)."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    """top, left, bottom, right"""
    dilations: tuple[int, int]

    def attributes(self) -> dict[str, Any]:
        """Return them as ONNX's operators call them."""
        return {
            "kernel_shape": list(self.kernel),
            "strides": list(self.strides),
            "pads": list(self.pads),
            "dilations": list(self.dilations),
        }


def convolution_window(op: Op, kernel: tuple[int, ...]) -> Window:
    """Return the window of a convolution whose kernel has these sides."""
    height, width = kernel
    dilations = _pair(op.args["dilation"])
    padding = op.args["padding"]
    if padding == "valid":
        padding = 0
    if padding == "same":  # as torch does it: the larger half goes behind
        whole = [dilations[0] * (height - 1), dilations[1] * (width - 1)]
        before = [size // 2 for size in whole]
        pads = (*before, *(size - half for size, half in zip(whole, before, strict=True)))
        top, left, bottom, right = pads
    else:
        top, left = bottom, right = _pair(padding)
    sides = (top, left, bottom, right)
    return Window((height, width), _pair(op.args["stride"]), sides, dilations)


def pooling_window(op: Op) -> Window:
    """Return the window of a maximum or an average.

    Raises:
        Unsupported: it rounds sizes up.
    """
    if op.args["ceil_mode"]:
        raise Unsupported("ceil_mode=True")
    kernel = _pair(op.args["kernel_size"])
    strides = _pair(op.args["stride"] or kernel)
    top, left = _pair(op.args["padding"])
    dilations = _pair(op.args.get("dilation", 1))
    return Window(kernel, strides, (top, left, top, left), dilations)


def adaptive_window(op: Op, before: tuple[int, ...]) -> Window:
    """Return the window by which an adaptive average of images [C, H, W] shrinks them.

    Raises:
        Unsupported: windows of several sizes would be needed.
    """
    sides, smaller = before[1:], op.shape[1:]
    if any(side % small for side, small in zip(sides, smaller, strict=True)):
        raise Unsupported(f"from {sides} to {smaller}: no whole ratio")
    kernel = (sides[0] // smaller[0], sides[1] // smaller[1])
    return Window(kernel, kernel, (0, 0, 0, 0), (1, 1))


def _pair(value: Any) -> tuple[int, int]:
    values = list(value) if isinstance(value, list | tuple) else [value]
    first, second = (values * 2)[:2]
    return int(first), int(second)


def _unary(onnx_kind: str, op: Op, graph: Builder, tensor: Tensors, **attributes: Any) -> str:
    return graph.add(onnx_kind, [tensor(_first(op))], op.name, **attributes)


def _first(op: Op) -> Ref:
    return next(value for value in op.args.values() if isinstance(value, Ref))


def _gelu(op: Op, graph: Builder, tensor: Tensors) -> str:
    return _unary("Gelu", op, graph, tensor, approximate=op.args["approximate"])


def _softplus(op: Op, graph: Builder, tensor: Tensors) -> str:
    if op.args["beta"] != 1:
        raise Unsupported(f"beta={op.args['beta']}")
    return _unary("Softplus", op, graph, tensor)


def _silu(op: Op, graph: Builder, tensor: Tensors) -> str:
    inputs = tensor(_first(op))
    gate = graph.add("Sigmoid", [inputs], f"{op.name}.gate")
    return graph.add("Mul", [inputs, gate], op.name)


def _elu(op: Op, graph: Builder, tensor: Tensors) -> str:
    if op.args["scale"] != 1 or op.args["input_scale"] != 1:
        raise Unsupported("with scales")
    return _unary("Elu", op, graph, tensor, alpha=float(op.args["alpha"]))


def _leaky_relu(op: Op, graph: Builder, tensor: Tensors) -> str:
    return _unary("LeakyRelu", op, graph, tensor, alpha=float(op.args["negative_slope"]))


def _clamp(low: str, high: str, op: Op, graph: Builder, tensor: Tensors) -> str:
    if any(isinstance(op.args[name], Ref | Weight) for name in (low, high)):
        raise Unsupported("with limits that are tensors")
    limits = [
        ""
        if (limit := op.args[name]) is None
        else graph.fixed(f"{op.name}.{name}", np.float32(limit))
        for name in (low, high)
    ]
    return graph.add("Clip", [tensor(_first(op)), *limits], op.name)


def _relu6(op: Op, graph: Builder, tensor: Tensors) -> str:
    return _clamp("low", "high", replace(op, args={**op.args, "low": 0, "high": 6}), graph, tensor)


def _softmax(kind: str, op: Op, graph: Builder, tensor: Tensors) -> str:
    return _unary(kind, op, graph, tensor, axis=_axis(op.args["dim"], op))


def _binary(kind: str, op: Op, graph: Builder, tensor: Tensors, *, swapped: bool = False) -> str:
    if op.args.get("alpha", 1) != 1:
        raise Unsupported(f"alpha={op.args['alpha']}")
    if op.args.get("rounding_mode"):
        raise Unsupported(f"rounding_mode={op.args['rounding_mode']!r}")
    pair = [op.args["self"], op.args["exponent" if kind == "Pow" else "other"]]
    names = []
    for place, value in enumerate(pair[::-1] if swapped else pair):
        if isinstance(value, Ref | Weight):
            names.append(tensor(value))
        else:
            names.append(graph.fixed(f"{op.name}.{place}", np.float32(value)))
    return graph.add(kind, names, op.name)


def _matmul(op: Op, graph: Builder, tensor: Tensors) -> str:
    pair = [value for value in op.args.values() if isinstance(value, Ref | Weight)]
    return graph.add("MatMul", [tensor(value) for value in pair], op.name)


def _cat(op: Op, graph: Builder, tensor: Tensors) -> str:
    axis = _axis(op.args["dim"], op)
    return graph.add("Concat", [tensor(ref) for ref in op.args["tensors"]], op.name, axis=axis)


def _reshape(op: Op, graph: Builder, tensor: Tensors) -> str:
    shape = graph.fixed(f"{op.name}.shape", np.array([-1, *op.shape], np.int64))
    return graph.add("Reshape", [tensor(_first(op)), shape], op.name)


def _permute(op: Op, graph: Builder, tensor: Tensors) -> str:
    axes = [_axis(axis, op) if axis else 0 for axis in op.args["dims"]]
    return graph.add("Transpose", [tensor(_first(op))], op.name, perm=axes)


def _transpose(op: Op, graph: Builder, tensor: Tensors) -> str:
    axes = list(range(1 + len(op.shape)))
    first, second = _axis(op.args["dim0"], op), _axis(op.args["dim1"], op)
    axes[first], axes[second] = second, first
    return graph.add("Transpose", [tensor(_first(op))], op.name, perm=axes)


def _slice(op: Op, graph: Builder, tensor: Tensors) -> str:
    start, end = op.args["start"] or 0, op.args["end"]
    limits = (start, np.iinfo(np.int64).max if end is None else end, _axis(op.args["dim"], op))
    numbers = [
        graph.fixed(f"{op.name}.{place}", np.array([number], np.int64))
        for place, number in enumerate((*limits, op.args["step"]))
    ]
    return graph.add("Slice", [tensor(_first(op)), *numbers], op.name)


def _select(op: Op, graph: Builder, tensor: Tensors) -> str:
    axis = op.args["dim"] % (len(op.shape) + 2)  # the input has one more axis than the output
    if axis == 0:
        raise Unsupported("along the states")
    index = graph.fixed(f"{op.name}.index", np.array(op.args["index"], np.int64))
    return graph.add("Gather", [tensor(_first(op)), index], op.name, axis=axis)


def _reduce(kind: str, op: Op, graph: Builder, tensor: Tensors) -> str:
    kept = bool(op.args["keepdim"])
    dims = op.args["dim"]
    rank = 1 + len(op.shape) + (0 if kept else len(dims or ()))
    if not dims or any(dim % rank == 0 for dim in dims):
        raise Unsupported("over the states")
    axes = graph.fixed(f"{op.name}.axes", np.array([dim % rank for dim in dims], np.int64))
    return graph.add(kind, [tensor(_first(op)), axes], op.name, keepdims=int(kept))


def _pad(op: Op, graph: Builder, tensor: Tensors) -> str:
    if op.args.get("mode", "constant") != "constant":
        raise Unsupported(f"mode={op.args['mode']!r}")
    pairs = [op.args["pad"][i : i + 2] for i in range(0, len(op.args["pad"]), 2)][::-1]
    pairs = [[0, 0]] * (1 + len(op.shape) - len(pairs)) + pairs
    amounts = np.array([before for before, _ in pairs] + [after for _, after in pairs], np.int64)
    value = np.float32(op.args.get("value") or 0.0)
    inputs = [graph.fixed(f"{op.name}.pads", amounts), graph.fixed(f"{op.name}.value", value)]
    return graph.add("Pad", [tensor(_first(op)), *inputs], op.name)


def _max_pool(op: Op, graph: Builder, tensor: Tensors) -> str:
    return _unary("MaxPool", op, graph, tensor, **pooling_window(op).attributes())


def _average_pool(op: Op, graph: Builder, tensor: Tensors) -> str:
    if op.args["divisor_override"] is not None:
        raise Unsupported("with divisor_override")
    attributes = pooling_window(op).attributes()
    del attributes["dilations"]
    counted = int(op.args["count_include_pad"])
    return _unary("AveragePool", op, graph, tensor, count_include_pad=counted, **attributes)


def _layer_norm(op: Op, graph: Builder, tensor: Tensors) -> str:
    sizes = op.args["normalized_shape"]
    inputs = [tensor(op.args["input"])]
    inputs.append(_or_filled(op, "weight", sizes, 1.0, graph, tensor))
    if op.args["bias"] is not None:
        inputs.append(tensor(op.args["bias"]))
    epsilon = float(op.args["eps"])
    return graph.add("LayerNormalization", inputs, op.name, axis=-len(sizes), epsilon=epsilon)


def _group_norm(op: Op, graph: Builder, tensor: Tensors) -> str:
    channels = [op.shape[0]]
    inputs = [
        tensor(op.args["input"]),
        _or_filled(op, "weight", channels, 1.0, graph, tensor),
        _or_filled(op, "bias", channels, 0.0, graph, tensor),
    ]
    settings = {"num_groups": op.args["num_groups"], "epsilon": float(op.args["eps"])}
    return graph.add("GroupNormalization", inputs, op.name, **settings)


def _batch_norm(op: Op, graph: Builder, tensor: Tensors) -> str:
    channels = [op.shape[0]]
    inputs = [
        tensor(op.args["input"]),
        _or_filled(op, "weight", channels, 1.0, graph, tensor),
        _or_filled(op, "bias", channels, 0.0, graph, tensor),
        tensor(op.args["running_mean"]),
        tensor(op.args["running_var"]),
    ]
    return graph.add("BatchNormalization", inputs, op.name, epsilon=float(op.args["eps"]))


def _or_filled(
    op: Op, which: str, sizes: list[int], value: float, graph: Builder, tensor: Tensors
) -> str:
    """Return the name of a weight, or of as many equal values if the operation has none."""
    if op.args[which] is not None:
        return tensor(op.args[which])
    return graph.fixed(f"{op.name}.{which}", np.full(sizes, value, np.float32))


def _axis(axis: int, op: Op) -> int:
    """Return an axis counted from the front; the output has as many as the input.

    Raises:
        Unsupported: it is that of the states.
    """
    axis %= 1 + len(op.shape)
    if axis == 0:
        raise Unsupported("along the states")
    return axis


ELEMENTWISE: dict[str, Lower] = {
    "relu": partial(_unary, "Relu"),
    "sigmoid": partial(_unary, "Sigmoid"),
    "tanh": partial(_unary, "Tanh"),
    "softplus": _softplus,
    "mish": partial(_unary, "Mish"),
    "hardswish": partial(_unary, "HardSwish"),
    "exp": partial(_unary, "Exp"),
    "abs": partial(_unary, "Abs"),
    "neg": partial(_unary, "Neg"),
    "sqrt": partial(_unary, "Sqrt"),
    "gelu": _gelu,
    "silu": _silu,
    "elu": _elu,
    "leaky_relu": _leaky_relu,
    "hardtanh": partial(_clamp, "min_val", "max_val"),
    "relu6": _relu6,
    "clamp": partial(_clamp, "min", "max"),
    "cast": lambda op, graph, tensor: _unary("Cast", op, graph, tensor, to=1),
}
"""what treats every number by itself, so that any order of the axes will do"""

SHAPES = {
    **dict.fromkeys(
        ("view", "reshape", "_unsafe_view", "flatten", "squeeze", "unsqueeze"), _reshape
    ),
    "permute": _permute,
    "transpose": _transpose,
    "slice": _slice,
    "select": _select,
}
"""what only moves numbers"""

OPERATORS: dict[str, Lower] = {
    **ELEMENTWISE,
    **SHAPES,
    "_softmax": partial(_softmax, "Softmax"),
    "softmax": partial(_softmax, "Softmax"),
    "log_softmax": partial(_softmax, "LogSoftmax"),
    "add": partial(_binary, "Add"),
    "sub": partial(_binary, "Sub"),
    "rsub": partial(_binary, "Sub", swapped=True),
    "mul": partial(_binary, "Mul"),
    "div": partial(_binary, "Div"),
    "pow": partial(_binary, "Pow"),
    "maximum": partial(_binary, "Max"),
    "minimum": partial(_binary, "Min"),
    "matmul": _matmul,
    "bmm": _matmul,
    "mm": _matmul,
    "cat": _cat,
    "mean": partial(_reduce, "ReduceMean"),
    "sum": partial(_reduce, "ReduceSum"),
    "amax": partial(_reduce, "ReduceMax"),
    "pad": _pad,
    "constant_pad_nd": _pad,
    "max_pool2d": _max_pool,
    "avg_pool2d": _average_pool,
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
}
"""by ATen's name; layers and adaptive pools are in `float_graph`, which knows inputs' shapes"""
