from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper

from accerl.compress.artifact import Artifact
from accerl.compress.check import kl_nats
from accerl.compress.engine import make_engine
from accerl.compress.graphs.onnx_export import onnx_fp32, onnx_int8
from accerl.compress.graphs.onnx_payload import standalone
from accerl.compress.layers import body_layers
from accerl.compress.quantization.quantize import (
    Affine,
    affine,
    quantise_bias,
    quantise_weight,
    spread,
)
from accerl.compress.quantization.ranges import ActivationRanges, RangeMethod, RangeTracker
from accerl.errors import UserError
from accerl.networks.policy_net import (
    Architecture,
    ConvSpec,
    ObservationSpec,
    PolicyNet,
    make_policy,
)
from accerl.spec import CompressionSpec

FLOATS = ObservationSpec((6,), "float32")
BOARD = ObservationSpec((10, 5), "uint8")
INT8 = CompressionSpec(bits=8)


def make(observation: ObservationSpec, student: str = "original") -> PolicyNet:
    net = make_policy(student, observation, 4, torch.Generator().manual_seed(0))
    with torch.no_grad():
        net.policy_head.weight.mul_(200.0)
    return net


def states(observation: ObservationSpec, count: int = 64) -> np.ndarray:
    generator = np.random.default_rng(1)
    shape = (count, *observation.shape)
    if observation.dtype == "uint8":
        return generator.integers(0, 256, shape).astype(np.uint8)
    return generator.normal(2.0, 3.0, size=shape).astype(np.float32)


def calibrate(
    net: PolicyNet, obs: np.ndarray, method: RangeMethod | None = None
) -> ActivationRanges:
    return RangeTracker(method or RangeMethod()).measure(net, obs)


def torch_outputs(net: PolicyNet, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    with torch.no_grad():
        logits, values = net(torch.from_numpy(obs))
    return logits.numpy(), values.numpy()


def run(payload: bytes | bytearray, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return make_engine(Artifact(INT8, 0, "onnx", payload)).infer(obs)


@given(low=st.floats(-1e6, 0.0), high=st.floats(0.0, 1e6))
def test_zero_is_exact_and_the_range_is_covered(low: float, high: float) -> None:
    mapping = affine(low, high)
    assert 0 <= mapping.zero_point <= 255
    assert mapping.scale > 0.0
    step = mapping.scale
    assert mapping.scale * (0 - mapping.zero_point) <= low + step
    assert mapping.scale * (255 - mapping.zero_point) >= high - step


def test_affine_refuses_what_it_cannot_represent() -> None:
    assert affine(0.0, 0.0) == Affine(1.0 / 255.0, 0)
    for low, high in [(0.5, 1.0), (float("nan"), 1.0), (0.0, float("inf"))]:
        with pytest.raises(ValueError, match="finite and contain zero"):
            affine(low, high)


def test_weights_have_one_scale_per_output_channel() -> None:
    weight = torch.randn(5, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    weight *= torch.tensor([1e-3, 1.0, 1e3, 0.1, 10.0]).view(-1, 1, 1, 1)
    integers, scales = quantise_weight(weight, torch.zeros(5), 1.0)
    torch.testing.assert_close(scales, weight.flatten(1).abs().amax(1) / 127.0)
    assert integers.flatten(1).abs().amax(1).tolist() == [127] * 5
    error = (integers.float() * scales.view(-1, 1, 1, 1) - weight).abs()
    assert bool((error <= scales.view(-1, 1, 1, 1) * 0.501).all())


def test_a_channel_of_zeros_still_represents_its_bias() -> None:
    weight = torch.tensor([[0.0, 0.0], [1.0, -1.0], [0.0, 0.0]])
    bias = torch.tensor([1.5, 0.5, 0.0])
    integers, scales = quantise_weight(weight, bias, 0.01)
    assert integers[0].tolist() == [0, 0]
    restored = quantise_bias(bias, 0.01, scales).double() * 0.01 * scales.double()
    torch.testing.assert_close(restored, bias.double(), rtol=0.0, atol=1e-4)
    assert bool((scales > 0.0).all())


def test_a_dead_network_still_acts() -> None:
    net = make(FLOATS)
    with torch.no_grad():
        for layer in body_layers(net):
            layer.module.weight.zero_()
        net.policy_head.bias.copy_(torch.tensor([0.1, 0.2, 0.3, 0.4]))
    obs = states(FLOATS)
    logits, values = run(onnx_int8(net, calibrate(net, obs)), obs)
    np.testing.assert_allclose(logits, np.tile([0.1, 0.2, 0.3, 0.4], (64, 1)), atol=1e-6)
    np.testing.assert_allclose(values, 0.0, atol=1e-6)


def test_calibration_needs_finite_states() -> None:
    with pytest.raises(UserError, match="no recorded states"):
        calibrate(make(FLOATS), states(FLOATS, 0))
    broken = states(FLOATS)
    broken[3, 2] = np.nan
    with pytest.raises(UserError, match="NaN or infinite"):
        calibrate(make(FLOATS), broken)


def test_diverged_weights_are_named() -> None:
    net = make(FLOATS)
    ranges = calibrate(net, states(FLOATS))
    with torch.no_grad():
        body_layers(net)[1].module.weight[0, 0] = float("nan")
    with pytest.raises(UserError, match=r"layer 1 holds NaN.*diverged"):
        onnx_int8(net, ranges)
    with pytest.raises(UserError, match="layer 1 holds NaN"):
        onnx_fp32(net)
    with torch.no_grad():
        body_layers(net)[0].module.weight[0, 0] = float("nan")
    with pytest.raises(UserError, match="diverged"):
        calibrate(net, states(FLOATS))


def test_ranges_of_another_network_are_refused() -> None:
    with pytest.raises(ValueError, match="1 activation ranges for 2 layers"):
        onnx_int8(make(FLOATS), calibrate(make(FLOATS, "net1"), states(FLOATS)))


def test_percentile_clips_the_tail_only() -> None:
    net, obs = make(BOARD), states(BOARD, 256)
    widest, clipped = (
        calibrate(net, obs),
        calibrate(net, obs, RangeMethod(name="percentile", percentile=99.0)),
    )
    assert widest.layers[-1] == clipped.layers[-1] == (0.0, 0.0)  # its output is not rounded
    for (low, high), (_, less) in zip(widest.layers[:-1], clipped.layers[:-1], strict=True):
        assert low == 0.0
        assert 0.3 * high < less < high
    assert widest.input == (0.0, 0.0)


def test_spread_is_even_and_bounded() -> None:
    obs = np.arange(100)
    assert spread(obs, 5).tolist() == [0, 25, 50, 74, 99]
    assert spread(obs, 200) is obs


@pytest.mark.parametrize("observation", [FLOATS, BOARD])
def test_int8_stays_close_to_float32(observation: ObservationSpec) -> None:
    net, obs = make(observation), states(observation, 256)
    logits, values = torch_outputs(net, obs)
    payload = onnx_int8(net, calibrate(net, obs[:64]), states=obs[:64])
    acted, acted_values = run(payload, obs)
    assert float(kl_nats(logits, acted).mean()) < 1e-3
    assert (logits.argmax(1) == acted.argmax(1)).mean() > 0.95
    assert np.abs(values - acted_values).mean() < 0.02 * max(1.0, float(np.abs(values).max()))


def test_head_correction_restores_the_means() -> None:
    net, obs = make(BOARD, "net2"), states(BOARD)
    logits, values = torch_outputs(net, obs)
    plain = run(onnx_int8(net, calibrate(net, obs)), obs)
    fixed = run(onnx_int8(net, calibrate(net, obs), states=obs), obs)
    assert np.abs(plain[0].mean(0) - logits.mean(0)).max() > 1e-4
    np.testing.assert_allclose(fixed[0].mean(0), logits.mean(0), atol=1e-5)
    np.testing.assert_allclose(fixed[1].mean(), values.mean(), atol=1e-5)


def test_the_int8_graph_is_made_of_packed_constants() -> None:
    observation = ObservationSpec((4, 84, 84), "uint8")
    net = make(observation, "net3")
    model = standalone(onnx_int8(net, calibrate(net, states(observation, 4))))
    onnx.checker.check_model(model, full_check=False)
    kinds = [node.op_type for node in model.graph.node]
    assert kinds == [
        "QLinearConv",
        "QLinearConv",
        "Flatten",
        "QGemm",
        "Relu",
        "Gemm",
        "Split",
        "Squeeze",
    ]
    (given_input,) = model.graph.input
    assert given_input.type.tensor_type.elem_type == onnx.TensorProto.UINT8
    constants = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
    assert constants["w0"].dtype == np.int8
    assert constants["w0_scale"].shape == (4,)
    assert not constants["w0_zero"].any()
    assert constants["b0"].dtype == np.int32
    assert constants["obs_scale"] == np.float32(1.0 / 255.0)
    assert all(item.HasField("raw_data") for item in model.graph.initializer)


def test_networks_without_hidden_linear_layers_export_too() -> None:
    observation = ObservationSpec((2, 12, 12), "uint8")
    net = PolicyNet(Architecture((ConvSpec(3, 4, 2),), ()), observation, 4)
    obs = states(observation)
    logits, values = torch_outputs(net, obs)
    exact = run(onnx_fp32(net), obs)
    np.testing.assert_allclose(exact[0], logits, atol=1e-5)
    np.testing.assert_allclose(exact[1], values, atol=1e-5)
    rounded = run(onnx_int8(net, calibrate(net, obs), states=obs), obs)
    np.testing.assert_allclose(rounded[0], logits, atol=0.02)
