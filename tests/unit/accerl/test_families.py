"""Families: defaults for games without a preset, by what their observations are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from accerl.families import (
    PIXELS,
    SMALL_IMAGE,
    VECTOR,
    Family,
    describe_game,
    family_of,
    shown,
)
from accerl.networks.observation import ObservationSpec
from accerl.presets import load_preset
from accerl.settings import configure
from tests.fixtures.own_games import own

pytestmark = pytest.mark.usefixtures("own_games")


@pytest.mark.parametrize(
    ("shape", "family"),
    [
        ((8,), VECTOR),
        ((4, 8), VECTOR),
        ((3, 7, 7), SMALL_IMAGE),
        ((4, 84, 84), PIXELS),
        ((3, 210, 160), PIXELS),
    ],
)
def test_observations_choose_the_family(shape: tuple[int, ...], family: Family) -> None:
    assert family_of(ObservationSpec(shape, "uint8")) is family


@pytest.mark.parametrize(
    ("game", "family", "shown"),
    [
        ("CartPole-v1", VECTOR, {}),
        (own("ShownImage-v0"), SMALL_IMAGE, {}),
        (own("ShownFrames-v0"), PIXELS, {"resize": 84, "grayscale": True, "frame_stack": 4}),
        (own("ShownGrey-v0"), PIXELS, {"resize": 84, "frame_stack": 4}),
        (own("Codes-v0"), SMALL_IMAGE, {}),
        ("qbert", PIXELS, {}),
    ],
)
def test_a_game_without_a_preset_has_its_family_s_defaults(
    game: str, family: Family, shown: dict[str, object]
) -> None:
    config = load_preset(game)
    assert (config.preset, config.game) == (game, game)
    assert config.env == replace(config.env, **shown)
    assert (config.env.resize == 0) == (not shown)
    assert config.learner == replace(family.learner, reward_scale=config.learner.reward_scale)
    assert f"family {family.name!r}" in describe_game(config)
    assert "\n" not in describe_game(config)


@pytest.mark.parametrize(
    ("game", "scale"),
    [
        ("CartPole-v1", 0.2),  # up to 73 points under random play
        ("LunarLander-v3", 0.05),  # 313
        ("Acrobot-v1", 0.1),  # -1 a step
        (own("Silent-v0"), VECTOR.learner.reward_scale),
        (own("Rare-v0"), 1.0),
        (own("Rich-v0"), 2e-5),
        (own("ShownImage-v0"), 1.0),  # is clipped
    ],
)
def test_rewards_are_scaled_by_what_random_play_earns(game: str, scale: float) -> None:
    assert load_preset(game).learner.reward_scale == scale


@pytest.mark.parametrize(
    ("settings", "scale"),
    [
        ({"learner.reward_clip": 2.0}, 0.5),
        ({"learner.reward_clip": 0.25}, 4.0),
        ({"learner.discount": 0.5}, 1.0),
        ({"learner.discount": 0.5, "learner.reward_scale": 0.3}, 0.3),
        ({}, 0.1),
    ],
)
def test_rewards_are_scaled_as_they_count_with_what_is_set(
    settings: dict[str, float], scale: float
) -> None:
    assert configure("Acrobot-v1", settings).learner.reward_scale == scale


def test_rewards_of_small_images_are_scaled_where_clipping_is_left() -> None:
    config = configure(own("ShownImage-v0"), {"learner.reward_clip": 0.0})
    assert config.learner.reward_scale == 1.0  # five points an episode
    assert "clipped to +-1," not in describe_game(config)
    assert "clipped to +-1;" in describe_game(load_preset(own("ShownImage-v0")))


def test_frames_of_what_is_no_image_are_stacked() -> None:
    config = load_preset(own("ShownStrip-v0"), {"frame_stack": 4})
    assert (config.env.resize, config.env.grayscale, config.env.frame_stack) == (0, False, 4)


def test_given_settings_of_env_stay_and_choose_the_family() -> None:
    middle = load_preset(own("ShownFrames-v0"), {"resize": 48})
    assert middle.learner == PIXELS.learner, "the paper's convolutions fit"
    assert load_preset(own("ShownFrames-v0"), {"resize": 84}) == load_preset(own("ShownFrames-v0"))
    config = load_preset(own("ShownFrames-v0"), {"resize": 10, "grayscale": False})
    assert (config.env.resize, config.env.grayscale, config.env.frame_stack) == (10, False, 1)
    assert config.learner == SMALL_IMAGE.learner


def test_atari_by_its_id_stays_small_and_grey_where_only_the_stack_is_chosen() -> None:
    """Without settings ale-py stacks 84x84 itself; with any the emulator's frames are shown."""
    assert shown(load_preset("ALE/Breakout-v5")).shape == (4, 84, 84)
    assert shown(load_preset("ALE/Breakout-v5", {"frame_stack": 2})).shape == (2, 84, 84)


def test_pixels_are_centred_and_scaled_by_what_random_play_shows() -> None:
    config = load_preset(own("ShownBytes-v0"))  # uniform bytes
    assert config.pixel_centre == pytest.approx(127, abs=4)
    assert config.pixel_unit == pytest.approx(73.9, abs=2)
    assert load_preset("CartPole-v1").pixel_unit == 255.0  # floats enter as they are
    opaque = load_preset(own("ShownOpaque-v0"))  # the last of its channels is 255 throughout
    assert opaque.pixel_centre < 250
    assert opaque.pixel_unit < 128
    planes = load_preset(own("Map-v0"), {"frame_stack": 1, "resize": 0})
    assert planes.pixel_unit == pytest.approx(0.07, abs=0.005)  # 323 ones in all planes
