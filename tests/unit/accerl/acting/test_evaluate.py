"""Evaluation: mirrored pairs of episodes."""

from __future__ import annotations

import numpy as np
import pytest

from accerl.acting import evaluate
from accerl.acting.evaluate import (
    FEWEST_STATES,
    draw_uniforms,
    fast_infer,
    play_episodes,
    policy_infer,
)
from accerl.envs import EnvConfig, make_envs
from accerl.envs.atari import MOST_FRAMES
from accerl.networks.observation import ObservationSpec
from accerl.networks.policy_net import make_policy
from accerl.seeds import Role, generator, number, torch_generator


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


def test_an_episode_that_does_not_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_FRAMES / 4 < evaluate.MAX_STEPS  # Atari's own limit comes first
    monkeypatch.setattr(evaluate, "MAX_STEPS", 20)
    cut_off = np.zeros(64, np.bool_)

    def uniform(obs: np.ndarray) -> np.ndarray:
        return np.zeros((len(obs), 2), np.float32)

    scores = play_episodes(make_envs("cartpole", 64), uniform, 0, cut_off=cut_off)
    assert scores.max() == 20.0
    np.testing.assert_array_equal(cut_off[scores < 20.0], False)
    assert 0 < cut_off.sum() <= (scores == 20.0).sum()


def test_nothing_is_inferred_for_whoever_has_finished() -> None:
    envs, seen = make_envs("minatar-breakout", 8), []

    def uniform(obs: np.ndarray) -> np.ndarray:
        seen.append(len(obs))
        return np.zeros((len(obs), 3), np.float32)

    scores = play_episodes(envs, uniform, 7)
    assert seen == sorted(seen, reverse=True)
    assert (seen[0], seen[-1]) == (8, FEWEST_STATES)
    # The same dice, one by one, for as long as an episode takes.
    rng, score, running = generator(7, Role.ACTIONS), np.zeros(8), np.ones(8, bool)
    envs.reset(number(7, Role.EPISODES))
    uniforms = np.empty((8, 3), np.float32)
    while running.any():
        draw_uniforms(rng, uniforms, antithetic=True)
        step = envs.step(uniforms.argmax(axis=1))
        score += step.reward * running
        running &= ~step.terminated
    np.testing.assert_array_equal(scores, score)


def test_environments_that_rest_change_no_score() -> None:
    """Of the environments here some end earlier than others; without `rest`, all go on."""

    def uniform(obs: np.ndarray) -> np.ndarray:
        return np.zeros((len(obs), 2), np.float32)

    wrapped = EnvConfig(wrappers=("FlattenObservation",))  # so that each is a simulator of its own
    envs, others = (make_envs("CartPole-v1", 8, wrapped) for _ in range(2))
    others.rest = lambda rows: None  # type: ignore[attr-defined]
    scores = play_episodes(envs, uniform, 7)
    np.testing.assert_array_equal(scores, play_episodes(others, uniform, 7))
    assert len(set(scores.tolist())) > 2
    others.close()
    envs.close()


@pytest.mark.parametrize("rows", [FEWEST_STATES, 5, 11])
def test_a_part_of_the_states_gets_the_logits_that_it_gets_among_all(rows: int) -> None:
    rng = np.random.default_rng(0)
    policy = make_policy(
        "original", ObservationSpec((4, 10, 10), "uint8"), 3, torch_generator(0, Role.LEARNER)
    )
    obs = (255 * (rng.random((16, 4, 10, 10)) < 0.2)).astype(np.uint8)
    chosen = np.sort(rng.permutation(16)[:rows])
    fast = fast_infer(policy)
    np.testing.assert_array_equal(fast(obs[chosen]), fast(obs)[chosen])
    np.testing.assert_allclose(fast(obs), policy_infer(policy)(obs), atol=1e-6)
