"""Random small networks as users write them: every compressor works on them, or says why not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from accerl.compress import (
    ONNX,
    CompressorChain,
    LowRank,
    Pruning,
    Quantizer,
    TorchScript,
    make_engine,
)
from accerl.compress.check import kl_nats
from accerl.compress.links import Link
from accerl.compress.pruning.prune import masks, prune
from accerl.networks.adopt import adopt
from accerl.networks.observation import ObservationSpec
from tests.fixtures.controllers.masked import masked_copy

ACTIONS = 3


class Stack(nn.Module):
    """Layers one behind the other, two heads, and maybe a shortcut around one of the layers."""

    def __init__(self, layers: list[nn.Module], features: int, shortcut: int | None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.policy, self.value = nn.Linear(features, ACTIONS), nn.Linear(features, 1)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.float()
        for index, layer in enumerate(self.layers):
            x = x + layer(x) if index == self.shortcut else layer(x)
        return self.policy(x), self.value(x)[:, 0]


@st.composite
def networks(draw: st.DrawFn, shortcuts: bool = False) -> tuple[Stack, ObservationSpec]:
    """Draw a stack of convolutions and linear layers, and what it observes."""
    torch.manual_seed(draw(st.integers(0, 2**16)))
    layers: list[nn.Module] = []
    if draw(st.booleans()):
        channels, side = draw(st.integers(1, 4)), draw(st.integers(8, 12))
        observation = ObservationSpec((channels, side, side), "uint8", unit=1.0)
        for _ in range(draw(st.integers(1, 2))):
            width, kernel = draw(st.integers(1, 12)), draw(st.integers(1, 3))
            stride, padding = draw(st.integers(1, 2)), draw(st.integers(0, 1))
            block = [nn.Conv2d(channels, width, kernel, stride, padding, bias=draw(st.booleans()))]
            block += [nn.BatchNorm2d(width)] if draw(st.booleans()) else []
            layers.append(nn.Sequential(*block, nn.ReLU()))
            channels, side = width, (side + 2 * padding - kernel) // stride + 1
        layers.append(nn.Flatten())
        features = channels * side * side
    else:
        features = draw(st.integers(1, 9))
        observation = ObservationSpec((features,), "float32")
    for _ in range(draw(st.integers(1, 3))):
        width = draw(st.integers(1, 40))
        block = [nn.Linear(features, width)]
        block += [nn.BatchNorm1d(width)] if draw(st.booleans()) else []
        layers.append(nn.Sequential(*block, nn.ReLU()))
        features = width
    shortcut = None
    if shortcuts:
        shortcut = len(layers)
        layers.append(nn.Sequential(nn.Linear(features, features), nn.ReLU()))
    return Stack(layers, features, shortcut), observation


def states(observation: ObservationSpec, count: int = 32) -> np.ndarray:
    generator, shape = np.random.default_rng(0), (count, *observation.shape)
    if observation.dtype == "uint8":
        return generator.integers(0, 256, shape).astype(np.uint8)
    return generator.normal(size=shape).astype(np.float32)


def ready(drawn: tuple[Stack, ObservationSpec]) -> tuple[Stack, np.ndarray, np.ndarray]:
    """Return a network whose batch norms have seen states, those states, and its logits on them."""
    module, observation = drawn
    obs = states(observation)
    with torch.no_grad():
        module.train()(torch.from_numpy(obs))
        logits = module.eval()(torch.from_numpy(obs))[0].numpy()
    return module, obs, logits


def acted(module: Stack, links: list[Link], obs: np.ndarray) -> np.ndarray:
    artifact = CompressorChain(links).compress(module, observations=obs)
    return make_engine(artifact).infer(obs)[0]


@settings(max_examples=25)
@given(drawn=networks(), sparsity=st.sampled_from([0.0, 0.25, 0.5, 0.9]))
def test_pruned_networks_equal_masked_ones(
    drawn: tuple[Stack, ObservationSpec], sparsity: float
) -> None:
    module, obs, logits = ready(drawn)
    found = acted(module, [Pruning(None, sparsity), ONNX()], obs)
    net = adopt(module, drawn[1])
    with torch.no_grad():
        wanted = masked_copy(net, masks(net, sparsity))(torch.from_numpy(obs))[0].numpy()
    size = max(1.0, float(np.abs(wanted).max()))
    np.testing.assert_allclose(found, wanted, atol=1e-4 * size)
    if sparsity == 0.0:
        np.testing.assert_allclose(found, logits, atol=1e-4 * max(1.0, float(np.abs(logits).max())))
    assert sum(w.numel() for w in prune(net, sparsity).parameters()) <= sum(
        w.numel() for w in net.parameters()
    )


@settings(max_examples=25)
@given(drawn=networks())
def test_integers_stay_close(drawn: tuple[Stack, ObservationSpec]) -> None:
    module, obs, logits = ready(drawn)
    found = acted(module, [Quantizer("INT8"), ONNX()], obs)
    spread = float(logits.std()) + 1e-3
    assert np.sqrt(np.square(found - logits).mean()) <= 0.25 * spread
    np.testing.assert_allclose(found.mean(0), logits.mean(0), atol=0.02 * spread + 1e-4)


@settings(max_examples=15)
@given(drawn=networks(), rank=st.sampled_from([1.0, 0.5, 0.1]))
def test_low_rank_is_exact_at_full_rank_and_finite_below(
    drawn: tuple[Stack, ObservationSpec], rank: float
) -> None:
    module, obs, logits = ready(drawn)
    found = acted(module, [LowRank(rank), ONNX()], obs)
    assert np.isfinite(found).all()
    if rank == 1.0:
        np.testing.assert_allclose(found, logits, atol=1e-3 * max(1.0, float(np.abs(logits).max())))


@pytest.mark.slow
@settings(max_examples=4, phases=[Phase.generate])  # to shrink one takes minutes
@given(drawn=networks(shortcuts=True))
def test_residual_networks_act_in_any_graph_and_can_be_compressed(
    drawn: tuple[Stack, ObservationSpec],
) -> None:
    module, obs, logits = ready(drawn)
    for export in (TorchScript(), ONNX()):
        found = acted(module, [export], obs)
        assert float(kl_nats(logits, found).max()) < 1e-6
    for link in (LowRank(0.5), Quantizer("INT8")):
        assert np.isfinite(acted(module, [link, ONNX()], obs)).all()
