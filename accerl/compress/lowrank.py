"""Low-rank factorisation: a large layer becomes two or three thin ones (the paper's "ongoing").

Linear layers by a truncated singular value decomposition, convolutions by Tucker-2 (Kim et al.
2016): 1x1, k x k between fewer channels, 1x1.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard, overload

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from accerl.compress.layers import refuse_diverged
from accerl.errors import CannotCompressError, first_line, require, require_fields
from accerl.networks.graph_policy import (
    GraphPolicy,
    Policy,
    Scripts,
    blank_states,
    hidden_layers,
)
from accerl.networks.policy_net import PolicyNet, conv_spec, is_plain
from accerl.networks.structure import describe

OVERSAMPLING = 8
POWER_ITERATIONS = 2
TUCKER_ITERATIONS = 2
RANK_STEP = 8
"""of ranks that follow from the weights"""


@dataclass(frozen=True, kw_only=True)
class LowRankMethod:
    """How ranks are chosen, and what is factorised.

    Raises:
        UserError: a value is not allowed.
    """

    energy: float = 1.0
    """share of a layer's squared weights that its factors must hold: fewer singular values than
    the rank allows are kept, in steps of 8, where fewer hold as much; 1 keeps as many as the rank
    says"""
    convolutions: bool = False
    """whether convolutions behind the first are factorised too (the first one reads pixels, from
    so few channels that there is nothing to gain)"""

    def __post_init__(self) -> None:
        require_fields(self, "low rank", "energy", "must lie in (0, 1]", lambda e: 0.0 < e <= 1.0)


def kept_rank(rows: int, columns: int, rank: float) -> int | None:
    """Return the rank a [rows, columns] layer gets, or None where two layers would cost more.

    Two thin layers hold r (rows + columns) weights, so r must stay below rows columns / (rows +
    columns) for a factorisation to pay.
    """
    kept = max(1, round(min(rows, columns) * rank))
    return kept if kept * (rows + columns) < rows * columns else None


@overload
def factorise(
    net: PolicyNet, rank: float, method: LowRankMethod = LowRankMethod()
) -> PolicyNet: ...


@overload
def factorise(net: Policy, rank: float, method: LowRankMethod = LowRankMethod()) -> Policy: ...


def factorise(net: Policy, rank: float, method: LowRankMethod = LowRankMethod()) -> Policy:
    """Return a copy of `net` with thin layers in place of large ones; see `Factoriser`."""
    return Factoriser(rank, method).factorise(net)


def check_rank(rank: float) -> None:
    """Refuse what is no fraction of singular values that can be kept.

    Raises:
        UserError: it is not in (0, 1].
    """
    rule = "is the fraction of singular values kept and must lie in (0, 1]"
    is_number = isinstance(rank, int | float)
    require(is_number and 0.0 < rank <= 1.0, "low rank: rank", rule, rank)


class Factoriser:
    """Factorises the same network again and again while it learns.

    A policy moves little between two publications, so each factorisation starts from the subspace
    of the last one, and one pass over the weights takes the place of several.

    Raises:
        UserError: `rank` is not allowed.
    """

    def __init__(self, rank: float, method: LowRankMethod = LowRankMethod()) -> None:
        check_rank(rank)
        self.rank = rank
        self.method = method
        self._bases: dict[str, Tensor] = {}  # by the layer's name, or its place in the body
        self._scripts: dict[str, Scripts] = {}  # of what is no chain, by the sizes of its layers

    @overload
    def factorise(self, net: PolicyNet) -> PolicyNet: ...

    @overload
    def factorise(self, net: Policy) -> Policy: ...

    def factorise(self, net: Policy) -> Policy:
        """Return a copy of `net`; layers where it would not save multiplications stay.

        Raises:
            CannotCompressError: its forward does more with a layer than call it.
        """
        if isinstance(net, GraphPolicy):
            return self._factorise_graph(copy.deepcopy(net))
        copied = copy.deepcopy(net)
        modules: list[nn.Module] = []
        size = net.observation.shape[1:] if net.arch.convs else ()
        for index, module in enumerate(copied.body):
            layers = [module]
            if isinstance(module, nn.Linear):
                layers = self._thin_linear(str(index), module)
            elif isinstance(module, nn.Conv2d):
                if self.method.convolutions and index > 0:
                    layers = _thin_convolution(
                        str(index), module, self.rank, self.method.energy, size
                    )
                size = tuple(conv_spec(module).side(side) for side in size)
            modules += layers
        copied.body = nn.Sequential(*modules)
        return copied

    def _factorise_graph(self, net: GraphPolicy) -> GraphPolicy:
        """Replace the large layers of `net` but its heads, and return it."""
        seen = input_sizes(net)
        first = next(iter(seen), "")  # of the convolutions, in the order in which they run
        names: dict[nn.Module, list[str]] = {}  # a layer may have several
        for name, layer in net.named_modules(remove_duplicate=False):
            names.setdefault(layer, []).append(name)
        for name, layer in hidden_layers(net).items():
            thin: list[nn.Module] = [layer]
            if layer._forward_hooks or layer._forward_pre_hooks:
                continue  # the factors would be without them
            # Behind what puts out the actions' numbers there may be more, as in dueling heads.
            if isinstance(layer, nn.Linear) and layer.out_features <= net.num_actions:
                continue
            # Factors take the place of a parametrised layer too: those of the weights that act.
            if isinstance(layer, nn.Linear) and type_before_parametrizations(layer) is nn.Linear:
                thin = self._thin_linear(name, layer)
            elif self.method.convolutions and name in seen and name != first and _is_plain(layer):
                thin = _thin_convolution(name, layer, self.rank, self.method.energy, seen[name])
            if len(thin) > 1:
                factors = nn.Sequential(*thin)
                for each in names[layer]:
                    net.set_submodule(each, factors)
        net.scripts = self._scripts.setdefault(str(describe(net)["sizes"]), Scripts())
        try:
            with torch.no_grad():
                net(blank_states(net.observation, 2, net.device))
        except Exception as error:  # a user's forward may look into its layers
            raise CannotCompressError(
                f"{type(net.module).__name__} cannot be factorised: {first_line(error)}; have its "
                "forward call its layers, and nothing else with them"
            ) from error
        return net

    def _thin_linear(self, name: str, layer: nn.Linear) -> list[nn.Module]:
        """Return the two layers that replace `layer`; the second one carries the bias."""
        kept = kept_rank(layer.out_features, layer.in_features, self.rank)
        if kept is None:
            return [layer]
        weight = layer.weight.detach().float()
        refuse_diverged(f"layer {name}", weight)
        u, s, v = truncated_svd(weight, kept, start=self._bases.get(name))
        self._bases[name] = v
        kept = _enough(s, weight, self.method.energy)
        u, s, v = u[:, :kept], s[:kept], v[:, :kept]
        first = nn.Linear(layer.in_features, kept, bias=False)
        second = nn.Linear(kept, layer.out_features, bias=layer.bias is not None)
        root = s.sqrt()  # split evenly, so that both factors quantise equally well
        with torch.no_grad():
            first.weight.copy_(root[:, None] * v.T)
            second.weight.copy_(u * root)
            if layer.bias is not None:
                second.bias.copy_(layer.bias)
        return [first.to(layer.weight), second.to(layer.weight)]

    def forget(self) -> None:
        """Begin anew: the network has moved away from where it was factorised last."""
        self._bases.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return copies of everything that an exact resume needs."""
        return {name: basis.clone() for name, basis in self._bases.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state returned by `state_dict`."""
        self._bases = {name: basis.clone() for name, basis in state.items()}


@torch.no_grad()
def input_sizes(net: GraphPolicy) -> dict[str, tuple[int, ...]]:
    """Return height and width of what each convolution reads, in the order in which they run."""
    names = {layer: name for name, layer in net.named_modules() if isinstance(layer, nn.Conv2d)}
    seen: dict[str, tuple[int, ...]] = {}

    def note(layer: nn.Module, given: tuple[Tensor, ...]) -> None:
        assert isinstance(layer, nn.Conv2d)
        seen[names[layer]] = tuple(given[0].shape[2:])

    handles = [layer.register_forward_pre_hook(note) for layer in names]
    net(blank_states(net.observation, 1, net.device))
    for handle in handles:
        handle.remove()
    return seen


def _is_plain(layer: nn.Module) -> TypeGuard[nn.Conv2d]:
    """Whether a layer is a convolution of equal sides, one group and no holes."""
    if not isinstance(layer, nn.Conv2d) or type_before_parametrizations(layer) is not nn.Conv2d:
        return False
    return is_plain(layer)


def _thin_convolution(
    name: str, layer: nn.Conv2d, rank: float, energy: float, size: tuple[int, ...]
) -> list[nn.Module]:
    """Return the three layers that replace `layer`, the last one with its bias.

    Args:
        name: of the layer, for errors.
        layer: a convolution.
        rank: fraction of its input and output channels kept.
        energy: share of the squared weights that must be kept on either side.
        size: height and width of its input.
    """
    weight = layer.weight.detach().float()
    refuse_diverged(f"layer {name}", weight)
    outputs, inputs, kernel, _ = weight.shape
    wide = (max(1, round(outputs * rank)), max(1, round(inputs * rank)))
    out_basis, s = _leading(weight.flatten(1), wide[0])
    out_basis = out_basis[:, : _enough(s, weight, energy)]
    in_basis, s = _leading(weight.transpose(0, 1).flatten(1), wide[1])
    in_basis = in_basis[:, : _enough(s, weight, energy)]
    # Each side again, seen through the other: higher-order orthogonal iteration.
    for _ in range(TUCKER_ITERATIONS):
        seen = torch.einsum("oikl,ir->orkl", weight, in_basis).flatten(1)
        out_basis, _ = _leading(seen, out_basis.shape[1])
        seen = torch.einsum("oikl,or->irkl", weight, out_basis).flatten(1)
        in_basis, _ = _leading(seen, in_basis.shape[1])
    narrow_out, narrow_in = out_basis.shape[1], in_basis.shape[1]
    sizes = conv_spec(layer)
    before = size[0] * size[1]
    after = math.prod(sizes.side(side) for side in size)
    work = inputs * narrow_in * before
    work += (narrow_in * narrow_out * kernel * kernel + narrow_out * outputs) * after
    if work >= inputs * outputs * kernel * kernel * after:
        return [layer]
    core = torch.einsum("oikl,or,is->rskl", weight, out_basis, in_basis)
    first = nn.Conv2d(inputs, narrow_in, 1, bias=False)
    middle = nn.Conv2d(narrow_in, narrow_out, kernel, sizes.stride, sizes.padding, bias=False)
    last = nn.Conv2d(narrow_out, outputs, 1, bias=layer.bias is not None)
    with torch.no_grad():
        first.weight.copy_(in_basis.T[:, :, None, None])
        middle.weight.copy_(core)
        last.weight.copy_(out_basis[:, :, None, None])
        if last.bias is not None and layer.bias is not None:
            last.bias.copy_(layer.bias)
    return [module.to(layer.weight) for module in (first, middle, last)]


def _leading(matrix: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the first `count` left singular vectors [m, count] and singular values."""
    u, s, _ = torch.linalg.svd(matrix, full_matrices=False)
    return u[:, :count], s[:count]


def _enough(singular: Tensor, weight: Tensor, energy: float) -> int:
    """Return how many leading singular values hold `energy` of the squared weights, or all.

    It is a multiple of `RANK_STEP`: a rank that followed the weights from one publication to the
    next would have the engine traced anew for each, and torch keeps what it has traced.
    """
    if energy >= 1.0:
        return len(singular)
    held = singular.square().cumsum(0) >= energy * weight.square().sum()
    enough = int(held.int().argmax()) + 1 if bool(held.any()) else len(singular)
    return min(math.ceil(enough / RANK_STEP) * RANK_STEP, len(singular))


def truncated_svd(
    matrix: Tensor, rank: int, *, start: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return U [m, r], S [r], V [n, r] by randomised subspace iteration (Halko et al., 2011).

    A full SVD of the paper's 3136 x 2048 layer takes seconds, more than a publication may. The
    sketch is drawn from a fixed seed: equal matrices give equal factors.

    Args:
        matrix: [m, n].
        rank: r.
        start: V [n, r] of a similar matrix, from which half a pass is enough.
    """
    rows, columns = matrix.shape
    size = min(rank + OVERSAMPLING, rows, columns)
    generator = torch.Generator().manual_seed(0)
    passes = POWER_ITERATIONS
    if start is None or start.shape != (columns, rank):
        sketch = torch.randn(columns, size, generator=generator)
    else:
        # What is new must be found too: a few random directions keep the old company.
        fresh = torch.randn(columns, size - rank, generator=generator) / columns**0.5
        sketch, passes = torch.cat([start.cpu(), fresh], dim=1), 0
    basis = torch.linalg.qr(matrix @ sketch.to(matrix.device)).Q
    for _ in range(passes):
        basis = torch.linalg.qr(matrix.T @ basis).Q
        basis = torch.linalg.qr(matrix @ basis).Q
    # The singular vectors of the small factor, by way of its Gram matrix: ten times faster than its
    # SVD, and exact enough for all but the singular values that are nothing beside the largest.
    small = basis.T @ matrix
    squares, u = torch.linalg.eigh(small @ small.T)
    s = squares.flip(0)[:rank].clamp_min(0.0).sqrt()
    u = u.flip(1)[:, :rank]
    v = small.T @ u / s.clamp_min(1e-30)
    return basis @ u, s, v
