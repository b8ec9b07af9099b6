"""Presets: each can be built, and carries its name."""

from __future__ import annotations

import pytest

from accerl.envs import make_envs, measure_pixels
from accerl.errors import UserError
from accerl.presets import PRESETS, load_preset
from accerl.runtime.latency import paper_profile
from accerl.spec import IDENTITY


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_a_valid_configuration_under_its_own_name(name: str) -> None:
    config = load_preset(name)
    assert config.preset == name
    envs = make_envs(config.game, 2)
    assert envs.reset(0).shape == (2, *envs.observation.shape)
    envs.close()
    assert config.runtime.num_envs % config.learner.minibatches == 0
    assert config.seconds >= config.runtime.interval_seconds
    if config.runtime.clock == "virtual":
        rollout = config.runtime.num_envs * config.learner.unroll
        acting = paper_profile().infer_seconds(IDENTITY, 1) * rollout
        assert acting < config.seconds  # on the slowest profile, too, something happens


def test_small_games_measure_j_and_large_ones_do_not_stop_for_it() -> None:
    assert {name for name in PRESETS if PRESETS[name].runtime.eval_episodes} == {
        "catch",
        "cartpole",
    }
    for name in ("pong", "breakout"):
        assert (PRESETS[name].runtime.runtime, PRESETS[name].runtime.clock) == ("process", "real")


@pytest.mark.parametrize("name", ["pong", "breakout"])
def test_pixel_statistics_of_presets_are_the_measured_ones(name: str) -> None:
    centre, unit = measure_pixels(PRESETS[name].game, steps=100)
    assert PRESETS[name].pixel_centre == centre
    assert PRESETS[name].pixel_unit == pytest.approx(unit, rel=0.03)


def test_a_preset_that_does_not_exist() -> None:
    with pytest.raises(UserError, match=r"preset 'catsh' does not exist; did you mean 'catch'\?"):
        load_preset("catsh")
