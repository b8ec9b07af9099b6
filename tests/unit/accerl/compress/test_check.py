"""What is built is checked before it acts; what fails its check does not end a run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from accerl.compress import check
from accerl.compress.artifact import Artifact
from accerl.compress.chain import CompressorChain
from accerl.compress.check import EngineMismatchError, check_engine
from accerl.compress.compressor import Compressor
from accerl.compress.config import CompressionConfig
from accerl.compress.quantization.ranges import ActivationRanges, RangeTracker
from accerl.errors import UserError
from accerl.monitor.strategies import FixedStrategy
from accerl.networks.policy_net import ObservationSpec, PolicyNet, make_policy
from accerl.spec import IDENTITY, CompressionSpec
from accerl.training.run import run_training
from tests.fixtures.runs.inner_runs import fast_profile, tiny_catch

OBSERVATION = ObservationSpec((6,), "float32")
INT8 = CompressionSpec(bits=8)
SPECS = [
    IDENTITY,
    INT8,
    CompressionSpec(bits=16),
    CompressionSpec(graph="eager"),
    CompressionSpec(graph="torchscript"),
    CompressionSpec(rank=0.2, bits=8),
]


def make(seed: int = 0, sharp: float = 1.0) -> PolicyNet:
    net = make_policy("original", OBSERVATION, 4, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        net.policy_head.weight.mul_(sharp)
    return net


def states(count: int = 64) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, 6)).astype(np.float32)


def break_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every activation clip, as ranges from the wrong states would."""

    measure = RangeTracker.measure

    def wrong(self: RangeTracker, net: PolicyNet, obs: np.ndarray) -> ActivationRanges:
        ranges = measure(self, net, obs)
        return replace(ranges, input=(-1e-6, 1e-6), layers=((0.0, 1e-6),) * len(ranges.layers))

    monkeypatch.setattr(RangeTracker, "measure", wrong)


@pytest.mark.parametrize("sharp", [1.0, 200.0], ids=["untrained", "sharp"])
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.label)
def test_what_is_right_passes(spec: CompressionSpec, sharp: float) -> None:
    compressor = Compressor(OBSERVATION, 4, CompressionConfig(), torch.Generator().manual_seed(0))
    compressor.observe(states())
    assert compressor.build(spec, make(sharp=sharp), 0).spec == spec


@pytest.mark.parametrize("spec", [IDENTITY, INT8], ids=lambda spec: spec.label)
def test_a_policy_that_is_quite_dead_may_act(spec: CompressionSpec) -> None:
    net = make()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
    artifact = CompressorChain.from_spec(spec).compress(net, observations=states())
    assert check_engine(artifact, net, states()) == 0.0


@pytest.mark.parametrize("sharp", [1.0, 200.0], ids=["untrained", "sharp"])
@pytest.mark.parametrize("spec", [IDENTITY, CompressionSpec(bits=16), INT8], ids=lambda s: s.label)
def test_another_networks_engine_is_found_out(spec: CompressionSpec, sharp: float) -> None:
    other = CompressorChain.from_spec(spec).compress(make(1, sharp), observations=states())
    with pytest.raises(UserError, match="at most were expected; compress less, or act in") as found:
        check_engine(other, make(0, sharp), states())
    assert isinstance(found.value, EngineMismatchError)
    assert "\n" not in str(found.value)


def test_an_error_without_words_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(artifact: Artifact) -> None:
        raise RuntimeError

    monkeypatch.setattr(check, "make_engine", broken)
    with pytest.raises(EngineMismatchError, match="does not run: RuntimeError"):
        check_engine(Artifact(INT8, 0, "onnx", b""), make(), states())


def test_an_engine_that_does_not_run_is_found_out() -> None:
    damaged = Artifact(INT8, 0, "onnx", b"no model")
    with pytest.raises(EngineMismatchError, match="original INT8 does not run"):
        check_engine(damaged, make(), states())
    net = make()
    artifact = CompressorChain.from_spec(CompressionSpec(graph="eager")).compress(
        net, observations=states()
    )
    with pytest.raises(EngineMismatchError, match="NaN or infinite"):
        check_engine(artifact, net, np.full((3, 6), np.nan, np.float32))


def test_what_last_passed_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    compressor = Compressor(OBSERVATION, 4, CompressionConfig(), torch.Generator().manual_seed(0))
    compressor.observe(states())
    net = make(sharp=200.0)
    break_ranges(monkeypatch)
    with pytest.raises(EngineMismatchError, match="original INT8"):
        compressor.build(INT8, net, 0)
    first = compressor.fallback(net, 0)
    assert first.spec == IDENTITY
    good = compressor.build(CompressionSpec(bits=16), net, 3)
    with pytest.raises(EngineMismatchError):
        compressor.build(INT8, net, 4)
    again = compressor.fallback(net, 4)
    assert (again.spec, again.version, again.payload) == (good.spec, 4, good.payload)
    monkeypatch.undo()
    assert compressor.build(INT8, net, 5).spec == INT8  # it is tried again each time


def test_where_no_engine_passes_the_policy_acts_in_plain_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(artifact: Artifact, *_: object) -> None:
        if artifact.kind == "onnx":
            raise EngineMismatchError("it acts unlike its network")

    monkeypatch.setattr("accerl.compress.compressor.check_engine", fail)
    compressor = Compressor(OBSERVATION, 4, CompressionConfig(), torch.Generator().manual_seed(0))
    compressor.observe(states())
    found = compressor.fallback(make(), 0)
    assert (found.spec.graph, found.kind) == ("eager", "torch")


def test_a_run_goes_on_without_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    break_ranges(monkeypatch)
    result = run_training(tiny_catch(), FixedStrategy(INT8), profile=fast_profile())
    events = [event for report in result.reports for event in report.events]
    # Once when it fails, and once when it is given up, however often it is tried.
    assert [event["is_retried"] for event in events] == [True, False]
    assert {event["role"] for event in events} == {"compressor"}
    assert all(event["cause"].startswith("original INT8") for event in events)
    assert result.summary["events"] == {"compressor": 2}
    acted = {spec for report in result.reports for spec in report.spec_seconds}
    assert acted == {IDENTITY}
    assert result.summary["learner_updates"] > 20
