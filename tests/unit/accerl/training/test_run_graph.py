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
from accerl.monitor.strategies import FixedStrategy
from accerl.runtime.latency.profile import LatencyProfile
from accerl.spec import CompressionSpec
from accerl.training.run import run_training
from tests.fixtures.runs.inner_runs import fast_profile, tiny_catch

OWN = "tests.fixtures.own_networks:board"
INT8 = CompressionSpec(bits=8)
HALF = CompressionSpec(bits=8, sparsity=0.5)


def config(seconds: float) -> RunConfig:
    return replace(tiny_catch(seconds=seconds, eval_episodes=0), network=OWN)


def profile() -> LatencyProfile:
    return replace(fast_profile(), network=OWN)


@pytest.mark.parametrize("spec", [INT8, HALF])
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
