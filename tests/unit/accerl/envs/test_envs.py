"""Environments: rules by brute force, no junk rows at episode ends, raw scores, exact resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accerl.checkpoint import load_checkpoint, save_checkpoint
from accerl.envs import AcrobotEnvs, AtariEnvs, CartPoleEnvs, CatchEnvs, Step, atari, make_envs
from accerl.envs.minatar import MINATAR_GAMES
from accerl.errors import UserError

ROWS, COLUMNS = CatchEnvs.ROWS, CatchEnvs.COLUMNS


def columns(board: np.ndarray) -> tuple[int, int, int]:
    """Row and column of the ball and column of the paddle, read off one rendered board."""
    lit = np.argwhere(board == 255)
    assert len(lit) == 2  # a ball that has met the paddle belongs to an episode that is over
    (row, ball), (bottom, paddle) = lit
    assert bottom == ROWS - 1
    return int(row), int(ball), int(paddle)


def test_catch_follows_its_rules_move_by_move() -> None:
    """Against a slow game in plain Python that knows nothing but the rules."""
    envs, rng = CatchEnvs(16), np.random.default_rng(0)
    state = [list(columns(board)) for board in envs.reset(5)]
    assert {ball for _, ball, _ in state} == set(range(COLUMNS))
    ended = 0
    for _ in range(200):
        actions = rng.integers(3, size=16)
        step = envs.step(actions)
        for i, action in enumerate(actions):
            row, ball, paddle = state[i]
            row, paddle = row + 1, min(max(paddle + (-1, 0, 1)[action], 0), COLUMNS - 1)
            over = row == ROWS - 1
            expected = (1.0 if paddle == ball else -1.0) if over else 0.0
            assert (step.reward[i], step.terminated[i]) == (expected, over)
            assert not step.truncated[i]
            state[i] = list(columns(step.obs[i]))
            if over:
                ended += 1
                assert state[i][0] == 0
                assert state[i][2] == COLUMNS // 2
            else:
                assert state[i] == [row, ball, paddle]
    assert ended == 16 * (200 // (ROWS - 1))


def random_catch_return() -> float:
    """The expected return of uniform actions, by summing over every path of the paddle."""
    chance = np.zeros(COLUMNS)
    chance[COLUMNS // 2] = 1.0
    for _ in range(ROWS - 1):
        moved = np.zeros(COLUMNS)
        for column, mass in enumerate(chance):
            for move in (-1, 0, 1):
                moved[min(max(column + move, 0), COLUMNS - 1)] += mass / 3.0
        chance = moved
    # The ball's column is uniform: whatever the paddle does, one column in five is right.
    return float((2.0 * chance - 1.0).mean())


def play(envs: CatchEnvs, steps: int, act: str) -> list[float]:
    rng, scores = np.random.default_rng(1), []
    obs = envs.reset(0)
    for _ in range(steps):
        if act == "random":
            actions = rng.integers(3, size=envs.num_envs)
        else:
            places = np.array([columns(board) for board in obs])
            actions = np.sign(places[:, 1] - places[:, 2]) + 1
            actions = actions if act == "follow" else 2 - actions
        step = envs.step(actions)
        scores += [float(score) for score in step.reward[step.terminated]]
        obs = step.obs
    return scores


def test_catch_is_won_by_following_the_ball_and_lost_by_fleeing_it() -> None:
    assert set(play(CatchEnvs(50), 45, "follow")) == {1.0}
    # Who flees only meets the ball where it has already been: straight above the paddle.
    assert np.mean(play(CatchEnvs(50), 45, "flee")) < -0.5


def test_random_play_of_catch_scores_what_chance_gives() -> None:
    expected = random_catch_return()
    assert expected == pytest.approx(-0.6)
    scores = play(CatchEnvs(500), 90, "random")
    assert len(scores) == 5000
    assert np.mean(scores) == pytest.approx(expected, abs=4.0 * 0.8 / np.sqrt(5000))


def test_cartpole_has_no_junk_rows() -> None:
    """Every row is a real transition: it pays 1, and after an end the pole stands upright again."""
    envs, rng = CartPoleEnvs(8), np.random.default_rng(0)
    obs = envs.reset(3)
    rewards, lengths = np.zeros(8), np.zeros(8, dtype=int)
    scores, counted = [], []
    for _ in range(300):
        before = obs
        step = envs.step(rng.integers(2, size=8))
        obs = step.obs
        assert np.array_equal(step.reward, np.ones(8))
        rewards += step.reward
        lengths += 1
        done = step.terminated | step.truncated
        assert (np.abs(obs[done]) <= 0.05).all()
        assert (np.abs(before[done][:, 2]) > 0.1).all()  # the pole really was about to fall
        scores += list(rewards[done])
        counted += list(lengths[done])
        rewards[done], lengths[done] = 0.0, 0
    assert len(scores) > 50
    assert scores == counted
    assert 15 < np.mean(scores) < 35  # random play of CartPole-v1: about 22


def test_cartpole_episodes_are_gymnasiums_own() -> None:
    """The first episode of each environment, step by step, against the untouched environment."""
    import gymnasium

    envs = CartPoleEnvs(4)
    raw: list[Any] = [gymnasium.make("CartPole-v1").unwrapped for _ in range(4)]
    obs = envs.reset(0)
    for i, single in enumerate(raw):
        single.reset(seed=0)
        single.state = obs[i].astype(np.float64)
    alive = np.ones(4, dtype=bool)
    rng = np.random.default_rng(0)
    for _ in range(60):
        actions = rng.integers(2, size=4)
        step = envs.step(actions)
        for i in np.flatnonzero(alive):
            expected, _, over, _, _ = raw[i].step(int(actions[i]))
            assert over == step.terminated[i]
            if not over:
                np.testing.assert_allclose(step.obs[i], expected, atol=1e-4)
        alive &= ~step.terminated
    assert not alive.any()


def test_cartpole_is_cut_off_after_500_steps() -> None:
    envs = CartPoleEnvs(2)
    obs = envs.reset(0)
    for number in range(1, 502):
        angle = obs[:, 2] + 0.5 * obs[:, 3] + 0.03 * obs[:, 0] + 0.1 * obs[:, 1]
        step = envs.step((angle > 0).astype(np.int64))
        obs = step.obs
        assert not step.terminated.any()
        assert step.truncated.tolist() == [number == 500] * 2
        if number == 500:
            assert (np.abs(obs) <= 0.05).all()


def test_atari_has_no_junk_rows_and_keeps_the_raw_score() -> None:
    """Equal to ale-py's own next-step autoreset with its one junk row per episode cut out."""
    from ale_py.vector_env import AtariVectorEnv

    envs = AtariEnvs("space_invaders", 2)
    raw = AtariVectorEnv("space_invaders", 2, num_threads=1, reward_clipping=False)
    first, (raw_first, _) = envs.reset(4), raw.reset(seed=4)
    np.testing.assert_array_equal(first, raw_first)
    rng = np.random.default_rng(0)
    actions = rng.integers(envs.num_actions, size=(1400, 2))
    mine: list[Step] = [envs.step(row) for row in actions[:700]]
    # The raw environments lag one row behind after each end: feed each from its own tape.
    tape, junk = np.zeros(2, dtype=int), np.zeros(2, dtype=bool)
    rewards: list[float] = []
    ends = 0
    for _ in range(720):
        row = np.array([actions[tape[i], i] for i in range(2)])
        obs, reward, over, _, _ = raw.step(row)
        for i in range(2):
            if tape[i] >= 700:
                continue
            step = mine[tape[i]]
            if junk[i]:
                # What the raw environment shows in its junk row is the start of the episode.
                np.testing.assert_array_equal(mine[tape[i] - 1].obs[i], obs[i])
                assert reward[i] == 0
                junk[i] = False
                continue
            assert (step.reward[i], step.terminated[i]) == (reward[i], over[i])
            rewards.append(float(step.reward[i]))
            junk[i] = over[i]
            if not over[i]:
                np.testing.assert_array_equal(step.obs[i], obs[i])
            ends += over[i]
            tape[i] += 1
    assert ends >= 2
    assert max(rewards) > 1.0  # invaders are worth 5 to 30: nothing was clipped
    envs.close()
    raw.close()


def test_an_atari_game_that_lasts_too_long_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atari, "MOST_FRAMES", 400)
    envs = make_envs("montezuma_revenge", 2)
    envs.reset(0)
    steps = [envs.step(np.zeros(2, int)) for _ in range(101)]
    cut = [number for number, step in enumerate(steps) if step.truncated.any()]
    assert len(cut) in (1, 2)  # frames of no action at the start count
    assert all(90 <= number <= 99 for number in cut)
    assert not any(step.terminated.any() for step in steps)
    envs.close()


def test_atari_starts_from_any_seed() -> None:
    """Evaluation and large run seeds lie above what ale-py's 32-bit seeds hold."""
    envs = AtariEnvs("pong", 1)
    boards = [envs.reset(seed) for seed in (0, 1, 777_001, 10**9)]
    assert all(board.shape == (1, 4, 84, 84) for board in boards)
    np.testing.assert_array_equal(envs.reset(777_001), boards[2])
    assert envs.load_state_dict(envs.state_dict()).shape == (1, 4, 84, 84)
    envs.close()


def pump(obs: np.ndarray) -> np.ndarray:
    """Acrobot's simplest swing-up: always push the way the lower link is moving."""
    return (obs[:, 5] > 0) * 2


def test_acrobot_episodes_are_gymnasiums_own() -> None:
    """Swung up, left hanging until it is cut off, and spun until angles and speeds wrap."""
    import gymnasium

    envs, rng = AcrobotEnvs(6), np.random.default_rng(0)
    raw: list[Any] = [gymnasium.make("Acrobot-v1").unwrapped for _ in range(6)]
    obs = envs.reset(0)
    for single in raw:
        single.reset(seed=0)
    starts = envs.state_dict()["state"]
    assert (np.abs(starts) <= 0.1).all()
    assert len(np.unique(starts)) == starts.size
    ends = [0] * 6
    for number in range(1, 501):
        before = envs.state_dict()["state"]
        actions = pump(obs)
        actions[4], actions[5] = 1, rng.integers(3)
        step = envs.step(actions)
        for i, single in enumerate(raw):
            single.state = before[:, i]
            expected, reward, over, _, _ = single.step(int(actions[i]))
            assert (step.reward[i], step.terminated[i]) == (reward, over)
            if over or step.truncated[i]:
                ends[i] += 1
                assert (np.abs(np.arctan2(step.obs[i, [1, 3]], step.obs[i, [0, 2]])) <= 0.11).all()
            else:
                np.testing.assert_allclose(step.obs[i], expected, rtol=1e-4, atol=1e-5)
        assert step.truncated[4] == (number == 500)
        obs = step.obs
    assert min(ends[:4]) >= 2  # swung up, and again
    assert ends[4] == 1  # hung still until it was cut off


def test_acrobot_wraps_angles_and_bounds_speeds_as_gymnasium_does() -> None:
    import gymnasium

    count = 400
    envs, rng = AcrobotEnvs(count), np.random.default_rng(0)
    envs.reset(0)
    limits = np.array([np.pi, np.pi, 4.0 * np.pi, 9.0 * np.pi])[:, None]
    state = rng.uniform(-limits, limits, (4, count))
    envs.load_state_dict({**envs.state_dict(), "state": state})
    step = envs.step(np.full(count, 2))
    raw: Any = gymnasium.make("Acrobot-v1").unwrapped
    raw.reset(seed=0)
    wrapped = 0
    for i in np.flatnonzero(~step.terminated):
        raw.state = state[:, i]
        np.testing.assert_allclose(step.obs[i], raw.step(2)[0], rtol=1e-4, atol=1e-4)
        wrapped += int(np.abs(raw.state[:2] - state[:2, i]).max() > np.pi)
    assert wrapped > 20
    angles = envs.state_dict()["state"]
    assert (np.abs(angles) <= limits + 1e-9).all()


@pytest.mark.parametrize(
    ("game", "steps"),
    [("catch", 80), ("cartpole", 80), ("acrobot", 520)]
    + [(game, 2600 if game == "minatar-freeway" else 300) for game in MINATAR_GAMES],
)
def test_saved_environments_go_on_bit_by_bit(game: str, steps: int, tmp_path: Path) -> None:
    """Also through the files of a checkpoint, and after the copy has been elsewhere."""
    envs, other = make_envs(game, 5), make_envs(game, 5)
    rng = np.random.default_rng(2)
    obs = envs.reset(7)
    for _ in range(40):
        obs = envs.step(rng.integers(envs.num_actions, size=5)).obs
    save_checkpoint(tmp_path / "envs", envs.state_dict())
    other.reset(99)
    other.step(np.zeros(5, dtype=np.int64))
    np.testing.assert_array_equal(other.load_state_dict(load_checkpoint(tmp_path / "envs")), obs)
    ends = 0
    for _ in range(steps):
        actions = rng.integers(envs.num_actions, size=5)
        one, two = envs.step(actions), other.step(actions)
        for name in ("obs", "reward", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
        ends += int((one.terminated | one.truncated).sum())
    assert ends >= 5  # the random starts agree too
    assert envs.exact_resume


def test_a_saved_state_is_not_changed_by_going_on() -> None:
    for game in ("catch", "cartpole", "acrobot", *MINATAR_GAMES):
        envs = make_envs(game, 3)
        envs.reset(0)
        state = envs.state_dict()
        before = json.dumps(state, default=np.ndarray.tolist)
        for _ in range(30):
            envs.step(np.ones(3, dtype=np.int64))
        assert json.dumps(state, default=np.ndarray.tolist) == before


def test_a_game_of_breakout_has_five_lives() -> None:
    envs = make_envs("breakout", 4)
    try:
        envs.reset(3)
        rng = np.random.default_rng(0)
        lost, games = np.zeros(4, dtype=int), 0
        while games < 4:
            step = envs.step(rng.integers(envs.num_actions, size=4))
            assert step.life_lost is not None
            over = step.terminated | step.truncated
            assert not (over & step.life_lost).any()
            lost += step.life_lost
            assert (lost[over] == 4).all()  # the fifth ends the game
            lost[over] = 0
            games += int(over.sum())
    finally:
        envs.close()


@pytest.mark.parametrize(
    ("game", "hint"),
    [
        ("katch", "catch"),
        ("pongg", "pong"),
        ("SpaceInvaders", "space_invaders"),
        ("minatar_breakout", "minatar-breakout"),
    ],
)
def test_an_unknown_game_is_a_mistake_of_the_user(game: str, hint: str) -> None:
    with pytest.raises(UserError, match=f"game '{game}' does not exist; did you mean .*{hint}"):
        make_envs(game, 1)


def test_a_game_like_no_other_still_gets_a_list() -> None:
    with pytest.raises(
        UserError, match=r"allowed: catch, cartpole, acrobot, minatar-.* \(or any A"
    ):
        make_envs("zzzzzz", 1)
