"""TorchEngine: a network that acts in torch, eager or traced, in 32 or 16 bits."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor, nn

from accerl.compress.artifact import Artifact
from accerl.compress.graphs.torch_artifact import unpack_torch
from accerl.compress.graphs.torch_script import unpack_script
from accerl.networks.policy_net import PolicyNet


class TorchEngine:
    """A torch network, eager or traced; threads are torch's own, set once per process."""

    WARM_UP = 3  # the profiling executor of TorchScript specialises during its first calls

    def __init__(self, artifact: Artifact) -> None:
        self.spec = artifact.spec
        self.version = artifact.version
        if artifact.kind == "script":
            frozen = artifact.spec.graph == "torchscript"
            self._module: nn.Module = unpack_script(artifact.payload, frozen=frozen)
            return
        net = unpack_torch(artifact.payload).eval()
        # Where heads read the states themselves, there is no body.
        low = next((weight.dtype for weight in net.body.parameters()), torch.float32)
        self._module = _HalfPolicy(net) if low == torch.bfloat16 else net.float()
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
