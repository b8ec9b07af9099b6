"""Engines: an artifact turned into something that acts, in ONNX Runtime or in torch.

| bits | eager | torchscript | onnx |
|---|---|---|---|
| 32 | torch float32 | the same, traced and frozen | ONNX Runtime float32 |
| 16 | torch bfloat16 | the same, traced and frozen | torch bfloat16, eager |
| 8 | - | - | ONNX Runtime static INT8 |

ONNX Runtime has no 16-bit kernels on x86: it would cast around every operator. torch is imported
for torch's engines only: an actor's process without it is 165 MB smaller and starts sooner.
"""

from __future__ import annotations

import struct
from typing import Protocol

import numpy as np
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import (
    Fail,
    InvalidArgument,
    InvalidProtobuf,
    RuntimeException,
)

from accerl.compress.artifact import Artifact
from accerl.errors import UserError
from accerl.spec import CompressionSpec

DAMAGED = "artifact: the ONNX payload is damaged; write it again"
PREFIX = struct.Struct("<II")
"""of an ONNX payload: the graph's length, and 1 if it is finished, so that ONNX Runtime need not
look for anything to fuse; see `accerl.compress.graphs.onnx_payload`"""
LOCATION = "payload"
"""what the graph's external data calls the bytes that its constants lie in"""


class Engine(Protocol):
    """A policy that acts; its logits are the behaviour policy (invariant 1)."""

    @property
    def spec(self) -> CompressionSpec:
        """The compression it was built with."""
        ...

    @property
    def version(self) -> int:
        """Learner updates when it was made."""
        ...

    def infer(self, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return logits [B, A] and values [B], float32, for obs [B, *shape] in its own dtype."""
        ...


def graph_of(payload: bytes | bytearray) -> bytes:
    """Return the serialised graph at the start of an ONNX payload.

    Raises:
        UserError: the payload is damaged.
    """
    return _prefix_and_graph(payload)[1]


def _prefix_and_graph(payload: bytes | bytearray) -> tuple[bool, bytes]:
    if len(payload) >= PREFIX.size:
        length, finished = PREFIX.unpack_from(payload)
        if length <= len(payload) - PREFIX.size and finished <= 1:
            graph = memoryview(payload)[PREFIX.size : PREFIX.size + length]
            return bool(finished), bytes(graph)
    raise UserError(DAMAGED)


def open_session(payload: bytes | bytearray, *, threads: int = 1) -> onnxruntime.InferenceSession:
    """Return an ONNX Runtime session on the CPU whose threads sleep while they wait.

    Args:
        payload: a graph and its constants; nothing of it is kept.
        threads: intra-op threads.

    Raises:
        UserError: the payload is damaged.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Spinning threads would take a whole core from the environments next door.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    finished, graph = _prefix_and_graph(payload)
    if finished:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_external_initializers_from_files_in_memory([LOCATION], [payload], [len(payload)])
    try:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except (InvalidProtobuf, Fail, RuntimeException) as error:
        raise UserError(DAMAGED) from error


class OrtEngine:
    """An ONNX graph in ONNX Runtime, on the CPU."""

    def __init__(self, artifact: Artifact, *, threads: int = 1) -> None:
        self.spec = artifact.spec
        self.version = artifact.version
        self._session = open_session(artifact.payload, threads=threads)

    def infer(self, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return logits [B, A] and values [B], float32.

        Raises:
            UserError: it was exported for another shape or type, or another number of states.
        """
        try:
            logits, values = self._session.run(("logits", "value"), {"obs": obs})
        except InvalidArgument as error:
            wanted = self._session.get_inputs()[0]
            raise UserError(
                f"{self.spec.label} was exported for states {wanted.shape}, {wanted.type}; got "
                f"{list(obs.shape)}, {obs.dtype}"
            ) from error
        return np.asarray(logits), np.asarray(values)


def make_engine(artifact: Artifact, *, threads: int = 1) -> Engine:
    """Return the engine for `artifact`.

    Args:
        artifact: what a Compressor built.
        threads: ONNX Runtime's threads; torch engines use the process's torch threads.

    Raises:
        UserError: the payload is damaged.
    """
    if artifact.kind == "onnx":
        return OrtEngine(artifact, threads=threads)
    from accerl.compress.graphs.torch_engine import TorchEngine

    return TorchEngine(artifact)
