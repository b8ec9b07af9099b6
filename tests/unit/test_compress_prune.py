from __future__ import annotations

import pytest
import torch

from accerl.compress.layers import body_layers
from accerl.compress.lowrank import factorise, kept_rank, truncated_svd
from accerl.compress.prune import masks, prune
from accerl.errors import UserError
from accerl.networks import ObservationSpec, PolicyNet, count_macs, make_policy

VECTOR = ObservationSpec((8,), "float32")
PIXELS = ObservationSpec((4, 84, 84), "uint8")


def make(student: str = "original", observation: ObservationSpec = VECTOR) -> PolicyNet:
    return make_policy(student, observation, 3, torch.Generator().manual_seed(0))


def test_the_weakest_units_go_and_order_is_kept() -> None:
    net = make("net3")
    first = body_layers(net)[0].module
    with torch.no_grad():
        first.weight.copy_(torch.arange(16.0)[torch.tensor([3, 1, 2, 0, *range(4, 16)])][:, None])
    (mask,) = masks(net, 0.25)
    assert (~mask).nonzero().flatten().tolist() == [0, 1, 2, 3]
    pruned = body_layers(prune(net, 0.25))[0].module
    assert pruned.weight[:, 0].tolist() == list(range(4, 16))


def test_pixels_are_rewired_through_the_flatten() -> None:
    pruned = prune(make("original", PIXELS), 0.5)
    assert [conv.channels for conv in pruned.arch.convs] == [16, 32, 32]
    assert pruned.arch.hidden == (1024,)
    assert count_macs(pruned) < 0.35 * count_macs(make("original", PIXELS))
    logits, values = pruned(torch.zeros((2, 4, 84, 84), dtype=torch.uint8))
    assert logits.shape == (2, 3)
    assert values.shape == (2,)


def test_pruning_leaves_the_original_and_the_global_generator_alone() -> None:
    net = make()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    state = torch.get_rng_state()
    pruned = prune(net, 0.0)
    with torch.no_grad():
        for parameter in pruned.parameters():
            parameter.zero_()
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


@pytest.mark.parametrize("sparsity", [1.0, -0.1, 2.0])
def test_sparsity_is_the_fraction_removed(sparsity: float) -> None:
    with pytest.raises(UserError, match="fraction removed"):
        prune(make(), sparsity)


def test_unknown_criterion_is_refused() -> None:
    with pytest.raises(UserError, match="did you mean 'l1'"):
        prune(make(), 0.5, criterion="l1s")


def test_truncated_svd_finds_the_largest_singular_values() -> None:
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(40, 60, generator=generator) @ torch.diag(0.8 ** torch.arange(60.0))
    u, s, v = truncated_svd(matrix, 5)
    exact = torch.linalg.svdvals(matrix)[:5]
    torch.testing.assert_close(s, exact, rtol=1e-3, atol=1e-3)
    best = torch.linalg.matrix_norm(matrix - (u * s) @ v.T)
    rest = torch.linalg.svdvals(matrix)[5:].square().sum().sqrt()
    assert float(best) < 1.02 * float(rest)


def test_factorising_reduces_work_and_keeps_a_low_rank_layer_exactly() -> None:
    net = make()
    first, second = (layer.module for layer in body_layers(net))
    with torch.no_grad():
        first.weight.copy_(first.weight[:, :1] * first.weight[:1])  # rank 1 of 8
        second.weight.copy_(second.weight[:, :4] @ second.weight[:4])  # rank 4 of 128
    thin = factorise(net, 0.1)
    assert count_macs(thin) < count_macs(net)
    obs = torch.randn(16, 8, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(thin(obs)[0], net(obs)[0], rtol=1e-4, atol=1e-4)
    assert len(body_layers(net)) == 2  # the original is left alone


def test_a_layer_that_would_grow_is_not_factorised() -> None:
    assert kept_rank(100, 100, 0.6) is None
    assert kept_rank(2048, 3136, 0.1) == 205
    net = make()
    assert count_macs(factorise(net, 1.0)) == count_macs(net)


def test_a_factorised_network_is_not_pruned() -> None:
    with pytest.raises(ValueError, match="prune before factorising"):
        prune(factorise(make(), 0.1), 0.5)
