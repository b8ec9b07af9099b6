"""Policy families: the paper's table of sizes, reproducible weights, precision of the heads."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from accerl.networks.graph_policy import count_macs
from accerl.networks.policy_net import (
    MINATAR,
    PIXELS,
    VECTOR,
    Architecture,
    ConvSpec,
    ObservationSpec,
    PolicyNet,
    architecture,
    make_policy,
)
from accerl.spec import STUDENTS

ATARI = ObservationSpec((4, 84, 84), "uint8")
CARTPOLE = ObservationSpec((4,), "float32")
BOARD = ObservationSpec((4, 10, 10), "uint8")
CATCH = ObservationSpec((10, 5), "uint8")
FAMILIES = {"pixels": (PIXELS, ATARI), "minatar": (MINATAR, BOARD), "vector": (VECTOR, CARTPOLE)}


def policy(student: str, observation: ObservationSpec, seed: int = 0) -> PolicyNet:
    return make_policy(student, observation, 6, torch.Generator().manual_seed(seed))


def observations(observation: ObservationSpec, batch: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    if observation.dtype == "uint8":
        shape = (batch, *observation.shape)
        return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    return torch.randn(batch, *observation.shape, generator=generator)


@pytest.mark.parametrize("name", FAMILIES)
def test_families_cover_every_student_from_large_to_small(name: str) -> None:
    family, observation = FAMILIES[name]
    assert tuple(family) == STUDENTS
    macs = [count_macs(policy(student, observation)) for student in STUDENTS]
    assert macs == sorted(macs, reverse=True)
    assert len(set(macs)) == len(STUDENTS)


@pytest.mark.parametrize("channels", [4, 6, 7, 10])
def test_minatar_networks_shrink_about_as_much_as_the_papers(channels: int) -> None:
    def shares(observation: ObservationSpec) -> list[float]:
        macs = [count_macs(policy(student, observation)) for student in STUDENTS]
        return [macs[0] / value for value in macs]

    small = shares(ObservationSpec((channels, 10, 10), "uint8"))
    for mine, papers in zip(small, shares(ATARI), strict=True):
        assert 0.7 < mine / papers < 1.3


def test_the_original_is_the_papers_network() -> None:
    net = policy("original", ATARI)
    sizes = [layer.weight.shape for layer in net.body if isinstance(layer, nn.Conv2d)]
    assert [tuple(size) for size in sizes] == [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3)]
    hidden = next(layer for layer in net.body if isinstance(layer, nn.Linear))
    assert (hidden.in_features, hidden.out_features) == (3136, 2048)
    weights = 8 * 8 * 4 * 32 * 400 + 4 * 4 * 32 * 64 * 81 + 3 * 3 * 64 * 64 * 49
    assert count_macs(net) == weights + 3136 * 2048 + 2048 * 6 + 2048


@pytest.mark.parametrize("observation", [ATARI, CARTPOLE, BOARD, CATCH])
@pytest.mark.parametrize("student", STUDENTS)
def test_every_student_acts_on_every_kind_of_observation(
    student: str, observation: ObservationSpec
) -> None:
    logits, values = policy(student, observation)(observations(observation, 2))
    assert logits.shape == (2, 6)
    assert values.shape == (2,)
    assert torch.isfinite(logits).all()
    assert torch.isfinite(values).all()


def test_each_kind_of_observation_has_its_family() -> None:
    assert architecture("net1", ATARI) is PIXELS["net1"]
    assert architecture("net1", BOARD) is MINATAR["net1"]
    assert architecture("net1", CARTPOLE) is VECTOR["net1"]
    assert architecture("net1", CATCH) is VECTOR["net1"]  # too small for convolutions


def test_weights_depend_on_the_generator_alone() -> None:
    torch.manual_seed(11)
    first = policy("net1", CARTPOLE, seed=5).state_dict()
    torch.manual_seed(12)
    again, other = (policy("net1", CARTPOLE, seed=seed).state_dict() for seed in (5, 6))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["body.1.weight"], other["body.1.weight"])


def test_a_fresh_policy_is_nearly_uniform() -> None:
    logits, _ = policy("original", CARTPOLE)(observations(CARTPOLE, 64))
    assert torch.softmax(logits, -1).max().item() < 0.2


def test_pixels_are_scaled_inside_the_network() -> None:
    net, obs = policy("net3", ATARI), observations(ATARI, 2)
    for scaled, plain in zip(net(obs.float() / 255.0), net(obs), strict=True):
        torch.testing.assert_close(scaled, plain)


def test_pixels_are_centred_inside_the_network() -> None:
    centred = replace(ATARI, centre=87, unit=47.0)
    net, obs = policy("net3", centred), observations(ATARI, 2)
    for given, plain in zip(net((obs.float() - 87.0) / 47.0), net(obs), strict=True):
        torch.testing.assert_close(given, plain)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = net(obs)
    for rounded, plain in zip(low, net(obs), strict=True):
        torch.testing.assert_close(rounded, plain, atol=0.05, rtol=0.05)


def test_heads_stay_in_float32_under_autocast() -> None:
    net, obs = policy("net3", ATARI), observations(ATARI, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits, values = net(obs)
        assert net.body(net.scale(obs)).dtype == torch.bfloat16
    assert logits.dtype == values.dtype == torch.float32
    # A value that bfloat16 cannot hold: the bias of the value head must arrive unrounded.
    with torch.no_grad():
        net.value_head.weight.zero_()
        net.value_head.bias.fill_(-2.4012345)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert net(obs)[1][0].item() == pytest.approx(-2.4012345, abs=1e-6)


def test_a_narrower_architecture_is_a_network_too() -> None:
    arch = Architecture((ConvSpec(3, 8, 4), ConvSpec(5, 4, 2)), (7,))
    net = PolicyNet(arch, ATARI, 6)
    assert net(observations(ATARI, 2))[0].shape == (2, 6)
    assert count_macs(net) < count_macs(policy("net2", ATARI))
