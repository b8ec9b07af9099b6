"""Simulated bit widths, and training that knows it will be rounded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accerl.compress import (
    ONNX,
    CompressionConfig,
    Compressor,
    CompressorChain,
    Pruning,
    Quantizer,
    SimulatedQuantizer,
    make_engine,
)
from accerl.compress.engine import open_session
from accerl.compress.graphs.onnx_export import onnx_int8
from accerl.compress.quantization.quantize import LEVELS, QuantiseMethod
from accerl.compress.quantization.ranges import RangeTracker
from accerl.compress.quantization.rounding import affine_rounded, round_weights, rounded_outputs
from accerl.errors import UserError
from accerl.networks.policy_net import ObservationSpec, PolicyNet, make_policy
from accerl.spec import IDENTITY, CompressionSpec

VECTOR = ObservationSpec((8,), "float32")
BOARD = ObservationSpec((4, 84, 84), "uint8")


def make(observation: ObservationSpec = VECTOR, student: str = "original") -> PolicyNet:
    net = make_policy(student, observation, 4, torch.Generator().manual_seed(0))
    with torch.no_grad():
        net.policy_head.weight.mul_(200.0)
    return net


def states(observation: ObservationSpec = VECTOR, count: int = 64) -> np.ndarray:
    generator = np.random.default_rng(1)
    if observation.dtype == "uint8":
        return generator.integers(0, 256, (count, *observation.shape)).astype(np.uint8)
    return generator.normal(size=(count, *observation.shape)).astype(np.float32)


def logits_of(net: PolicyNet, obs: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return net(torch.from_numpy(obs))[0].numpy()


@given(bits=st.integers(2, 8), seed=st.integers(0, 50), shift=st.floats(-2.0, 2.0))
@settings(max_examples=40, deadline=None)
def test_weights_lie_on_a_grid_that_holds_zero(bits: int, seed: int, shift: float) -> None:
    weight = torch.randn(5, 7, generator=torch.Generator().manual_seed(seed)) + shift
    rounded = affine_rounded(weight, bits, per_channel=False)
    assert len(rounded.unique()) <= 2**bits
    span = float(weight.max().clamp_min(0.0) - weight.min().clamp_max(0.0))
    assert (rounded - weight).abs().max() <= 1.51 * span / 2**bits  # the top level is clipped
    assert affine_rounded(torch.zeros(2, 3), bits, per_channel=True).abs().max() == 0.0


def test_the_grid_of_quarl_by_hand() -> None:
    weight = torch.tensor([[-1.0, -0.3, 0.0, 0.4, 3.0]])
    # delta = 4 / 4 = 1, z = 1, integers 0..3: -1, 0, 1, 2 after the shift.
    expected = torch.tensor([[-1.0, 0.0, 0.0, 0.0, 2.0]])
    torch.testing.assert_close(affine_rounded(weight, 2, per_channel=False), expected)
    both = torch.cat([weight, 10.0 * weight])
    alone = affine_rounded(both, 2, per_channel=True)
    torch.testing.assert_close(alone, torch.cat([expected, 10.0 * expected]))


def test_fewer_bits_err_more_and_the_network_given_stays() -> None:
    net, obs = make(), states()
    exact = logits_of(net, obs)
    errors = [np.abs(logits_of(round_weights(net, bits), obs) - exact).mean() for bits in (8, 4, 2)]
    assert 0.0 < errors[0] < errors[1] < errors[2]
    np.testing.assert_array_equal(logits_of(net, obs), exact)


def test_the_chain_rounds_and_says_32_bits() -> None:
    net, obs = make(), states()
    chain = CompressorChain().add(Pruning(net, 0.5)).add(SimulatedQuantizer(4)).add(ONNX())
    artifact = chain.compress(observations=obs)
    assert artifact.spec == CompressionSpec(sparsity=0.5)
    acted, _ = make_engine(artifact).infer(obs)
    unrounded = CompressorChain().add(Pruning(net, 0.5)).add(ONNX()).compress(observations=obs)
    exact, _ = make_engine(unrounded).infer(obs)
    assert np.abs(acted - exact).max() > 1e-3
    with pytest.raises(UserError, match="the same step twice"):
        CompressorChain().add(SimulatedQuantizer(4)).add(Quantizer("INT8"))


def test_a_run_can_act_with_simulated_bits() -> None:
    obs = states()
    outputs = {}
    for bits in (0, 3):
        config = CompressionConfig(simulated_bits=bits)
        compressor = Compressor(VECTOR, 4, config, torch.Generator().manual_seed(0))
        compressor.observe(obs)
        outputs[bits], _ = make_engine(compressor.build(IDENTITY, make(), 0)).infer(obs)
    np.testing.assert_allclose(outputs[0], logits_of(make(), obs), atol=1e-4)
    np.testing.assert_allclose(outputs[3], logits_of(round_weights(make(), 3), obs), atol=1e-4)


@pytest.mark.parametrize("bits", [1, 9, 0])
def test_other_bit_widths_are_refused(bits: int) -> None:
    with pytest.raises(UserError, match=r"must lie in 2\.\.8"):
        SimulatedQuantizer(bits)
    if bits:
        with pytest.raises(UserError, match=r"must lie in 2\.\.8"):
            CompressionConfig(simulated_bits=bits)


@pytest.mark.parametrize(
    ("observation", "student"), [(VECTOR, "original"), (BOARD, "net2")], ids=["vector", "pixels"]
)
def test_rounding_in_float32_is_what_the_integer_graph_computes(
    observation: ObservationSpec, student: str
) -> None:
    net, obs = make(observation, student), states(observation)
    ranges = RangeTracker().measure(net, obs)
    with torch.no_grad():
        simulated, _ = rounded_outputs(net, ranges, torch.from_numpy(obs), levels=LEVELS)
    acted = np.asarray(open_session(onnx_int8(net, ranges)).run(("logits",), {"obs": obs})[0])
    exact = logits_of(net, obs)
    assert np.abs(acted - simulated.numpy()).mean() < 0.25 * np.abs(acted - exact).mean()


def test_training_for_integers_brings_them_closer() -> None:
    net, obs = make(BOARD, "net3"), states(BOARD, 128)
    before = logits_of(net, obs)
    errors = {}
    for updates in (0, 80):
        method = QuantiseMethod(
            tuning_updates=updates, tuning_learning_rate=3e-5, reduce_range=True
        )
        chain = CompressorChain().add(Quantizer("INT8", method)).add(ONNX())
        acted, _ = make_engine(chain.compress(net, observations=obs)).infer(obs)
        errors[updates] = float(np.square(acted - before).mean())
    assert errors[80] < 0.8 * errors[0]  # how far depends on the processor
    np.testing.assert_array_equal(logits_of(net, obs), before)  # the learner's network stays


@pytest.mark.parametrize(
    "changes", [{"tuning_updates": -1}, {"tuning_learning_rate": 0.0}], ids=str
)
def test_tuning_out_of_range_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(changes))):
        QuantiseMethod(**changes)
