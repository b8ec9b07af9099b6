"""GraphPolicy: a network of any form as a policy, where `PolicyNet` is a chain of layers.

Residual connections, branches, pools, norms: what torch runs can learn, act and teach. The module
stays in evaluation mode: dropout is off, and a batch norm's statistics, which would differ between
the learner and the actors, stay as they are; its scale and shift learn like other weights.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from accerl.errors import ForwardError, UserError, first_line, raised_in
from accerl.networks.observation import ObservationSpec
from accerl.networks.policy_net import PolicyNet


class GraphPolicy(nn.Module):
    """A user's network, or one of this package's that is no chain.

    Raises:
        UserError: it cannot act on such states, or does not return logits and a value.
    """

    def __init__(
        self,
        module: nn.Module,
        observation: ObservationSpec,
        *,
        name: str | None = None,
        reason: UserError | None = None,
    ) -> None:
        """Take over `module`.

        Args:
            module: takes states [B, *shape] as recorded and returns logits [B, A] and values, [B]
                or [B, 1].
            observation: of the states.
            name: what `make_network` makes it of, so that other processes can; None: nothing.
            reason: why it is no chain of layers.
        """
        super().__init__()
        self.module = module
        self.observation = observation
        self.name = name
        self.reason = reason
        self.scripts = Scripts()
        if any(isinstance(part, nn.MultiheadAttention) for part in module.modules()):
            # Its own kernels, which it takes where nothing learns, know no bfloat16 beside float32
            # and no factorised layers.
            torch.backends.mha.set_fastpath_enabled(False)
        self.eval()
        logits, self._head_names = _probe(module, observation)
        self.num_actions = logits.shape[1]
        module(blank_states(observation, 1, self.device))  # as the learner does, with gradients
        own_copy(module)
        for head in self.heads:
            head.register_forward_hook(_in_float32)

    def train(self, mode: bool = True) -> GraphPolicy:
        """Stay in evaluation mode, whatever `mode` says."""
        return super().train(False)

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return next(self.parameters()).device

    @property
    def heads(self) -> tuple[nn.Linear, ...]:
        """The linear layers that put out logits and values, in this order, each once.

        Empty if one of them is computed in another way.
        """
        found = [self.module.get_submodule(name) for name in dict.fromkeys(self._head_names)]
        return tuple(head for head in found if isinstance(head, nn.Linear))

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits [B, A] and values [B] for states [B, *shape].

        Both are float32. Under autocast linear heads compute in it too, see `PolicyNet.forward`.
        """
        try:
            logits, values = self.module(obs)
        except (UserError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # anything may be wrong in a user's own forward
            kind, where = type(self.module).__name__, first_line(error) + raised_in(error)
            raise ForwardError(
                f"{kind} cannot act on {self.observation} in a batch of {len(obs)}: {where}"
            ) from error
        return _as_float32(logits), _as_float32(values.flatten())

    def outputs(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits [B, A], values [B] and what the policy's head reads [B, H].

        If it has no linear head, what is returned last is ones [B, 1].
        """
        if not self.heads:
            logits, values = self(obs)
            return logits, values, torch.ones_like(values)[:, None]
        read: list[Tensor] = []
        handle = self.heads[0].register_forward_pre_hook(lambda _, given: read.append(given[0]))
        try:
            logits, values = self(obs)
        finally:
            handle.remove()
        return logits, values, read[0].flatten(1)


Policy = PolicyNet | GraphPolicy
"""What learns, acts and teaches."""


class Scripts(dict[str, Any]):
    """What a network became when TorchScript traced it, by precision.

    torch never frees what it has traced, and weights can be exchanged: copies of a network share
    it. Who changes a network's layers gives it an empty one.
    """

    structure: Hashable = None
    """what identified all that the network computes with besides its weights"""
    traced: int = 0
    """how often"""

    def __deepcopy__(self, memo: dict[int, Any]) -> Scripts:
        return self


def own_copy(module: nn.Module) -> nn.Module:
    """Return a copy of a module.

    Raises:
        UserError: it holds what cannot be copied.
    """
    try:
        return copy.deepcopy(module)
    except Exception as error:  # anything may be an attribute of a user's own module
        raise UserError(
            f"{type(module).__name__} cannot be copied, and what is compressed is a copy: "
            f"{first_line(error)}; keep out of its attributes what it computed (detach it), locks "
            "and open files"
        ) from error


def hidden_layers(net: Policy) -> dict[str, nn.Conv2d | nn.Linear]:
    """Return the convolutions and linear layers of a network but its heads, by name."""
    heads = net.heads if isinstance(net, GraphPolicy) else (net.policy_head, net.value_head)
    return {
        name: module
        for name, module in net.named_modules()
        if isinstance(module, nn.Conv2d | nn.Linear) and module not in heads
    }


@torch.no_grad()
def count_macs(net: Policy) -> int:
    """Return the multiply-accumulates of one forward pass of one state."""
    with FlopCounterMode(display=False) as counter:
        net(blank_states(net.observation, 1, net.device))
    return counter.get_total_flops() // 2


def count_bytes(net: nn.Module) -> int:
    """Return the bytes of all that a network consists of, buffers that are not saved included."""
    tensors = (*net.parameters(), *net.buffers())
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def blank_states(observation: ObservationSpec, batch: int, device: Any = "cpu") -> Tensor:
    """Return states of zeros [B, *shape]."""
    kind = getattr(torch, observation.dtype)
    return torch.zeros((batch, *observation.shape), dtype=kind, device=device)


def random_states(observation: ObservationSpec, batch: int, device: Any = "cpu") -> Tensor:
    """Return states of noise [B, *shape], equal at every call."""
    generator, shape = torch.Generator().manual_seed(0), (batch, *observation.shape)
    if observation.dtype == "uint8":
        return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8).to(device)
    return torch.randn(shape, generator=generator).to(device)


@torch.no_grad()
def _probe(module: nn.Module, observation: ObservationSpec) -> tuple[Tensor, tuple[str, ...]]:
    """Return the logits of two states, and the names of both heads if both are linear.

    One state is tried too, and three: batches have any size.
    """
    kind = type(module).__name__
    layers: dict[str, nn.Module] = {
        name: layer for name, layer in module.named_modules() if type(layer) is nn.Linear
    }
    names = {layer: name for name, layer in layers.items()}
    put_out: dict[int, tuple[str, Tensor, Tensor]] = {}
    """by its memory, which must not be used again: whose output, and a copy of it"""

    def note(layer: nn.Module, given: object, output: Tensor) -> None:
        put_out[_memory(output)] = (names[layer], output, output.clone())

    handles = [layer.register_forward_hook(note) for layer in names]
    device = next((weight.device for weight in module.parameters()), None)
    if device is None:
        raise UserError(f"{kind} has no weights to learn; return a module that has some")
    batch = 0
    try:
        for batch in (1, 3, 2):
            results: Any = module(blank_states(observation, batch, device))
    except Exception as error:  # anything may be wrong in a user's own forward
        where = first_line(error) + raised_in(error)
        raise UserError(
            f"{kind} cannot act on {observation} in a batch of {batch}: {where}"
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    is_pair = isinstance(results, tuple | list) and len(results) == 2
    if not (is_pair and all(isinstance(result, Tensor) for result in results)):
        raise UserError(f"{kind} does not return two tensors: return logits, values")
    logits, values = results
    if logits.ndim != 2 or len(logits) != 2 or values.shape not in ((2,), (2, 1)):
        raise UserError(
            f"{kind} returns logits {tuple(logits.shape)} and values {tuple(values.shape)} for 2 "
            "states; (2, actions) and (2,) or (2, 1) are needed"
        )
    if logits.isinf().any():  # an entropy of 0 * -inf is NaN
        raise UserError(f"{kind} returns infinite logits: mask actions with -1e9, not -inf")
    heads: list[str] = []
    for result in results:
        name, _, copied = put_out.get(_memory(result), ("", result, result))
        if name and torch.equal(result.flatten(), copied.flatten()):  # nothing was done to it since
            heads.append(name)
    return logits, tuple(heads) if len(heads) == 2 else ()


def _memory(output: Tensor) -> int:
    """Return what a tensor and its views have in common."""
    return output.untyped_storage().data_ptr()


def _as_float32(output: Tensor) -> Tensor:
    """Return `output` in float32; what is, as it is: a cast would become part of a trace."""
    return output if output.dtype == torch.float32 else output.float()


def _in_float32(head: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
    """Compute a head's output again in float32 if autocast made it something less."""
    kind = output.device.type
    assert isinstance(head, nn.Linear)
    if not torch.is_autocast_enabled(kind) or head.weight.dtype == torch.float64:
        return None
    with torch.autocast(kind, enabled=False):
        return nn.functional.linear(given[0].float(), head.weight, head.bias)
