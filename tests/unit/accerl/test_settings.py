"""Any setting of a preset from the command line, and runs that start from others."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import accerl
from accerl.compress.pruning.sparse import TopologyConfig
from accerl.config import RunConfig
from accerl.envs import EnvConfig
from accerl.errors import UserError
from accerl.monitor.strategies import FixedStrategy
from accerl.presets import load_preset
from accerl.settings import configure, read_settings, refuse_idle, to_text
from accerl.spec import IDENTITY, CompressionSpec
from accerl.training.run import run_training
from accerl.training.run_folder import read_config, saved_run, starting_learner
from tests.fixtures.runs.inner_runs import fast_profile, tiny_catch


def configured(*settings: str, file: Path | None = None) -> RunConfig:
    return configure("catch", read_settings(settings), file)


def test_numbers_may_be_numpys() -> None:
    config = configure("catch", {}, seconds=np.int64(60), until_score=np.float32(0.5))
    assert (type(config.seconds), type(config.until_score)) == (float, float)
    for seconds in (60, 60.0):
        assert config.hash == configure("catch", {}, seconds=seconds, until_score=0.5).hash
    with pytest.raises(UserError, match="--seconds must be positive"):
        replace(config, seconds=True)


@pytest.mark.parametrize("seed", [5_000_000_000, 2**128 - 1])
def test_a_run_of_a_large_seed_is_read_back(seed: int, tmp_path: Path) -> None:
    config = configure("catch", {}, seed=seed)
    (tmp_path / "config.json").write_text(json.dumps(config.to_json()))
    assert configured(file=tmp_path / "config.json") == config


def test_settings_of_every_kind_are_changed() -> None:
    config = configured(
        "compression.prune_criterion=taylor",
        "compression.prune_round_to=8",
        "compression.prune_compensate=true",
        "compression.rank_energy=1",
        "compression.quantise_reduce_range=false",
        'learner.sparse={"method": "set", "sparsity": 0.5}',
        "runtime.num_distillers=2",
    )
    assert config.compression.prune_criterion == "taylor"
    assert config.compression.prune_round_to == 8
    assert config.compression.prune_compensate is True
    assert config.compression.rank_energy == 1.0
    assert config.compression.quantise_reduce_range is False
    assert config.learner.sparse is not None
    assert config.learner.sparse.method == "set"
    assert config.runtime.num_distillers == 2
    assert configured() == load_preset("catch")


def test_the_readmes_sparse_topology_is_read() -> None:
    page = Path(accerl.__file__).parent / "compress" / "README.md"
    (setting,) = re.findall(r"--set '(learner\.sparse=.*)'", page.read_text())
    assert configured(setting).learner.sparse == TopologyConfig(method="rigl", sparsity=0.9)


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("compression.prune_compensate=1", "a value like false is needed"),
        ("compression.prune_round_to=8.5", "a value like 1 is needed"),
        ("compression.prune_round_to=true", "a value like 1 is needed"),
        ("learner.learning_rate=fast", r"a value like 0\.\d+ is needed"),
        ("learner.sparse.method=set", "learner has no 'sparse.method'"),
        ("learner.reuse", "write it like"),
        ("learner.reuse=0", "must be at least 1"),
    ],
)
def test_settings_that_do_not_fit_are_refused(setting: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        configured(setting)


@pytest.mark.parametrize(
    ("game", "settings", "need"),
    [
        ("paper-pong", {"policy_loss": "clipped"}, "one pass in one part"),
        ("paper-pong", {"proximal": "pass"}, "needs learner.policy_loss clipped"),
        ("catch", {"anneal_to": 0.5}, "needs learner.anneal_updates"),
        ("paper-pong", {"advantage_moments": "weighted"}, "needs learner.normalise_advantages"),
        ("pong", {"clip_c": 0.5}, "learner.corrector importance does not read it"),
        ("catch", {"corrector": "none", "clip_rho": 2.0}, "corrector none does not read it"),
    ],
)
def test_settings_that_would_do_nothing_are_refused(
    game: str, settings: dict[str, object], need: str
) -> None:
    given = {f"learner.{name}": value for name, value in settings.items()}
    refuse_idle(configure(game, given), ["learner.learning_rate"])  # what was not given may be idle
    with pytest.raises(UserError, match=f"would do nothing: .*{need}"):
        refuse_idle(configure(game, given), given)


@pytest.mark.parametrize(
    ("setting", "value", "need"),
    [("runtime.pin_cores", True, "goes with processes"), ("ray.address", "auto", "runtime ray")],
)
def test_settings_of_another_runtime_are_refused(setting: str, value: object, need: str) -> None:
    config = configure("catch", {setting: value})
    refuse_idle(config, [])
    with pytest.raises(UserError, match=f"--set {setting} goes with .*{need.split()[-1]}"):
        refuse_idle(config, [setting])


@pytest.mark.parametrize("game", ["pong", "Acrobot-v1", "qbert"])
def test_a_printed_configuration_reads_back_as_itself(game: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    settings = read_settings(['learner.sparse={"method": "set"}', "learner.unroll=10"])
    config = configure(game, settings, seconds=7.0, seed=4)
    path.write_text(to_text(config))
    assert configure(game, {}, path) == config
    assert to_text(configure(game, {}, path)) == to_text(config)


def test_a_file_goes_before_settings_and_after_the_game(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'seconds = 5\nnetwork = "net1"\n[env]\nframe_stack = 2\nwrappers = ["FlattenObservation"]\n'
        "[runtime]\nnum_envs = 8\nnum_learners = 2\n[learner]\nunroll = 9\n"
    )
    config = configure("CartPole-v1", {"runtime.num_envs": 16}, path, network="net2")
    assert (config.seconds, config.network) == (5.0, "net2")
    assert config.env == EnvConfig(frame_stack=2, wrappers=("FlattenObservation",))
    assert (config.runtime.num_envs, config.runtime.num_learners) == (16, 2)
    assert config.learner == replace(configure("CartPole-v1", {}).learner, unroll=9)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("seconds = ", "Invalid value"),
        ("pixel_units = 5", "has no 'pixel_units'; did you mean 'pixel_unit'"),
        ("seconds = 'long'", "config.toml.seconds: a value like"),
        ("[learner]\nunrol = 5", "learner has no 'unrol'; did you mean 'unroll'"),
        ("[lerner]\nunroll = 5", "'lerner' does not exist; did you mean 'learner'"),
        ('game = "pong"', "is for 'pong'; give that game"),
        ("conditions = [{at_seconds = 60}]", "config.toml.conditions: an object with events"),
        ("own = ['mine:Clip']", "config.toml.own: an object with"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(content: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(content)
    with pytest.raises(UserError, match=reason) as refused:
        configured(file=path)
    assert str(refused.value).startswith("--config")
    assert "\n" not in str(refused.value)


def test_a_run_starts_with_the_learner_of_another(tmp_path: Path) -> None:
    config = tiny_catch()
    run_training(config, FixedStrategy(IDENTITY), out=tmp_path / "a", profile=fast_profile())
    learned = saved_run(tmp_path / "a")["learner"]
    start = replace(tiny_catch(seed=5), start=str(tmp_path / "a"))
    integers = FixedStrategy(CompressionSpec(bits=8))
    run_training(start, integers, out=tmp_path / "b", profile=fast_profile())
    after = saved_run(tmp_path / "b")["learner"]
    assert after["updates"] > learned["updates"]
    moved = [
        float((after["policy"][name] - value).abs().max())
        for name, value in learned["policy"].items()
    ]
    assert 0.0 < max(moved) < 0.5  # it went on from there, and did not begin anew
    assert read_config(tmp_path / "b").start == str(tmp_path / "a")
    longer = replace(start, seconds=0.2)
    run_training(longer, integers, out=tmp_path / "b", resume=True, profile=fast_profile())
    assert saved_run(tmp_path / "b")["learner"]["updates"] > after["updates"]


def test_only_a_learner_that_fits_can_be_started_from(tmp_path: Path) -> None:
    run_training(tiny_catch(), FixedStrategy(IDENTITY), out=tmp_path / "a", profile=fast_profile())
    start = replace(tiny_catch(), start=str(tmp_path / "a"))
    assert torch.is_tensor(next(iter(starting_learner(start)["policy"].values())))
    for change, reason in (
        ({"network": "net1"}, "its network is 'original', this run's is 'net1'"),
        ({"game": "cartpole"}, "its game is 'catch'"),
        ({"pixel_unit": 2.0}, "its pixel_unit is"),
        ({"start": str(tmp_path / "b")}, "b does not exist; give the folder of a run"),
    ):
        with pytest.raises(UserError, match=reason):
            starting_learner(replace(start, **change))


def test_a_sparse_learner_keeps_the_masks_that_it_was_drawn_with(tmp_path: Path) -> None:
    sparse = tiny_catch().with_learner(sparse=TopologyConfig(sparsity=0.5))
    run_training(sparse, FixedStrategy(IDENTITY), out=tmp_path / "a", profile=fast_profile())
    start = replace(sparse, start=str(tmp_path / "a"))
    moved = start.with_learner(sparse=TopologyConfig(method="set", sparsity=0.5, update_every=7))
    assert starting_learner(moved)["topology"]["steps"] > 0
    for masks, reason in (
        (TopologyConfig(sparsity=0.9), "its learner.sparse.sparsity is 0.5, this run's is 0.9"),
        (TopologyConfig(sparsity=0.5, block=4), "its learner.sparse.block is 1, this run's is 4"),
    ):
        with pytest.raises(UserError, match=reason):
            starting_learner(start.with_learner(sparse=masks))
    with pytest.raises(UserError, match="one of the two learns sparse layers"):
        starting_learner(start.with_learner(sparse=None))


def test_the_record_of_a_run_is_a_file_of_its_settings(tmp_path: Path) -> None:
    config = tiny_catch()
    run_training(config, FixedStrategy(IDENTITY), out=tmp_path / "a", profile=fast_profile())
    again = configure(config.preset, {}, tmp_path / "a" / "config.json")
    assert again == read_config(tmp_path / "a")
