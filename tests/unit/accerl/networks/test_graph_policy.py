"""Networks of any form: their outputs and precision, and how other processes build them."""

from __future__ import annotations

import copy
import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from accerl.errors import UserError
from accerl.networks.adopt import as_policy
from accerl.networks.graph_policy import GraphPolicy, blank_states, count_macs, hidden_layers
from accerl.networks.impala import IMPALA, make_impala
from accerl.networks.make import make_network
from accerl.networks.observation import ObservationSpec
from accerl.networks.structure import describe, rebuild
from accerl.weights import WeightVector, count_weights
from tests.fixtures.own_networks import OwnConv, OwnMLP

BOARD = ObservationSpec((2, 10, 10), "uint8")
VECTOR = ObservationSpec((6,), "float32")
RESIDUAL = "tests.fixtures.own_networks:residual"


def policy(name: str = RESIDUAL, seed: int = 0) -> GraphPolicy:
    made = make_network(name, BOARD, 4, torch.Generator().manual_seed(seed))
    assert isinstance(made, GraphPolicy)
    return made


def boards(batch: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (batch, *BOARD.shape), generator=generator, dtype=torch.uint8)


def test_it_acts_as_its_module_does() -> None:
    module = OwnMLP(VECTOR, 3, activation=nn.Tanh).eval()
    made = GraphPolicy(module, VECTOR)
    states = torch.randn(5, 6)
    logits, values = made(states)
    assert made.num_actions == 3
    assert torch.equal(logits, module(states)[0])
    assert torch.equal(values, module(states)[1].squeeze(-1))
    with_features = made.outputs(states)
    assert torch.equal(with_features[0], logits)
    torch.testing.assert_close(module.policy(with_features[2]), logits)


def test_heads_are_found_and_stay_in_float32_under_autocast() -> None:
    made = policy()
    assert isinstance(made.module, OwnConv)
    assert made.heads == (made.module.policy, made.module.value)
    assert made.module.policy not in hidden_layers(made).values()
    with torch.no_grad():
        made.module.value.weight.zero_()
        made.module.value.bias.fill_(-2.4012345)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits, values = copy.deepcopy(made)(boards())
        assert made.module.conv1(boards().float()).dtype == torch.bfloat16
    assert logits.dtype == values.dtype == torch.float32
    assert values[0].item() == pytest.approx(-2.4012345, abs=1e-6)


class Scaled(OwnMLP):
    """One whose logits no linear layer puts out."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        logits, values = super().forward(x)
        return logits / 2.0, values


def test_without_linear_heads_there_are_no_features() -> None:
    made = GraphPolicy(Scaled(VECTOR, 3), VECTOR)
    assert made.heads == ()
    assert made.outputs(torch.randn(5, 6))[2].shape == (5, 1)


def test_it_stays_in_evaluation_mode() -> None:
    made = GraphPolicy(OwnConv(BOARD, 4, norm=True, residual=True), BOARD)
    before = {name: value.clone() for name, value in made.named_buffers()}
    made.train()
    made(boards())
    assert before
    assert all(torch.equal(value, before[name]) for name, value in made.named_buffers())


@pytest.mark.parametrize("name", [RESIDUAL, "impala-tiny"])
def test_another_process_builds_it_by_its_name_and_takes_its_weights(name: str) -> None:
    made = policy(name)
    other = rebuild(describe(made), BOARD, 4)
    vector = WeightVector(count_weights(made))
    try:
        vector.put(3, made)
        assert vector.load_into(other) == 3
    finally:
        vector.close()
    for mine, theirs in zip(made(boards()), other(boards()), strict=True):
        assert torch.equal(mine, theirs)


def test_what_has_no_name_cannot_be_built_again() -> None:
    made = GraphPolicy(OwnMLP(VECTOR, 3, activation=nn.Tanh), VECTOR)
    with pytest.raises(UserError, match="given as an object"):
        rebuild(describe(made), VECTOR, 3)


def test_multiplications_are_counted_whatever_the_network() -> None:
    side = {10: 5, 5: 3, 3: 2}
    channels, length, macs = 2, 10, 0
    sizes = IMPALA["impala-tiny"]
    for wide in sizes.channels:
        macs += channels * wide * 9 * length**2
        channels, length = wide, side[length]
        macs += 4 * wide * wide * 9 * length**2
    macs += channels * length**2 * sizes.hidden + sizes.hidden * (4 + 1)
    net = make_impala("impala-tiny", BOARD, 4, torch.Generator())
    assert count_macs(as_policy(net, BOARD)) == macs


class Alone(OwnMLP):
    """One that returns no value."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return (super().forward(x)[0],)


class Drawn(OwnMLP):
    """One that returns a distribution, as other libraries want it."""

    def forward(self, x: Tensor) -> tuple[Any, ...]:
        logits, values = super().forward(x)
        return torch.distributions.Categorical(logits=logits), values


class Pairs(OwnMLP):
    """One that knows batches of two alone."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return super().forward(x.reshape(2, -1))


class Failing(OwnMLP):
    """One that fails once it learns."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        if len(x) > 3:
            raise ValueError("too many")
        return super().forward(x)


def test_a_forward_that_fails_later_is_named() -> None:
    policy = GraphPolicy(Failing(VECTOR, 3), VECTOR)
    said = r"Failing cannot act on .* in a batch of 5: too many \(test_graph_policy\.py:\d+\)"
    with pytest.raises(UserError, match=said):
        policy(blank_states(VECTOR, 5))


def test_what_returns_something_else_is_refused() -> None:
    with pytest.raises(UserError, match=r"Drawn does not return two tensors"):
        GraphPolicy(Drawn(VECTOR, 3), VECTOR)
    with pytest.raises(UserError, match=r"Pairs cannot act on .* in a batch of 1"):
        GraphPolicy(Pairs(VECTOR, 3), VECTOR)
    with pytest.raises(UserError, match=r"Alone does not return two tensors"):
        GraphPolicy(Alone(VECTOR, 3), VECTOR)
    with pytest.raises(UserError, match=r"OwnConv cannot act on ObservationSpec\(shape=\(2, 12"):
        GraphPolicy(OwnConv(BOARD, 3), ObservationSpec((2, 12, 12), "uint8"))


class ScaledInPlace(OwnMLP):
    """One whose head puts out what is changed where it lies."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        logits, values = super().forward(x)
        logits *= 0.5
        return logits, values


def test_a_head_whose_output_is_changed_in_place_puts_out_no_logits() -> None:
    assert GraphPolicy(ScaledInPlace(VECTOR, 3), VECTOR).heads == ()
    assert len(GraphPolicy(OwnMLP(VECTOR, 3), VECTOR).heads) == 2


class Masked(OwnMLP):
    """One that forbids an action."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        logits, values = super().forward(x)
        return logits.masked_fill(torch.tensor([False, True, False]), -torch.inf), values


def test_actions_that_are_masked_with_infinity_are_refused() -> None:
    with pytest.raises(UserError, match="mask actions with -1e9, not -inf"):
        as_policy(Masked(VECTOR, 3), VECTOR)


class Remembers(OwnMLP):
    """Keeps what it computed last, as a loss of its own would read it."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits, values = super().forward(x)
        self.last = values
        return logits, values


class Locks(OwnMLP):
    """Has an attribute that cannot be copied."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lock = threading.Lock()


@pytest.mark.parametrize("kind", [Remembers, Locks])
def test_what_cannot_be_copied_is_refused_with_what_to_do(kind: type[OwnMLP]) -> None:
    with pytest.raises(UserError, match=f"{kind.__name__} cannot be copied, .* open files"):
        as_policy(kind(VECTOR, 3, activation=nn.Tanh), VECTOR)
