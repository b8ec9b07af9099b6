from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accerl.compress.pruning.criteria import BUDGETS, CRITERIA, PruneMethod, kept_units
from accerl.compress.pruning.prune import masks, prune
from accerl.networks.graph_policy import count_macs
from accerl.networks.policy_net import Architecture, ConvSpec, ObservationSpec, PolicyNet
from tests.fixtures.controllers.masked import masked_copy

IMAGE = ObservationSpec((3, 20, 20), "uint8")
VECTOR = ObservationSpec((6,), "float32")
ARCHITECTURES = {
    IMAGE: Architecture((ConvSpec(6, 4, 2), ConvSpec(9, 3, 2), ConvSpec(5, 2, 1)), (13, 7)),
    VECTOR: Architecture((), (11, 8)),
}


def random_net(observation: ObservationSpec, seed: int) -> PolicyNet:
    net = PolicyNet(ARCHITECTURES[observation], observation, 4)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return net


def states(observation: ObservationSpec, seed: int) -> torch.Tensor:
    generator = np.random.default_rng(seed)
    if observation.dtype == "uint8":
        values = generator.integers(0, 256, (5, *observation.shape))
    else:
        values = generator.normal(size=(5, *observation.shape))
    return torch.from_numpy(values.astype(observation.dtype))


@settings(max_examples=40)
@given(
    observation=st.sampled_from([IMAGE, VECTOR]),
    sparsity=st.floats(0.0, 0.99),
    criterion=st.sampled_from(CRITERIA),
    budget=st.sampled_from(BUDGETS),
    round_to=st.sampled_from([1, 4, 8]),
    seed=st.integers(0, 10_000),
)
def test_pruned_network_equals_the_masked_original(
    observation: ObservationSpec,
    sparsity: float,
    criterion: str,
    budget: str,
    round_to: int,
    seed: int,
) -> None:
    method = PruneMethod(criterion=criterion, budget=budget, round_to=round_to)
    net = random_net(observation, seed)
    obs = states(observation, seed)
    logits, values = net(obs)
    (logits.square().sum() + values.square().sum()).backward()  # for the Taylor criterion
    keep = masks(net, sparsity, method)
    pruned = prune(net, sparsity, method)
    with torch.no_grad():
        expected = masked_copy(net, keep)(obs)
        actual = pruned(obs)
    for one, other in zip(expected, actual, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    sizes = [conv.channels for conv in net.arch.convs] + list(net.arch.hidden)
    narrow = [conv.channels for conv in pruned.arch.convs] + list(pruned.arch.hidden)
    assert narrow == [int(mask.sum()) for mask in keep]
    if not sparsity:
        assert narrow == sizes
    elif budget == "uniform":
        assert narrow == [kept_units(size, sparsity, round_to=round_to) for size in sizes]
    else:
        assert all(width >= min(size, round_to) for width, size in zip(narrow, sizes, strict=True))
        if round_to == 1:
            floor = sum(-(-size // 10) for size in sizes)
            assert sum(narrow) == max(kept_units(sum(sizes), sparsity), floor)
    assert count_macs(pruned) <= count_macs(net)


@given(units=st.integers(1, 4096), sparsity=st.floats(0.0, 1.0, exclude_max=True))
def test_at_least_one_unit_stays(units: int, sparsity: float) -> None:
    assert 1 <= kept_units(units, sparsity) <= units
