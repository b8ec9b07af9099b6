"""Networks that are no chains: what can be done to them, in runs too, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from accerl.compress import (
    CompressionConfig,
    Compressor,
    LowRank,
    Pruning,
    SimulatedQuantizer,
    make_engine,
)
from accerl.compress.chain import CompressorChain
from accerl.compress.lowrank import LowRankMethod, factorise
from accerl.compress.pruning.criteria import PruneMethod
from accerl.compress.pruning.prune import prune
from accerl.compress.quantization.rounding import affine_rounded
from accerl.errors import UserError
from accerl.networks.adopt import as_policy
from accerl.networks.graph_policy import GraphPolicy, hidden_layers
from accerl.networks.make import make_network
from accerl.networks.observation import ObservationSpec
from accerl.networks.structure import describe, rebuild
from accerl.spec import CompressionSpec
from tests.fixtures.own_networks import Bounded, Centred, Fused, OwnConv

BOARD = ObservationSpec((2, 10, 10), "uint8")
ACTIONS = 4


def impala(name: str = "impala-tiny") -> GraphPolicy:
    made = make_network(name, BOARD, ACTIONS, torch.Generator().manual_seed(0))
    assert isinstance(made, GraphPolicy)
    return made


def boards(count: int = 64) -> np.ndarray:
    shape = (count, *BOARD.shape)
    return np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)


def compressor(**settings: Any) -> Compressor:
    config = CompressionConfig(calibration_states=64, **settings)
    made = Compressor(BOARD, ACTIONS, config, torch.Generator().manual_seed(0))
    made.observe(boards())
    return made


def test_residual_groups_lose_the_same_channels() -> None:
    net = impala("impala")
    pruned = prune(net, 0.5)
    assert isinstance(pruned, GraphPolicy)
    widths = [layer.weight.shape[0] for layer in hidden_layers(net).values()]
    halves = [layer.weight.shape[0] for layer in hidden_layers(pruned).values()]
    assert halves == [width // 2 for width in widths]
    assert [head.weight.shape[0] for head in pruned.heads] == [ACTIONS, 1]


@pytest.mark.parametrize(("round_to", "kept"), [(1, 16), (8, 16), (24, 24)])
def test_tied_channels_are_rounded_as_channels(round_to: int, kept: int) -> None:
    """A group norm ties four channels to each other: eight choices, of four channels each."""

    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(3, 32, 3), nn.GroupNorm(4, 32), nn.ReLU(), nn.Flatten()
            )
            self.policy, self.value = nn.Linear(32 * 16, 4), nn.Linear(32 * 16, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            hidden = self.body(x)
            return self.policy(hidden), self.value(hidden)

    net = as_policy(Normed(), ObservationSpec((3, 6, 6), "float32"))
    pruned = prune(net, 0.5, PruneMethod(round_to=round_to))
    assert next(pruned.parameters()).shape[0] == kept


def test_the_policy_head_of_a_pruned_network_is_fitted_to_the_logits() -> None:
    net = impala()
    seen, unseen = boards()[:48], torch.from_numpy(boards()[48:])
    with torch.no_grad():
        wanted = net(unseen)[0]
        errors = [
            (prune(net, 0.5, PruneMethod(compensate=fitted), obs=seen)(unseen)[0] - wanted)
            .square()
            .mean()
            for fitted in (False, True)
        ]
    assert errors[1] < 0.5 * errors[0]
    with pytest.raises(UserError, match="compensating needs recorded states"):
        prune(net, 0.5, PruneMethod(compensate=True))


def test_a_pruned_network_is_built_again_from_json_and_weights() -> None:
    pruned = prune(impala(), 0.4)
    again = rebuild(describe(pruned), BOARD, ACTIONS)
    again.load_state_dict(pruned.state_dict())
    obs = torch.from_numpy(boards(3))
    for mine, theirs in zip(pruned(obs), again(obs), strict=True):
        assert torch.equal(mine, theirs)


class Changed(OwnConv):
    """A residual network with one thing changed."""

    def __init__(self, change: str) -> None:
        super().__init__(BOARD, ACTIONS, residual=True)
        self.change = change
        self.scale = nn.Parameter(torch.ones(8, 1, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        image = torch.relu(self.conv1(x.float() / 255.0))
        if self.change == "parameter":
            image = image * self.scale
        image = image + self.conv2(image)
        if self.change == "permuted":
            image = image.permute(0, 2, 3, 1)
        flat = image.reshape(-1, 800) if self.change == "fixed" else image.flatten(1)
        if self.change == "unrolled":
            hidden = torch.relu(nn.functional.linear(flat, self.hidden.weight, self.hidden.bias))
        else:
            hidden = torch.relu(self.hidden(flat))
        logits = self.policy(hidden)
        return logits * 2.0 if self.change == "scaled" else logits, self.value(hidden)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("fixed", "works with any number of channels"),
        ("permuted", "what reads the channels that go was not found"),
    ],
)
def test_what_cannot_be_pruned_is_refused_with_the_reason(change: str, reason: str) -> None:
    net = GraphPolicy(Changed(change), BOARD)
    with pytest.raises(UserError, match=reason) as error:
        prune(net, 0.5)
    assert str(error.value).startswith("Changed cannot be pruned: ")
    assert "\n" not in str(error.value)
    prune(GraphPolicy(Changed(""), BOARD), 0.5)


class Signal(nn.Module):
    """Its channels are those of a layer that is not pruned."""

    def __init__(self) -> None:
        super().__init__()
        self.signal = nn.Conv1d(2, 4, 3)
        self.policy, self.value = nn.Linear(392, ACTIONS), nn.Linear(392, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.relu(self.signal(x.float().flatten(2) / 255.0)).flatten(1)
        return self.policy(hidden), self.value(hidden)


def test_a_network_without_layers_that_lose_channels_is_not_pruned() -> None:
    with pytest.raises(UserError, match="Signal cannot be pruned: channels of Conv2d and Linear"):
        prune(as_policy(Signal(), BOARD), 0.5)


def test_layers_that_compute_their_weights_are_not_pruned() -> None:
    net = impala().module
    layer = next(each for each in net.modules() if isinstance(each, nn.Conv2d))
    weight_norm(layer)
    with pytest.raises(UserError, match=r"the weights of .* are parametrised"):
        prune(as_policy(net, BOARD), 0.5)


@pytest.mark.parametrize("change", ["parameter", "scaled"])
def test_what_cannot_be_pruned_stays_whole_and_the_rest_is_pruned(change: str) -> None:
    """A parameter that meets an image's channels; logits that are doubled behind their layer."""
    net = GraphPolicy(Changed(change), BOARD)
    pruned = prune(net, 0.5)
    assert isinstance(pruned.module, Changed)
    assert pruned.module.hidden.out_features == 8
    assert pruned.module.conv1.out_channels == (8 if change == "parameter" else 4)
    assert pruned.module.policy.out_features == pruned.num_actions == net.num_actions


class ValueBranch(OwnConv):
    """A residual network whose value reads one channel, as that of AlphaZero does."""

    def __init__(self) -> None:
        super().__init__(BOARD, ACTIONS, residual=True)
        self.squeeze, self.branch = nn.Conv2d(8, 1, 1), nn.Linear(100, 16)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        image = torch.relu(self.conv1(x.float() / 255.0))
        image = image + torch.relu(self.conv2(image))
        hidden = torch.relu(self.hidden(image.flatten(1)))
        branch = torch.relu(self.branch(torch.relu(self.squeeze(image)).flatten(1)))
        return self.policy(hidden), self.value(branch)


def test_a_convolution_into_one_channel_reads_fewer() -> None:
    torch.manual_seed(0)
    pruned = prune(GraphPolicy(ValueBranch(), BOARD), 0.5)
    squeeze = hidden_layers(pruned)["module.squeeze"]
    assert tuple(squeeze.weight.shape) == (1, 4, 1, 1)


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        (PruneMethod(budget="global"), "prune_budget uniform"),
        (PruneMethod(criterion="taylor"), "needs gradients"),
    ],
)
def test_methods_that_only_chains_know_are_refused(method: PruneMethod, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        prune(impala(), 0.5, method)


def test_layers_that_are_not_called_cannot_be_factorised() -> None:
    with pytest.raises(UserError, match=r"^Changed cannot be factorised: .*call its layers"):
        factorise(GraphPolicy(Changed("unrolled"), BOARD), 0.25)


def test_convolutions_behind_the_first_are_factorised_if_asked() -> None:
    kept = dict(hidden_layers(impala("impala")))
    thin = hidden_layers(factorise(impala("impala"), 0.25, LowRankMethod(convolutions=True)))
    first = "module.sections.0"
    assert first in thin
    assert any(name not in thin for name in kept if "conv" in name)


def test_weights_are_rounded_as_those_of_chains_are() -> None:
    net = impala()
    artifact = CompressorChain([SimulatedQuantizer(4)]).compress(net, observations=boards())
    for layer in (*hidden_layers(net).values(), *net.heads):
        with torch.no_grad():
            convolution = isinstance(layer, nn.Conv2d)
            layer.weight.copy_(affine_rounded(layer.weight, 4, per_channel=convolution))
    with torch.no_grad():
        wanted = net(torch.from_numpy(boards()))[0].numpy()
    np.testing.assert_allclose(make_engine(artifact).infer(boards())[0], wanted, atol=1e-6)


@pytest.mark.parametrize(
    "spec",
    [
        CompressionSpec(sparsity=0.5, graph="eager"),
        CompressionSpec(sparsity=0.5, rank=0.5, graph="torchscript"),
        CompressionSpec(sparsity=0.25, bits=16),
        CompressionSpec(student="impala-tiny", graph="eager"),
        CompressionSpec(student="impala-tiny", sparsity=0.5, graph="torchscript"),
        CompressionSpec(student="net3", sparsity=0.5, bits=8),
    ],
    ids=lambda spec: spec.label,
)
def test_a_run_compresses_it_and_goes_on_from_its_state(spec: CompressionSpec) -> None:
    policy, made = impala("impala-small"), compressor()
    with torch.no_grad():
        policy.heads[0].weight.mul_(100.0)
    first = made.build(spec, policy, 1)
    assert first.spec == spec
    made.distill(policy, [spec])
    other = compressor()
    other.load_state_dict(made.state_dict())
    third = compressor()
    third.take_students(made.pool.send([spec.student_key]))
    assert made.student_kl_nats(spec, policy) == third.student_kl_nats(spec, policy)
    assert other.build(spec, policy, 2).payload == made.build(spec, policy, 2).payload


def test_links_leave_the_policy_they_are_given_as_it_is() -> None:
    net = impala()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    chain = CompressorChain([Pruning(net, 0.5), LowRank(0.5)])
    chain.compress(observations=boards())
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


@pytest.mark.parametrize("graph", ["eager", "torchscript", "onnx"])
@pytest.mark.parametrize("kind", [Bounded, Centred, Fused])
def test_heads_of_any_form_act_in_sixteen_bits(kind: type[nn.Module], graph: str) -> None:
    torch.manual_seed(0)
    observation = ObservationSpec((6,), "float32")
    states = np.random.default_rng(0).normal(size=(64, 6)).astype(np.float32)
    net = as_policy(kind(observation, 3), observation)
    made = Compressor(observation, 3, CompressionConfig(), torch.Generator())
    made.observe(states)
    logits, values = make_engine(made.build(CompressionSpec(bits=16, graph=graph), net, 0)).infer(
        states
    )
    with torch.no_grad():
        wanted = net(torch.from_numpy(states))
    np.testing.assert_allclose(logits, wanted[0], atol=0.01)
    np.testing.assert_allclose(values, wanted[1], atol=0.01)
