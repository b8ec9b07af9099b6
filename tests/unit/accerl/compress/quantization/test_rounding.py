"""Simulated bit widths, and training that knows it will be rounded."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

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
from accerl.compress.check import kl_nats
from accerl.compress.distillation.trainer import FixedStates
from accerl.compress.engine import open_session
from accerl.compress.graphs.onnx_export import onnx_int8
from accerl.compress.quantization.quantize import QuantiseMethod, exact_levels
from accerl.compress.quantization.ranges import RangeTracker
from accerl.compress.quantization.rounding import (
    affine_rounded,
    hidden_ranges,
    round_weights,
    rounded_outputs,
    simulated_outputs,
    tune_rounded,
)
from accerl.errors import CannotCompressError, UserError
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


@pytest.mark.parametrize("bits", [1, 17, 0])
def test_other_bit_widths_are_refused(bits: int) -> None:
    with pytest.raises(UserError, match=r"must lie in 2\.\.16"):
        SimulatedQuantizer(bits)
    if bits:
        with pytest.raises(UserError, match=r"must lie in 2\.\.16"):
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
        simulated, _ = rounded_outputs(net, ranges, torch.from_numpy(obs), levels=exact_levels())
    acted = np.asarray(open_session(onnx_int8(net, ranges)).run(("logits",), {"obs": obs})[0])
    exact = logits_of(net, obs)
    assert np.abs(acted - simulated.numpy()).mean() < 0.25 * np.abs(acted - exact).mean()


@pytest.mark.parametrize("observation", [VECTOR, BOARD], ids=["vector", "pixels"])
def test_simulated_outputs_are_those_of_rounded_weights(observation: ObservationSpec) -> None:
    net, obs = make(observation, "net2"), torch.from_numpy(states(observation))
    with torch.no_grad():
        whole, _ = simulated_outputs(net, obs, 3)
        copied, _ = simulated_outputs(round_weights(net, 3), obs, 3, weights=False)
    torch.testing.assert_close(
        whole, torch.from_numpy(logits_of(round_weights(net, 3), obs.numpy()))
    )
    torch.testing.assert_close(copied, whole)


def test_what_flows_between_layers_is_rounded_to_as_many_levels() -> None:
    net, obs = make(), torch.from_numpy(states())
    ranges = hidden_ranges(net, obs)
    assert [low for low, _ in ranges] == [0.0, 0.0]  # behind a ReLU
    exact = net(obs)[0].detach()
    errors = []
    for bits in (16, 8, 4, 2):
        with torch.no_grad():
            found, _ = simulated_outputs(net, obs, bits, weights=False, ranges=ranges)
        errors.append(float((found - exact).abs().mean()))
    assert errors == sorted(errors)
    assert errors[0] < 1e-3 * errors[3]
    # One layer of one unit, whose grid is known: delta = 3 / 4, the top level is clipped.
    tiny = make(ObservationSpec((1,), "float32"))
    with torch.no_grad():
        for module in (*tiny.body, tiny.policy_head):
            for weight in module.parameters():
                weight.fill_(1.0 if weight.ndim == 2 else 0.0)
        seen = torch.tensor([[0.4], [1.0], [3.0], [-2.0]])
        levels, _ = simulated_outputs(
            tiny, seen, 2, weights=False, ranges=[(0.0, 3.0), (0.0, 384.0)]
        )
    assert [row / 128 / 96 for row in levels[:, 0].tolist()] == [1.0, 1.0, 3.0, 0.0]


def test_ranges_of_a_network_that_has_diverged_are_refused() -> None:
    net = make()
    with torch.no_grad():
        next(iter(net.body.parameters()))[0] = torch.nan
    with pytest.raises(UserError, match="a layer outputs NaN or infinite values"):
        hidden_ranges(net, torch.from_numpy(states()))


def test_tuning_brings_a_network_of_three_bits_closer_and_leaves_the_teacher() -> None:
    net, obs = make(), states(count=256)
    given, seen = copy.deepcopy(net.state_dict()), torch.from_numpy(obs)
    ranges = hidden_ranges(net, seen)

    def outputs(tuned: PolicyNet, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return simulated_outputs(tuned, batch, 3, ranges=ranges)

    errors = {}
    for updates in (0, 60):
        tuned = tune_rounded(
            net, outputs, FixedStates(obs), batch=64, updates=updates, learning_rate=1e-3
        )
        with torch.no_grad():
            acted = simulated_outputs(tuned, seen, 3, ranges=ranges)[0].numpy()
        errors[updates] = float(kl_nats(logits_of(net, obs), acted).mean())
    assert errors[60] < 0.5 * errors[0]
    assert all(torch.equal(weight, given[name]) for name, weight in net.state_dict().items())


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


@pytest.mark.parametrize("observation", [VECTOR, BOARD], ids=["vector", "pixels"])
@pytest.mark.parametrize("updates", [1, 5, pytest.param(20, marks=pytest.mark.slow)])
def test_training_for_integers_is_never_worse_than_none(
    observation: ObservationSpec, updates: int
) -> None:
    """The first steps of Adam are as long as its rate, however little there is to correct."""
    net, obs = make(observation), states(observation, 128)
    errors = {}
    for count in (0, updates):
        chain = CompressorChain()
        chain = chain.add(Quantizer("INT8", QuantiseMethod(tuning_updates=count))).add(ONNX())
        acted, _ = make_engine(chain.compress(net, observations=obs)).infer(obs)
        errors[count] = float(kl_nats(logits_of(net, obs), acted).mean())
    assert errors[updates] <= 1.2 * errors[0] + 1e-9


def test_tuning_that_diverges_leaves_the_network_as_it_was() -> None:
    net, obs = make(), states()
    tuned = CompressorChain().add(
        Quantizer("INT8", QuantiseMethod(tuning_updates=5, tuning_learning_rate=1e15))
    )
    plain = CompressorChain().add(Quantizer("INT8"))
    acted, expected = (
        make_engine(chain.add(ONNX()).compress(net, observations=obs)).infer(obs)[0]
        for chain in (tuned, plain)
    )
    np.testing.assert_array_equal(acted, expected)


@pytest.mark.parametrize(
    "changes", [{"tuning_updates": -1}, {"tuning_learning_rate": 0.0}], ids=str
)
def test_tuning_out_of_range_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(changes))):
        QuantiseMethod(**changes)


def test_tuning_for_activations_that_are_not_rounded_is_refused() -> None:
    with pytest.raises(UserError, match="leave one of them out"):
        CompressionConfig(quantise_tuning_updates=3, quantise_weights_only=True)
    with pytest.raises(UserError, match="reduce_range is for products of integers"):
        CompressionConfig(quantise_reduce_range=True, quantise_weights_only=True)
    assert CompressionConfig(quantise_weights_only=True).quantise_method.weights_only


def test_weights_that_are_computed_from_others_cannot_be_rounded() -> None:
    net = nn.Sequential(nn.Linear(4, 4), spectral_norm(nn.Linear(4, 4)))
    with pytest.raises(CannotCompressError, match="weights of '1' are parametrised"):
        round_weights(net, 4)
