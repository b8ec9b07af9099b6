from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from accerl.compress.artifact import Artifact
from accerl.compress.chain import CompressorChain
from accerl.compress.check import check_engine, kl_nats
from accerl.compress.compliance import BOARD, VECTOR, decided_policy, random_states
from accerl.compress.config import CompressionConfig
from accerl.compress.engine import make_engine
from accerl.compress.graphs.torch_artifact import pack_torch, unpack_torch
from accerl.compress.lowrank import factorise
from accerl.compress.quantization.cpu import (
    computes_bfloat16,
    dots_bytes_exactly,
    gains_by_bfloat16,
)
from accerl.errors import UserError
from accerl.networks.policy_net import Architecture, ObservationSpec, PolicyNet, make_policy
from accerl.spec import CompressionSpec
from studies.benchmarks.pong import fitted_policy, record_states

PIXELS = ObservationSpec((4, 84, 84), "uint8")
CENTRED = ObservationSpec((4, 84, 84), "uint8", centre=87, unit=47.0)
OBSERVATIONS = [
    PIXELS,
    ObservationSpec((10, 5), "uint8"),
    ObservationSpec((6,), "float32"),
    CENTRED,
    ObservationSpec((7, 10, 10), "uint8"),
]
EVERY_SPEC = [
    CompressionSpec(graph="eager"),
    CompressionSpec(graph="torchscript"),
    CompressionSpec(),
    CompressionSpec(bits=16, graph="eager"),
    CompressionSpec(bits=16, graph="torchscript"),
    CompressionSpec(bits=16),
    CompressionSpec(bits=8),
    CompressionSpec(sparsity=0.5),
    CompressionSpec(sparsity=0.5, bits=8),
    CompressionSpec(rank=0.2),
    CompressionSpec(rank=0.2, bits=8),
]


@pytest.fixture(scope="module")
def pong() -> np.ndarray:
    return record_states(384, seed=3)


def make(observation: ObservationSpec, student: str) -> PolicyNet:
    net = make_policy(student, observation, 5, torch.Generator().manual_seed(0))
    with torch.no_grad():
        net.policy_head.weight.mul_(200.0)
    return net


def states(observation: ObservationSpec, count: int = 24) -> np.ndarray:
    generator = np.random.default_rng(1)
    shape = (count, *observation.shape)
    if observation.dtype == "uint8":
        return generator.integers(0, 256, shape).astype(np.uint8)
    return generator.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("spec", EVERY_SPEC, ids=lambda spec: spec.label)
def test_pixels_that_heads_alone_read_are_scaled(spec: CompressionSpec) -> None:
    torch.manual_seed(0)
    observation = ObservationSpec((10, 5), "uint8", centre=7, unit=60.0)
    net, obs = PolicyNet(Architecture((), ()), observation, 5), states(observation)
    chain = CompressorChain.from_spec(spec, config=CompressionConfig(prune_compensate=False))
    artifact = chain.compress(net, observations=obs)
    check_engine(artifact, net, obs)
    with torch.no_grad():
        values = net(torch.from_numpy(obs))[1].numpy()
    np.testing.assert_allclose(make_engine(artifact).infer(obs)[1], values, atol=0.02)


@pytest.mark.parametrize("observation", OBSERVATIONS, ids=str)
@pytest.mark.parametrize("graph", ["eager", "torchscript", "onnx"])
def test_float32_engines_equal_the_policy(observation: ObservationSpec, graph: str) -> None:
    net, obs = make(observation, "net1"), states(observation)
    with torch.no_grad():
        logits, values = net(torch.from_numpy(obs))
    spec = CompressionSpec(graph=graph)
    engine = make_engine(CompressorChain.from_spec(spec).compress(net, observations=obs))
    for batch in (24, 1, 7):
        acted, acted_values = engine.infer(obs[:batch])
        np.testing.assert_allclose(acted, logits[:batch], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(acted_values, values[:batch], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("observation", [OBSERVATIONS[1], OBSERVATIONS[4]], ids=str)
@pytest.mark.parametrize("spec", EVERY_SPEC, ids=lambda spec: spec.label)
def test_every_spec_acts_the_same_behind_a_round_trip(
    spec: CompressionSpec, observation: ObservationSpec
) -> None:
    net, obs = make(observation, "original"), states(observation)
    artifact = CompressorChain.from_spec(spec).compress(net, observations=obs, version=7)
    # Shared blocks are larger than what they hold.
    restored = Artifact.from_bytes(bytearray(artifact.to_bytes() + b"\xa5" * 100))
    assert restored == artifact
    assert (restored.spec, restored.version) == (spec, 7)
    engine, other = make_engine(artifact), make_engine(restored)
    assert (engine.spec, engine.version) == (spec, 7)
    logits, values = engine.infer(obs)
    assert (logits.dtype, values.dtype) == (np.float32, np.float32)
    assert (logits.shape, values.shape) == ((24, 5), (24,))
    again, values_again = other.infer(obs)
    np.testing.assert_array_equal(logits, again)
    np.testing.assert_array_equal(values, values_again)


@pytest.mark.parametrize("observation", [PIXELS, CENTRED], ids=["plain", "centred"])
@pytest.mark.parametrize("bits", [8, 16])
def test_low_precision_on_recorded_pong_states(
    pong: np.ndarray, bits: int, observation: ObservationSpec
) -> None:
    """A policy fitted to follow the ball, on states it was not calibrated on."""
    generator = torch.Generator().manual_seed(0)
    net = fitted_policy("net1", pong[128:], generator, observation=observation)
    with torch.no_grad():
        logits, values = (output.numpy() for output in net(torch.from_numpy(pong[:128])))
    assert len(np.unique(logits.argmax(1))) == 3  # stay, up and down: agreement means something
    chain = CompressorChain.from_spec(CompressionSpec(bits=bits))
    acted, acted_values = make_engine(chain.compress(net, observations=pong[128:])).infer(
        pong[:128]
    )
    kl = float(kl_nats(logits, acted).mean())
    agreement = float((logits.argmax(1) == acted.argmax(1)).mean())
    # Weights of 7 bits, where products of 8 would not add up, cost a little more.
    least, worst = (0.95, 0.1) if dots_bytes_exactly() else (0.92, 0.15)
    assert agreement >= least, f"agreement {agreement:.3f}, KL {kl:.2e} nats"
    assert kl < {8: 1e-2, 16: 2e-3}[bits]
    assert np.abs(values - acted_values).mean() < worst * values.std()


@pytest.mark.parametrize("cut", [0, 3, 6, 60, 300])
def test_truncated_artifacts_are_refused(cut: int) -> None:
    net = make(OBSERVATIONS[2], "net3")
    data = Artifact(CompressionSpec(graph="eager"), 0, "torch", pack_torch(net, bits=32)).to_bytes()
    with pytest.raises(UserError, match=r"^artifact: "):
        Artifact.from_bytes(data[:cut])
    with pytest.raises(UserError, match="damaged"):
        Artifact.from_bytes(data[:-1])


def test_damaged_payloads_are_refused() -> None:
    net = make(OBSERVATIONS[2], "net3")
    payload = pack_torch(net, bits=32)
    for damaged in (b"", payload[:40], payload[:-8], b"\xff" * 64):
        with pytest.raises(UserError, match="torch payload is damaged"):
            make_engine(Artifact(CompressionSpec(graph="eager"), 0, "torch", damaged))
    with pytest.raises(UserError, match="ONNX payload is damaged"):
        make_engine(Artifact(CompressionSpec(), 0, "onnx", b"\xff" * 64))
    with pytest.raises(ValueError, match="kind must be one of"):
        Artifact(CompressionSpec(), 0, "pickle", b"")


def test_students_that_are_channels_last_in_memory_are_packed() -> None:
    net = make(CENTRED, "net3")
    payload = pack_torch(net, bits=32)
    assert pack_torch(net.to(memory_format=torch.channels_last), bits=32) == payload  # pyright: ignore


def test_a_header_with_unknown_keys_in_its_spec_is_refused() -> None:
    net = make(OBSERVATIONS[2], "net3")
    data = Artifact(CompressionSpec(), 0, "torch", pack_torch(net, bits=32)).to_bytes()
    swapped = data.replace(b'"student"', b'"stadent"')
    with pytest.raises(UserError, match="unknown key 'stadent'"):
        Artifact.from_bytes(swapped)


def test_torch_payload_is_safetensors_with_json_beside_it() -> None:
    net = factorise(make(OBSERVATIONS[2], "original"), 0.1)
    payload = pack_torch(net, bits=32)
    length = int.from_bytes(payload[:8], "little")
    network = json.loads(json.loads(payload[8 : 8 + length])["__metadata__"]["network"])
    assert network["num_actions"] == 5
    state = torch.get_rng_state()
    restored = unpack_torch(payload)
    assert torch.equal(torch.get_rng_state(), state)
    obs = torch.from_numpy(states(OBSERVATIONS[2]))
    torch.testing.assert_close(restored(obs), net(obs), rtol=1e-5, atol=1e-6)


def test_sixteen_bits_halve_the_payload() -> None:
    net = make(PIXELS, "net1")
    assert len(pack_torch(net, bits=16)) < 0.51 * len(pack_torch(net, bits=32))


def test_read_only_observations_are_accepted() -> None:
    net, obs = make(OBSERVATIONS[2], "net3"), states(OBSERVATIONS[2])
    engine = make_engine(CompressorChain().compress(net, observations=obs))
    expected = engine.infer(obs)[0]
    obs.setflags(write=False)
    np.testing.assert_array_equal(engine.infer(obs)[0], expected)


@pytest.mark.parametrize("observation", [BOARD, VECTOR])
def test_without_bfloat16_half_precision_is_a_way_to_store(observation: ObservationSpec) -> None:
    net, obs = decided_policy(observation), random_states(observation)
    payload = pack_torch(net, bits=16, bfloat16=False)
    assert len(payload) < 0.6 * len(pack_torch(net, bits=32))
    logits, values = make_engine(Artifact(CompressionSpec(bits=16), 0, "torch", payload)).infer(obs)
    with torch.no_grad():
        wanted, wanted_values = net(torch.from_numpy(obs))
    # Ten bits of mantissa, and sums in float32: closer than bfloat16's seven.
    np.testing.assert_allclose(logits, wanted, atol=2e-3 * float(wanted.abs().max()))
    np.testing.assert_allclose(values, wanted_values, atol=2e-3 * float(wanted_values.abs().max()))


def test_what_the_processor_has_is_read_from_its_flags(tmp_path: Path) -> None:
    for number, (line, computes, gains) in enumerate(
        [
            ("flags : fpu avx512_bf16", True, False),
            ("flags : fpu avx512_bf16 amx_bf16", True, True),
            ("vendor_id\t: GenuineIntel\nflags\t\t: fpu avx512_bf16", True, False),
            ("vendor_id\t: AuthenticAMD\nflags\t\t: fpu avx512_bf16", True, True),
            ("vendor_id\t: AuthenticAMD\nflags\t\t: fpu avx2", False, False),
            ("flags : fpu avx2", False, False),
            ("Features : bf16", True, True),
        ]
    ):
        file = tmp_path / f"{number}"
        file.write_text(f"model name : x\n{line}\n")
        assert (computes_bfloat16(file), gains_by_bfloat16(file)) == (computes, gains)
    assert not computes_bfloat16(tmp_path / "none")
    assert not gains_by_bfloat16(tmp_path / "none")
