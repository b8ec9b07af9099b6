"""Activation ranges over publications: growing, shrinking, clipping, resuming, what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from accerl.checkpoint import load_checkpoint, save_checkpoint
from accerl.compress import ONNX, CompressionState, CompressorChain, Quantizer, make_engine
from accerl.compress.engine import open_session
from accerl.compress.graphs.onnx_export import onnx_fp32, onnx_int8
from accerl.compress.graphs.onnx_payload import read_constants
from accerl.compress.lowrank import Factoriser
from accerl.compress.quantization.cpu import dots_bytes_exactly
from accerl.compress.quantization.quantize import LEVELS, SAFE_LEVELS, QuantiseMethod
from accerl.compress.quantization.ranges import METHODS, RangeMethod, RangeTracker, _Histogram
from accerl.errors import UserError
from accerl.networks.policy_net import ObservationSpec, PolicyNet, make_policy

FLOATS = ObservationSpec((6,), "float32")


def make() -> PolicyNet:
    net = make_policy("original", FLOATS, 4, torch.Generator().manual_seed(0))
    with torch.no_grad():
        net.policy_head.weight.mul_(200.0)
    return net


def states(seed: int = 0, scale: float = 1.0, count: int = 64) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, scale, (count, 6)).astype(np.float32)


def test_minmax_grows_at_once_and_shrinks_slowly() -> None:
    net, tracker = make(), RangeTracker(RangeMethod(memory=0.5))
    small = RangeTracker().measure(net, states())
    assert tracker.measure(net, states()) == small
    wide = tracker.measure(net, states(scale=10.0))
    assert wide.layers == RangeTracker().measure(net, states(scale=10.0)).layers
    after = tracker.measure(net, states())
    for (_, high), (_, top), (_, bottom) in zip(
        after.layers, wide.layers, small.layers, strict=True
    ):
        assert high == pytest.approx(0.5 * (top + bottom))
    for _ in range(40):
        after = tracker.measure(net, states())
    np.testing.assert_allclose(after.layers, small.layers, rtol=1e-3)
    np.testing.assert_allclose(after.input, small.input, rtol=1e-3)


@pytest.mark.parametrize("name", METHODS)
def test_a_few_unusual_states_do_not_clip_the_usual_ones(name: str) -> None:
    net, tracker = make(), RangeTracker(RangeMethod(name=name))
    usual = tracker.measure(net, states())
    after = tracker.measure(net, states(scale=0.1, count=8))
    for (_, high), (_, top) in zip(after.layers, usual.layers, strict=True):
        assert high >= 0.85 * top


def test_features_are_those_of_the_last_states() -> None:
    net, tracker = make(), RangeTracker()
    tracker.measure(net, states(scale=10.0))
    features = tracker.measure(net, states()).features
    assert features is not None
    with torch.no_grad():
        hidden = torch.relu(net.body[-2](features))
        torch.testing.assert_close(net.heads(hidden)[0], net(torch.from_numpy(states()))[0])


@pytest.mark.parametrize("name", METHODS)
def test_a_tracker_goes_on_from_disk(name: str, tmp_path: Path) -> None:
    net, tracker = make(), RangeTracker(RangeMethod(name=name, percentile=95.0))
    for seed in range(3):
        tracker.measure(net, states(seed, 1.0 + seed))
    save_checkpoint(tmp_path / "c", tracker.state_dict())
    other = RangeTracker(tracker.method)
    other.load_state_dict(load_checkpoint(tmp_path / "c"))
    for seed in range(3, 6):
        assert other.measure(net, states(seed)) == tracker.measure(net, states(seed))


@pytest.mark.parametrize("name", METHODS)
def test_a_network_of_other_layers_is_measured_anew(name: str) -> None:
    net = make()
    state = CompressionState(policy=net, net=net, observations=states())
    tracker = RangeTracker(RangeMethod(name=name))
    quantizer = Quantizer("INT8", tracker=tracker)
    assert [len(given(quantizer.apply(state))) for _ in range(2)] == [64, 8]
    thin = replace(state, net=Factoriser(0.2).factorise(net))
    other = quantizer.apply(thin)
    assert len(given(other)) == 64
    assert (
        other.ranges == Quantizer("INT8", QuantiseMethod(ranges=tracker.method)).apply(thin).ranges
    )
    assert len(given(quantizer.apply(thin))) == 8
    assert len(given(quantizer.apply(state))) == 64  # and back


def given(state: CompressionState) -> np.ndarray:
    assert state.measured is not None
    return state.measured


def test_entropy_clips_what_is_rare_and_far() -> None:
    generator = np.random.default_rng(0)
    values = np.abs(generator.normal(size=100_000)).astype(np.float32)
    histogram = _Histogram()
    histogram.add(torch.from_numpy(values), 0.9)
    whole = histogram.threshold()
    assert 2.0 < whole <= values.max() * 1.001
    values[:3] = 30.0
    lonely = _Histogram()
    lonely.add(torch.from_numpy(values), 0.9)
    assert 2.0 < lonely.threshold() < 15.0
    uniform = _Histogram()
    uniform.add(torch.linspace(0.0, 7.0, 100_000), 0.9)
    assert uniform.threshold() == pytest.approx(
        7.0, rel=0.02
    )  # nothing is rare: nothing is clipped


@pytest.mark.parametrize("least", [0.1, 0.3, 0.9])
def test_entropy_clips_nothing_where_no_value_is_small(least: float) -> None:
    """As behind a sigmoid: what would clip everything loses all there is."""
    histogram = _Histogram()
    histogram.add(torch.linspace(least, 1.0, 100_000), 0.9)
    assert histogram.threshold() == pytest.approx(1.0, rel=0.02)


def test_histograms_keep_their_counts_when_they_widen() -> None:
    histogram = _Histogram()
    histogram.add(torch.full((100,), 0.9), 1.0 - 1e-12)
    histogram.add(torch.full((50,), 7.0), 1.0 - 1e-12)
    assert histogram.top >= 7.0
    middles = (np.arange(len(histogram.counts)) + 0.5) * histogram.top / len(histogram.counts)
    assert histogram.counts.sum() == pytest.approx(150)
    assert histogram.counts[middles < 1.0].sum() == pytest.approx(100)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_makes_a_policy_that_is_close(name: str) -> None:
    net, obs = make(), states(count=512)
    ranges = RangeTracker(RangeMethod(name=name)).measure(net, obs)
    acted = open_session(onnx_int8(net, ranges, states=obs)).run(("logits",), {"obs": obs})[0]
    with torch.no_grad():
        logits = net(torch.from_numpy(obs))[0].numpy()
    spread = logits - logits.mean(1, keepdims=True)
    error = np.asarray(acted) - logits
    assert np.square(error).mean() < 0.03**2 * np.square(spread).mean()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "minmx"}, "did you mean 'minmax'"),
        ({"percentile": 20.0}, r"percentile must lie in \(50, 100\]"),
        ({"memory": 1.0}, r"memory must lie in \[0, 1\)"),
    ],
    ids=str,
)
def test_a_method_out_of_range_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        replace(RangeMethod(), **changes)


def test_weights_have_seven_bits_where_products_would_saturate(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("processor : 0\nflags : fpu sse2 avx2 avx512f\n")
    new.write_text("processor : 0\nflags : fpu sse2 avx2 avx_vnni\n")
    assert not dots_bytes_exactly("x86_64", old)
    assert dots_bytes_exactly("x86_64", new)
    assert not dots_bytes_exactly("x86_64", tmp_path / "none")
    assert dots_bytes_exactly("aarch64", tmp_path / "none")
    assert QuantiseMethod(reduce_range=True).levels == SAFE_LEVELS
    assert QuantiseMethod(reduce_range=False).levels == LEVELS
    net, obs = make(), states()
    ranges = RangeTracker().measure(net, obs)
    constants = read_constants(onnx_int8(net, ranges, levels=SAFE_LEVELS))
    assert np.abs(constants["w0"]).max() == SAFE_LEVELS
    assert 2 * 255 * SAFE_LEVELS < 2**15  # a pair of products fits into 16 bits


@pytest.mark.parametrize("centre", [0, 87])
def test_integers_for_the_way_only(centre: int) -> None:
    seen = ObservationSpec((4, 84, 84), "uint8", centre=centre, unit=47.0 if centre else 255.0)
    net = make_policy("net1", seen, 6, torch.Generator().manual_seed(0))
    with torch.no_grad():
        net.policy_head.weight.mul_(200.0)
    obs = np.random.default_rng(0).integers(0, 256, (8, 4, 84, 84)).astype(np.uint8)
    obs[4:] = centre  # nothing to see, wherever the rounded weights are
    whole, small = onnx_fp32(net), onnx_fp32(net, weights_only_int8=True)
    assert len(small) < 0.3 * len(whole)
    exact = np.asarray(open_session(whole).run(("logits",), {"obs": obs})[0])
    acted = np.asarray(open_session(small).run(("logits",), {"obs": obs})[0])
    assert 0.0 < np.abs(acted - exact).max() < 0.05 * exact.std()


class Heads(nn.Module):
    """Two heads that read what a tanh leaves of the states: in INT8 there is nothing to round."""

    def __init__(self) -> None:
        super().__init__()
        self.policy, self.value = nn.Linear(6, 3), nn.Linear(6, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.tanh(x)
        return self.policy(x), self.value(x)


def test_integers_for_the_way_only_need_no_ranges() -> None:
    torch.manual_seed(0)
    net, tracker = Heads(), RangeTracker()
    obs = np.random.default_rng(0).normal(size=(64, 6)).astype(np.float32)
    links = [Quantizer("INT8", QuantiseMethod(weights_only=True), tracker), ONNX()]
    acted, _ = make_engine(CompressorChain(links).compress(net, observations=obs)).infer(obs)
    with torch.no_grad():
        exact = net(torch.from_numpy(obs))[0].numpy()
    assert 0.0 < np.abs(acted - exact).max() < 0.1 * exact.std()
    assert tracker.seen_states == 0
