"""IMPALA's residual network: its sizes, its images, its fresh weights."""

from __future__ import annotations

import pytest
import torch
from torch import fx

from accerl.errors import UserError
from accerl.networks.impala import IMPALA, ImpalaNet, make_impala
from accerl.networks.observation import ObservationSpec
from accerl.spec import IMPALA_NETWORKS

ATARI = ObservationSpec((4, 84, 84), "uint8", 87, 47.0)
BOARD = ObservationSpec((6, 10, 10), "uint8")


def impala(name: str, observation: ObservationSpec, seed: int = 0) -> ImpalaNet:
    return make_impala(name, observation, 6, torch.Generator().manual_seed(seed))


def pixels(observation: ObservationSpec, batch: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(
        0, 256, (batch, *observation.shape), generator=generator, dtype=torch.uint8
    )


def test_it_has_the_sizes_of_the_paper() -> None:
    net = impala("impala", ATARI)
    convs = 4 * 16 * 9 + 16 + 4 * (16 * 16 * 9 + 16)
    convs += 16 * 32 * 9 + 32 + 4 * (32 * 32 * 9 + 32)
    convs += 32 * 32 * 9 + 32 + 4 * (32 * 32 * 9 + 32)
    dense = 32 * 11 * 11 * 256 + 256 + 256 * 6 + 6 + 256 + 1
    assert sum(weight.numel() for weight in net.parameters()) == convs + dense


@pytest.mark.parametrize("observation", [ATARI, BOARD, ObservationSpec((3, 9, 14), "float32")])
@pytest.mark.parametrize("name", IMPALA)
def test_it_acts_on_images_of_any_size(name: str, observation: ObservationSpec) -> None:
    obs = pixels(observation).to(getattr(torch, observation.dtype))
    logits, values = impala(name, observation)(obs)
    assert logits.shape == (3, 6)
    assert values.shape == (3,)


def test_vectors_are_refused() -> None:
    with pytest.raises(UserError, match=r"reads images \[C, H, W\], not observations of shape"):
        impala("impala", ObservationSpec((4,), "float32"))


def test_pixels_are_centred_and_scaled_inside() -> None:
    net, obs = impala("impala-tiny", ATARI), pixels(ATARI)
    floats = impala("impala-tiny", ObservationSpec(ATARI.shape, "float32"))
    for inside, outside in zip(net(obs), floats((obs.float() - 87.0) / 47.0), strict=True):
        torch.testing.assert_close(inside, outside)


def test_fresh_weights_come_from_the_generator_alone() -> None:
    torch.manual_seed(1)
    first = impala("impala-tiny", BOARD, seed=5).state_dict()
    torch.manual_seed(2)
    again, other = (impala("impala-tiny", BOARD, seed=seed).state_dict() for seed in (5, 6))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["hidden.weight"], other["hidden.weight"])


def test_a_fresh_policy_is_nearly_uniform_and_its_values_are_moderate() -> None:
    logits, values = impala("impala", ATARI)(pixels(ATARI))
    assert torch.softmax(logits, -1).max().item() < 0.25
    assert values.abs().max().item() < 10.0


def test_a_graph_can_be_read_from_it() -> None:
    net, obs = impala("impala-tiny", BOARD), pixels(BOARD)
    traced = fx.symbolic_trace(net)
    for read, given in zip(traced(obs), net(obs), strict=True):
        torch.testing.assert_close(read, given)


def test_spec_and_family_name_the_same_networks() -> None:
    assert tuple(IMPALA) == IMPALA_NETWORKS
