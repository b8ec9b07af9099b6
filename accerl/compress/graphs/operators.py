"""ATen operations as ONNX operators in float32, in one table; here those that move or join numbers.

Each takes the operation, the builder, and what names the tensors that it reads: a function from
`Ref` and `Weight` to a value's name. Images are [B, C, H, W] here.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from accerl.compress.graphs.builder import Builder
from accerl.compress.graphs.elementwise import (
    ELEMENTWISE,
    PAIRS,
    Lower,
    Tensors,
    Unsupported,
    first,
    unary,
)
from accerl.compress.graphs.program import Op, Ref, Weight


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


def _softmax(kind: str, op: Op, graph: Builder, tensor: Tensors) -> str:
    return unary(kind, op, graph, tensor, axis=_axis(op.args["dim"], op))


def _matmul(op: Op, graph: Builder, tensor: Tensors) -> str:
    pair = [value for value in op.args.values() if isinstance(value, Ref | Weight)]
    return graph.add("MatMul", [tensor(value) for value in pair], op.name)


def _cat(op: Op, graph: Builder, tensor: Tensors) -> str:
    axis = _axis(op.args["dim"], op)
    return graph.add("Concat", [tensor(ref) for ref in op.args["tensors"]], op.name, axis=axis)


def _reshape(op: Op, graph: Builder, tensor: Tensors) -> str:
    shape = graph.fixed(f"{op.name}.shape", np.array([-1, *op.shape], np.int64))
    return graph.add("Reshape", [tensor(first(op)), shape], op.name)


def _permute(op: Op, graph: Builder, tensor: Tensors) -> str:
    axes = [_axis(axis, op) if axis else 0 for axis in op.args["dims"]]
    return graph.add("Transpose", [tensor(first(op))], op.name, perm=axes)


def _transpose(op: Op, graph: Builder, tensor: Tensors) -> str:
    axes = list(range(1 + len(op.shape)))
    one, other = _axis(op.args["dim0"], op), _axis(op.args["dim1"], op)
    axes[one], axes[other] = other, one
    return graph.add("Transpose", [tensor(first(op))], op.name, perm=axes)


def _slice(op: Op, graph: Builder, tensor: Tensors) -> str:
    start, end = op.args["start"] or 0, op.args["end"]
    limits = (start, np.iinfo(np.int64).max if end is None else end, _axis(op.args["dim"], op))
    numbers = [
        graph.fixed(f"{op.name}.{place}", np.array([number], np.int64))
        for place, number in enumerate((*limits, op.args["step"]))
    ]
    return graph.add("Slice", [tensor(first(op)), *numbers], op.name)


def _select(op: Op, graph: Builder, tensor: Tensors) -> str:
    axis = op.args["dim"] % (len(op.shape) + 2)  # the input has one more axis than the output
    if axis == 0:
        raise Unsupported("along the states")
    index = graph.fixed(f"{op.name}.index", np.array(op.args["index"], np.int64))
    return graph.add("Gather", [tensor(first(op)), index], op.name, axis=axis)


def _reduce(kind: str, op: Op, graph: Builder, tensor: Tensors) -> str:
    kept = bool(op.args["keepdim"])
    dims = op.args["dim"]
    rank = 1 + len(op.shape) + (0 if kept else len(dims or ()))
    if not dims or any(dim % rank == 0 for dim in dims):
        raise Unsupported("over the states")
    axes = graph.fixed(f"{op.name}.axes", np.array([dim % rank for dim in dims], np.int64))
    return graph.add(kind, [tensor(first(op)), axes], op.name, keepdims=int(kept))


def _norm(op: Op, graph: Builder, tensor: Tensors) -> str:
    kinds = {1: "ReduceL1", 2: "ReduceL2"}
    if op.args["ord"] not in kinds:
        raise Unsupported(f"ord={op.args['ord']}")
    return _reduce(kinds[op.args["ord"]], op, graph, tensor)


def _stack(op: Op, graph: Builder, tensor: Tensors) -> str:
    axis = _axis(op.args["dim"], op)
    axes = graph.axes(f"{op.name}.axes", axis)
    parts = [
        graph.add("Unsqueeze", [tensor(part), axes], f"{op.name}.{place}")
        for place, part in enumerate(op.args["tensors"])
    ]
    return graph.add("Concat", parts, op.name, axis=axis)


def _expand(op: Op, graph: Builder, tensor: Tensors) -> str:
    source = first(op)
    if isinstance(source, Ref):  # it has the states' axis
        shape = graph.axes(f"{op.name}.shape", 1, *op.shape)
    else:
        batch = graph.add("Shape", ["obs"], f"{op.name}.batch", start=0, end=1)
        rest = graph.axes(f"{op.name}.rest", *op.shape)
        shape = graph.add("Concat", [batch, rest], f"{op.name}.shape", axis=0)
    return graph.add("Expand", [tensor(source), shape], op.name)


def _embedding(op: Op, graph: Builder, tensor: Tensors) -> str:
    names = [tensor(op.args["weight"]), tensor(op.args["indices"])]
    return graph.add("Gather", names, op.name, axis=0)


def _index_select(op: Op, graph: Builder, tensor: Tensors) -> str:
    names = [tensor(op.args["self"]), tensor(op.args["index"])]
    return graph.add("Gather", names, op.name, axis=_axis(op.args["dim"], op))


def _one_hot(op: Op, graph: Builder, tensor: Tensors) -> str:
    if op.args["num_classes"] < 1:
        raise Unsupported("without num_classes")
    depth = graph.fixed(f"{op.name}.depth", np.array(op.args["num_classes"], np.int64))
    values = graph.fixed(f"{op.name}.values", np.array([0, 1], np.int64))
    return graph.add("OneHot", [tensor(first(op)), depth, values], op.name, axis=-1)


def _pixel_shuffle(op: Op, graph: Builder, tensor: Tensors) -> str:
    factor = op.args["upscale_factor"]
    return unary("DepthToSpace", op, graph, tensor, blocksize=factor, mode="CRD")


def _pad(op: Op, graph: Builder, tensor: Tensors) -> str:
    if op.args.get("mode", "constant") != "constant":
        raise Unsupported(f"mode={op.args['mode']!r}")
    pairs = [op.args["pad"][i : i + 2] for i in range(0, len(op.args["pad"]), 2)][::-1]
    pairs = [[0, 0]] * (1 + len(op.shape) - len(pairs)) + pairs
    amounts = np.array([before for before, _ in pairs] + [after for _, after in pairs], np.int64)
    value = np.float32(op.args.get("value") or 0.0)
    inputs = [graph.fixed(f"{op.name}.pads", amounts), graph.fixed(f"{op.name}.value", value)]
    return graph.add("Pad", [tensor(first(op)), *inputs], op.name)


def _max_pool(op: Op, graph: Builder, tensor: Tensors) -> str:
    return unary("MaxPool", op, graph, tensor, **pooling_window(op).attributes())


def _average_pool(op: Op, graph: Builder, tensor: Tensors) -> str:
    if op.args["divisor_override"] is not None:
        raise Unsupported("with divisor_override")
    attributes = pooling_window(op).attributes()
    del attributes["dilations"]
    counted = int(op.args["count_include_pad"])
    return unary("AveragePool", op, graph, tensor, count_include_pad=counted, **attributes)


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
    **PAIRS,
    **SHAPES,
    "_softmax": partial(_softmax, "Softmax"),
    "softmax": partial(_softmax, "Softmax"),
    "log_softmax": partial(_softmax, "LogSoftmax"),
    "matmul": _matmul,
    "bmm": _matmul,
    "mm": _matmul,
    "cat": _cat,
    "mean": partial(_reduce, "ReduceMean"),
    "sum": partial(_reduce, "ReduceSum"),
    "amax": partial(_reduce, "ReduceMax"),
    "amin": partial(_reduce, "ReduceMin"),
    "logsumexp": partial(_reduce, "ReduceLogSumExp"),
    "linalg_vector_norm": _norm,
    "stack": _stack,
    "expand": _expand,
    "embedding": _embedding,
    "index_select": _index_select,
    "one_hot": _one_hot,
    "pixel_shuffle": _pixel_shuffle,
    "pad": _pad,
    "constant_pad_nd": _pad,
    "max_pool2d": _max_pool,
    "avg_pool2d": _average_pool,
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
}
"""by ATen's name; layers and adaptive pools are in `float_graph`, which knows inputs' shapes"""
