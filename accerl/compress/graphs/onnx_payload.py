"""ONNX payloads: a graph without its numbers, and behind it the numbers, in one piece of memory.

A publication changes numbers only. So the graph is serialised once per network and layout, with
its constants declared as ONNX external data; publishing copies arrays to known places, and ONNX
Runtime reads them from there, with no protobuf of megabytes in between.

payload = prefix (8 bytes, see `PREFIX`) | ModelProto | padding | constants, each 64-byte aligned
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from accerl.compress.engine import LOCATION, PREFIX, graph_of

_ALIGNMENT = 64
_DIGITS = 12  # of an offset in the graph: its length must not depend on where constants lie


@dataclass(frozen=True)
class Template:
    """A payload's fixed part: its graph, and where each constant goes."""

    head: bytes
    offsets: Mapping[str, int]
    size_bytes: int

    @classmethod
    def of(
        cls, model: onnx.ModelProto, constants: Mapping[str, np.ndarray], *, finished: bool
    ) -> Template:
        """Return the template of `model`, which lacks `constants`; their values do not matter.

        Args:
            model: a graph.
            constants: what it lacks.
            finished: whether nothing in it is left to fuse.
        """
        head = _head(model, constants, dict.fromkeys(constants, 0), finished)
        offsets, end = {}, len(head)
        for name, value in constants.items():
            end = _aligned(end)
            offsets[name] = end
            end += value.nbytes
        return cls(_head(model, constants, offsets, finished), offsets, end)

    def fill(self, constants: Mapping[str, np.ndarray]) -> bytearray:
        """Return a payload with these constants.

        Raises:
            ValueError: they are not those of the template.
        """
        if constants.keys() != self.offsets.keys():
            raise ValueError(f"constants {sorted(constants)} for places {sorted(self.offsets)}")
        payload = bytearray(self.size_bytes)
        payload[: len(self.head)] = self.head
        for name, value in constants.items():
            self.place(payload, name, value)[...] = value
        return payload

    def place(self, payload: bytearray, name: str, like: np.ndarray) -> np.ndarray:
        """Return the constant `name` of a payload as a view with the shape and type of `like`."""
        flat = np.frombuffer(payload, like.dtype, like.size, self.offsets[name])
        return flat.reshape(like.shape)


class TemplateCache:
    """The templates used last, by what determines them; the least used one goes first."""

    def __init__(self, most: int = 32) -> None:
        self._most = most
        self._known: OrderedDict[Hashable, Template] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def clear(self) -> None:
        """Forget all of them."""
        self._known.clear()

    def get(self, key: Hashable, make: Callable[[], Template]) -> Template:
        """Return the template of `key`, made by `make` if it is not known."""
        template = self._known.pop(key, None) or make()
        self._known[key] = template
        if len(self._known) > self._most:
            self._known.popitem(last=False)
        return template


def read_constants(payload: bytes | bytearray) -> dict[str, np.ndarray]:
    """Return the constants of a payload by name, as views of it."""
    found = {}
    for tensor in onnx.load_model_from_string(graph_of(payload)).graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        kind, shape = helper.tensor_dtype_to_np_dtype(tensor.data_type), tuple(tensor.dims)
        flat = np.frombuffer(payload, kind, math.prod(shape), int(entries["offset"]))
        found[tensor.name] = flat.reshape(shape)
    return found


def standalone(payload: bytes | bytearray) -> onnx.ModelProto:
    """Return a payload as one ordinary model, for `onnx.save` and for tools that draw graphs."""
    model = onnx.load_model_from_string(graph_of(payload))
    constants = read_constants(payload)
    for tensor in model.graph.initializer:
        if tensor.name in constants:
            tensor.CopyFrom(numpy_helper.from_array(constants[tensor.name], tensor.name))
    return model


HEAD_BIASES = "heads_b"
"""constant of an INT8 graph: the biases of logits [A] and, last, of the value"""
SAME_NATS = 0.01
"""by which the bias of a logit may move at most without being published"""


def same_integers(first: bytes | bytearray, second: bytes | bytearray) -> bool:
    """Whether two payloads differ by less than half a step of 8 bits in every constant.

    Integers must be equal; float constants (scales, heads) may move by half of 1/127 of the
    largest value of their row, which is what rounding does to the integers as well. The heads'
    biases are a row of several scales, the last of them the value's: those of logits may move by
    `SAME_NATS` and no more (a network that is no chain has its heads apart, and no such bound).
    """
    if graph_of(first) != graph_of(second):
        return False
    others = read_constants(second)
    for name, value in read_constants(first).items():
        if value.dtype != np.float32:
            alike = np.array_equal(value, others[name])
        else:
            step = np.abs(value).max(axis=-1, initial=0.0, keepdims=True) / 127.0
            bound = np.broadcast_to(0.5 * step, value.shape)
            if name == HEAD_BIASES:  # actors act by all but the last
                bound = np.append(np.minimum(bound[:-1], SAME_NATS), bound[-1])
            alike = bool((np.abs(value - others[name]) <= bound).all())
        if not alike:
            return False
    return True


def _head(
    model: onnx.ModelProto,
    constants: Mapping[str, np.ndarray],
    offsets: Mapping[str, int],
    finished: bool,
) -> bytes:
    """Return prefix, graph and padding; their length does not depend on `offsets`."""
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    for name, value in constants.items():
        tensor = whole.graph.initializer.add()
        tensor.name = name
        tensor.data_type = helper.np_dtype_to_tensor_dtype(value.dtype)
        tensor.dims.extend(value.shape)
        tensor.data_location = TensorProto.EXTERNAL
        entries = {
            "location": LOCATION,
            "offset": str(offsets[name]).zfill(_DIGITS),
            "length": str(value.nbytes),
        }
        for key, text in entries.items():
            entry = tensor.external_data.add()
            entry.key, entry.value = key, text
    graph = whole.SerializeToString()
    head = PREFIX.pack(len(graph), finished) + graph
    return head.ljust(_aligned(len(head)), b"\0")


def _aligned(offset: int) -> int:
    return _ALIGNMENT * -(-offset // _ALIGNMENT)
