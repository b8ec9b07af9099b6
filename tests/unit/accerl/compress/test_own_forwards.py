"""Forwards that mask actions, read numbers, change attributes, or see the rest of the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import accerl
from accerl.compress import CompressionConfig, Compressor, CompressorChain
from accerl.compress.check import kl_nats
from accerl.compress.engine import make_engine
from accerl.compress.graphs.torch_script import MOST_TRACED
from accerl.compress.links import ONNX
from accerl.compress.lowrank import factorise
from accerl.compress.pruning.prune import prune
from accerl.compress.quantization.rounding import round_weights
from accerl.errors import CannotCompressError, UserError
from accerl.networks.adopt import as_policy
from accerl.networks.graph_policy import count_macs
from accerl.networks.observation import ObservationSpec
from accerl.networks.probe import require_repeatable
from accerl.spec import CompressionSpec

IMAGE = ObservationSpec((3, 10, 10), "float32")
VECTOR = ObservationSpec((6,), "float32")
BITS = ObservationSpec((2, 5, 5), "uint8")
SCRIPTED = CompressionSpec(graph="torchscript")
Forward = Callable[["OwnVector", Tensor], Tensor]


def images(count: int = 16) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, *IMAGE.shape)).astype(np.float32)


def vectors(count: int = 64) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, *VECTOR.shape)).astype(np.float32)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


class MixedChannels(nn.Module):
    """Flattens with the channels last, which no pruning follows; may forbid actions by -1e9."""

    def __init__(self, *, masks: bool, dropout: bool = False) -> None:
        super().__init__()
        self.conv, self.body = nn.Conv2d(3, 16, 3), nn.Linear(1024, 64)
        self.policy, self.value = nn.Linear(64, 4), nn.Linear(64, 1)
        self.masks, self.dropout = masks, dropout

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        seen = functional.silu(self.conv(x))
        hidden = functional.silu(self.body(seen.permute(0, 2, 3, 1).flatten(1)))
        logits = self.policy(functional.dropout(hidden, 0.5, True) if self.dropout else hidden)
        if self.masks:
            logits = logits.masked_fill(x[:, 0, 0, :4] > 1.0, -1e9)
        return logits, 1000.0 + self.value(hidden)


@pytest.mark.parametrize("masks", [False, True])
def test_large_numbers_hide_no_difference(masks: bool) -> None:
    policy = as_policy(MixedChannels(masks=masks), IMAGE)
    with pytest.raises(CannotCompressError, match="what reads the channels that go was not found"):
        prune(policy, 0.5)
    with pytest.raises(UserError, match="throws dice"):
        require_repeatable(as_policy(MixedChannels(masks=masks, dropout=True), IMAGE))


class OwnVector(nn.Module):
    """A body of SiLUs, under two names, between a forward of the test's and the heads."""

    def __init__(self, forward: Forward = lambda self, x: self.body(x)) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 64), nn.Linear(64, 64)
        self.body = nn.Sequential(self.first, nn.SiLU(), self.second, nn.SiLU())
        self.policy, self.value = nn.Linear(64, 3), nn.Linear(64, 1)
        self.factor = nn.Parameter(torch.tensor(1.0))
        self.calls = 0
        self.times = 1.0
        self.hidden = forward

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.hidden(self, x)
        return self.times * self.policy(hidden), self.value(hidden)


def test_a_layer_of_two_names_is_factorised_under_both() -> None:
    policy = as_policy(OwnVector(), VECTOR)
    thin = factorise(policy, 0.125)
    assert count_macs(thin) < 0.6 * count_macs(policy)


def test_a_layer_with_a_hook_is_not_factorised() -> None:
    module = OwnVector()
    module.second.register_forward_hook(lambda layer, given, out: 3.0 * torch.tanh(out))
    thin = factorise(as_policy(module, VECTOR), 0.125)
    assert isinstance(thin.get_submodule("module.second"), nn.Linear)
    assert isinstance(thin.get_submodule("module.first"), nn.Sequential)


def counting(self: OwnVector, x: Tensor) -> Tensor:
    self.calls += 1
    return self.body(x)


def test_a_script_does_what_the_network_does_when_its_attributes_change() -> None:
    states = vectors()
    config = CompressionConfig(distill_warmup_updates=1)
    for changes in (False, True):
        module = OwnVector(counting)
        policy = as_policy(module, VECTOR)
        compressor = Compressor(VECTOR, 3, config, torch.Generator().manual_seed(0))
        compressor.observe(states)
        for version in range(MOST_TRACED + 1):
            module.times = 1.0 + version * changes
            if changes and version == MOST_TRACED:
                with pytest.raises(CannotCompressError, match="keep them in buffers"):
                    compressor.build(SCRIPTED, policy, version)
                continue
            artifact = compressor.build(SCRIPTED, policy, version)
            with torch.no_grad():
                wanted = policy(torch.from_numpy(states))[0].numpy()
            np.testing.assert_allclose(make_engine(artifact).infer(states)[0], wanted, atol=1e-5)


def item(self: OwnVector, x: Tensor) -> Tensor:
    return self.body(x) * self.factor.exp().item()


def per_state(self: OwnVector, x: Tensor) -> Tensor:
    return self.body(x) / x.shape[0]


@pytest.mark.filterwarnings("ignore:Converting a tensor")
@pytest.mark.parametrize("bits", [8, 32])
@pytest.mark.parametrize("forward", [item, per_state])
def test_numbers_that_python_reads_from_tensors_are_refused(forward: Forward, bits: int) -> None:
    policy = as_policy(OwnVector(forward), VECTOR)
    compressor = Compressor(VECTOR, 3, CompressionConfig(), torch.Generator())
    compressor.observe(vectors())
    with pytest.raises(CannotCompressError, match="a number that Python has read"):
        compressor.build(CompressionSpec(bits=bits), policy, 0)
    if forward is item:
        with pytest.raises(CannotCompressError, match="reads numbers from tensors"):
            compressor.build(SCRIPTED, policy, 0)


def centred(self: OwnVector, x: Tensor) -> Tensor:
    return self.body(x - x.mean(0))


def test_a_network_that_sees_the_rest_of_its_batch_is_refused() -> None:
    with pytest.raises(UserError, match="acts otherwise on a state when others are in its batch"):
        accerl.compress(OwnVector(centred), CompressionSpec(graph="eager"), vectors())


def test_states_that_are_no_numbers_are_named() -> None:
    states = vectors()
    states[3, 2] = np.nan
    with pytest.raises(UserError, match="observations hold NaN"):
        accerl.compress(OwnVector(), CompressionSpec(bits=8), states)


class Enlarged(nn.Module):
    """Enlarges images by what is no whole number."""

    def __init__(self, side: int, **how: Any) -> None:
        super().__init__()
        self.conv, self.how = nn.Conv2d(3, 4, 1), how
        after = functional.interpolate(torch.zeros(1, 1, side, side), **how).numel()
        self.policy, self.value = nn.Linear(4 * after, 4), nn.Linear(4 * after, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = functional.interpolate(torch.relu(self.conv(x)), **self.how).flatten(1)
        return self.policy(hidden), self.value(hidden)


@pytest.mark.parametrize(
    ("side", "how"),
    [
        (14, {"size": 16}),
        (11, {"size": (13, 12)}),
        (21, {"scale_factor": 1.6}),
        (7, {"scale_factor": 1.4}),
        (7, {"scale_factor": 2.0}),
        (7, {"size": 5}),
    ],
)
@pytest.mark.filterwarnings("ignore:The default behavior for interpolate")
def test_images_are_enlarged_as_torch_does(side: int, how: dict[str, Any]) -> None:
    module = Enlarged(side, **how)
    states = np.random.default_rng(0).normal(size=(8, 3, side, side)).astype(np.float32)
    artifact = CompressorChain([ONNX()]).compress(module, observations=states)
    with torch.no_grad():
        wanted = module(torch.from_numpy(states))[0].numpy()
    np.testing.assert_allclose(make_engine(artifact).infer(states)[0], wanted, atol=1e-5)


class Embedded(nn.Module):
    """Sees fields of 0 and 1 through an embedding, which knows no other numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.body = nn.Embedding(2, 3), nn.Linear(150, 64)
        self.policy, self.value = nn.Linear(64, 3), nn.Linear(64, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.relu(self.body(self.embedding(x.flatten(1).long()).flatten(1)))
        return 8.0 * self.policy(hidden), self.value(hidden)


def fields(count: int = 512) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2, (count, *BITS.shape)).astype(np.uint8)


def test_a_network_that_fails_at_noise_is_pruned_by_states_of_its_game() -> None:
    policy = as_policy(Embedded(), BITS)
    assert count_macs(prune(policy, 0.5, obs=fields(8))) < 0.6 * count_macs(policy)

    def roots(self: OwnVector, x: Tensor) -> Tensor:
        return self.body(x.sqrt())

    policy = as_policy(OwnVector(roots), VECTOR)
    assert count_macs(prune(policy, 0.5, obs=np.abs(vectors(8)))) < 0.6 * count_macs(policy)


def test_students_see_states_that_are_no_pixels_in_a_unit_of_their_own() -> None:
    states, teacher = fields(), Embedded()
    kind = ObservationSpec.of_states(states)
    assert (kind.centre, kind.unit) in ((0, 0.5), (1, 0.5)) or 0.49 < kind.unit < 0.51
    student = accerl.compress(teacher, CompressionSpec(student="net2"), states)
    with torch.no_grad():
        wanted = teacher(torch.from_numpy(states))[0].numpy()
    constant = np.broadcast_to(wanted.mean(0), wanted.shape)
    assert kl_nats(wanted, student.logits(states)).mean() < 0.3 * kl_nats(wanted, constant).mean()


def test_all_weights_of_several_axes_are_rounded() -> None:
    class Sequence(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.body = nn.Conv1d(1, 8, 3), nn.Linear(32, 16)
            self.place = nn.Parameter(torch.randn(8, 4))
            self.norm = nn.LayerNorm(16)
            self.policy, self.value = nn.Linear(16, 3), nn.Linear(16, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            seen = functional.silu(self.conv(x[:, None]) + self.place)
            hidden = self.norm(functional.silu(self.body(seen.flatten(1))))
            return self.policy(hidden), self.value(hidden)

    policy = as_policy(Sequence(), VECTOR)
    for name, weight in round_weights(policy, 2).named_parameters():
        each = weight.flatten(1) if "conv" in name and weight.ndim > 1 else weight.reshape(1, -1)
        levels = [len(row.unique()) for row in each]
        assert weight.ndim == 1 or max(levels) <= 4


def test_a_forward_may_count_in_a_buffer() -> None:
    class Counting(OwnVector):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("number", torch.tensor(0))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            self.get_buffer("number").add_(1)
            return super().forward(x)

    policy = accerl.compress(Counting(), CompressionSpec(bits=8), vectors())
    assert policy.logits(vectors()).shape == (64, 3)
