"""What torch.export makes of a module's forward: operations that read each other and weights."""

from __future__ import annotations

import copy
import logging
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram
from tqdm import tqdm

from accerl.errors import first_line
from accerl.networks.observation import ObservationSpec

RESHAPES = {"view", "reshape", "_unsafe_view", "flatten", "squeeze", "unsqueeze"}
SAME = {"clone", "dropout", "feature_dropout", "alias", "detach", "lift_fresh_copy", "contiguous"}
_MOST_STATES = 1 << 20
_OF_BYTES = {"relu", "max_pool2d", "maximum", "minimum", "upsample_nearest2d"}
"""what of bytes is one of them, with no number beside it"""
CASTS = {
    torch.float32: "float32", torch.int64: "int64", torch.int32: "int64", torch.bool: "bool",
}  # fmt: skip
_COMPARES = {"eq", "ne", "lt", "le", "gt", "ge"}
_LOGICAL = {"logical_not", "logical_and", "logical_or"}
_BITWISE = {"bitwise_not", "bitwise_and", "bitwise_or", "__and__", "__or__"}  # of truth values
_MOVES = {
    *RESHAPES, "permute", "transpose", "slice", "select", "expand", "cat", "stack",
}  # fmt: skip
_READ_AS = {
    ("where", "condition"): "bool",
    ("masked_fill", "mask"): "bool",
    ("embedding", "indices"): "int64",
    ("index_select", "index"): "int64",
    ("one_hot", "self"): "int64",
}
"""types that arguments have; all others of what puts out floats are float32"""
_PURE = {
    "_assert_tensor_metadata", "to.dtype", "conv2d", "linear", "relu", "tanh", "max_pool2d",
    "flatten", "squeeze", "unsqueeze", "permute", "select", "slice", "cat",
    "add", "sub", "mul", "div",
}  # fmt: skip
"""operations that write nothing in place, and are read here as they are"""


class Ref(NamedTuple):
    """What another operation puts out, or the states."""

    name: str


class Weight(NamedTuple):
    """A parameter, buffer or constant tensor."""

    name: str


@dataclass(frozen=True)
class Op:
    """One operation on a batch of states."""

    name: str
    kind: str
    """ATen's name for it, such as conv2d"""
    args: Mapping[str, Any]
    """by their names in ATen's schema; `Ref` and `Weight` stand for tensors"""
    shape: tuple[int, ...]
    """of its output for one state"""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the operations that it reads, in order."""
        return tuple(ref.name for ref in flat(self.args.values()) if isinstance(ref, Ref))


class NotExportedError(Exception):
    """torch.export cannot read a forward; the message says why, or what to write."""


def export(module: nn.Module, observation: ObservationSpec) -> ExportedProgram:
    """Return what `module` does with states [B, *shape] in evaluation mode, for any B.

    Raises:
        NotExportedError: it cannot be read.
    """
    # tqdm, which torch.fx uses, would make a semaphore of the system: a process that ends
    # without a farewell, as those of a run do, would leave it behind.
    tqdm.set_lock(threading.RLock())
    states = torch.zeros((2, *observation.shape), dtype=getattr(torch, observation.dtype))
    batch = {0: Dim("batch", min=1, max=_MOST_STATES)}
    before = logging.root.manager.disable
    try:
        logging.disable()  # torch says on many lines what the error says on one
        quiet = redirect_stderr(StringIO())  # it prints the graph as far as it has got
        with quiet, warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # what torch's parts say to each other
            copied = copy.deepcopy(module).cpu().eval()
            program = torch.export.export(copied, (states,), dynamic_shapes=(batch,), strict=False)
            if all(_is_pure(node) for node in program.graph.nodes):
                return program  # what follows takes longer than all of the above
            # Without a table it only writes operations in place as what they compute.
            return program.run_decompositions({})
    except Exception as error:  # whatever a user's forward does with what is no tensor
        why = first_line(error)
        if "Constraints violated" in why or "data-dependent" in why:
            why = "write x.shape[0] for len(x), and no branches on numbers"
        raise NotExportedError(why) from error
    finally:
        logging.disable(before)


def _is_pure(node: fx.Node) -> bool:
    if node.op != "call_function":
        return True
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    name, _, variant = str(node.target).removeprefix("aten.").partition(".")
    return name in _PURE or f"{name}.{variant}" in _PURE


def changes_nothing(op: Op, node: fx.Node) -> bool:
    """Whether an operation puts out what it reads, in the same shape."""
    if op.kind not in RESHAPES:
        return op.kind in SAME
    before, after = node.all_input_nodes[0].meta["val"].shape, node.meta["val"].shape
    return [*map(str, before)] == [*map(str, after)]


def wraps(op: Op, value: Tensor) -> bool:
    """Whether an operation that puts out `value` computes with whole numbers: ONNX's do not."""
    if op.kind in _BITWISE:
        return value.dtype != torch.bool
    if value.is_floating_point() or op.kind in ("cast", "clone", "one_hot"):
        return False
    of_bytes = _OF_BYTES if value.dtype == torch.uint8 else set[str]()
    return op.kind not in _COMPARES | _LOGICAL | _MOVES | SAME | of_bytes


def read_as(op: Op, argument: str, *, puts_out: torch.dtype) -> str | None:
    """Return the type in which an operation reads a tensor, by torch's name; None: in any."""
    if op.kind == "cast":
        return None
    usual = None
    if op.kind in _LOGICAL:
        usual = "bool"
    elif op.kind in _COMPARES or puts_out.is_floating_point:
        usual = "float32"
    return _READ_AS.get((op.kind, argument), usual)


def exchanged(held: Any, old: Ref | Weight, new: Ref | Weight) -> Any:
    """Return an argument with one reference in place of another."""
    if isinstance(held, list):
        return [exchanged(item, old, new) for item in held]
    return new if held == old else held


def flat(values: Any) -> Iterator[Any]:
    """Yield what is in lists and dictionaries, however deep."""
    for value in values:
        if isinstance(value, list):
            yield from flat(value)
        elif isinstance(value, dict):
            yield from flat(value.values())
        else:
            yield value
