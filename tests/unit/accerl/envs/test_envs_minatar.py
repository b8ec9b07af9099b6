"""MinAtar: step by step as the package plays it; boards, dice, and life without the package."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from accerl.envs import Envs, check_game, check_installed, make_envs
from accerl.envs.minatar import MINATAR_GAMES, MinAtarEnvs
from accerl.envs.minatar.dice import Dice
from accerl.envs.minatar.game import ON
from accerl.errors import UserError
from accerl.seeds import Role, stream
from accerl.training.run import make_run
from tests.fixtures.runs.inner_runs import fast_profile, tiny_catch

ENVS = 4
STEPS = {"minatar-freeway": 2600}


def package_games(game: str, seed: int) -> list[Any]:
    """Games of the untouched package, with its own sticky actions, and the dice that ours have."""
    from minatar import Environment  # with its defaults: sticky actions 0.1, difficulty ramping

    games = []
    for index in range(ENVS):
        single = Environment(game.removeprefix("minatar-").replace("-", "_"))
        bits = np.random.MT19937(stream(seed, Role.EPISODES, index))
        single.random = single.env.random = np.random.RandomState(bits)
        single.reset()
        games.append(single)
    return games


def played_alike(envs: Envs, games: list[Any], game: str, steps: int) -> tuple[int, float]:
    """Play both with the same actions; return how many episodes ended, and the score."""
    rng, ends, total = np.random.default_rng(0), 0, 0.0
    assert envs.num_actions == len(games[0].minimal_action_set())
    for _ in range(steps):
        actions = rng.integers(envs.num_actions, size=ENVS)
        if game == "minatar-freeway":  # nobody crosses a road by a random walk
            actions = np.where(rng.random(ENVS) < 0.8, 1, actions)
        step = envs.step(actions)
        for i, single in enumerate(games):
            reward, over = single.act(single.minimal_action_set()[actions[i]])
            assert (step.reward[i], step.terminated[i]) == (reward, over)
            if over:
                single.reset()
                ends += 1
            np.testing.assert_array_equal(step.obs[i], 255 * single.state().transpose(2, 0, 1))
            total += reward
        assert not step.truncated.any()
    return ends, total


@pytest.mark.parametrize("game", MINATAR_GAMES)
def test_a_game_is_the_packages_own(game: str) -> None:
    envs, games = make_envs(game, ENVS), package_games(game, 5)
    obs = envs.reset(5)
    for i, single in enumerate(games):
        np.testing.assert_array_equal(obs[i], 255 * single.state().transpose(2, 0, 1))
    ends, total = played_alike(envs, games, game, STEPS.get(game, 1000))
    assert ends >= 3
    assert total > 0.0


def test_breakout_is_the_packages_own_where_hardly_a_brick_is_left() -> None:
    envs, games = MinAtarEnvs("minatar-breakout", ENVS), package_games("minatar-breakout", 6)
    envs.reset(6)
    state = envs.state_dict()
    state["game"]["bricks"][:] = 0
    state["game"]["bricks"][:, 3, 2] = ON
    envs.load_state_dict(state)
    for single in games:
        single.env.brick_map[:] = 0
        single.env.brick_map[3, 2] = 1
    cleared, rng = 0, np.random.default_rng(1)
    obs = np.array([single.state() for single in games]).transpose(0, 3, 1, 2)
    for _ in range(400):  # the paddle follows the ball as a rule
        ball, paddle = obs[:, 1].any(axis=1).argmax(axis=1), obs[:, 0, 9].argmax(axis=1)
        follow = np.where(ball < paddle, 1, np.where(ball > paddle, 2, 0))
        actions = np.where(rng.random(ENVS) < 0.95, follow, rng.integers(3, size=ENVS))
        step = envs.step(actions)
        for i, single in enumerate(games):
            left = np.count_nonzero(single.env.brick_map)
            reward, over = single.act(single.minimal_action_set()[actions[i]])
            cleared += left == 0 and np.count_nonzero(single.env.brick_map) == 30
            assert (step.reward[i], step.terminated[i]) == (reward, over)
            if over:
                single.reset()
            np.testing.assert_array_equal(step.obs[i], 255 * single.state().transpose(2, 0, 1))
        obs = step.obs
    assert cleared > 0


@pytest.mark.parametrize("left", [1, 2])
def test_space_invaders_is_the_packages_own_in_later_waves(left: int) -> None:
    game = "minatar-space-invaders"
    envs, games = MinAtarEnvs(game, ENVS), package_games(game, 7)
    envs.reset(7)
    state = envs.state_dict()
    state["game"]["aliens"][:, 1:] = 0
    state["game"]["aliens"][:, 0, 2 + left :] = 0
    state["game"]["move_every"][:] = 7 + left
    envs.load_state_dict(state)
    for single in games:
        single.env.alien_map[1:] = 0
        single.env.alien_map[0, 2 + left :] = 0
        single.env.enemy_move_interval = 7 + left
    ends, total = played_alike(envs, games, game, 300)
    assert (ends > 0, total > 0) == (True, True)


@pytest.mark.parametrize("every", [1, 2, 3])
def test_asterix_is_the_packages_own_when_it_is_hard(every: int) -> None:
    game = "minatar-asterix"
    envs, games = MinAtarEnvs(game, ENVS), package_games(game, 8)
    envs.reset(8)
    state = envs.state_dict()
    for name in ("spawn_every", "move_every", "spawn_in", "move_in", "ramps"):
        state["game"][name][:] = every
    state["game"]["ramp_in"][:] = 2
    envs.load_state_dict(state)
    for single in games:
        for name in ("spawn_speed", "move_speed", "spawn_timer", "move_timer", "ramp_index"):
            setattr(single.env, name, every)
        single.env.ramp_timer = 2
    assert played_alike(envs, games, game, 300)[0] > 0


@pytest.mark.parametrize("game", MINATAR_GAMES)
def test_what_is_saved_goes_on_alike(game: str) -> None:
    envs, rng = make_envs(game, ENVS), np.random.default_rng(2)
    envs.reset(3)
    actions = rng.integers(envs.num_actions, size=(900, ENVS))
    for action in actions[:300]:
        envs.step(action)
    state = envs.state_dict()
    first = [envs.step(action) for action in actions[300:]]
    other = make_envs(game, ENVS)
    other.load_state_dict(state)
    for step, action in zip(first, actions[300:], strict=True):
        again = other.step(action)
        np.testing.assert_array_equal(again.obs, step.obs)
        np.testing.assert_array_equal(again.reward, step.reward)


def test_dice_are_those_of_numpys_random_state() -> None:
    dice = Dice(2)
    dice.seed(9)
    bits = [np.random.MT19937(stream(9, Role.EPISODES, index)) for index in range(2)]
    own = [np.random.RandomState(each) for each in bits]
    for turn in range(700):
        np.testing.assert_array_equal(dice.uniforms(), [state.rand() for state in own])
        bound = 1 + turn % 9
        assert dice.below(turn % 2, bound) == own[turn % 2].randint(bound)
        assert dice.uniform(0) == own[0].rand()
    assert [dice.below(1, 5) + 1 for _ in range(8)] == own[1].randint(1, 6, 8).tolist()
    assert [dice.uniform(1) for _ in range(8)] == own[1].rand(8).tolist()


def test_boards_are_bytes_that_the_integer_graph_takes_as_they_are() -> None:
    envs = make_envs("minatar-space-invaders", 4)
    obs = envs.reset(0)
    assert (envs.observation.shape, envs.observation.dtype) == ((6, 10, 10), "uint8")
    assert (envs.observation.centre, envs.observation.unit) == (0, 255.0)
    assert (obs.dtype, obs.shape) == (np.uint8, (4, 6, 10, 10))
    assert set(np.unique(obs)) == {0, 255}
    first = obs.copy()
    envs.step(np.zeros(4, dtype=np.int64))
    np.testing.assert_array_equal(obs, first)  # what was returned is not written to again


def test_environments_differ_and_depend_on_the_seed_alone() -> None:
    def played(seed: int) -> np.ndarray:
        envs, rng = make_envs("minatar-asterix", 4), np.random.default_rng(0)
        envs.reset(seed)
        return np.stack([envs.step(rng.integers(5, size=4)).obs for _ in range(50)])

    first = played(10**12)  # larger than the 32 bits that numpy's old generator takes
    np.testing.assert_array_equal(played(10**12), first)
    assert not np.array_equal(played(1), first)
    assert len({first[:, i].tobytes() for i in range(4)}) == 4


def without(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda wanted: None if wanted == name else found(wanted)
    )


def test_without_the_package_one_line_says_what_to_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = replace(tiny_catch(), game="minatar-seaquest")
    without("minatar", monkeypatch)
    check_game("minatar-seaquest")  # it exists all the same
    for playable in ("catch", "minatar-breakout"):
        check_installed(playable)
    for refused in (
        lambda: check_installed("minatar-seaquest"),
        lambda: make_envs("minatar-seaquest", 2),
        lambda: make_run(config, fast_profile()),
    ):
        with pytest.raises(UserError, match=r"run `pip install --no-deps minatar==1\.0\.15`$"):
            refused()
