from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from accerl.compress.layers import body_layers
from accerl.compress.lowrank import factorise
from accerl.compress.pruning.compensate import FLOOR_NATS, compensate, fit, fit_policy_head
from accerl.compress.pruning.criteria import PruneMethod
from accerl.compress.pruning.matching import Match
from accerl.compress.pruning.prune import masks, prune, shrink
from accerl.errors import UserError
from accerl.networks.graph_policy import GraphPolicy, count_macs
from accerl.networks.policy_net import Architecture, ObservationSpec, PolicyNet, make_policy
from tests.fixtures.own_networks import OwnMLP

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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"criterion": "tailor"}, "criterion 'tailor' does not exist; did you mean 'taylor'"),
        ({"budget": "globall"}, "budget 'globall' does not exist; did you mean 'global'"),
        ({"round_to": 0}, "round_to must be at least 1"),
    ],
    ids=str,
)
def test_a_method_that_does_not_exist_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        PruneMethod(**changes)


def test_what_a_method_needs_is_asked_for() -> None:
    with pytest.raises(UserError, match="'taylor' needs gradients and layer 0 has none"):
        prune(make(), 0.5, PruneMethod(criterion="taylor"))
    with pytest.raises(UserError, match="compensating needs recorded states"):
        prune(make(), 0.5, PruneMethod(compensate=True))


def test_taylor_removes_what_the_loss_would_not_miss() -> None:
    net = make("net3")
    layer = body_layers(net)[0].module
    obs = torch.randn((64, 8), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        net.policy_head.weight[:, :4] = 0.0  # nobody listens to the first four units
        net.value_head.weight[:, :4] = 0.0
        layer.weight[:4] *= 100.0  # which is not seen by their norm
    logits, values = net(obs)
    (logits.square().mean() + values.square().mean()).backward()
    (mask,) = masks(net, 0.25, PruneMethod(criterion="taylor"))
    assert (~mask).nonzero().flatten().tolist() == [0, 1, 2, 3]
    (by_norm,) = masks(net, 0.25)
    assert by_norm[:4].all()


def test_the_geometric_median_removes_what_others_can_replace() -> None:
    net = make("net3")
    layer = body_layers(net)[0].module
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        layer.weight.copy_(10.0 * torch.randn(layer.weight.shape, generator=generator))
        layer.weight[4:8] = 0.1  # in the middle of all, however small or large the others
    (mask,) = masks(net, 0.25, PruneMethod(criterion="geometric-median"))
    assert (~mask).nonzero().flatten().tolist() == [4, 5, 6, 7]


def test_random_units_depend_on_the_seed_alone() -> None:
    one, same, other = (
        masks(make(), 0.5, PruneMethod(criterion="random", seed=seed)) for seed in (1, 1, 2)
    )
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_a_global_budget_spares_the_layer_that_matters() -> None:
    net = make()
    first, second = (layer.module for layer in body_layers(net))
    with torch.no_grad():
        first.weight[64:] *= 1e-3  # half of the first layer is hardly used
        second.weight.copy_(torch.ones_like(second.weight))
    method = PruneMethod(budget="global")
    counts = [int(mask.sum()) for mask in masks(net, 0.25, method)]
    assert counts == [64, 128]
    # Whatever is asked for, no layer is cut off.
    assert [int(mask.sum()) for mask in masks(net, 0.99, method)] == [13, 13]


def test_widths_are_rounded_where_asked_for() -> None:
    pruned = prune(make("original", PIXELS), 0.3, PruneMethod(round_to=8))
    assert [conv.channels for conv in pruned.arch.convs] == [24, 48, 48]
    assert pruned.arch.hidden == (1432,)
    assert prune(make("net3", PIXELS), 0.0, PruneMethod(round_to=8)).arch.convs[0].channels == 4


@pytest.mark.parametrize("observation", [VECTOR, PIXELS], ids=["linear", "convolutions"])
def test_compensation_brings_a_pruned_network_back_to_its_original(
    observation: ObservationSpec,
) -> None:
    """Also on states that it has not seen."""
    net = make("net1" if observation is PIXELS else "original", observation)
    if observation is PIXELS:
        obs = rectangles(96)  # noise has nothing in common
    else:
        obs = np.random.default_rng(0).normal(size=(1024, 8)).astype(np.float32)
    seen, unseen = obs[: len(obs) // 2], torch.from_numpy(obs[len(obs) // 2 :])
    with torch.no_grad():
        wanted = net.features(unseen)
        wanted = net.value_head(wanted).squeeze(-1)
        error = {
            compensate: (
                prune(net, 0.5, PruneMethod(compensate=compensate), obs=seen)(unseen)[1] - wanted
            ).square()
            for compensate in (False, True)
        }
    assert error[True].mean() < 0.3 * error[False].mean()


def test_compensating_for_nothing_changes_nothing() -> None:
    net = make()
    obs = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    kept = prune(net, 0.0, PruneMethod(compensate=True), obs=obs)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), kept.parameters(), strict=True))
    matches = [Match(layer, mask) for layer, mask in enumerate(masks(net, 0.0))]
    compensate(kept, net, matches, obs)
    for a, b in zip(net.parameters(), kept.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0.0, atol=1e-6)


def test_copies_see_pixels_as_the_original_does() -> None:
    """Though the network that they are in scales them otherwise, as a user's own may."""
    net = make("net1", ObservationSpec((4, 84, 84), "uint8", centre=87, unit=47.0))
    small, obs = make("net1", PIXELS), rectangles(4)
    shrink(small, net, PruneMethod(), obs)
    with torch.no_grad():
        (logits, values), wanted = small(torch.from_numpy(obs)), net(torch.from_numpy(obs))
    torch.testing.assert_close(logits, wanted[0], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(values, wanted[1], rtol=1e-3, atol=1e-4)


def rectangles(count: int, shown: int = 5) -> np.ndarray:
    """Return pictures of a few bright rectangles, as games have them."""
    rng = np.random.default_rng(0)
    obs = np.zeros((count, 4, 84, 84), np.uint8)
    for picture in obs:
        for _ in range(shown):
            top, left = rng.integers(70, size=2)
            picture[:, top : top + 20, left : left + 8] = rng.integers(40, 256)
    return obs


@pytest.mark.parametrize(
    ("learner", "student", "observation"),
    [
        ("net1", "net2", PIXELS),
        ("original", "net2", PIXELS),  # without a layer of the learner's
        ("original", "net1", VECTOR),
    ],
)
def test_a_student_begins_as_a_copy_of_the_learner(
    learner: str, student: str, observation: ObservationSpec
) -> None:
    net = make(learner, observation)
    with torch.no_grad():
        net.policy_head.weight.mul_(200.0)
    obs = (
        rectangles(192, shown=1)
        if observation is PIXELS
        else np.random.default_rng(0).normal(size=(512, 8)).astype(np.float32)
    )
    half = len(obs) - 64
    seen, unseen = obs[:half], torch.from_numpy(obs[half:])
    with torch.no_grad():
        wanted = net(unseen)[0]
        spread = (wanted - wanted.mean(0)).square().mean()
        small = shrink(make(student, observation), net, PruneMethod(compensate=True), seen)
        assert (small(unseen)[0] - wanted).square().mean() < 0.8 * spread


def test_without_states_only_corresponding_layers_are_copied() -> None:
    net, small = make("original", PIXELS), make("net2", PIXELS)
    before = {name: value.clone() for name, value in small.state_dict().items()}
    after = shrink(small, net, PruneMethod(), None).state_dict()
    same = {name for name, value in before.items() if torch.equal(value, after[name])}
    # Behind the convolution that is missing, nothing corresponds; zero biases are equal anyway.
    assert {name for name in same if name.endswith("weight")} == {"body.5.weight"}
    first = masks(net, 0.75)[0]
    torch.testing.assert_close(after["body.0.weight"], body_layers(net)[0].module.weight[first])


def test_dead_units_do_not_make_weights_explode() -> None:
    net = make()
    first, second = (layer.module for layer in body_layers(net))
    assert first.bias is not None
    with torch.no_grad():
        first.bias[:120] = -1e3  # hardly any input is left, and the norm does not see it
        second.weight[:64] = second.weight[64:]  # what reads them sees everything twice
    obs = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    kept = prune(net, 0.5, PruneMethod(compensate=True), obs=obs)
    for old, new in zip(net.parameters(), kept.parameters(), strict=True):
        assert new.abs().max() < 10.0 * old.abs().max() + 1.0


def test_weights_that_are_not_finite_are_refused() -> None:
    net = make()
    with torch.no_grad():
        net.policy_head.weight[0, 0] = torch.nan
    obs = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    with pytest.raises(UserError, match="training has diverged"):
        prune(net, 0.5, PruneMethod(compensate=True), obs=obs)


def test_a_factorised_network_is_not_pruned() -> None:
    with pytest.raises(ValueError, match="prune before factorising"):
        prune(factorise(make(), 0.1), 0.5)


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_is_fitted_with_the_numbers_that_it_has(bias: bool) -> None:
    torch.manual_seed(0)
    inputs = torch.rand(64, 6)  # far from zero: an intercept would matter
    true, layer = nn.Linear(6, 3, bias=bias), nn.Linear(6, 3, bias=bias)
    with torch.no_grad():
        wanted = true(inputs)
        before = (layer(inputs) - wanted).square().mean()
        fit(layer, inputs, wanted)
        assert (layer(inputs) - wanted).square().mean() < 0.1 * before


def test_a_layer_whose_inputs_are_all_zero_keeps_its_weights() -> None:
    layer = nn.Linear(6, 3, bias=False)
    before = layer.weight.detach().clone()
    with torch.no_grad():
        fit(layer, torch.zeros(64, 6), torch.ones(64, 3))
    assert torch.equal(layer.weight, before)


class Masked(OwnMLP):
    """One whose last action is illegal wherever the state's first number is positive."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        logits, values = super().forward(x)
        illegal = (x[:, :1] > 0.0) & (torch.arange(logits.shape[1]) == logits.shape[1] - 1)
        return logits.masked_fill(illegal, -1e9), values


def test_a_head_is_not_fitted_to_what_an_illegal_action_is_masked_with() -> None:
    torch.manual_seed(0)
    teacher, small = GraphPolicy(Masked(VECTOR, 3), VECTOR), make("net3")
    obs = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    fit_policy_head(small, teacher, obs)
    with torch.no_grad():
        assert small(torch.from_numpy(obs))[0].abs().max() < 2.0 * FLOOR_NATS


@pytest.mark.parametrize("budget", ["uniform", "global"])
def test_of_a_network_without_hidden_layers_nothing_goes(budget: str) -> None:
    net = PolicyNet(Architecture((), ()), VECTOR, 3)
    assert prune(net, 0.5, PruneMethod(budget=budget)).arch == net.arch
