"""Structured pruning of networks that are no chains, along Torch-Pruning's dependency graph.

What is added up or concatenated is pruned together (Fang et al. 2023, DepGraph). Torch-Pruning
finds such groups of layers in the autograd graph, by rules that a user's forward may break; so
every pruned network is compared with the whole one whose removed channels nothing reads.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from accerl.compress.layers import refuse_diverged
from accerl.compress.pruning.concatenations import before, has_weights, map_concatenations
from accerl.compress.pruning.criteria import (
    PruneMethod,
    keep_best,
    kept_units,
    layer_scores,
)
from accerl.errors import CannotCompressError, ForwardError, UserError, first_line
from accerl.networks.graph_policy import GraphPolicy, Scripts
from accerl.networks.probe import alike, states_for

PRUNED = (nn.Conv2d, nn.Linear)
"""layers that lose channels"""
_NORMS = (nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm2d)


def prune_graph(
    net: GraphPolicy, sparsity: float, method: PruneMethod, obs: np.ndarray | None = None
) -> GraphPolicy:
    """Return a copy of `net` without the fraction `sparsity` of each layer's output channels.

    Args:
        net: the network to prune; it stays as it is.
        sparsity: fraction removed, in (0, 1).
        method: how to choose; its budget must be uniform, and nothing is compensated here.
        obs: recorded states [N, *shape], for networks that fail at noise.

    Raises:
        DivergedError: its weights are not numbers.
        CannotCompressError: the network cannot be pruned, or not like that; it says why.
    """
    kind = type(net.module).__name__
    if method.budget != "uniform":
        raise CannotCompressError(
            f"{kind} is no chain of layers: prune it with prune_budget uniform"
        )
    if not _last_layers(net):
        raise CannotCompressError(
            f"{kind} cannot be pruned: no linear layer puts out numbers for actions; end in two "
            "linear layers, of logits and of the value"
        )
    inner = set(net.module.modules()) - {*_last_layers(net)}
    if not any(isinstance(layer, PRUNED) for layer in inner):
        raise CannotCompressError(
            f"{kind} cannot be pruned: channels of Conv2d and Linear can go, and in front of its "
            "heads there are none"
        )
    for name, layer in net.module.named_modules():
        if isinstance(layer, PRUNED) and is_parametrized(layer):
            raise CannotCompressError(
                f"{kind} cannot be pruned: the weights of {name!r} are parametrised (weight norm, "
                "say) and have no channels of their own; use plain layers"
            )
    refuse_diverged(kind, *net.parameters())
    pruned, masked = _copy(net), copy.deepcopy(net)
    states = states_for(net, obs).to(net.device)
    try:
        with torch.enable_grad():
            _remove(pruned, masked, states, sparsity, method)
        with torch.no_grad():
            logits, values = pruned(states)
            shapes = (logits.shape, values.shape)
            is_same = _act_alike(pruned, masked, states)
    except Exception as error:  # whatever Torch-Pruning, or the user's forward, makes of it
        if isinstance(error, UserError) and not isinstance(error, ForwardError):
            raise
        # A forward's error names the network again.
        why = first_line(error.__cause__ or error if isinstance(error, ForwardError) else error)
        raise CannotCompressError(
            f"{kind} cannot be pruned: {why}; write its forward so that it works "
            "with any number of channels"
        ) from error
    if shapes != ((len(states), net.num_actions), (len(states),)) or not is_same:
        raise CannotCompressError(
            f"{kind} cannot be pruned: what reads the channels that go was not found; flatten "
            "with the channels first, and mix channels by layers only"
        )
    return pruned


def _last_layers(net: GraphPolicy) -> list[nn.Module]:
    """Return the layers whose outputs are not channels: the heads, or those as small as heads.

    Behind these there may be more, as in dueling and masked heads.
    """
    heads: list[nn.Module] = [*net.heads]
    return heads or [
        layer
        for layer in net.module.modules()
        if isinstance(layer, nn.Linear) and layer.out_features <= net.num_actions
    ]


def _copy(net: GraphPolicy) -> GraphPolicy:
    """Return a copy with gradients, whose layers may change."""
    copied = copy.deepcopy(net).requires_grad_(True)
    copied.scripts = Scripts()
    for mine, given in zip(copied.parameters(), net.parameters(), strict=True):
        mine.grad = None if given.grad is None else given.grad.clone()
    return copied


def _remove(
    pruned: GraphPolicy, masked: GraphPolicy, states: Tensor, sparsity: float, method: PruneMethod
) -> None:
    """Remove channels of `pruned`, and have nothing in `masked` read them."""
    import torch_pruning

    graph: Any = torch_pruning.DependencyGraph()
    with _outputs(pruned.module) as outputs:
        graph.build_dependency(
            pruned.module,
            example_inputs=states,
            customized_pruners={nn.LayerNorm: _layer_norm_pruner()},
            output_transform=lambda given: [*given, *outputs],
            verbose=False,
        )
    map_concatenations(graph)
    names = {module: name for name, module in pruned.module.named_modules()}
    groups = [
        group
        for group in graph.get_all_groups(_last_layers(pruned), PRUNED)
        # What meets a parameter that is in no layer of torch's, such as a position, stays whole.
        if not any(_is_fixed(graph, item.dep.target.module) for item in group)
    ]
    if not groups:
        raise ValueError(
            "all its channels meet parameters that are in no layer of torch's, or the states' own"
        )
    # By places in the whole network: all that a layer loses goes at once, at the end.
    gone: dict[tuple[nn.Module, Any], set[int]] = {}
    for group, channels in zip(groups, _choose(graph, groups, sparsity, method), strict=True):
        layer = group[0].dep.target.module
        prune = graph.get_pruner_of_module(layer).prune_out_channels
        for dependency, places in graph.get_pruning_group(layer, prune, channels):
            target = dependency.target.module
            if target in names:
                gone.setdefault((target, dependency.handler), set()).update(places)
    if not any(gone.values()):
        raise ValueError("it has no channels that could go")
    for (layer, remove), places in gone.items():
        if graph.is_in_channel_pruning_fn(remove):
            _stop_reading(masked.module.get_submodule(names[layer]), sorted(places))
        if places:
            remove(layer, sorted(places))


@contextmanager
def _outputs(module: nn.Module) -> Iterator[list[Tensor]]:
    """Collect what layers put out: also those are pruned whose output the forward drops."""
    found: list[Tensor] = []
    layers = [each for each in module.modules() if isinstance(each, nn.Linear | nn.Conv2d)]
    hooks = [each.register_forward_hook(lambda *call: found.append(call[2])) for each in layers]
    yield found
    for hook in hooks:
        hook.remove()


def _is_fixed(graph: Any, module: Any) -> bool:
    """Whether what a group meets must stay: a bare parameter, or the channels of the states."""
    if isinstance(module, nn.Parameter):
        return True
    if not isinstance(module, nn.Conv2d) or module.groups == 1:
        return False
    return not any(map(has_weights, before(graph.module2node[module])))


def _choose(graph: Any, groups: list[Any], sparsity: float, method: PruneMethod) -> list[list[int]]:
    """Return which channels of the first layer of each group of coupled layers go.

    Channels that stand at the same place in each part of a group convolution or a group norm go
    together. Where several images were concatenated, each of them loses the same fraction.
    """
    generator = torch.Generator().manual_seed(method.seed)
    starts = list(itertools.accumulate((len(group[0].idxs) for group in groups), initial=0))
    scores = torch.zeros(starts[-1])
    owners: list[list[nn.Module]] = [[] for _ in range(starts[-1])]
    tied = list(range(starts[-1]))  # by channel of all groups, one that goes together with it
    first: dict[tuple[nn.Module, bool, int], int] = {}
    for start, group in zip(starts, groups, strict=False):
        for item in group:
            layer = item.dep.target.module
            places = [start + place for place in item.root_idxs]
            out = graph.is_out_channel_pruning_fn(item.dep.handler)
            if out and isinstance(layer, nn.Conv2d | nn.Linear):
                rows = layer_scores(str(layer), layer, method, generator).float().cpu()
                scores.scatter_add_(0, torch.tensor(places), rows[item.idxs])
                for place in set(places):
                    owners[place].append(layer)
            if size := _part(graph, layer, out):
                for place, own in zip(places, item.idxs, strict=True):
                    other = first.setdefault((layer, out, own % size), place)
                    tied[_last(tied, place)] = _last(tied, other)
    together: dict[int, list[int]] = {}
    for place in range(starts[-1]):
        together.setdefault(_last(tied, place), []).append(place)
    alike: dict[tuple[nn.Module, ...], list[list[int]]] = {}
    for members in together.values():
        owning = tuple(layer for place in members for layer in owners[place])
        alike.setdefault(owning, []).append(members)
    gone: set[int] = set()
    for owning, choices in alike.items():
        sums = torch.stack([scores[members].sum() for members in choices])
        size = max(Counter(owning).values(), default=1)  # channels of a layer in each choice
        round_to = method.round_to // math.gcd(method.round_to, size)
        keep = keep_best(sums, kept_units(len(choices), sparsity, round_to=round_to))
        for stays, members in zip(keep.tolist(), choices, strict=True):
            gone.update(() if stays else members)
    return [
        [place - start for place in range(start, end) if place in gone]
        for start, end in itertools.pairwise(starts)
    ]


def _part(graph: Any, layer: nn.Module, out: bool) -> int:
    """Return the channels of each part of a layer that must lose the same places, 0 if none."""
    depthwise = isinstance(layer, nn.Conv2d) and layer.groups == layer.out_channels
    pruner = graph.get_pruner_of_module(layer)
    parts = (pruner.get_out_channel_groups if out else pruner.get_in_channel_groups)(layer)
    if depthwise or parts == 1:
        return 0
    return (pruner.get_out_channels if out else pruner.get_in_channels)(layer) // parts


def _last(tied: list[int], place: int) -> int:
    """Return what stands for all channels that go together with one."""
    while tied[place] != place:
        place = tied[place]
    return place


@torch.no_grad()
def _stop_reading(layer: nn.Module, channels: list[int]) -> None:
    """Zero the weights by which a layer reads some of its input channels.

    A depthwise convolution loses each of them with the output that it makes of it.
    """
    if isinstance(layer, nn.Linear):
        layer.weight[:, channels] = 0.0
    elif isinstance(layer, nn.Conv2d) and (layer.groups == 1 or layer.groups < layer.out_channels):
        inputs, outputs = layer.weight.shape[1], layer.out_channels // layer.groups
        for channel in channels:
            part = channel // inputs
            rows = slice(part * outputs, (part + 1) * outputs)
            layer.weight[rows, channel % inputs] = 0.0


def _act_alike(pruned: GraphPolicy, masked: GraphPolicy, states: Tensor) -> bool:
    """Whether two networks put out the same where norms let all numbers pass.

    Norms mix channels, so fewer of them are another norm; all else must stay as it was.
    """
    outputs = []
    for net in (pruned, masked):
        handles = [
            module.register_forward_hook(_let_pass)
            for module in net.modules()
            if isinstance(module, _NORMS)
        ]
        outputs.append(net(states))
        for handle in handles:
            handle.remove()
    if any(bool(output.isnan().any()) for output in outputs[1]):
        raise ValueError("where norms let all numbers pass it puts out NaN")
    return alike(outputs[1], outputs[0])


def _let_pass(module: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Tensor:
    return given[0]


def _layer_norm_pruner() -> Any:
    """Return what removes channels of a layer norm, whether it sees vectors or images."""
    from torch_pruning import BasePruningFunc

    class LayerNormPruner(BasePruningFunc):
        TARGET_MODULES = nn.LayerNorm

        def prune_out_channels(self, layer: nn.Module, idxs: Any) -> nn.Module:
            assert isinstance(layer, nn.LayerNorm)
            gone = set(idxs)
            keep = [place for place in range(layer.normalized_shape[0]) if place not in gone]
            for name, weight in list(layer.named_parameters()):
                setattr(layer, name, self._prune_parameter_and_grad(weight, keep, 0))
            layer.normalized_shape = (len(keep), *layer.normalized_shape[1:])
            return layer

        prune_in_channels = prune_out_channels

        def get_out_channels(self, layer: nn.Module) -> int:
            assert isinstance(layer, nn.LayerNorm)
            return layer.normalized_shape[0]

        get_in_channels = get_out_channels

    return LayerNormPruner()
