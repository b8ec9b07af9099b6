"""What a user's network must not do is found when it is made, and named."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import accerl
from accerl.compress.check import EngineMismatchError, check_engine
from accerl.compress.compliance import random_states
from accerl.errors import UserError
from accerl.networks.make import make_network
from accerl.networks.observation import ObservationSpec
from accerl.networks.policy_net import PolicyNet
from accerl.runtime.parts import check_remade
from accerl.spec import IDENTITY, CompressionSpec
from accerl.weights import weight_arrays
from tests.fixtures import own_networks

OWN = "tests.fixtures.own_networks"
BOARD = ObservationSpec((10, 5), "uint8")
VECTOR = ObservationSpec((6,), "float32")
EAGER = CompressionSpec(graph="eager")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("DroppingBoard", "throws dice in evaluation mode; give functional dropout `training=self"),
        ("NoisyBoard", "acts otherwise when it is called again"),
        ("RecurrentBoard", "acts otherwise .* Recurrent policies cannot be learned; show it some"),
        ("WritingBoard", "changes the states that it is given, as `x -= 1` does; write `x = x - 1"),
        ("DetachedBoard", "its outputs have no gradient, so that nothing can be learned"),
    ],
)
def test_what_cannot_be_learned_or_compressed_is_refused_when_it_is_made(
    name: str, reason: str
) -> None:
    before = torch.random.get_rng_state()
    with pytest.raises(UserError, match=f"network '{OWN}:{name}': {name}:? {reason}") as refused:
        make_network(f"{OWN}:{name}", BOARD, 3, torch.Generator().manual_seed(0))
    assert "\n" not in str(refused.value)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_neither_is_it_compressed() -> None:
    board = own_networks.RecurrentBoard(BOARD, 3)
    states = np.random.default_rng(0).integers(0, 256, (8, *BOARD.shape), np.uint8)
    with pytest.raises(UserError, match="RecurrentBoard acts otherwise when it is called again"):
        accerl.compress(board, IDENTITY, states)
    assert board.memory is None  # a copy was tried
    frozen = own_networks.DetachedBoard(BOARD, 3)  # it need not learn
    assert len(accerl.compress(frozen, IDENTITY, states).logits(states)) == 8


@pytest.mark.parametrize(("name", "kind"), [("LazyBoard", BOARD), ("lazy_chain", VECTOR)])
def test_layers_that_size_themselves_are_drawn_by_the_run_s_seed(
    name: str, kind: ObservationSpec
) -> None:
    drawn = [
        weight_arrays(make_network(f"{OWN}:{name}", kind, 3, torch.Generator().manual_seed(seed)))
        for seed in (0, 0, 1)
    ]
    first, again, other = [np.concatenate([each.ravel() for each in own]) for own in drawn]
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    made = make_network(f"{OWN}:{name}", kind, 3, torch.Generator())
    assert isinstance(made, PolicyNet) == (name == "lazy_chain")


def test_what_noise_has_no_numbers_for_is_tried_with_zeros_or_states_of_its_game() -> None:
    name = f"{OWN}:LogarithmicMLP"
    made = make_network(name, VECTOR, 3, torch.Generator().manual_seed(0))
    check_remade(made, name, torch.Generator().manual_seed(1))
    states = np.abs(random_states(VECTOR, 8))
    acting = accerl.compress(own_networks.LogarithmicMLP(VECTOR, 3), EAGER, states)
    assert np.isfinite(acting.logits(states)).all()


def test_half_precision_cannot_learn() -> None:
    with pytest.raises(UserError, match=r"its weights are float16, .*; call .float"):
        accerl.compress(
            own_networks.OwnMLP(VECTOR, 3).half(), IDENTITY, np.zeros((2, 6), np.float32)
        )


def test_what_acts_in_torch_already_is_not_advised_to() -> None:
    states = random_states(VECTOR, 8)
    torch.manual_seed(0)
    acting = accerl.compress(own_networks.OwnMLP(VECTOR, 3), CompressionSpec(graph="eager"), states)
    other = make_network("net1", VECTOR, 3, torch.Generator().manual_seed(1))
    with pytest.raises(EngineMismatchError, match="compress less, or mend a forward that acts"):
        check_engine(acting._artifact, other, states)


def test_a_module_that_sizes_itself_can_be_compressed() -> None:
    body = nn.Sequential(nn.LazyLinear(16), nn.ReLU(), nn.Linear(16, 12), nn.ReLU())
    module = own_networks.OwnMLP(VECTOR, 3)
    module.body = body
    states = random_states(VECTOR, 8)
    acting = accerl.compress(module, IDENTITY, states)
    assert acting.logits(states).shape == (8, 3)
