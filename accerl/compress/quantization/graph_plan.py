"""What of a graph becomes integers, what stays float32, and whose ranges must be measured.

Layers (convolutions and linear layers) multiply integers, except the heads and what follows them.
What lies between two layers stays in integers where ONNX Runtime has an operator for it: ReLUs,
sums, concatenations, pools. The rest is computed in float32 between two conversions, and is named.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from accerl.compress.graphs.elementwise import Unsupported
from accerl.compress.graphs.operators import SHAPES, pooling_window
from accerl.compress.graphs.program import Op, Ref
from accerl.compress.graphs.traced import LAYERS, Traced
from accerl.compress.quantization.quantize import Affine

_TOLERANCE = 1e-4
"""by which a zero point may miss a whole number: what float32 leaves of a subtracted mean"""


@dataclass(frozen=True)
class Plan:
    """How one structure is quantised; nothing in it depends on weights."""

    entry: dict[str, Affine]
    """what the states' uint8 pixels mean after the operations that shift and scale them"""
    integer: frozenset[str]
    """operations that put out integers"""
    floating_layers: frozenset[str]
    """linear layers that multiply integers and put out float32: only float32 reads them"""
    measured: dict[str, str]
    """for each tensor with a range of its own, the operation that it is measured at: itself, or
    the ReLU that is folded into it"""
    folded: frozenset[str]
    """ReLUs that are part of the range of what precedes them"""
    in_float: tuple[str, ...]
    """what stays float32 between integer layers, as ``kind (name)``"""


@functools.lru_cache(maxsize=32)
def plan_of(traced: Traced) -> Plan:
    """Return how `traced` is quantised.

    Raises:
        UserError: it has no layer that could be.
    """
    return _Planner(traced).plan()


class _Planner:
    def __init__(self, traced: Traced) -> None:
        self.traced = traced
        self.shapes = traced.shapes
        self.users = traced.users
        self.known = {op.name: op for op in traced.ops}
        self.entry = _entry(traced)
        self.layers = self._layers()
        self.outputs = {traced.logits, traced.values}

    def plan(self) -> Plan:
        if not self.layers:
            raise self.traced.refusal(
                "INT8 needs a convolution of images or a linear layer in front of the heads, and "
                "linear ones that read [B, features]",
                "use 32 bits",
            )
        floating: set[str] = set()
        integer = self._integer(floating)
        # From the last to the first: what nothing wants in integers need not become integers.
        for op in reversed(self.traced.ops):
            if op.name in self.layers and op.kind == "linear":
                integer = self._integer(floating | {op.name})
                if any(self._wants(user, integer) for user in self.users[op.name]):
                    integer = self._integer(floating)
                else:
                    floating.add(op.name)
                    integer = self._integer(floating)
        folded: set[str] = set()
        measured: dict[str, str] = {}
        for op in self.traced.ops:
            if op.name in integer and self._has_own_range(op):
                relu = self._relu_behind(op, integer)
                measured[op.name] = op.name if relu is None else relu.name
                if relu is not None:
                    folded.add(relu.name)
            elif op.name not in integer and any(
                self._wants(user, integer) for user in self.users[op.name]
            ):
                measured[op.name] = op.name
        in_float = [
            f"{op.kind} ({op.name})"
            for op in self.traced.ops
            if self._is_island(op, integer, floating) or self._is_skipped(op)
        ]
        return Plan(
            self.entry,
            frozenset(integer),
            frozenset(floating),
            measured,
            frozenset(folded),
            tuple(in_float),
        )

    def _is_skipped(self, op: Op) -> bool:
        """Whether it is a layer in front of others that reads what INT8 has no product for."""
        return _is_layer(op) and op.name in self._ahead and op.name not in self.layers

    def _layers(self) -> set[str]:
        """Return the layers in front of other layers: those behind which none comes are heads."""
        ahead = self._ahead = set[str]()  # operations behind which a layer comes
        found: set[str] = set()
        for op in reversed(self.traced.ops):
            if any(user.name in ahead or _is_layer(user) for user in self.users[op.name]):
                ahead.add(op.name)
                if _is_layer(op):
                    axes = {len(op.shape), len(self.shapes[op.args["input"].name])}
                    if axes == {_DIMS[op.kind]}:
                        found.add(op.name)
        return found

    def _integer(self, floating: set[str]) -> set[str]:
        """Return what puts out integers if these linear layers do not."""
        found = set(self.entry)
        for op in self.traced.ops:
            if op.name in self.layers:
                if op.name not in floating:
                    found.add(op.name)
            elif (
                op.name not in found
                and op.inputs
                and set(op.inputs) <= found
                and self._in_integers(op)
            ):
                found.add(op.name)
        return found

    def _in_integers(self, op: Op) -> bool:
        """Whether there is an operator for `op` on integers [B, H, W, C] or [B, F]."""
        before = self.shapes[op.inputs[0]]
        if any(name in self.entry for name in op.inputs) and op.kind not in ("max_pool2d",):
            return _is_flattening(op, before)
        if op.kind == "relu":
            return True
        if op.kind in ("max_pool2d", "avg_pool2d"):
            return len(before) == 3 and _slides(op)
        if op.kind == "adaptive_avg_pool2d":
            return len(before) == 3 and op.shape[1:] == (1, 1)
        if op.kind == "add":
            both = isinstance(op.args["self"], Ref) and isinstance(op.args["other"], Ref)
            equal = both and len({self.shapes[name] for name in op.inputs}) == 1
            return equal and op.args["alpha"] == 1
        if op.kind == "cat":
            return op.args["dim"] % (len(op.shape) + 1) == 1 and len(op.shape) in (1, 3)
        return _is_flattening(op, before)

    def _wants(self, op: Op, integer: set[str]) -> bool:
        """Whether `op` reads integers."""
        if op.name in self.layers:
            return True
        return op.name in integer and op.name not in self.entry

    def _has_own_range(self, op: Op) -> bool:
        return op.name in self.layers or op.kind in (
            "add",
            "cat",
            "avg_pool2d",
            "adaptive_avg_pool2d",
        )

    def _relu_behind(self, op: Op, integer: set[str]) -> Op | None:
        """Return the ReLU that alone reads `op`, perhaps through maxima, which commute with it."""
        while op.name not in self.outputs and len(self.users[op.name]) == 1:
            op = self.users[op.name][0]
            if op.kind == "relu" and op.name in integer:
                return op
            if op.kind != "max_pool2d" or op.name not in integer:
                return None
        return None

    def _is_island(self, op: Op, integer: set[str], floating: set[str]) -> bool:
        if op.name in integer or op.name in floating or op.kind in SHAPES:
            return False
        behind, waiting = set(), [op]
        while waiting:
            for user in self.users[waiting.pop().name]:
                if user.name in self.layers:
                    return True
                if user.name not in behind:
                    behind.add(user.name)
                    waiting.append(user)
        return False


_DIMS = {"conv2d": 3, "linear": 1}
"""axes of what the layers of an integer graph take, without the batch"""


def _is_layer(op: Op) -> bool:
    return op.kind in LAYERS


def _is_flattening(op: Op, before: tuple[int, ...]) -> bool:
    kinds = ("view", "reshape", "_unsafe_view", "flatten")
    return op.kind in kinds and op.shape == (math.prod(before),)


def _slides(op: Op) -> bool:
    try:
        window = pooling_window(op)
    except Unsupported:
        return False
    if op.kind == "max_pool2d":
        return True
    return op.args["divisor_override"] is None and not any(window.pads)


def _entry(traced: Traced) -> dict[str, Affine]:
    """Return what pixels mean wherever only a number was added to them or multiplied with them."""
    if traced.observation.dtype != "uint8":
        return {}
    lines = {traced.obs: (1.0, 0.0)}
    for op in traced.ops:
        if len(op.inputs) != 1 or op.inputs[0] not in lines:
            continue
        slope, shift = lines[op.inputs[0]]
        number = op.args.get("other")
        if op.args.get("rounding_mode") is not None:
            continue
        if op.kind == "cast":
            if op.args["to"] == "float32":
                lines[op.name] = slope, shift
        elif isinstance(number, int | float) and op.args.get("alpha", 1) == 1:
            if op.kind in ("mul", "div") and number > 0:
                factor = number if op.kind == "mul" else 1.0 / number
                lines[op.name] = slope * factor, shift * factor
            elif op.kind in ("add", "sub"):
                lines[op.name] = slope, shift + (number if op.kind == "add" else -number)
    found = {}
    for name, (slope, shift) in lines.items():
        zero = -shift / slope
        if abs(zero - round(zero)) < _TOLERANCE and 0 <= round(zero) <= 255:
            found[name] = Affine(slope, round(zero))
    return found
