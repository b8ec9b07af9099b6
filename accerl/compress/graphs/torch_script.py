"""Networks that are no chains as bytes: TorchScript, which another process runs without their code.

Nothing in it is unpickled by Python.
"""

from __future__ import annotations

import copy
import io
import re
import warnings
from typing import Any
from zipfile import ZipFile, ZipInfo

import numpy as np
import torch
from torch import nn

from accerl.compress.graphs.structure import structure
from accerl.compress.layers import refuse_diverged
from accerl.compress.quantization.cpu import computes_bfloat16
from accerl.errors import CannotCompressError, UserError, first_line
from accerl.networks.graph_policy import GraphPolicy, blank_states, hidden_layers
from accerl.networks.probe import alike, outputs_of, states_for

_NUMBERED = re.compile(rb"___torch_mangle_(\d+)")
_OF_NUMBERS = re.compile(r"Converting a tensor to a Python (float|number)")
_TOLD: dict[Any, Any] = {}  # what warnings remember: each is told once
MOST_TRACED = 8
"""times for one network: torch never frees what it has traced"""
_NOT_NEEDED = re.compile(r"traced_inputs|debug_pkl$|serialization_id$")


def pack_script(net: GraphPolicy, *, bits: int = 32, head_shift: np.ndarray | None = None) -> bytes:
    """Return a network that is no chain of layers, as TorchScript, traced.

    At 16 bits the weights of convolutions and linear layers but the heads are stored in bfloat16,
    and what computes with them does so in bfloat16, as under torch's autocast. Where the processor
    has no bfloat16 nothing changes.

    Args:
        net: the network.
        bits: 32 or 16.
        head_shift: added to the biases of the logits and, last, of the value [A + 1].

    Raises:
        CannotCompressError: it cannot be traced.
    """
    file = io.BytesIO()
    # A script keeps also the buffers that no checkpoint holds.
    tensors = net.state_dict() | dict(net.named_buffers())
    weights = {name: tensor.detach().cpu() for name, tensor in tensors.items()}
    learned = [weights[name] for name, _ in net.named_parameters()]
    refuse_diverged("the network", *(w for w in learned if w.is_floating_point()))
    if head_shift is not None:
        _shift_heads(net, weights, torch.from_numpy(head_shift).float())
    try:
        kind = "bfloat16" if bits == 16 and computes_bfloat16() else "float32"
        script = _script(net, kind)
        script.load_state_dict(weights)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # as in `_trace`
            torch.jit.save(script, file)
        return _numbered_afresh(file.getvalue())
    except Exception as error:  # whatever the user's forward does
        reason = first_line(error)
        raise CannotCompressError(
            f"{type(net.module).__name__} cannot be traced by TorchScript: {reason}"
        ) from error


def _shift_heads(net: GraphPolicy, weights: dict[str, torch.Tensor], shift: torch.Tensor) -> None:
    """Add to the biases of both heads, if there are two that have some."""
    names = [name for name, module in net.named_modules() if module in net.heads]
    biases = {f"{name}.bias" for name in names} & weights.keys()
    if len(biases) == 2 and sum(len(weights[bias]) for bias in biases) == len(shift):
        for head, part in zip(net.heads, (shift[:-1], shift[-1:]), strict=True):
            name = next(name for name, module in net.named_modules() if module is head)
            weights[f"{name}.bias"] = weights[f"{name}.bias"] + part


def _script(net: GraphPolicy, kind: str) -> Any:
    """Return what a network was traced to in "float32" or "bfloat16": anew if it does otherwise.

    Raises:
        ValueError: it does otherwise all the time, or cannot be traced.
    """
    scripts, now = net.scripts, structure(net.module)
    if scripts.structure != now:
        known = scripts.get("float32")
        if known is None or not _acts_like(known, net):
            if scripts.traced == MOST_TRACED:
                raise ValueError("its attributes change what it computes; keep them in buffers")
            traced = _trace(net, low=False)  # which may fail: what is known stays until then
            scripts.clear()
            scripts["float32"] = traced
            scripts.traced += 1
        scripts.structure = now
    if kind not in scripts:
        scripts[kind] = _trace(net, low=True)
    return scripts[kind]


@torch.no_grad()
def _acts_like(script: Any, net: GraphPolicy) -> bool:
    """Whether a script, with the weights of `net`, puts out what `net` does."""
    script.load_state_dict(net.state_dict() | dict(net.named_buffers()))
    states = states_for(net)
    return alike(script(states), outputs_of(net, states))


def _trace(net: GraphPolicy, *, low: bool) -> Any:
    copied = copy.deepcopy(net).cpu()
    if low:
        for layer in hidden_layers(copied).values():
            if layer.weight.dtype == torch.float32:  # autocast leaves float64 as it is
                layer.to(torch.bfloat16)
    with torch.no_grad(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        # torch announces torch.export as the successor, which needs seconds for each export.
        warnings.simplefilter("ignore", DeprecationWarning)
        with torch.autocast("cpu", torch.bfloat16, enabled=low, cache_enabled=False):
            states = blank_states(net.observation, 2)
            torch.jit.trace(copied, states, check_trace=False)  # takes the names without numbers
            script = torch.jit.trace(copied, states, check_trace=False)
    for each in said:
        if _OF_NUMBERS.search(str(each.message)):
            raise ValueError("it reads numbers from tensors, as .item() does; compute with tensors")
        place = each.category, each.filename, each.lineno
        warnings.warn_explicit(each.message, *place, registry=_TOLD)
    return script


def _numbered_afresh(archive: bytes) -> bytes:
    """Return a saved script whose classes are numbered from 0.

    torch goes on counting as long as the process lives, so equal networks would differ in size.
    """
    with ZipFile(io.BytesIO(archive)) as given:
        names = [name for name in given.namelist() if not _NOT_NEEDED.search(name)]
        content = {name: given.read(name) for name in names}
    code = {name for name in names if "/data/" not in name and "/constants/" not in name}
    texts = [name.encode() for name in names] + [content[name] for name in code]
    used = {int(number) for text in texts for number in _NUMBERED.findall(text)}
    places = {number: place for place, number in enumerate(sorted(used))}

    def renumbered(text: bytes) -> bytes:
        return _NUMBERED.sub(lambda m: b"___torch_mangle_%d" % places[int(m[1])], text)

    made = {
        renumbered(name.encode()).decode(): renumbered(data) if name in code else data
        for name, data in content.items()
    }
    out = io.BytesIO()
    with ZipFile(out, "w") as archived:
        for name in sorted(made):
            archived.writestr(ZipInfo(name), made[name])
    return out.getvalue()


def unpack_script(payload: bytes | bytearray, *, frozen: bool) -> nn.Module:
    """Return the module that `pack_script` wrote, with its weights made constants if it is frozen.

    Raises:
        UserError: the payload is damaged.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # as in `_trace`
            script = torch.jit.load(io.BytesIO(bytes(payload)), map_location="cpu").eval()
            return torch.jit.freeze(script) if frozen else script
    except RuntimeError as error:
        raise UserError("artifact: the TorchScript payload is damaged; write it again") from error
