"""Engines: an artifact turned into something that acts, in ONNX Runtime or in torch.

| bits | eager | torchscript | onnx |
|---|---|---|---|
| 32 | torch float32 | the same, traced and frozen | ONNX Runtime float32 |
| 16 | torch bfloat16 | the same, traced and frozen | torch bfloat16, eager |
| 8 | - | - | ONNX Runtime static INT8 |

ONNX Runtime has no 16-bit kernels on x86: it would cast around every operator.
"""

from __future__ import annotations

import warnings
from typing import Protocol

import numpy as np
import onnxruntime
import torch
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidProtobuf
from torch import Tensor, nn

from accerl.compress.artifact import Artifact, unpack_torch
from accerl.errors import UserError
from accerl.networks import PolicyNet
from accerl.spec import CompressionSpec


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


def open_session(payload: bytes, *, threads: int = 1) -> onnxruntime.InferenceSession:
    """Return an ONNX Runtime session on the CPU whose threads sleep while they wait.

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
    try:
        return onnxruntime.InferenceSession(payload, options, providers=["CPUExecutionProvider"])
    except InvalidProtobuf as error:
        raise UserError("artifact: the ONNX payload is damaged; write it again") from error


class OrtEngine:
    """An ONNX graph in ONNX Runtime, on the CPU."""

    def __init__(self, artifact: Artifact, *, threads: int = 1) -> None:
        self.spec = artifact.spec
        self.version = artifact.version
        self._session = open_session(artifact.payload, threads=threads)

    def infer(self, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return logits [B, A] and values [B], float32."""
        logits, values = self._session.run(("logits", "value"), {"obs": obs})
        return np.asarray(logits), np.asarray(values)


class TorchEngine:
    """A torch network, eager or traced; threads are torch's own, set once per process."""

    WARM_UP = 3  # the profiling executor of TorchScript specialises during its first calls

    def __init__(self, artifact: Artifact) -> None:
        self.spec = artifact.spec
        self.version = artifact.version
        net = unpack_torch(artifact.payload).eval()
        self._module: nn.Module = _HalfPolicy(net) if artifact.spec.bits == 16 else net
        if artifact.spec.graph == "torchscript":
            self._module = _frozen(self._module, net)
            states = np.zeros((1, *net.observation.shape), net.observation.dtype)
            for _ in range(self.WARM_UP):
                self.infer(states)

    def infer(self, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return logits [B, A] and values [B], float32."""
        states = torch.from_numpy(np.require(obs, requirements=["C", "W"]))
        with torch.inference_mode():
            logits, values = self._module(states)
        return logits.numpy(), values.numpy()


class _HalfPolicy(nn.Module):
    """A bfloat16 body with float32 heads; the input's unit is folded into the stored weights."""

    def __init__(self, net: PolicyNet) -> None:
        super().__init__()
        self.body = net.body
        self.policy_head = net.policy_head
        self.value_head = net.value_head
        self.centre = net.observation.centre if net.observation.dtype == "uint8" else 0

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.body(obs.bfloat16() - self.centre).float()
        return self.policy_head(hidden), self.value_head(hidden).squeeze(-1)


def _frozen(module: nn.Module, net: PolicyNet) -> nn.Module:
    states = torch.zeros((2, *net.observation.shape), dtype=getattr(torch, net.observation.dtype))
    with torch.no_grad(), warnings.catch_warnings():
        # torch announces torch.export as the successor; TorchScript is what the paper compares.
        warnings.simplefilter("ignore", DeprecationWarning)
        traced = torch.jit.trace(module, states, check_trace=False)
        if not isinstance(traced, torch.jit.ScriptModule):
            raise TypeError("tracing a module must give a ScriptModule")
        return torch.jit.freeze(traced.eval())


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
    return TorchEngine(artifact)
