"""Each rewrite of a graph computes what it replaced."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from accerl.compress import ONNX, CompressorChain, Eager, Quantizer, TorchScript, make_engine
from accerl.compress.compliance import BOARD, VECTOR, decided_policy, random_states
from accerl.compress.engine import LOCATION, graph_of
from accerl.compress.graphs.onnx_export import onnx_fp32, onnx_int8
from accerl.compress.graphs.onnx_payload import read_constants
from accerl.compress.layers import body_layers, stacked_heads
from accerl.compress.quantization.ranges import RangeTracker
from accerl.errors import UserError
from accerl.networks.policy_net import Architecture, ConvSpec, ObservationSpec, PolicyNet
from tests.fixtures.own_networks import OwnMLP

OBSERVATIONS = (BOARD, VECTOR)


def plain(net: PolicyNet, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what `net` computes with nothing folded, layer by layer, in float64."""
    net = net.double()
    states = torch.from_numpy(obs).double()
    if net.observation.dtype == "uint8":
        states = (states - net.observation.centre) / net.observation.unit
    with torch.no_grad():
        hidden = net.body(states)
        return net.policy_head(hidden).numpy(), net.value_head(hidden).squeeze(-1).numpy()


def run(payload: bytes | bytearray, obs: np.ndarray, level: str) -> np.ndarray:
    """Return the logits of a payload's graph in a session with so much optimisation."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.add_external_initializers_from_files_in_memory([LOCATION], [payload], [len(payload)])
    session = onnxruntime.InferenceSession(
        graph_of(payload), options, providers=["CPUExecutionProvider"]
    )
    return np.asarray(session.run(("logits",), {"obs": obs})[0])


@pytest.mark.parametrize("observation", OBSERVATIONS)
@pytest.mark.parametrize("link", [ONNX(), TorchScript(), Eager()], ids=lambda link: str(link))
def test_folding_scale_and_bias_and_stacking_heads_change_nothing(
    observation: ObservationSpec, link: ONNX | TorchScript | Eager
) -> None:
    obs = random_states(observation)
    artifact = CompressorChain([link]).compress(decided_policy(observation), observations=obs)
    logits, values = make_engine(artifact).infer(obs)
    wanted, wanted_values = plain(decided_policy(observation), obs)
    np.testing.assert_allclose(logits, wanted, atol=2e-5 * float(np.abs(wanted).max()))
    np.testing.assert_allclose(values, wanted_values, atol=1e-4)


@pytest.mark.parametrize("centre", [0, 87])
def test_zeros_around_centred_pixels_stay_zeros(centre: int) -> None:
    """Padding comes after centring, so the centre may not hide in the bias."""
    observation = ObservationSpec((2, 9, 9), "uint8", centre, 40.0)
    torch.manual_seed(0)
    net = PolicyNet(
        Architecture((ConvSpec(8, 3, 2, 1), ConvSpec(8, 3, 1, 1)), (16,)), observation, 4
    )
    obs = random_states(observation)
    wanted, _ = plain(net, obs)
    net = net.float()
    np.testing.assert_allclose(run(onnx_fp32(net), obs, "ORT_ENABLE_ALL"), wanted, atol=1e-5)
    np.testing.assert_allclose(net(torch.from_numpy(obs))[0].detach(), wanted, atol=1e-5)
    integers = onnx_int8(net, RangeTracker().measure(net, obs), states=obs)
    acted = run(integers, obs, "ORT_DISABLE_ALL")
    assert np.sqrt(np.square(acted - wanted).mean()) < 0.05 * wanted.std()


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_both_heads_are_one_product(observation: ObservationSpec) -> None:
    net = decided_policy(observation)
    weight, bias = stacked_heads(net)
    hidden = torch.rand(7, weight.shape[1], generator=torch.Generator().manual_seed(0))
    logits, values = net.heads(hidden)
    stacked = nn.functional.linear(hidden, weight, bias)
    torch.testing.assert_close(stacked, torch.cat([logits, values[:, None]], 1))


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_integers_need_no_further_fusing(observation: ObservationSpec) -> None:
    """The INT8 graph is opened as it was written: ONNX Runtime would compute the same."""
    obs, net = random_states(observation), decided_policy(observation)
    payload = onnx_int8(net, RangeTracker().measure(net, obs), states=obs)
    as_written, fused = (
        run(payload, obs, level) for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL")
    )
    assert np.array_equal(as_written, fused)


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_a_folded_relu_cuts_where_a_relu_would(observation: ObservationSpec) -> None:
    """The first integer layer, recomputed in float64 with a ReLU of its own."""
    obs, net = random_states(observation), decided_policy(observation)
    layer = body_layers(net)[0]
    numbers = read_constants(onnx_int8(net, RangeTracker().measure(net, obs)))
    assert int(numbers["y0_zero"]) == 0  # so that clipping at 0 is the ReLU
    scale = numbers["w0_scale"].reshape(-1, *[1] * (numbers["w0"].ndim - 1))
    weight = torch.from_numpy(numbers["w0"].astype(np.float64) * scale)
    exact = layer.module.weight.detach().double()
    assert float((weight - exact).abs().max()) <= 0.51 * float(numbers["w0_scale"].max())
    with torch.no_grad():
        outputs = layer.module(net.scale(torch.from_numpy(obs))).relu()
    assert float(outputs.max()) <= float(numbers["y0_scale"]) * 255.0 * (1.0 + 1e-5)


@pytest.mark.parametrize("observation", OBSERVATIONS)
@pytest.mark.parametrize("bits", [32, 8])
def test_a_fixed_batch_computes_the_same_and_takes_no_other(
    observation: ObservationSpec, bits: int
) -> None:
    obs, net = random_states(observation), decided_policy(observation)
    first = [Quantizer("INT8")] if bits == 8 else []
    fixed, free = (
        make_engine(CompressorChain([*first, link]).compress(net, observations=obs))
        for link in (ONNX(batch=16), ONNX())
    )
    assert np.array_equal(fixed.infer(obs[:16])[0], free.infer(obs[:16])[0])
    with pytest.raises(UserError, match=r"was exported for states \[16, .*; got \[4, "):
        fixed.infer(obs[:4])
    for batch in (0, 1.5):
        with pytest.raises(UserError, match="a whole number, at least 1"):
            ONNX(batch=batch)  # type: ignore[arg-type]


def test_a_fixed_batch_of_a_network_that_is_no_chain_takes_any_number_of_states() -> None:
    """Its heads are shifted by what the graph makes of them: 24 are no whole number of calls."""
    torch.manual_seed(0)
    net, obs = OwnMLP(VECTOR, 3, activation=nn.Tanh), random_states(VECTOR, 24)
    fixed, free = (
        make_engine(CompressorChain([Quantizer("INT8"), link]).compress(net, observations=obs))
        for link in (ONNX(batch=16), ONNX())
    )
    for found, wanted in zip(fixed.infer(obs[:16]), free.infer(obs[:16]), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-6)
    with pytest.raises(UserError, match=r"was exported for states \[16, .*; got \[4, "):
        fixed.infer(obs[:4])
