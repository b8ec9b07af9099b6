"""Presets: each can be built, and carries its name."""

from __future__ import annotations

import re
from typing import Any

import pytest

from accerl.envs import make_envs
from accerl.envs.minatar import MINATAR_GAMES
from accerl.envs.random_play import measure_pixels
from accerl.errors import UserError
from accerl.presets import PRESETS, load_preset
from accerl.runtime.latency.profiles import paper_profile
from accerl.spec import IDENTITY
from tests.fixtures.command_line import accerl


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
    small = {"catch", "cartpole", "acrobot", *MINATAR_GAMES}
    assert {name for name in PRESETS if PRESETS[name].runtime.eval_episodes} == small
    for name in PRESETS.keys() - small:
        assert (PRESETS[name].runtime.runtime, PRESETS[name].runtime.clock) == ("process", "real")


def test_the_paper_s_games_and_settings() -> None:
    """Tables 4 and 5."""
    table_4 = (
        "alien amidar beam_rider name_this_game riverraid hero "
        "space_invaders breakout road_runner bank_heist pong seaquest"
    )
    for game in table_4.split():
        assert PRESETS[game].game == game
    paper = PRESETS["paper-pong"]
    assert (paper.game, paper.network) == ("pong", "original")
    learner, runtime = paper.learner, paper.runtime
    assert (learner.unroll, learner.learning_rate, learner.discount) == (5, 3e-4, 0.99)
    assert (learner.entropy_cost, learner.value_cost) == (0.02, 0.25)
    assert (learner.reuse, learner.minibatches, learner.precision) == (1, 1, "fp32")
    assert runtime.num_actors == 12
    assert runtime.num_envs * learner.unroll == 160


def atari_presets() -> list[Any]:
    """Two of them, and the others as slow tests; the paper's own settings only divide by 255."""
    names = [name for name, config in PRESETS.items() if config.network == "net1"]
    assert len(names) == 12
    quick = ("pong", "breakout")
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", atari_presets())
def test_pixel_statistics_of_presets_are_the_measured_ones(name: str) -> None:
    centre, unit = measure_pixels(PRESETS[name].game)
    assert PRESETS[name].pixel_centre == centre
    assert PRESETS[name].pixel_unit == pytest.approx(unit, rel=0.03)


def test_a_preset_that_does_not_exist() -> None:
    for wrong, right in (
        ("catsh", "catch"),
        ("minatar_breakout", "minatar-breakout"),
        ("SpaceInvaders", "space_invaders"),
        ("riveraid", "riverraid"),
    ):
        with pytest.raises(UserError, match=f"game '{wrong}' does not exist") as refused:
            load_preset(wrong)
        assert f"did you mean '{right}'?" in str(refused.value)
        assert "\n" not in str(refused.value)


def test_help_lists_every_preset(capsys: pytest.CaptureFixture[str]) -> None:
    listed = set(re.findall(r"[a-z_-]+", accerl(capsys, "train", "--help").out))
    assert listed >= PRESETS.keys()


def test_atari_keeps_its_traces_whole_and_presets_of_papers_use_vtrace() -> None:
    for name in ("paper-pong", "ald-pong"):
        assert load_preset(name).learner.corrector == "vtrace+importance"
    for name in ("pong", "breakout", "ALE/Asteroids-v5"):
        assert load_preset(name).learner.corrector == "importance"
