"""A run whose learner is no chain of layers, with INT8 actors: resumed, saved, run by itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import accerl
from accerl.compress.check import kl_nats
from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.monitor.features import Features
from accerl.monitor.strategies import FixedStrategy
from accerl.runtime.latency.profile import LatencyProfile
from accerl.spec import CompressionSpec, Decision
from accerl.training.run import run_training
from accerl.training.saved_policy import evaluate_checkpoint
from tests.fixtures import own_networks
from tests.fixtures.runs.inner_runs import fast_profile, tiny_catch

OWN = "tests.fixtures.own_networks:board"
INT8 = CompressionSpec(bits=8)
HALF = CompressionSpec(bits=8, sparsity=0.5)


def config(seconds: float) -> RunConfig:
    return replace(tiny_catch(seconds=seconds, eval_episodes=0), network=OWN)


def profile() -> LatencyProfile:
    return replace(fast_profile(), network=OWN)


@pytest.mark.parametrize("spec", [INT8, pytest.param(HALF, marks=pytest.mark.slow)])
def test_integer_actors_resume_to_the_same_run_and_their_file_runs_alone(
    spec: CompressionSpec, tmp_path: Path
) -> None:
    strategy = FixedStrategy(spec)
    for name, parts in (("whole", [0.06]), ("parts", [0.03, 0.06])):
        for seconds in parts:
            result = run_training(
                config(seconds),
                strategy,
                strategy_name="int8",
                out=tmp_path / name,
                resume=seconds != parts[0],
                profile=profile(),
            )
            assert set(result.reports[-1].spec_seconds) == {spec}
    whole, parts = (accerl.load_policy(tmp_path / name, spec) for name in ("whole", "parts"))
    obs = np.zeros((50, 10, 5), np.uint8)
    obs.reshape(50, 50)[np.arange(50), np.arange(50)] = 255
    obs[:, 9, 2] = 255
    np.testing.assert_array_equal(whole.logits(obs), parts.logits(obs))

    whole.save(tmp_path / "policy.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    logits = np.asarray(session.run(["logits"], {"obs": obs})[0])
    np.testing.assert_allclose(logits, whole.logits(obs), atol=1e-5)
    exact = accerl.load_policy(tmp_path / "whole", replace(spec, bits=32)).logits(obs)
    assert kl_nats(exact, logits).mean() < 0.01


class Tries:
    """Acts in INT8 twice, and from then on pruned, until it hears that this cannot be built."""

    def reset(self) -> None:
        self.decisions, self.heard = 0, list[CompressionSpec]()

    def decide(self, features: Features) -> Decision:
        self.decisions += 1
        return Decision.of(INT8 if self.decisions < 3 or self.heard else HALF)

    def rejected(self, spec: CompressionSpec) -> None:
        self.heard.append(spec)


def test_a_run_goes_on_where_a_spec_cannot_be_built_and_its_strategy_hears_of_it(
    tmp_path: Path,
) -> None:
    network = "tests.fixtures.own_networks:bounded"
    latency = replace(fast_profile(), network=network)
    strategy = Tries()
    for seconds in (0.08, 0.1):  # what was heard is heard again when the run is resumed
        whole = replace(config(seconds), network=network)
        result = run_training(
            whole, strategy, out=tmp_path / "run", resume=seconds > 0.08, profile=latency
        )
        assert strategy.heard == [HALF]
    labels = [report.decision.main for report in result.reports]
    assert labels == [INT8, INT8, HALF, INT8, INT8]
    assert all(report.spec_seconds.keys() == {INT8} for report in result.reports)
    (event,) = (event for report in result.reports for event in report.events)
    assert event["label"] == HALF.label
    assert "BoundedBoard cannot be pruned" in event["cause"]
    with pytest.raises(UserError, match="BoundedBoard cannot be pruned"):
        run_training(whole, FixedStrategy(HALF), profile=latency)


@pytest.mark.parametrize("own", ["network", "student"])
def test_a_network_whose_code_has_changed_is_refused_by_name(
    own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_student = own == "student"
    spec = CompressionSpec(student=OWN, bits=8) if is_student else INT8
    whole = replace(config(0.03), network="original" if is_student else OWN)
    latency = replace(fast_profile(), network=whole.network)
    if is_student:
        row = replace(next(row for row in latency.specs if row.spec == INT8), spec=spec)
        latency = replace(latency, specs=(*latency.specs, row))
    strategy = FixedStrategy(spec)
    run_training(whole, strategy, out=tmp_path / "run", profile=latency)
    monkeypatch.setattr(own_networks, "board", own_networks.residual_board)
    said = "own_networks:board': its layers are not those that were saved"
    longer = replace(whole, seconds=0.06)
    with pytest.raises(UserError, match=said):
        run_training(longer, strategy, out=tmp_path / "run", resume=True, profile=latency)
    with pytest.raises(UserError, match=said):
        accerl.load_policy(tmp_path / "run", spec)
    if not is_student:
        with pytest.raises(UserError, match=said):
            run_training(replace(whole, start=str(tmp_path / "run")), strategy, profile=latency)


def test_a_network_that_torch_alone_can_run_is_evaluated(tmp_path: Path) -> None:
    network = "tests.fixtures.own_networks:torch_only"
    latency, whole = replace(fast_profile(), network=network), config(0.05)
    eager = FixedStrategy(CompressionSpec(graph="eager"))
    run_training(replace(whole, network=network), eager, out=tmp_path, profile=latency)
    assert evaluate_checkpoint(tmp_path, 5)["kl_nats"] == 0.0
    with pytest.raises(UserError, match="DoubleBoard cannot be exported to ONNX"):
        accerl.load_policy(tmp_path)


@pytest.mark.slow
def test_processes_publish_integers_of_any_network() -> None:
    result = accerl.train(
        "catch",
        network=OWN,
        strategy=FixedStrategy(INT8),
        seconds=3.0,
        runtime__runtime="process",
        runtime__clock="real",
    )
    assert result.reports[-1].spec_seconds.keys() == {INT8}
    assert result.summary["env_steps"] > 0
