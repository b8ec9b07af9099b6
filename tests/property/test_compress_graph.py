"""Networks that are no chains: prune, factorise, round and export them, and compare."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from accerl.compress import (
    CompressorChain,
    Eager,
    LowRank,
    Pruning,
    Quantizer,
    TorchScript,
    make_engine,
)
from accerl.compress.lowrank import LowRankMethod, factorise
from accerl.compress.pruning.criteria import CRITERIA, PruneMethod
from accerl.compress.pruning.prune import prune
from accerl.networks.graph_policy import GraphPolicy, Policy, count_macs, hidden_layers
from tests.fixtures.random_networks import (
    ACTIONS,
    ACTIVATIONS,
    BLOCKS,
    BOARD,
    Plan,
    RandomNetwork,
)

plans = st.builds(
    Plan,
    blocks=st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=4).map(tuple),
    activation=st.sampled_from(list(ACTIVATIONS)),
    ending=st.sampled_from(["flatten", "mean", "layer norm"]),
    seed=st.integers(0, 10_000),
)


def network(plan: Plan) -> GraphPolicy:
    return GraphPolicy(RandomNetwork(plan), BOARD)


def boards(seed: int, count: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, *BOARD.shape)).astype(np.uint8)


def outputs(net: nn.Module, obs: np.ndarray) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        return net(torch.from_numpy(obs))


def summed(net: GraphPolicy, obs: np.ndarray) -> list[float]:
    """Return the size of the terms that each head sums: they are rounded, and not their sum."""
    read: list[Tensor] = []
    with net.heads[0].register_forward_pre_hook(lambda _, given: read.append(given[0])):
        outputs(net, obs)
    with torch.no_grad():
        terms = (read[-1].abs() @ head.weight.abs().T + head.bias.abs() for head in net.heads)
        return [float(each.max()) for each in terms]


def assert_equal(first: nn.Module, second: nn.Module, obs: np.ndarray) -> None:
    for one, other in zip(outputs(first, obs), outputs(second, obs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4 * float(other.abs().max()))


def survivors(net: Policy, pruned: Policy) -> dict[str, list[int]]:
    """Return which units of each layer stayed, found by their biases: all of them differ."""
    layers = hidden_layers(net)
    kept = {}
    for name, layer in hidden_layers(pruned).items():
        before, after = layers[name].bias, layer.bias
        assert before is not None
        assert after is not None
        kept[name] = [before.tolist().index(value) for value in after.tolist()]
    return kept


@settings(max_examples=12, deadline=None)
@given(
    plan=plans,
    sparsity=st.sampled_from([0.0, 0.25, 0.5, 0.7]),
    criterion=st.sampled_from(CRITERIA),
)
def test_pruning_leaves_the_right_share_of_every_layer(
    plan: Plan, sparsity: float, criterion: str
) -> None:
    net, obs = network(plan), boards(plan.seed)
    logits, values = net(torch.from_numpy(obs))
    (logits.square().sum() + values.square().sum()).backward()  # for the Taylor criterion
    pruned = prune(net, sparsity, PruneMethod(criterion=criterion))
    logits, values = outputs(pruned, obs)
    assert logits.shape == (len(obs), ACTIONS)
    assert values.shape == (len(obs),)
    if not sparsity:
        assert_equal(pruned, net, obs)
    parts = 2 if {"grouped", "group norm"} & set(plan.blocks) else 1
    for name, units in survivors(net, pruned).items():
        width = hidden_layers(net)[name].weight.shape[0]
        rounded = 0.5 * parts * max(1, width // 8)  # each part of each concatenated image
        assert abs(len(units) - width * (1.0 - sparsity)) <= rounded, name
        assert units == sorted(units)
    assert count_macs(pruned) <= count_macs(net)


@settings(max_examples=12, deadline=None)
@given(plan=plans.filter(lambda plan: not plan.mixes_channels), sparsity=st.floats(0.1, 0.8))
def test_a_pruned_network_equals_the_one_whose_removed_units_are_silent(
    plan: Plan, sparsity: float
) -> None:
    net, obs = network(plan), boards(plan.seed)
    pruned, masked = prune(net, sparsity), network(plan)
    kept = survivors(net, pruned)
    # All activations here map 0 to 0, and so does a batch norm without its shift.
    for name, layer in hidden_layers(masked).items():
        silent = torch.ones(layer.weight.shape[0])
        silent[kept[name]] = 0.0
        with torch.no_grad():
            layer.weight[silent.bool()] = 0.0
            assert layer.bias is not None
            layer.bias[silent.bool()] = 0.0
    module = masked.module
    assert isinstance(module, RandomNetwork)
    for index, block in enumerate(module.blocks):
        assert isinstance(block, nn.ModuleList)
        if isinstance(norm := block[1], nn.BatchNorm2d):
            silent = torch.ones(norm.num_features)
            silent[kept[f"module.blocks.{index}.0"]] = 0.0
            with torch.no_grad():
                norm.bias[silent.bool()] = 0.0
    assert_equal(pruned, masked, obs)


@settings(max_examples=6, deadline=None)
@given(plan=plans, convolutions=st.booleans())
def test_factors_of_full_rank_or_all_energy_compute_the_same(
    plan: Plan, convolutions: bool
) -> None:
    net, obs = network(plan), boards(plan.seed)
    method = LowRankMethod(convolutions=convolutions)
    assert_equal(factorise(net, 1.0, method), net, obs)
    with torch.no_grad():  # rank 2, so that a third of the singular values hold everything
        weight = hidden_layers(net)["module.hidden"].weight
        u, s, v = torch.linalg.svd(weight, full_matrices=False)
        weight.copy_((u[:, :2] * s[:2]) @ v[:2])
    thin = factorise(net, 0.3, method)
    assert count_macs(thin) < count_macs(net)
    if not convolutions:
        assert_equal(thin, net, obs)


@settings(max_examples=6, deadline=None)
@given(plan=plans, graph=st.sampled_from(["eager", "torchscript"]), low=st.booleans())
def test_engines_act_as_the_network_does(plan: Plan, graph: str, low: bool) -> None:
    net, obs = network(plan), boards(plan.seed, 32)
    export = TorchScript() if graph == "torchscript" else Eager()
    links = [Pruning(net, 0.5), LowRank(0.5), *([Quantizer("BF16")] if low else []), export]
    artifact = CompressorChain(links).compress(observations=obs)
    assert (artifact.kind, artifact.spec.graph) == ("script", graph)
    wanted = factorise(prune(net, 0.5), 0.5)
    logits, values = make_engine(artifact).infer(obs)
    assert isinstance(wanted, GraphPolicy)
    sizes = summed(wanted, obs)
    for found, expected, terms in zip((logits, values), outputs(wanted, obs), sizes, strict=True):
        size = float(expected.abs().max())
        bound = 0.05 * terms if low else 1e-4 * size
        assert np.abs(found - expected.numpy()).max() <= bound
        if low:  # rounding errors have no bias: heads are shifted
            assert np.abs((found - expected.numpy()).mean(0)).max() <= 1e-3 * size
