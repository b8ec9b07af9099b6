"""Checkpoints: atomic, resumable, safetensors + JSON; nothing is ever unpickled."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from accerl.errors import UserError
from accerl.records import json_hash, plain, read_json, write_json

FORMAT = 6
_TENSOR, _ARRAY = "$tensor", "$array"


def save_checkpoint(path: Path, tree: dict[str, Any]) -> None:
    """Write a tree of dicts, lists, numbers, strings, tensors and arrays to the folder `path`.

    The folder is complete or absent: it is written beside its place and moved there; a crash
    between the two moves leaves the previous checkpoint as ``<name>.old``, which loading accepts.

    Raises:
        UserError: the disk refuses (full, or not writable); the previous checkpoint stays.
    """
    tensors: dict[str, torch.Tensor] = {}
    skeleton = _flatten(tree, "", tensors)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    old = path.with_name(f"{path.name}.old")
    try:
        for stale in path.parent.glob(f".{path.name}.*.tmp"):  # a killed process left it
            shutil.rmtree(stale, ignore_errors=True)
        if not path.parent.is_dir():
            raise UserError(f"{path.parent} was moved or deleted meanwhile; nothing more is kept")
        temporary.mkdir()
        data = save_tensors(tensors)
        with (temporary / "tensors.safetensors").open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        state = {"format": FORMAT, "sha256": _digest(data, skeleton), "tree": skeleton}
        write_json(temporary / "state.json", state)
        if path.exists():  # otherwise the old one is all there is, until the next line
            shutil.rmtree(old, ignore_errors=True)
            path.rename(old)
        temporary.rename(path)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        kept = " (the last checkpoint is kept)" if has_checkpoint(path) else ""
        raise UserError(
            f"cannot write the checkpoint {path}: {error.strerror or error}; "
            f"free some space or choose another --out{kept}"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _digest(tensors: bytes, skeleton: dict[str, Any]) -> str:
    """Return the SHA-256 of all that a checkpoint holds."""
    found = hashlib.sha256(tensors)
    found.update(json_hash(plain(skeleton)).encode())
    return found.hexdigest()


def has_checkpoint(path: Path) -> bool:
    """Whether `load_checkpoint` would find something at `path`."""
    return path.is_dir() or path.with_name(f"{path.name}.old").is_dir()


def remove_checkpoint(path: Path) -> None:
    """Remove what `load_checkpoint` would find at `path`."""
    for folder in (path, path.with_name(f"{path.name}.old")):
        if folder.is_dir():
            shutil.rmtree(folder)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a tree written by `save_checkpoint`.

    Raises:
        UserError: it is missing, of another format, truncated or altered.
    """
    while True:
        before = _identity(path)
        try:
            return _read(path)
        except UserError:
            if _identity(path) == before:
                raise  # otherwise its run has just put the next one there


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a checkpoint from the next one at its place; None: there is none."""
    try:
        found = (path / "state.json").stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _read(path: Path) -> dict[str, Any]:
    folder = path if path.is_dir() else path.with_name(f"{path.name}.old")
    if not folder.is_dir():
        raise UserError(f"no checkpoint at {path}; start the run without --resume")
    state = read_json(folder / "state.json")
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise UserError(f"{folder}: not a checkpoint of format {FORMAT}; start the run anew")
    try:
        data = (folder / "tensors.safetensors").read_bytes()
        if state.get("sha256") != _digest(data, state.get("tree", {})):
            raise UserError(f"{folder} was cut off or altered; start the run anew")
        tensors = load_tensors(data)
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"{folder}: tensors.safetensors cannot be read ({error}); start the run anew"
        ) from error
    return _unflatten(state["tree"], tensors)


def _flatten(node: Any, prefix: str, tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(node, torch.Tensor | np.ndarray):
        array = isinstance(node, np.ndarray)
        tensor = torch.from_numpy(np.array(node, order="C")) if array else node
        # safetensors refuses shared storage; a checkpoint owns what it stores.
        tensors[prefix] = tensor.detach().clone().contiguous()
        return {_ARRAY if array else _TENSOR: prefix}
    if isinstance(node, dict):
        return {key: _flatten(value, f"{prefix}/{key}", tensors) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [_flatten(value, f"{prefix}/{i}", tensors) for i, value in enumerate(node)]
    if isinstance(node, np.generic):
        return node.item()
    json.dumps(node)  # a leaf of any other kind fails here, by name, and not when it is read
    return node


def _unflatten(node: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(node, dict):
        if set(node) == {_TENSOR}:
            return tensors[node[_TENSOR]]
        if set(node) == {_ARRAY}:
            return tensors[node[_ARRAY]].numpy()
        return {key: _unflatten(value, tensors) for key, value in node.items()}
    if isinstance(node, list):
        return [_unflatten(value, tensors) for value in node]
    return node
