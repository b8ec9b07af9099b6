"""MinAtar: the package's own games, step by step; boards, actions, and life without the package."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from accerl.envs import MinAtarEnvs, check_game, check_installed, make_envs
from accerl.envs.minatar import MINATAR_GAMES
from accerl.errors import UserError
from accerl.seeds import Role, stream
from accerl.training.run import make_run
from tests.fixtures.runs.inner_runs import fast_profile, tiny_catch

STEPS = {"minatar-freeway": 2600}


@pytest.mark.parametrize("game", MINATAR_GAMES)
def test_a_game_is_the_packages_own(game: str) -> None:
    """Against the untouched package, with its own sticky actions, given the same dice."""
    from minatar import Environment  # with its defaults: sticky actions 0.1, difficulty ramping

    envs, rng = MinAtarEnvs(game, 3), np.random.default_rng(0)
    obs = envs.reset(5)
    raw: list[Any] = []
    for index, state in enumerate(envs.state_dict()["games"]):
        single = Environment(game.removeprefix("minatar-").replace("-", "_"))
        if index == 0:
            assert envs.num_actions == len(single.minimal_action_set())
        # The dice as they were before the first board was drawn.
        bits = np.random.MT19937(stream(5, Role.EPISODES, index))
        single.random = np.random.RandomState(bits)
        single.env.random = single.random
        single.reset()
        assert (
            single.random.get_state(legacy=False)["state"]["pos"] == state["random"]["state"]["pos"]
        )
        raw.append(single)
    ends, total = 0, 0.0
    for _ in range(STEPS.get(game, 500)):
        actions = rng.integers(envs.num_actions, size=3)
        if game == "minatar-freeway":  # nobody crosses a road by a random walk
            actions = np.where(rng.random(3) < 0.8, 1, actions)
        step = envs.step(actions)
        for i, single in enumerate(raw):
            np.testing.assert_array_equal(obs[i], 255 * single.state().transpose(2, 0, 1))
            reward, over = single.act(single.minimal_action_set()[actions[i]])
            assert (step.reward[i], step.terminated[i]) == (reward, over)
            if over:
                single.reset()
                ends += 1
            total += reward
        assert not step.truncated.any()
        obs = step.obs
    assert ends >= 3
    assert total > 0.0


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
    config = replace(tiny_catch(), game="minatar-breakout")
    without("minatar", monkeypatch)
    check_game("minatar-breakout")  # it exists all the same
    check_installed("catch")
    for refused in (
        lambda: check_installed("minatar-breakout"),
        lambda: make_envs("minatar-breakout", 2),
        lambda: make_run(config, fast_profile()),
    ):
        with pytest.raises(UserError, match=r"run `pip install --no-deps minatar==1\.0\.15`$"):
            refused()
