"""RunConfig: what is allowed, what identifies a run, and reading it back."""

from __future__ import annotations

import json
import math
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest

from accerl.compress.config import CompressionConfig
from accerl.compress.distillation.beginnings import BeginMethod
from accerl.compress.distillation.trainer import DistillMethod
from accerl.compress.lowrank import LowRankMethod
from accerl.compress.pruning.criteria import PruneMethod
from accerl.compress.quantization.quantize import QuantiseMethod
from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.learner.config import LearnerConfig
from accerl.presets import load_preset

CONFIG = RunConfig(preset="test", game="catch", seed=3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"runtime": "cluster"}, "runtime 'cluster' does not exist"),
        ({"runtime": "processo"}, "did you mean 'process'"),
        ({"clock": "sun"}, "clock 'sun' does not exist"),
        ({"runtime": "process"}, "the process runtime runs on the real clock"),
        ({"runtime": "ray"}, "the ray runtime runs on the real clock"),
        ({"runtime": "ray", "clock": "real", "pin_cores": True}, "Ray places actors"),
        ({"runtime": "ray", "clock": "real", "num_learners": 2}, "needs --runtime process"),
        ({"num_actors": -1}, "num_actors must not be negative, got -1"),
        ({"infer_batch": 33}, r"infer_batch must lie in 0..num_envs \(32\), got 33"),
        ({"num_envs": -2}, "num_envs must be at least 1"),
        ({"queue_rollouts": -1}, "queue_rollouts must not be negative"),
        ({"publish_every": 0}, "publish_every must be at least 1"),
        ({"learner_threads": 0}, "learner_threads must lie in 1"),
        ({"num_learners": 0}, "num_learners must be at least 1, got 0"),
        ({"num_learners": 2}, "num_learners 2 needs --runtime process; use"),
        ({"interval_seconds": 0.0}, r"interval_seconds must lie in 0.001..1e9, got 0.0"),
        ({"interval_seconds": 1e-17}, "interval_seconds must lie in"),  # now + 1e-17 is now
        ({"interval_seconds": float("nan")}, "interval_seconds must lie in"),
        ({"interval_seconds": float("inf")}, "interval_seconds must lie in"),
        ({"first_interval_seconds": 6.0}, r"must lie in 0..interval_seconds \(5\), got 6.0"),
        ({"first_interval_seconds": float("nan")}, "first_interval_seconds must lie in 0"),
        ({"eval_episodes": -1}, "eval_episodes must not be negative"),
    ],
    ids=str,
)
def test_runtime_settings_out_of_range_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        CONFIG.with_runtime(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"game": "katch"}, "did you mean 'catch'"),
        ({"seconds": 0.0}, "--seconds must be positive and finite, got 0.0"),
        ({"seconds": float("nan")}, "--seconds must be positive"),
        ({"seconds": 10**400}, "--seconds must be positive and finite"),
        ({"seconds": float("inf")}, "--seconds must be positive and finite, got inf"),
        ({"seed": -1}, "--seed must not be negative"),
        ({"seed": 1.5}, "--seed must be a whole number, got 1.5"),
        ({"learner": LearnerConfig(minibatches=33)}, "more minibatches than environments"),
    ],
    ids=str,
)
def test_run_settings_out_of_range_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        replace(CONFIG, **changes)


def test_numbers_of_arrays_are_those_of_python() -> None:
    config = replace(CONFIG, seed=np.arange(4)[3], seconds=np.float64(2.0), until_score=np.int8(1))
    assert config == replace(CONFIG, seed=3, seconds=2.0, until_score=1)
    assert config.hash == replace(CONFIG, seed=3, seconds=2.0, until_score=1).hash


def test_several_learners_need_equal_shares_on_the_cpu() -> None:
    processes = {"runtime": "process", "clock": "real", "num_actors": 1, "num_envs": 12}
    config = CONFIG.with_learner(minibatches=2).with_runtime(**processes, num_learners=3)
    assert config.adapted().learner.device == "cpu"
    with pytest.raises(UserError, match="process runtime always has a compressor process"):
        config.with_runtime(compressor_process=False)
    with pytest.raises(UserError, match="num_envs to be a multiple of 6, got 20"):
        config.with_runtime(num_envs=20)
    with pytest.raises(UserError, match="multiple of 12"):
        config.with_learner(minibatches=4).with_runtime(num_envs=18)
    with pytest.raises(UserError, match="3 learners learn on the CPU, and learner device is cuda"):
        config.with_learner(device="cuda")


def test_a_configuration_survives_its_json() -> None:
    config = CONFIG.with_runtime(num_envs=7, eval_episodes=0).with_learner(discount=0.9)
    data = json.loads(json.dumps(config.to_json()))
    assert data["hash"] == config.hash
    assert RunConfig.from_json(data) == config
    assert config.runtime.num_envs == 7
    assert config.learner.discount == 0.9
    assert CONFIG.runtime.num_envs != 7  # a copy was changed


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data.update(colour="red"),
        lambda data: data["learner"].update(colour="red"),
        lambda data: data.pop("runtime"),
        lambda data: data["runtime"].update(bits=8),
        lambda data: data.pop("preset"),
    ],
)
def test_keys_of_another_version_are_named(damage: Any) -> None:
    data = CONFIG.to_json()
    damage(data)
    with pytest.raises(UserError, match=r"config\.json is not of this version"):
        RunConfig.from_json(data)


def test_every_setting_is_part_of_the_hash() -> None:
    others = [
        replace(CONFIG, seed=4),
        replace(CONFIG, seconds=61.0),
        replace(CONFIG, game="cartpole"),
        CONFIG.with_runtime(num_envs=16),
        CONFIG.with_learner(adam_eps=1e-6),
        replace(CONFIG, compression=replace(CONFIG.compression, distill_batch=64)),
        CONFIG.with_runtime(first_interval_seconds=0.5),
    ]
    assert len({CONFIG.hash, *(other.hash for other in others)}) == 8
    assert replace(CONFIG).hash == CONFIG.hash


def test_a_run_from_before_there_were_short_first_intervals_is_the_same_run() -> None:
    data = CONFIG.to_json()
    del data["runtime"]["first_interval_seconds"]
    assert RunConfig.from_json(data).hash == data["hash"]
    short = CONFIG.with_runtime(first_interval_seconds=0.5)
    assert RunConfig.from_json(short.to_json()).hash == short.hash


def test_configurations_do_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        CONFIG.__setattr__("seed", 5)


def test_what_is_left_to_the_machine_is_decided_when_a_run_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pong = load_preset("pong")
    assert pong.runtime.num_actors == 0
    for cores, actors in ((1, 1), (2, 1), (16, 15)):
        monkeypatch.setattr("accerl.config.usable_cores", lambda cores=cores: cores)
        adapted = pong.with_learner(device="cpu").adapted()
        assert (adapted.runtime.num_actors, adapted.learner.device) == (actors, "cpu")
    threaded = pong.with_learner(device="cpu").with_runtime(learner_threads=4)
    assert threaded.adapted().runtime.num_actors == 12
    assert pong.with_runtime(num_actors=3).adapted().runtime.num_actors == 3
    # A learner on a GPU needs no core.
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    adapted = pong.adapted()
    assert (adapted.runtime.num_actors, adapted.learner.device) == (16, "cuda")
    assert load_preset("catch").adapted().learner.device == "cpu"
    with pytest.raises(UserError, match="needs the process runtime, or Ray's: what compresses"):
        load_preset("catch").with_learner(device="cuda").adapted()
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UserError, match="torch sees none"):
        pong.with_learner(device="cuda").adapted()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("adam_eps", 0.0, "must be positive"),
        ("max_grad_norm", 0.0, "must be positive"),
        ("entropy_cost", float("nan"), "must not be negative"),
        ("actor_kl_cost", float("inf"), "must not be negative"),
        ("clip_rho", -3.0, "must not be negative"),  # whether the corrector reads it or not
        ("clip_c", float("nan"), "must not be negative"),
    ],
)
def test_numbers_that_would_spoil_learning_are_refused(name: str, value: float, words: str) -> None:
    with pytest.raises(UserError, match=f"learner: {name} {words}"):
        replace(load_preset("catch").learner, **{name: value})


@pytest.mark.parametrize(
    ("section", "name", "value", "words"),
    [
        ("learner", "reward_clip", 1e300, r"must be at most 3.40282e\+38"),
        ("learner", "clip_rho", 1e300, "must be at most 3.4"),
        ("learner", "clip_rho", 10**50, "must be at most 3.4"),
        ("compression", "distill_learning_rate", 1e300, "must be at most 3.4"),
        ("compression", "distill_learning_rate", math.inf, "must be positive"),
        ("compression", "distill_temperature", 1e300, "must lie in"),
        ("compression", "distill_value_cost", math.inf, "must not be negative"),
        ("compression", "quantise_tuning_learning_rate", math.inf, "must be positive"),
    ],
)
def test_numbers_that_float32_cannot_compute_with_are_refused(
    section: str, name: str, value: float, words: str
) -> None:
    with pytest.raises(UserError, match=f"{name.split('_', 1)[1]} {words}"):
        replace(CONFIG, **{section: replace(getattr(CONFIG, section), **{name: value})})


def test_a_truncation_may_be_none_at_all() -> None:
    assert CONFIG.with_learner(clip_rho=math.inf).learner.clip_rho == math.inf


def test_compression_has_the_defaults_of_its_methods() -> None:
    config = CompressionConfig()
    assert config.distill_method == DistillMethod()
    assert config.begin_method == BeginMethod()
    assert config.prune_method == PruneMethod()
    assert config.rank_method == LowRankMethod()
    assert config.quantise_method == QuantiseMethod()  # its ranges too
