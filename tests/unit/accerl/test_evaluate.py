"""Evaluation: mirrored pairs of episodes."""

from __future__ import annotations

import numpy as np
import pytest

from accerl.envs import make_envs
from accerl.evaluate import draw_uniforms, play_episodes


def right_or_left(obs: np.ndarray) -> np.ndarray:
    """A policy of Catch that goes left or right, whatever it sees."""
    return np.tile(np.array([0.0, -50.0, 0.0], np.float32), (len(obs), 1))


@pytest.mark.parametrize("episodes", [1, 6, 7])
def test_the_second_half_of_the_dice_mirrors_the_first(episodes: int) -> None:
    uniforms = np.empty((episodes, 3), np.float32)
    draw_uniforms(np.random.default_rng(0), uniforms, antithetic=True)
    pairs, own = episodes // 2, (episodes + 1) // 2
    np.testing.assert_allclose(uniforms[own:], 1.0 - uniforms[:pairs], atol=1e-7)
    assert uniforms.min() >= 0.0
    assert uniforms.max() < 1.0
    assert len(np.unique(uniforms[:own])) == 3 * own


def test_mirrored_dice_are_as_fair_as_others() -> None:
    envs = make_envs("catch", 4001)
    plain, mirrored = (
        play_episodes(envs, right_or_left, 3, antithetic=pairs) for pairs in (False, True)
    )
    assert not np.array_equal(plain, mirrored)
    assert mirrored.mean() == pytest.approx(plain.mean(), abs=0.06)
    np.testing.assert_array_equal(mirrored, play_episodes(envs, right_or_left, 3))


def test_a_mirrored_walk_ends_on_the_other_side() -> None:
    # Two actions of equal logits: 1 - u chooses left exactly where u chooses right.
    uniforms = np.empty((8, 2), np.float32)
    draw_uniforms(np.random.default_rng(1), uniforms, antithetic=True)
    chosen = uniforms.argmax(axis=1)
    np.testing.assert_array_equal(chosen[4:], 1 - chosen[:4])
