"""Low rank: truncated SVD, Tucker-2, ranks by energy, and factorising what has hardly moved."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.nn.utils.parametrize import remove_parametrizations

from accerl.compress.layers import body_layers
from accerl.compress.lowrank import (
    RANK_STEP,
    Factoriser,
    LowRankMethod,
    factorise,
    kept_rank,
    truncated_svd,
)
from accerl.errors import UserError
from accerl.networks.adopt import as_policy
from accerl.networks.graph_policy import count_macs
from accerl.networks.policy_net import ObservationSpec, PolicyNet, make_policy
from tests.fixtures.own_networks import OwnMLP

VECTOR = ObservationSpec((8,), "float32")
PIXELS = ObservationSpec((4, 84, 84), "uint8")
TUCKER = LowRankMethod(convolutions=True)


def make(student: str = "original", observation: ObservationSpec = VECTOR) -> PolicyNet:
    return make_policy(student, observation, 3, torch.Generator().manual_seed(0))


def pictures(count: int) -> torch.Tensor:
    rng = np.random.default_rng(0)
    return torch.from_numpy(rng.integers(0, 256, (count, 4, 84, 84)).astype(np.uint8))


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


def test_tucker_keeps_a_convolution_of_low_rank_exactly() -> None:
    net = make("original", PIXELS)
    conv = body_layers(net)[1].module
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        core = torch.randn(8, 4, 4, 4, generator=generator)
        left, right = (
            torch.linalg.qr(torch.randn(n, r, generator=generator)).Q for n, r in ((64, 8), (32, 4))
        )
        conv.weight.copy_(0.05 * torch.einsum("rskl,or,is->oikl", core, left, right))
        assert conv.bias is not None
        conv.bias.copy_(torch.randn(64, generator=generator))
    thin = factorise(net, 0.125, TUCKER)
    kinds = [type(module).__name__ for module in thin.body]
    assert kinds[:6] == ["Conv2d", "ReLU", "Conv2d", "Conv2d", "Conv2d", "ReLU"]
    assert count_macs(thin) < count_macs(factorise(net, 0.125))
    obs = pictures(4)
    with torch.no_grad():
        before = net.body[3](net.body[2](net.body[1](net._first(obs))))
        after = thin._first(obs)
        for module in list(thin.body)[1:6]:
            after = module(after)
    torch.testing.assert_close(after, before, rtol=1e-3, atol=1e-3)


def test_the_first_convolution_and_those_that_would_grow_stay() -> None:
    net = make("original", PIXELS)
    thin = factorise(net, 0.9, TUCKER)
    assert [type(m).__name__ for m in thin.body][:4] == ["Conv2d", "ReLU", "Conv2d", "ReLU"]
    kinds = [type(module).__name__ for module in factorise(net, 0.25, TUCKER).body]
    assert kinds[:2] == ["Conv2d", "ReLU"]
    assert kinds.count("Conv2d") == 7
    assert kinds.count("Linear") == 2


def test_more_rank_is_never_further_away() -> None:
    net = make("original", PIXELS)
    with torch.no_grad():
        net.policy_head.weight.mul_(100.0)
        obs = pictures(4)
        wanted = net(obs)[1]
        errors = [
            float((factorise(net, rank, TUCKER)(obs)[1] - wanted).square().mean())
            for rank in (0.05, 0.2, 0.5)
        ]
    assert errors[0] > errors[1] > errors[2]


def test_energy_keeps_no_more_than_it_needs() -> None:
    net = make()
    layer = body_layers(net)[1].module
    with torch.no_grad():
        u, _, v = torch.linalg.svd(layer.weight)
        layer.weight.copy_(u @ torch.diag(0.5 ** torch.arange(128.0)) @ v)
    widths = []
    for energy in (0.7, 1.0 - 1e-5, 1.0):
        thin = factorise(net, 0.25, LowRankMethod(energy=energy))
        widths.append(body_layers(thin)[2].module.weight.shape[0])
    # The squares are quarters: one holds 0.75 of all, nine all but 4e-6. Ranks go by steps.
    assert widths == [RANK_STEP, 2 * RANK_STEP, 32]


def test_a_network_that_moved_little_is_factorised_from_where_it_was() -> None:
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(200, 300, generator=generator) @ torch.diag(0.97 ** torch.arange(300.0))
    _, _, v = truncated_svd(matrix, 20)
    moved = matrix + 0.02 * torch.randn(200, 300, generator=generator)
    rest = torch.linalg.svdvals(moved)[20:].square().sum().sqrt()
    u, s, v = truncated_svd(moved, 20, start=v)
    assert float(torch.linalg.matrix_norm(moved - (u * s) @ v.T)) < 1.02 * float(rest)


def test_a_saved_factoriser_goes_on_bit_by_bit() -> None:
    net, whole, resumed = make(), Factoriser(0.1), Factoriser(0.1)
    whole.factorise(net)
    resumed.load_state_dict(whole.state_dict())
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.01)
    one, other = whole.factorise(net), resumed.factorise(net)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    fresh = Factoriser(0.1).factorise(net)
    assert not all(
        torch.equal(a, b) for a, b in zip(one.parameters(), fresh.parameters(), strict=True)
    )


@pytest.mark.parametrize("method", [LowRankMethod(), TUCKER])
def test_weights_that_are_not_finite_are_named(method: LowRankMethod) -> None:
    net = make("net1", PIXELS)
    with torch.no_grad():
        body_layers(net)[1 if method.convolutions else -1].module.weight.fill_(math.nan)
    with pytest.raises(UserError, match="holds NaN or infinite weights, so training has diverged"):
        factorise(net, 0.5, method)


@pytest.mark.parametrize("energy", [0.0, 1.5, float("nan")])
def test_energy_is_a_share(energy: float) -> None:
    with pytest.raises(UserError, match="energy must lie in"):
        LowRankMethod(energy=energy)


@pytest.mark.parametrize("rank", [0.0, 1.2])
def test_rank_is_a_share(rank: float) -> None:
    with pytest.raises(UserError, match="must lie in"):
        factorise(make(), rank)


def test_parametrised_layers_are_factorised_by_the_weights_that_act() -> None:
    def make_net() -> OwnMLP:
        torch.manual_seed(0)
        made = OwnMLP(VECTOR, 3, activation=nn.Tanh)
        spectral_norm(made.body[3])
        return made.eval()

    net, plain = make_net(), make_net()
    remove_parametrizations(plain.body[3], "weight")
    obs = torch.randn(16, 8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        found, wanted = (
            factorise(as_policy(module, VECTOR), 0.25)(obs)[0] for module in (net, plain)
        )
    torch.testing.assert_close(found, wanted)
