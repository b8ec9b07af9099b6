"""What users' modules do that ours do not: masks, several towers, float64, orders in mid-run."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import accerl
from accerl.compress import CompressionConfig, Compressor, CompressorChain, Pruning
from accerl.compress.check import kl_nats
from accerl.errors import CannotCompressError, UserError
from accerl.networks.adopt import as_policy
from accerl.networks.graph_policy import GraphPolicy
from accerl.networks.observation import ObservationSpec
from accerl.runtime.process.blocks import MIXED, artifact_bytes
from accerl.spec import CompressionSpec
from accerl.weights import Mailbox, Publication
from tests.fixtures.own_networks import OwnMLP, Projected

BOARD = ObservationSpec((2, 10, 10), "uint8")
VECTOR = ObservationSpec((6,), "float32")
INT8 = CompressionSpec(bits=8)


def boards(count: int = 64) -> np.ndarray:
    drawn = np.random.default_rng(0).integers(0, 255, (count, 2, 10, 10))
    return drawn.astype(np.uint8)


class Towers(nn.Module):
    """An actor and a critic that share nothing, and each scale the image themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = (
            nn.Sequential(
                nn.Conv2d(2, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(512, 16), nn.ReLU()
            )
            for _ in range(2)
        )
        self.policy, self.value = nn.Linear(16, 3), nn.Linear(16, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.policy(self.actor(x.float() / 255.0))
        return logits, self.value(self.critic(x.float() / 255.0))


class Masked(Towers):
    """One that adds a mask of infinities before a softmax, as attention does."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tensor([0.0, 0.0, -torch.inf]))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits, values = super().forward(x)
        return logits + torch.softmax(logits + self.get_buffer("mask"), -1), values


class Doubled(Towers):
    """One that no ONNX file holds: some of it is computed in float64."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits, values = super().forward(x)
        return (2.0 * logits.double()).float(), values


class Settings:
    """As users keep them: plain attributes, and no representation."""

    def __init__(self, scale: float) -> None:
        self.scales = [np.full(2000, scale, np.float32)]
        self.network = self  # objects may lie in one another


class Configured(Towers):
    """One whose forward reads numbers of an object."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.settings = Settings(scale)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(x.float() * float(self.settings.scales[0][1000]))


def logits_of(net: nn.Module, obs: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return net(torch.from_numpy(obs))[0].numpy()


class Wrapping(Towers):
    """One that subtracts from bytes, which wrap."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward((x - 100).float())


def test_bytes_that_wrap_are_refused_by_name() -> None:
    with pytest.raises(UserError, match=r"wraps in torch\.uint8; call \.float\(\) before it"):
        accerl.compress(Wrapping(), CompressionSpec(), boards())


@pytest.mark.parametrize("bits", [32, 8])
def test_towers_that_each_scale_the_image_are_compressed(bits: int) -> None:
    torch.manual_seed(0)
    net, obs = Towers(), boards()
    compressed = accerl.compress(net, CompressionSpec(bits=bits), obs)
    assert kl_nats(logits_of(net, obs), compressed.infer(obs)[0]).mean() < 1e-3


@pytest.mark.parametrize("spec", [CompressionSpec(), CompressionSpec(graph="torchscript"), INT8])
def test_a_mask_of_infinities_is_no_sign_of_divergence(spec: CompressionSpec) -> None:
    torch.manual_seed(0)
    net, obs = Masked(), boards()
    compressed = accerl.compress(net, spec, obs)
    assert kl_nats(logits_of(net, obs), compressed.infer(obs)[0]).mean() < 1e-3


@pytest.mark.parametrize("spec", [CompressionSpec(), INT8])
def test_numbers_of_an_object_are_not_mistaken_for_others(spec: CompressionSpec) -> None:
    obs = boards()
    for scale in (1.0, 3.0):
        torch.manual_seed(0)
        net = Configured(scale)
        compressed = accerl.compress(net, spec, obs)
        assert kl_nats(logits_of(net, obs), compressed.infer(obs)[0]).mean() < 1e-3


@pytest.mark.parametrize("graph", ["onnx", "eager", "torchscript"])
def test_a_buffer_that_no_checkpoint_holds_acts_and_is_published(graph: str) -> None:
    torch.manual_seed(0)
    seen = ObservationSpec((6,), "float32")
    net, spec = Projected(seen, 3).eval(), CompressionSpec(graph=graph)
    obs = np.random.default_rng(0).normal(size=(64, 6)).astype(np.float32)
    compressed = accerl.compress(net, spec, obs)
    assert kl_nats(logits_of(net, obs), compressed.infer(obs)[0]).mean() < 1e-3
    policy = as_policy(Projected(seen, 3), seen)
    compressor = Compressor(seen, 3, CompressionConfig(), torch.Generator())
    compressor.observe(obs)
    artifact = compressor.build(spec, policy, 0)
    with closing(Mailbox(MIXED * artifact_bytes(policy))) as mailbox:
        mailbox.put(Publication(0, [artifact] * MIXED, [1.0 / MIXED] * MIXED))


def make_compressor(policy: Any, **settings: Any) -> Compressor:
    config = CompressionConfig(calibration_states=64, **settings)
    seen, actions = policy.observation, policy.num_actions
    compressor = Compressor(seen, actions, config, torch.Generator().manual_seed(0))
    compressor.observe(boards())
    return compressor


@pytest.mark.filterwarnings("ignore:Using len to get tensor shape")
@pytest.mark.parametrize("graph", ["onnx", "torchscript", "eager"])
def test_what_runs_for_one_batch_alone_is_refused_in_sixteen_bits_too(graph: str) -> None:
    class OneBatch(nn.Module):
        """Flattens by a number that tracing bakes in."""

        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(int(np.prod(BOARD.shape)), 8)
            self.policy, self.value = nn.Linear(8, 4), nn.Linear(8, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            hidden = torch.relu(self.body(x.float().reshape(len(x), -1)))
            return self.policy(hidden), self.value(hidden)

    policy = as_policy(OneBatch(), BOARD)
    with pytest.raises(CannotCompressError, match=r"^OneBatch does not run in 16 bits: RuntimeErr"):
        make_compressor(policy).build(CompressionSpec(bits=16, graph=graph), policy, 0)


@pytest.mark.parametrize(
    "spec",
    [
        CompressionSpec(rank=0.25, graph="eager"),
        CompressionSpec(sparsity=0.5, graph="eager"),
        CompressionSpec(bits=16, graph="torchscript"),
    ],
)
def test_float64_stays_float64(spec: CompressionSpec) -> None:
    class Precise(OwnMLP):
        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            return super().forward(x.double())

    states = np.random.default_rng(0).normal(size=(64, 6)).astype(np.float32)
    net = Precise(VECTOR, 4).double()
    logits, _ = accerl.compress(net, spec, states).infer(states)
    assert np.isfinite(logits).all()


@pytest.mark.parametrize(("threshold", "is_exported"), [(1, False), (20, True)])
def test_a_softplus_that_is_cut_off_is_no_onnx_softplus(
    threshold: int, *, is_exported: bool
) -> None:
    class Soft(OwnMLP):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            logits, value = super().forward(x)
            return functional.softplus(logits, threshold=threshold), value

    states = np.random.default_rng(0).normal(size=(64, 6)).astype(np.float32)
    if is_exported:
        accerl.compress(Soft(VECTOR, 4), INT8, states)
        return
    with pytest.raises(CannotCompressError, match=r"'softplus' .* threshold=1"):
        accerl.compress(Soft(VECTOR, 4), INT8, states)


def test_what_cannot_become_a_graph_ends_no_run_that_acts_in_torch() -> None:
    policy = as_policy(Doubled(), BOARD)
    assert isinstance(policy, GraphPolicy)
    compressor = make_compressor(policy)
    compressor.build(CompressionSpec(graph="torchscript"), policy, 0)
    with pytest.raises(CannotCompressError, match="cannot be exported to ONNX") as caught:
        compressor.build(INT8, policy, 1)
    again = make_compressor(policy)
    again.load_state_dict(compressor.state_dict())
    assert again._refused == {INT8: str(caught.value)}, "it is not tried again after a resume"


def test_tuning_for_integers_says_what_it_needs() -> None:
    policy = as_policy(Towers(), BOARD)
    compressor = make_compressor(policy, quantise_tuning_updates=2)
    compressor.build(CompressionSpec(), policy, 0)
    with pytest.raises(CannotCompressError, match="quantise_tuning_updates: "):
        compressor.build(INT8, policy, 1)


def test_gradients_that_are_not_there_are_not_taken_for_some() -> None:
    obs = np.random.default_rng(0).normal(size=(64, 6)).astype(np.float32)
    net = OwnMLP(ObservationSpec((6,), "float32"), 3)
    config = CompressionConfig(prune_criterion="taylor")
    with pytest.raises(UserError, match="prune_criterion 'taylor' needs the gradients"):
        accerl.compress(net, CompressionSpec(sparsity=0.5), obs, config=config)
    with pytest.raises(UserError, match="uint8 or float32, not float64"):
        CompressorChain([Pruning(net, 0.5)]).compress(observations=obs.astype(np.float64))
