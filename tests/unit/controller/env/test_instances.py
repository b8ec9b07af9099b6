"""Instances: what is held out, how long an episode is, and what names stand for."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from itertools import combinations
from typing import Any

import gymnasium
import pytest

from accerl.errors import UserError
from accerl.presets import load_preset
from accerl.runtime.latency.profiles import paper_profile
from accerl.spec import CompressionSpec, Decision
from controller import ENV_ID
from controller.env.instances import (
    ENV_STEPS,
    INTERVALS,
    SPLITS,
    Instance,
    choose_horizon,
    find_instance,
    keeping_pace,
    make_instance,
    split_instances,
)
from controller.env.references import load_reference

PAPER = ("paper-1080ti",)
NET3 = CompressionSpec(student="net3")


def test_splits_share_no_game_and_no_seed() -> None:
    for first, second in combinations(SPLITS.values(), 2):
        assert not set(first.games) & set(second.games)
        assert not set(first.seeds) & set(second.seeds)
    seen = {*SPLITS["train"].profiles, *SPLITS["validation"].profiles}
    assert not seen & set(SPLITS["test"].profiles)


def test_every_game_of_a_split_has_steps_and_a_reference() -> None:
    games = [game for split in SPLITS.values() for game in split.games]
    assert len(games) == len(set(games))
    assert set(games) <= set(ENV_STEPS)
    for game in ENV_STEPS:
        assert load_reference(game).span > 0.0


def test_an_instance_is_as_long_as_its_own_network_takes() -> None:
    preset, paper = load_preset("catch"), paper_profile()
    small = replace(preset, network="net3")
    short = make_instance("catch", paper, 8_000, base=small.with_runtime(eval_episodes=0))
    whole = make_instance("catch", paper, 8_000)
    assert (short.config(0).network, whole.config(0).network) == ("net3", preset.network)
    assert short.horizon_seconds == choose_horizon(small, paper, 8_000)[0]
    assert short.horizon_seconds < 0.8 * whole.horizon_seconds
    assert short.config(0).runtime.eval_episodes > 0  # rewards are differences of J
    assert whole.base is None


def test_a_split_is_games_by_profiles_by_seeds() -> None:
    instances = split_instances("train", profiles=PAPER)
    assert len(instances) == 2 * 10
    assert [instance.seed for instance in instances[:10]] == list(range(10))
    assert instances[10].name == "cartpole-paper-1080ti-0"
    assert repr(instances[13]) == repr(find_instance("cartpole", "paper-1080ti", 3))
    elsewhere = pickle.loads(pickle.dumps(instances[13]))
    assert repr(elsewhere) == repr(instances[13])
    assert elsewhere.has(NET3)


def test_the_horizon_is_what_uncompressed_actors_take() -> None:
    config, profile = load_preset("catch"), paper_profile()
    horizon, interval = choose_horizon(config, profile, 30_000)
    assert horizon == pytest.approx(INTERVALS * interval)
    run = find_instance("catch", "paper-1080ti", 0).make_run(0)
    run.apply(Decision.of(CompressionSpec()))
    report = run.advance(4 * interval)
    run.close()
    # Publications, which the rule leaves out, and rollouts under way are a share of a short run.
    assert report.env_steps == pytest.approx(4 * 30_000 / INTERVALS, rel=0.15)


def test_a_smaller_learner_sees_the_machine_as_its_own() -> None:
    profile = paper_profile()
    config = replace(load_preset("catch"), network="net1")
    small, _ = choose_horizon(config, profile, 30_000)
    large, _ = choose_horizon(load_preset("catch"), profile, 30_000)
    assert small < 0.7 * large
    instance = Instance(
        game="catch", base=config, latency=profile, horizon_seconds=small, interval_seconds=small
    )
    assert instance.has(NET3)
    assert not instance.has(CompressionSpec(student="net1"))


@pytest.mark.parametrize("game", ["catch", "minatar-breakout"])
def test_students_of_small_games_keep_pace_as_those_of_real_ones_do(game: str) -> None:
    atari = load_preset("breakout")
    assert keeping_pace(atari) == atari
    config = load_preset(game)
    kept = keeping_pace(config)
    learner, compression = config.learner, kept.compression
    samples = config.runtime.num_envs * learner.unroll * learner.reuse
    assert compression.distill_updates * compression.distill_batch == samples
    assert compression.distill_updates == learner.reuse * learner.minibatches
    assert replace(kept, compression=config.compression) == config


def test_what_the_profile_has_no_times_for_does_not_exist() -> None:
    profile = replace(
        paper_profile(), specs=tuple(s for s in paper_profile().specs if s.spec.bits != 16)
    )
    instance = Instance(game="catch", latency=profile, horizon_seconds=1.0, interval_seconds=1.0)
    half = CompressionSpec(bits=16)
    assert not instance.has(half)
    assert replace(instance, tier="real").has(half)


def test_an_instance_is_json_without_its_machine() -> None:
    instance = replace(find_instance("catch", "edge", 3), fp32_returns=(1.0, 2.0))
    data = json.loads(json.dumps(instance.to_json()))
    assert Instance(**{**data, "fp32_returns": (1.0, 2.0)}) == instance
    assert (data["game"], data["profile"], data["seed"]) == ("catch", "edge", 3)
    assert "latency" not in data
    assert "first_interval_seconds" not in data
    short = replace(instance, first_interval_seconds=0.1 * instance.interval_seconds)
    assert short.to_json()["first_interval_seconds"] == short.first_interval_seconds
    assert short.config(3).runtime.first_interval_seconds == short.first_interval_seconds > 0.0


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"tier": "virtul"}, "did you mean 'virtual'"),
        ({"split": "tset"}, "did you mean 'test'"),
        ({"tier": "virtual", "split": "tran"}, "did you mean 'train'"),
        ({"tier": "virtual", "games": ("catsh",)}, "did you mean 'catch'"),
        ({"tier": "virtual", "games": "acrobot"}, "split 'train' has no game 'acrobot'"),
        ({"tier": "virtual", "games": ()}, "no game is left"),
        ({"tier": "virtual", "profiles": ("slow",)}, "did you mean 'slow-env'"),
        ({"games": ("catch",)}, "tier analytic has no games"),
        ({"action_space": "jiont"}, "did you mean 'joint'"),
    ],
)
def test_misspelt_names_are_told_apart(names: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        gymnasium.make(ENV_ID, **names)


def test_misspelt_instances_are_named() -> None:
    with pytest.raises(UserError, match="did you mean 'cartpole'"):
        find_instance("cartpol", "paper-1080ti", 0)
    with pytest.raises(UserError, match="paper-1080ti"):
        find_instance("catch", "paper-1080", 0)
    with pytest.raises(UserError, match="plays no games"):
        find_instance("catch", "paper-1080ti", 0, tier="analytic")
