"""Messages between the processes of a run: JSON, with arrays behind it; nothing is unpickled."""

from __future__ import annotations

import json
import struct
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from accerl.runtime.process.messages import MESSAGES, Message

_LENGTH = struct.Struct("<I")
_ARRAY, _TENSOR = "$array", "$tensor"


def pack(tree: Any) -> bytes:
    """Return a tree of dicts, lists, numbers, strings, arrays and tensors as bytes."""
    arrays: list[np.ndarray] = []
    text = json.dumps(_strip(tree, arrays)).encode()
    return b"".join([_LENGTH.pack(len(text)), text, *(array.tobytes() for array in arrays)])


def unpack(data: bytes) -> Any:
    """Return the tree that `pack` was given; tuples have become lists."""
    (length,) = _LENGTH.unpack_from(data)
    start = _LENGTH.size + length
    return _fill(json.loads(data[_LENGTH.size : start]), memoryview(data)[start:])


def _strip(node: Any, arrays: list[np.ndarray]) -> Any:
    """Replace arrays and tensors by a description, in the order of `arrays`."""
    if isinstance(node, dict):
        return {key: _strip(value, arrays) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [_strip(value, arrays) for value in node]
    kind = _ARRAY
    if hasattr(node, "detach"):  # a tensor; an actor's process does without torch
        node, kind = node.detach().cpu().numpy(), _TENSOR
    if not isinstance(node, np.ndarray):
        return node
    offset = sum(array.nbytes for array in arrays)
    arrays.append(node)
    return {kind: [node.dtype.str, list(node.shape), offset]}


def _fill(node: Any, data: memoryview) -> Any:
    if isinstance(node, list):
        return [_fill(value, data) for value in node]
    if not isinstance(node, dict):
        return node
    if set(node) <= {_ARRAY, _TENSOR} and len(node) == 1:
        ((kind, (dtype, shape, offset)),) = node.items()
        array = np.empty(shape, np.dtype(dtype))
        array.reshape(-1).view(np.uint8)[:] = np.frombuffer(data[offset:][: array.nbytes], np.uint8)
        if kind == _ARRAY:
            return array
        import torch

        return torch.from_numpy(array)
    return {key: _fill(value, data) for key, value in node.items()}


class PeerGoneError(Exception):
    """The process at the other end has ended, or has closed its end."""


class Channel:
    """One end of a pipe between two processes."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe

    def send(self, message: Message) -> None:
        """Send a message.

        Raises:
            PeerGoneError: nobody is there to read it.
        """
        try:
            self.pipe.send_bytes(pack([type(message).__name__, message.to_json()]))
        except OSError as error:
            raise PeerGoneError from error

    def receive(self) -> Message:
        """Wait for a message and return it.

        Raises:
            PeerGoneError: none will come; the last may have been cut off.
        """
        try:
            kind, data = unpack(self.pipe.recv_bytes())
        except (EOFError, OSError) as error:
            raise PeerGoneError from error
        return MESSAGES[kind].from_json(data)

    def poll(self, timeout_seconds: float = 0.0) -> bool:
        """Whether there is a message, or news that none will come, within so many seconds."""
        try:
            return self.pipe.poll(timeout_seconds)
        except OSError:
            return True  # `receive` says so

    def close(self) -> None:
        """Close this end; safe to call twice."""
        self.pipe.close()
