"""ATen operations that treat every number by itself as ONNX operators in float32, in one table."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from accerl.compress.graphs.builder import Builder
from accerl.compress.graphs.program import Op, Ref, Weight

Tensors = Callable[[Ref | Weight], str]
"""returns the name of the value that a reference stands for"""
Lower = Callable[[Op, Builder, Tensors], str]
"""writes an operation and returns the name of what it puts out"""
ONNX_TYPES = {"float32": 1, "int64": 7, "bool": 9}
"""that casts lead to, by torch's names"""


class Unsupported(Exception):
    """An operation has settings that have no counterpart here; the message says which."""


def first(op: Op) -> Ref | Weight:
    """Return what an operation reads first."""
    return next(value for value in op.args.values() if isinstance(value, Ref | Weight))


def unary(onnx_kind: str, op: Op, graph: Builder, tensor: Tensors, **attributes: Any) -> str:
    """Write an operator with one input."""
    return graph.add(onnx_kind, [tensor(first(op))], op.name, **attributes)


def _chained(kinds: tuple[str, ...], op: Op, graph: Builder, tensor: Tensors) -> str:
    """Write operators one behind the other."""
    current = tensor(first(op))
    for place, kind in enumerate(kinds[:-1]):
        current = graph.add(kind, [current], f"{op.name}.{place}")
    return graph.add(kinds[-1], [current], op.name)


def _cast(op: Op, graph: Builder, tensor: Tensors) -> str:
    return unary("Cast", op, graph, tensor, to=ONNX_TYPES[op.args.get("to", "float32")])


def _log1p(op: Op, graph: Builder, tensor: Tensors) -> str:
    one = graph.fixed(f"{op.name}.one", np.float32(1.0))
    more = graph.add("Add", [tensor(first(op)), one], f"{op.name}.more")
    return graph.add("Log", [more], op.name)


def _round(op: Op, graph: Builder, tensor: Tensors) -> str:
    if op.args.get("decimals"):
        raise Unsupported(f"decimals={op.args['decimals']}")
    return unary("Round", op, graph, tensor)


def _square(op: Op, graph: Builder, tensor: Tensors) -> str:
    name = tensor(first(op))
    return graph.add("Mul", [name, name], op.name)


def _gelu(op: Op, graph: Builder, tensor: Tensors) -> str:
    return unary("Gelu", op, graph, tensor, approximate=op.args["approximate"])


def _softplus(op: Op, graph: Builder, tensor: Tensors) -> str:
    if op.args["beta"] != 1:
        raise Unsupported(f"beta={op.args['beta']}")
    if op.args["threshold"] < 20:  # above it torch takes a softplus for its input, ONNX never does
        raise Unsupported(f"threshold={op.args['threshold']}")
    return unary("Softplus", op, graph, tensor)


def _silu(op: Op, graph: Builder, tensor: Tensors) -> str:
    inputs = tensor(first(op))
    gate = graph.add("Sigmoid", [inputs], f"{op.name}.gate")
    return graph.add("Mul", [inputs, gate], op.name)


def _elu(op: Op, graph: Builder, tensor: Tensors) -> str:
    alpha, scale = float(op.args["alpha"]), float(op.args["scale"])
    if op.args["input_scale"] != 1:
        raise Unsupported("with a scale of its input")
    if scale != 1.0:  # as SELU is in ATen
        return unary("Selu", op, graph, tensor, alpha=alpha, gamma=scale)
    return unary("Elu", op, graph, tensor, alpha=alpha)


def _leaky_relu(op: Op, graph: Builder, tensor: Tensors) -> str:
    return unary("LeakyRelu", op, graph, tensor, alpha=float(op.args["negative_slope"]))


def _prelu(op: Op, graph: Builder, tensor: Tensors) -> str:
    slope = tensor(op.args["weight"])
    if len(op.shape) > 1:  # one slope a channel, whatever comes behind it
        shape = graph.axes(f"{op.name}.shape", -1, *([1] * (len(op.shape) - 1)))
        slope = graph.add("Reshape", [slope, shape], f"{op.name}.slope")
    return graph.add("PRelu", [tensor(first(op)), slope], op.name)


def _clamp(low: str, high: str, op: Op, graph: Builder, tensor: Tensors) -> str:
    given = [op.args.get(name) for name in (low, high)]
    if any(isinstance(limit, Ref | Weight) for limit in given):
        raise Unsupported("with limits that are tensors")
    limits = [
        "" if limit is None else graph.fixed(f"{op.name}.{place}", np.float32(limit))
        for place, limit in enumerate(given)
    ]
    return graph.add("Clip", [tensor(first(op)), *limits], op.name)


def _relu6(op: Op, graph: Builder, tensor: Tensors) -> str:
    limits = [graph.fixed(f"{op.name}.{limit}", np.float32(limit)) for limit in (0, 6)]
    return graph.add("Clip", [tensor(first(op)), *limits], op.name)


def operands(values: list[Any], op: Op, graph: Builder, tensor: Tensors) -> list[str]:
    """Return the names of tensors, and of numbers as constants in float32."""
    return [
        tensor(value)
        if isinstance(value, Ref | Weight)
        else graph.fixed(f"{op.name}.{place}", np.float32(value))
        for place, value in enumerate(values)
    ]


def binary(kind: str, op: Op, graph: Builder, tensor: Tensors, *, swapped: bool = False) -> str:
    """Write an operator with two inputs, of which one may be a number."""
    if op.args.get("rounding_mode"):
        raise Unsupported(f"rounding_mode={op.args['rounding_mode']!r}")
    pair = [op.args["self"], op.args["exponent" if kind == "Pow" else "other"]]
    names = operands(pair, op, graph, tensor)
    if (alpha := op.args.get("alpha", 1)) != 1:
        factor = graph.fixed(f"{op.name}.alpha", np.float32(alpha))
        place = 0 if swapped else 1  # it multiplies what is subtracted, or added
        names[place] = graph.add("Mul", [names[place], factor], f"{op.name}.times")
    return graph.add(kind, names[::-1] if swapped else names, op.name)


def _differs(op: Op, graph: Builder, tensor: Tensors) -> str:
    pair = operands([op.args["self"], op.args["other"]], op, graph, tensor)
    return graph.add("Not", [graph.add("Equal", pair, f"{op.name}.equal")], op.name)


def _logical(kind: str, op: Op, graph: Builder, tensor: Tensors) -> str:
    pair = [tensor(op.args["self"]), tensor(op.args["other"])]
    return graph.add(kind, pair, op.name)


def _where(op: Op, graph: Builder, tensor: Tensors) -> str:
    pair = operands([op.args["self"], op.args["other"]], op, graph, tensor)
    return graph.add("Where", [tensor(op.args["condition"]), *pair], op.name)


def _masked_fill(op: Op, graph: Builder, tensor: Tensors) -> str:
    filled, kept = operands([op.args["value"], op.args["self"]], op, graph, tensor)
    return graph.add("Where", [tensor(op.args["mask"]), filled, kept], op.name)


ELEMENTWISE: dict[str, Lower] = {
    "relu": partial(unary, "Relu"),
    "sigmoid": partial(unary, "Sigmoid"),
    "tanh": partial(unary, "Tanh"),
    "softplus": _softplus,
    "log_sigmoid": partial(_chained, ("Neg", "Softplus", "Neg")),
    "mish": partial(unary, "Mish"),
    "hardswish": partial(unary, "HardSwish"),
    "hardsigmoid": partial(unary, "HardSigmoid", alpha=1.0 / 6.0),
    "exp": partial(unary, "Exp"),
    "log": partial(unary, "Log"),
    "log1p": _log1p,
    "sin": partial(unary, "Sin"),
    "cos": partial(unary, "Cos"),
    "erf": partial(unary, "Erf"),
    "sign": partial(unary, "Sign"),
    "floor": partial(unary, "Floor"),
    "round": _round,
    "abs": partial(unary, "Abs"),
    "neg": partial(unary, "Neg"),
    "sqrt": partial(unary, "Sqrt"),
    "rsqrt": partial(_chained, ("Sqrt", "Reciprocal")),
    "reciprocal": partial(unary, "Reciprocal"),
    "square": _square,
    "gelu": _gelu,
    "silu": _silu,
    "elu": _elu,
    "celu": lambda op, graph, tensor: unary(
        "Celu", op, graph, tensor, alpha=float(op.args["alpha"])
    ),
    "selu": partial(unary, "Selu"),
    "leaky_relu": _leaky_relu,
    "hardtanh": partial(_clamp, "min_val", "max_val"),
    "relu6": _relu6,
    "clamp": partial(_clamp, "min", "max"),
    "clamp_min": partial(_clamp, "min", "none"),
    "clamp_max": partial(_clamp, "none", "max"),
    "cast": _cast,
}
"""with one input, so that any order of the axes will do"""

COMPARISONS: dict[str, Lower] = {
    "eq": partial(binary, "Equal"),
    "ne": _differs,
    "lt": partial(binary, "Less"),
    "le": partial(binary, "LessOrEqual"),
    "gt": partial(binary, "Greater"),
    "ge": partial(binary, "GreaterOrEqual"),
}
"""whose inputs are made float32, and which put out truth values"""

PAIRS: dict[str, Lower] = {
    **COMPARISONS,
    "logical_not": partial(unary, "Not"),
    "logical_and": partial(_logical, "And"),
    "logical_or": partial(_logical, "Or"),
    "bitwise_not": partial(unary, "Not"),
    "bitwise_and": partial(_logical, "And"),
    "bitwise_or": partial(_logical, "Or"),
    "__and__": partial(_logical, "And"),
    "__or__": partial(_logical, "Or"),
    "prelu": _prelu,
    "where": _where,
    "masked_fill": _masked_fill,
    "add": partial(binary, "Add"),
    "sub": partial(binary, "Sub"),
    "rsub": partial(binary, "Sub", swapped=True),
    "mul": partial(binary, "Mul"),
    "div": partial(binary, "Div"),
    "pow": partial(binary, "Pow"),
    "maximum": partial(binary, "Max"),
    "minimum": partial(binary, "Min"),
}
"""with several, whose axes must be in one order"""
