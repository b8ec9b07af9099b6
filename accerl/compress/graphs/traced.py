"""A module's forward as a list of ATen operations, read once per structure, for any batch size.

torch.export reads it: it takes a few tenths of a second, so what it found is remembered for modules
that differ in their weights only. Nothing of a weight's value is part of what is found.
"""

from __future__ import annotations

import functools
import operator
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.export.graph_signature import InputKind

from accerl.compress.graphs.program import (
    CASTS,
    RESHAPES,
    NotExportedError,
    Op,
    Ref,
    Weight,
    changes_nothing,
    exchanged,
    export,
    flat,
    read_as,
    wraps,
)
from accerl.compress.graphs.structure import structure
from accerl.compress.layers import refuse_diverged
from accerl.errors import CannotCompressError
from accerl.networks.observation import ObservationSpec

LAYERS = ("conv2d", "linear")
_MOST_KNOWN = 32
_NORM = "_native_batch_norm_legit_no_training"
_SPLITS = {"split", "split_with_sizes", "chunk"}
_EXTREMES = {"max": "amax", "min": "amin"}  # whose places are their second output


class Traced:
    """The operations of a module between the states and its logits and values."""

    def __init__(self, module: nn.Module, observation: ObservationSpec) -> None:
        """Read what `module` does with states [B, *shape] as they are recorded.

        Raises:
            UserError: it cannot be read; the message says why.
        """
        self.name = type(module).__name__
        self.observation = observation
        try:
            program = export(module, observation)
        except NotExportedError as error:
            raise self.refusal("torch.export cannot read its forward", str(error)) from error
        self._nodes = list(program.graph.nodes)
        self._returned = program.graph_signature.user_outputs  # not buffers that it changes
        self._sources: dict[str, tuple[InputKind, str]] = {}
        self._constants: dict[str, Any] = dict(program.constants)
        self._same: dict[str, str] = {}  # what only passes on what another node puts out
        self._as_type: dict[str, tuple[str, str]] = {}  # weights in another type: whose, and which
        self._kinds: dict[Ref | Weight, str] = {}  # types of what is read, by torch's names
        self._one_state: dict[Ref | Weight, tuple[int, ...]] = {}  # its shape without the states
        self.obs = ""
        """name of the states"""
        for spec in program.graph_signature.input_specs:
            if spec.kind == InputKind.USER_INPUT:
                self.obs = str(getattr(spec.arg, "name", ""))
            else:
                self._sources[str(getattr(spec.arg, "name", ""))] = (spec.kind, str(spec.target))
        self._batch = str(next(n for n in self._nodes if n.name == self.obs).meta["val"].shape[0])
        self._computed = self._of_weights_alone()
        self.ops = self._fold_norms(list(self._read()))
        """in the order in which they run"""
        self.logits, self.values = self._results()
        """names of the operations that put them out"""
        self.ops = self._needed()
        self._drop = self._last_uses()

    @functools.cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """What each operation, and the states, look like for one state."""
        return {self.obs: self.observation.shape, **{op.name: op.shape for op in self.ops}}

    @functools.cached_property
    def users(self) -> dict[str, list[Op]]:
        """The operations that read each operation, and the states."""
        found: dict[str, list[Op]] = {name: [] for name in self.shapes}
        for op in self.ops:
            for name in dict.fromkeys(op.inputs):
                found[name].append(op)
        return found

    @functools.cached_property
    def heads(self) -> tuple[Op, ...]:
        """The linear layers that put out logits and values, and nothing else; empty if not two."""
        known, found = {op.name: op for op in self.ops}, []
        for name, units in ((self.logits, self.shapes[self.logits]), (self.values, (1,))):
            op, alone = known[name], not self.users[name]
            while op.inputs and op.inputs[0] in known and self._passes_on(op):
                op = known[op.inputs[0]]
                alone = alone and len(self.users[op.name]) == 1
            if op.kind == "linear" and op.shape == units and alone:
                found.append(op)
        return tuple(found) if len({op.name for op in found}) == 2 else ()

    def _passes_on(self, op: Op) -> bool:
        """Whether an operation puts out each number that it reads, and nothing else."""
        whole = op.kind in ("select", "slice") and self.shapes[op.inputs[0]] == (1,)
        return op.kind in RESHAPES or whole

    def refusal(self, what: str, hint: str = "") -> CannotCompressError:
        """Return the error that says why this module cannot become a graph."""
        return CannotCompressError(
            f"{self.name} cannot be exported to ONNX: {what}; {hint}{', or ' if hint else ''}act "
            "in torch, with a spec of graph 'torchscript' or 'eager' and 32 or 16 bits"
        )

    def weights(self, module: nn.Module) -> dict[str, Tensor]:
        """Return the tensors of a module of this structure in float32 on the CPU, by name.

        Raises:
            UserError: a parameter is NaN or infinite: training has diverged.
        """
        given, sums = dict[str, Tensor](), dict[str, Tensor]()
        for name, (kind, target) in self._sources.items():
            if kind == InputKind.PARAMETER:
                tensor = module.get_parameter(target)
            elif kind == InputKind.BUFFER:
                tensor = module.get_buffer(target)
            else:
                tensor = self._constants[target]
            given[name] = tensor.detach().cpu()
            if kind == InputKind.PARAMETER:  # a mask that is a buffer may hold -inf
                sums[target] = given[name].float().sum()
        # One look at all of them costs a tenth of a look at each.
        if sums and not torch.isfinite(torch.stack(list(sums.values()))).all():
            for target, one in sums.items():
                refuse_diverged(target, one)
        found = {
            name: each.float() if each.is_floating_point() else each
            for name, each in self._compute(given).items()
        }
        for name, (of, kind) in self._as_type.items():
            found[name] = found[of].to(getattr(torch, kind))
        return found

    def _of_weights_alone(self) -> dict[str, fx.Node]:
        """Return the nodes that do not depend on the states, in order, by name."""
        found: dict[str, fx.Node] = {}
        for node in self._nodes:
            if node.op != "call_function" or node.meta.get("val") is None:
                continue  # what puts out nothing only asserts something
            if any(
                other.name not in found and other.name not in self._sources
                for other in node.all_input_nodes
            ):
                continue
            if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
                raise self.refusal(f"{node.name!r} draws random numbers")
            found[node.name] = node
        return found

    def _compute(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return weights and what these nodes put out for them, in types of their own."""
        values: dict[str, Any] = weights
        for name, node in self._computed.items():
            with torch.no_grad():
                values[name] = node.target(  # pyright: ignore
                    *fx.map_arg(node.args, lambda other: values[other.name]),
                    **fx.map_arg(node.kwargs, lambda other: values[other.name]),
                )
        return {name: each for name, each in values.items() if isinstance(each, Tensor)}

    def follow(self, module: nn.Module, obs: np.ndarray) -> Iterator[tuple[str, Tensor]]:
        """Yield what each operation puts out for states obs [N, *shape], in evaluation mode.

        Batch norms that were folded into a layer come out under that operation's name.
        """
        # Convolutions take half the time where channels are the last axis in memory.
        values: dict[str, Any] = {
            name: tensor.to(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor
            for name, tensor in self.weights(module).items()
        }
        values[self.obs] = torch.from_numpy(np.ascontiguousarray(obs))
        for node in self._nodes:
            if node.name not in self._drop or node.name in self._computed:
                continue
            view = node.target == torch.ops.aten.view.default  # impossible in such memory
            run = torch.ops.aten.reshape.default if view else node.target
            with torch.no_grad():
                found = values[node.name] = run(  # pyright: ignore
                    *fx.map_arg(node.args, lambda other: values[other.name]),
                    **fx.map_arg(node.kwargs, lambda other: values[other.name]),
                )
            if isinstance(found, Tensor):
                yield node.name, found
            for name in self._drop[node.name]:
                del values[name]

    def _read(self) -> Iterator[Op]:
        for node in self._nodes:
            value = node.meta.get("val")
            if node.op != "call_function" or not isinstance(value, Tensor):
                continue
            if node.name in self._computed:
                continue
            if node.target is operator.getitem:
                op = self._part(node)
            else:
                kind = node.target._schema.name.partition("::")[2]
                op = Op(node.name, kind, self._args(node), ())
            if op is None:
                continue
            shape = tuple(value.shape)
            one_state = shape[1:]
            if (
                not shape
                or str(shape[0]) != self._batch
                or not all(isinstance(size, int) for size in one_state)
            ):
                raise self.refusal(
                    f"{op.kind!r} ({op.name}) puts out {tuple(map(str, shape))}, and the first "
                    "axis must be the states",
                    "keep the states apart, and weights as plain parameters",
                )
            if op.kind in ("_to_copy", "to"):
                before = node.args[0].meta["val"].dtype  # pyright: ignore
                if value.dtype not in CASTS:
                    raise self.refusal(f"{op.name} is computed in {value.dtype}", "use float32")
                kind = "cast" if before != value.dtype else "clone"
                op = replace(op, kind=kind, args={**op.args, "to": CASTS[value.dtype]})
            if wraps(op, value):
                raise self.refusal(f"{op.name} wraps in {value.dtype}", "call .float() before it")
            if changes_nothing(op, node):
                self._same[node.name] = next(iter(op.inputs))
            else:
                yield from self._floats_for(node, replace(op, shape=one_state))

    def _floats_for(self, node: fx.Node, op: Op) -> Iterator[Op]:
        """Yield casts of what torch lets meet floats, and the operation on these."""
        args: dict[str, Any] = {}
        casts: set[Ref] = set()  # each once, however often it is read
        for name, held in op.args.items():
            wanted = read_as(op, name, puts_out=node.meta["val"].dtype)
            args[name] = held
            for which in flat([held]):
                is_tensor = isinstance(which, Ref | Weight)
                if wanted is None or not is_tensor or self._kinds.get(which, wanted) == wanted:
                    continue
                cast: Ref | Weight
                if isinstance(which, Weight):
                    cast = Weight(f"{which.name}.{wanted}")
                    self._as_type[cast.name] = which.name, wanted
                else:
                    cast = Ref(f"{op.name}.{which.name}.{wanted}")
                    if cast not in casts:
                        casts.add(cast)
                        shape = self._one_state[which]
                        yield Op(cast.name, "cast", {"self": which, "to": wanted}, shape)
                args[name] = exchanged(args[name], which, cast)
        yield replace(op, args=args)

    def _part(self, node: fx.Node) -> Op | None:
        """Return what an item of another node's outputs is."""
        source, index = node.args
        assert isinstance(source, fx.Node)
        kind = source.target._schema.name.partition("::")[2]  # pyright: ignore
        args = self._args(source)
        if kind == _NORM and index == 0:
            return Op(node.name, "batch_norm", args, ())
        if kind in _EXTREMES and index == 0:
            return Op(node.name, _EXTREMES[kind], {**args, "dim": [args["dim"]]}, ())
        if kind == "unbind":
            axis = int(args["dim"]) % source.args[0].meta["val"].ndim  # pyright: ignore
            return Op(node.name, "select", {**args, "dim": axis, "index": index}, ())
        if kind in _SPLITS:
            axis = int(args["dim"]) % source.args[0].meta["val"].ndim  # pyright: ignore
            sizes = [part.shape[axis] for part in source.meta["val"]]
            start = sum(sizes[:index])  # pyright: ignore
            cut = {"self": args["self"], "dim": axis, "start": start, "step": 1}
            return Op(node.name, "slice", {**cut, "end": start + sizes[index]}, ())  # pyright: ignore
        raise self.refusal(f"{kind!r} ({source.name}) has several outputs", "none of it is known")

    def _args(self, node: fx.Node) -> dict[str, Any]:
        schema = node.target._schema  # pyright: ignore
        given = {argument.name: argument.default_value for argument in schema.arguments}
        given |= dict(zip(given, node.args, strict=False)) | dict(node.kwargs)
        for value in () if schema.name == "aten::slice" else given.values():
            if isinstance(value, fx.Node) and not isinstance(value.meta.get("val"), Tensor):
                what = f"{node.name} computes with a number that Python has read from tensors"
                raise self.refusal(what, "compute with tensors, and not .item() or len()")
        return {name: self._plain(value) for name, value in given.items()}

    def _plain(self, value: Any) -> Any:
        if isinstance(value, fx.Node):
            if value.name in self._sources or value.name in self._computed:
                return self._noted(Weight(value.name), value)
            if not isinstance(value.meta.get("val"), Tensor):
                return None  # the number of states
            return self._noted(Ref(self._same.get(value.name, value.name)), value)
        if isinstance(value, list | tuple):
            return [self._plain(item) for item in value]
        return value

    def _noted(self, which: Ref | Weight, node: fx.Node) -> Ref | Weight:
        """Return a reference; its type and shape are remembered."""
        value = node.meta.get("val")
        if isinstance(value, Tensor):
            self._kinds[which] = str(value.dtype).removeprefix("torch.")
            self._one_state[which] = tuple(value.shape[1:])
        return which

    def _fold_norms(self, ops: list[Op]) -> list[Op]:
        """Return `ops` with each batch norm that follows a layer as a part of that layer.

        Behind a linear layer over tokens [B, T, F] it stays: it has a mean for each of the T, not
        for each of the units that the layer puts out.
        """
        readers: dict[str, int] = {}
        for op in ops:
            for name in op.inputs:
                readers[name] = readers.get(name, 0) + 1
        outputs = {name for name, _ in self._output_nodes()}
        known = {op.name: op for op in ops}
        for op in ops:
            before = known.get(op.inputs[0]) if op.kind == "batch_norm" and op.inputs else None
            if before is None or before.kind not in LAYERS or "norm" in before.args:
                continue
            if before.kind == "linear" and len(before.shape) > 1:
                continue
            if readers[before.name] == 1 and before.name not in outputs:
                # Under the norm's name, which is what others read.
                args = {**before.args, "norm": {**op.args, "input": None}}
                known[op.name] = replace(before, name=op.name, args=args)
                del known[before.name]
        return [known[op.name] for op in ops if op.name in known]

    def _output_nodes(self) -> list[tuple[str, torch.Size]]:
        known = {node.name: node for node in self._nodes}
        names = [name for name in map(str, self._returned) if name in known]
        if len(names) != 2:
            raise self.refusal("its forward does not return two tensors", "return logits, values")
        return [(self._same.get(name, name), known[name].meta["val"].shape) for name in names]

    def _results(self) -> tuple[str, str]:
        (logits, first), (values, second) = self._output_nodes()
        known = {op.name for op in self.ops}
        if {logits, values} - known or len(first) != 2 or tuple(second[1:]) not in ((), (1,)):
            raise self.refusal(
                f"it returns {tuple(map(str, first))} and {tuple(map(str, second))}",
                "return logits [B, A] and values [B]",
            )
        return logits, values

    def _needed(self) -> list[Op]:
        """Return the operations that logits and values depend on."""
        wanted, kept = {self.logits, self.values}, []
        for op in reversed(self.ops):
            if op.name in wanted:
                wanted.update(op.inputs)
                kept.append(op)
        return kept[::-1]

    def _last_uses(self) -> dict[str, list[str]]:
        """Return, for each node that runs, the nodes whose values nobody reads behind it."""
        drop: dict[str, list[str]] = {}
        read: set[str] = set()
        for node in reversed(self._nodes):
            if node.op != "call_function" or not (node.name in read or node.op == "output"):
                if node.op == "output":
                    read.update(other.name for other in node.all_input_nodes)
                continue
            now = [other.name for other in node.all_input_nodes if other.name not in read]
            read.update(now)
            drop[node.name] = [name for name in now if name not in self._sources]
        return drop


_KNOWN: OrderedDict[Hashable, Traced] = OrderedDict()


def trace(module: nn.Module, observation: ObservationSpec) -> tuple[Hashable, Traced]:
    """Return what identifies the structure of `module`, and its operations.

    Raises:
        UserError: it cannot be read; the message says why.
    """
    key = (structure(module), observation)
    found = _KNOWN.pop(key, None) or Traced(module, observation)
    _KNOWN[key] = found
    if len(_KNOWN) > _MOST_KNOWN:
        _KNOWN.popitem(last=False)
    return key, found
