"""The pipeline benchmark: its bound, its ratios, its configurations, and one real run."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import pytest

from accerl.errors import UserError
from accerl.precision import choose_precision
from accerl.spec import CompressionSpec
from studies.benchmarks.pipeline import bench_pipeline, speed_bound
from studies.benchmarks.pipelines import RATIOS, pipelines, wirings


def row(speed: float, *, actors: int = 1, serial: bool = False, **phases: float) -> dict[str, Any]:
    times = dict.fromkeys(("env", "infer", "write", "learn"), 0.0) | phases
    return {"env_steps_per_second": speed, "phases": times, "actors": actors, "serial": serial}


def test_the_bound_leaves_only_inference_out() -> None:
    slow = row(1000.0)
    # The two cores are the limit: (0.3 + 0.1 + 0.5) / 2 < 0.5, so it is the learner.
    learner_bound = row(1500.0, env=0.3, write=0.1, infer=9.0, learn=0.5)
    assert speed_bound(learner_bound, slow, cores=2) == pytest.approx(1.0 / 0.5)
    actor_bound = row(1500.0, env=0.7, write=0.1, infer=9.0, learn=0.2)
    assert speed_bound(actor_bound, slow, cores=2) == pytest.approx(1.0 / 0.8)
    # Two actors halve their share, and then the cores are busy: (0.8 + 0.4) / 2.
    two = row(1500.0, env=0.7, write=0.1, learn=0.4, actors=2)
    assert speed_bound(two, slow, cores=2) == pytest.approx(1.0 / 0.6)
    # In one process nothing overlaps.
    serial = row(1500.0, env=0.7, write=0.1, learn=0.4, serial=True)
    assert speed_bound(serial, slow, cores=2) == pytest.approx(1.0 / 1.2)


def test_every_ratio_is_of_configurations_that_exist() -> None:
    named = pipelines("pong", "original")
    assert {name for pair in RATIOS for name in pair} <= set(named)
    assert named["paper"].config.runtime.infer_batch == 1
    assert named["paper"].config.learner.precision == "fp32"
    assert named["paper"].spec.graph == "eager"
    assert named["env-only"].emulators == (os.cpu_count() or 1)
    for name in ("fp32", "int8", "net3+int8"):  # only what actors act with differs
        assert named[name].config == named["fp32"].config
        assert named[name].config.learner.precision == choose_precision("auto")
    # Equal samples between two publications.
    for pipeline in (named["paper"], *wirings("pong", "original").values()):
        learner, runtime = pipeline.config.learner, pipeline.config.runtime
        samples = learner.unroll * runtime.num_envs * runtime.publish_every
        assert 640 <= samples <= 16 * 640
    assert "net3+int8" not in pipelines("pong", "net3")


def test_wirings_vary_one_thing_each() -> None:
    found = wirings("pong", "net1")
    assert len({repr(pipeline) for pipeline in found.values()}) == len(found)
    assert {pipeline.spec for pipeline in found.values()} == {CompressionSpec(bits=8)}


def test_every_wiring_can_start_beside_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("accerl.precision.has_instructions", lambda kind: False)
    decided = {name: each.config.adapted() for name, each in wirings("pong", "net1").items()}
    assert decided["int8"].learner.device == "cuda"
    assert decided["serial, 2 threads"].learner.device == "cpu"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"names": ("int9",)}, "configuration 'int9' does not exist; did you mean 'int8'"),
        ({"seconds": 0.0}, "--seconds must be positive"),
        ({"seconds": math.nan}, "--seconds must be positive"),
        ({"repeats": 0}, "--repeats must be at least 1"),
        ({"game": "pongg"}, "game 'pongg' does not exist"),
        ({"network": "net9"}, "network 'net9' does not exist"),
    ],
    ids=str,
)
def test_mistakes_are_refused_before_anything_runs(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        bench_pipeline(**changes)


@pytest.mark.slow
def test_a_real_run_measures_what_it_says() -> None:
    names = ("int8", "actor-int8", "actor-env-only")
    result = bench_pipeline(names=names, network="net1", seconds=1.0, repeats=1)
    assert set(result["configs"]) == set(names)
    for name, config in result["configs"].items():
        assert config["env_steps_per_second"] > 0.0
        assert config["cpu_seconds_per_1000_steps"] > 0.0
        assert config["phases"]["env"] > 0.0
        assert (config["phases"]["infer"] > 0.0) == ("int8" in name)
        assert (config["phases"]["learn"] > 0.1) == (name == "int8")  # ms a step
        assert np.isfinite(list(config["phases"].values())).all()
        assert set(config["rss_mb"]) >= ({"learner", "actor-0"} if "int8" in name else set())
    assert set(result["ratios"]) == {"actor-int8/actor-env-only"}
    assert set(result["bounds"]) == set(result["ratio_spread"]) == set(result["ratios"])
    int8 = result["configs"]["int8"]
    assert int8["learner_samples_per_second"] == pytest.approx(int8["env_steps_per_second"])
