"""Sparse topology: a network that learns with few of its weights, and changes which ones.

Dynamic sparse training keeps every layer's number of live weights and moves them: SET (Mocanu et
al. 2018) drops the smallest and grows at random, RigL (Evci et al. 2020) grows where the gradient
of the dense layer is largest. Masks are the learner's: what acts is exported with its zeros.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.parametrize import is_parametrized

from accerl.errors import UserError, require_choice, require_fields
from accerl.networks.graph_policy import Policy, hidden_layers

METHODS = ("static", "set", "rigl")
DENSITIES = ("erk", "uniform")


@dataclass(frozen=True, kw_only=True)
class TopologyConfig:
    """How sparse the hidden layers are, and how their masks move.

    Raises:
        UserError: a value is not allowed.
    """

    method: str = "rigl"
    """static (masks never move), set or rigl"""
    sparsity: float = 0.9
    """fraction of the hidden layers' weights that are zero, in [0, 1)"""
    density: str = "erk"
    """erk (Erdos-Renyi-kernel: small layers stay denser) or uniform"""
    block: int = 1
    """neighbouring inputs that live and die together"""
    update_every: int = 100
    """gradient steps between two moves"""
    drop_fraction: float = 0.3
    """of a layer's live weights that the first move replaces; it falls to 0 by a cosine"""
    stop_after: int = 100_000
    """gradient steps after which nothing moves any more"""

    def __post_init__(self) -> None:
        require_choice("sparse: method", self.method, METHODS)
        require_choice("sparse: density", self.density, DENSITIES)
        check = partial(require_fields, self, "sparse")
        rule = "is the fraction of zeros and must lie in [0, 1)"
        check("sparsity", rule, lambda share: 0.0 <= share < 1.0)
        check("drop_fraction", "must lie in [0, 1]", lambda share: 0.0 <= share <= 1.0)
        rule = "must be a whole number, at least 1"
        check("block update_every stop_after", rule, lambda n: type(n) is int and n >= 1)


class SparseTopology:
    """Owns the masks of the hidden layers that learn; the heads and all biases stay dense.

    A learner calls `before_step` between backward and the optimiser, and `after_step` behind it.

    Raises:
        UserError: there is no such layer, or one cannot be masked.
    """

    def __init__(self, net: Policy, config: TopologyConfig, generator: torch.Generator) -> None:
        self.config = config
        self.steps = 0
        self._generator = generator
        self._weights: list[Tensor] = []
        for name, layer in hidden_layers(net).items():
            weight = layer.weight
            if not weight.requires_grad:  # what is frozen would lose its weights for good
                continue
            if any(weight is other for other in self._weights):  # two layers share it, and its mask
                continue
            if is_parametrized(layer, "weight"):
                raise UserError(
                    f"sparse: the weights of {name!r} are parametrised (spectral norm, say) and "
                    "cannot be masked; use plain layers"
                )
            if weight[0].numel() % config.block:
                raise UserError(
                    f"sparse: blocks of {config.block} do not divide a layer's "
                    f"{weight[0].numel()} inputs"
                )
            self._weights.append(weight)
        if not self._weights:
            raise UserError("sparse: the network has no hidden layer that learns; leave sparse out")
        shares = layer_densities([weight.shape for weight in self._weights], config)
        self._live = [self._first_mask(*pair) for pair in zip(self._weights, shares, strict=True)]
        self._zero()

    @property
    def masks(self) -> list[Tensor]:
        """Which weights of each hidden layer that learns live, in the shape of the weights."""
        return [
            _expanded(live, weight) for live, weight in zip(self._live, self._weights, strict=True)
        ]

    def sparsity(self) -> float:
        """Return the fraction of these layers' weights that is masked."""
        live = sum(int(live.sum()) * self.config.block for live in self._live)
        return 1.0 - live / sum(weight.numel() for weight in self._weights)

    def before_step(self, optimiser: torch.optim.Optimizer) -> None:
        """Move the masks if it is time, by the dense gradients; then mask the gradients."""
        self.steps += 1
        config = self.config
        due = self.steps % config.update_every == 0 and self.steps < config.stop_after
        if config.method != "static" and due:
            share = config.drop_fraction / 2.0
            share *= 1.0 + math.cos(math.pi * self.steps / config.stop_after)
            for index in range(len(self._weights)):
                self._move(index, share, optimiser)
        for weight, mask in zip(self._weights, self.masks, strict=True):
            if weight.grad is not None:
                weight.grad *= mask

    def after_step(self) -> None:
        """Zero what is masked: an optimiser's momentum moves weights without gradients."""
        self._zero()

    @torch.no_grad()
    def _zero(self) -> None:
        for weight, mask in zip(self._weights, self.masks, strict=True):
            weight *= mask

    @torch.no_grad()
    def _move(self, index: int, share: float, optimiser: torch.optim.Optimizer) -> None:
        """Drop that share of a layer's live blocks and grow as many; new weights are zero."""
        weight, live = self._weights[index], self._live[index]
        count = int(share * int(live.sum()))
        count = min(count, int((~live).sum()))
        if not count:
            return
        size = _blocks(weight.abs(), self.config.block)
        dropped = _lowest(size.masked_fill(~live, math.inf), count)
        stays = live & ~dropped
        # What was just dropped may come back: then it was not the place that was wrong.
        if self.config.method == "rigl":
            # None: the forward has left the layer out.
            slope = torch.zeros_like(weight) if weight.grad is None else weight.grad
            wanted = _blocks(slope.abs(), self.config.block)
        else:
            wanted = torch.rand(live.shape, generator=self._generator).to(live.device)
        grown = _lowest((-wanted).masked_fill(stays, math.inf), count)
        self._live[index] = stays | grown
        fresh = _expanded(grown & ~live, weight)
        weight[fresh] = 0.0
        for moment in optimiser.state.get(weight, {}).values():
            if isinstance(moment, Tensor) and moment.shape == weight.shape:
                moment[fresh] = 0.0

    def _first_mask(self, weight: Tensor, share: float) -> Tensor:
        shape = (weight.shape[0], weight[0].numel() // self.config.block)
        places = math.prod(shape)
        chosen = torch.randperm(places, generator=self._generator)[: max(1, round(share * places))]
        live = torch.zeros(places, dtype=torch.bool)
        live[chosen] = True
        return live.view(shape).to(weight.device)

    def state_dict(self) -> dict[str, Any]:
        """Return copies of everything that an exact resume needs."""
        return {
            "steps": self.steps,
            "live": [live.cpu().clone() for live in self._live],
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state returned by `state_dict`."""
        self.steps = int(state["steps"])
        self._live = [
            live.to(weight.device).clone()
            for live, weight in zip(state["live"], self._weights, strict=True)
        ]
        self._generator.set_state(state["generator"])
        self._zero()


def layer_densities(shapes: Sequence[Sequence[int]], config: TopologyConfig) -> list[float]:
    """Return the share of live weights of each layer, at most 1, whose total is as asked for.

    Erdos-Renyi-kernel gives a layer a share proportional to (sum of its sizes) / (product of its
    sizes); layers that would exceed 1 are dense, and the others share what is left.
    """
    sizes = [math.prod(shape) for shape in shapes]
    budget = (1.0 - config.sparsity) * sum(sizes)
    if config.density == "uniform":
        return [1.0 - config.sparsity] * len(sizes)
    raw = [sum(shape) / math.prod(shape) for shape in shapes]
    dense: set[int] = set()
    while True:
        free = [index for index in range(len(sizes)) if index not in dense]
        left = budget - sum(sizes[index] for index in dense)
        scale = left / max(sum(raw[index] * sizes[index] for index in free), 1e-30)
        full = {index for index in free if scale * raw[index] > 1.0}
        if not full:
            return [1.0 if i in dense else scale * raw[i] for i in range(len(sizes))]
        dense |= full


def _blocks(values: Tensor, block: int) -> Tensor:
    """Return the sum over each block of neighbouring inputs, [out, inputs / block]."""
    rows = values.flatten(1)
    return rows.view(len(rows), -1, block).sum(2) if block > 1 else rows


def _expanded(live: Tensor, weight: Tensor) -> Tensor:
    """Return a mask over blocks in the shape of the weights."""
    block = weight[0].numel() // live.shape[1]
    return live.repeat_interleave(block, dim=1).view(weight.shape)


def _lowest(score: Tensor, count: int) -> Tensor:
    """Return the mask of the `count` lowest scores; ties go to the lower place."""
    order = torch.sort(score.flatten(), stable=True).indices[:count]
    mask = torch.zeros(score.numel(), dtype=torch.bool, device=score.device)
    mask[order] = True
    return mask.view(score.shape)
