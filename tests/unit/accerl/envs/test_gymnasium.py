"""Any Gymnasium environment: no junk rows, raw scores, every space, and refusals in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

from accerl.envs import EnvConfig, make_envs
from accerl.envs.base import Rests
from accerl.envs.config import AS_IT_IS
from accerl.envs.gymnasium import _lives_of
from accerl.envs.observations import Observations
from accerl.errors import GameError, UserError
from tests.fixtures.own_games import NAME, own

pytestmark = pytest.mark.usefixtures("own_games")
FLAT = EnvConfig(wrappers=("FlattenObservation",))


def test_every_row_is_a_real_transition() -> None:
    """An environment that counts its episodes and steps, against a count of our own."""
    envs, rng = make_envs(own("Counting-v0"), 3), np.random.default_rng(0)
    assert (envs.num_actions, envs.observation.shape, envs.exact_resume) == (3, (3,), False)
    obs = envs.reset(0)
    episode, steps = np.ones(3, int), np.zeros(3, int)
    terminated = truncated = 0
    for _ in range(40):
        actions = rng.integers(3, size=3)
        before, step = obs.copy(), envs.step(actions)
        np.testing.assert_array_equal(before, obs)  # nobody writes into what was handed out
        steps += 1
        np.testing.assert_array_equal(step.reward, 10 * episode + steps)
        over = steps == 3 + episode % 3
        np.testing.assert_array_equal(step.terminated, over & (episode % 2 == 0))
        np.testing.assert_array_equal(step.truncated, over & (episode % 2 == 1))
        terminated, truncated = terminated + step.terminated.sum(), truncated + step.truncated.sum()
        episode, steps = episode + over, np.where(over, 0, steps)
        shown = np.stack([episode, steps, np.where(over, 0, actions + 5)], axis=1)
        np.testing.assert_array_equal(step.obs, shown)
        obs = step.obs
    assert obs.dtype == np.float32
    assert terminated > 5
    assert truncated > 5
    envs.close()


def test_those_that_rest_are_not_stepped_until_all_are_reset() -> None:
    resting, all_step = (make_envs(own("Counting-v0"), 3) for _ in range(2))
    assert isinstance(resting, Rests)
    resting.reset(0)
    all_step.reset(0)
    resting.rest(np.array([True, False, True]))
    for _ in range(9):
        step, reference = resting.step(np.zeros(3, int)), all_step.step(np.zeros(3, int))
        np.testing.assert_array_equal(step.obs[1], reference.obs[1])
        assert step.reward.tolist() == [0.0, reference.reward[1], 0.0]
        assert not step.terminated[[0, 2]].any()
    again = resting.reset(0)
    np.testing.assert_array_equal(again[:, 0], [2, 4, 2])  # episodes that began, as each counts
    step = resting.step(np.zeros(3, int))
    np.testing.assert_array_equal(step.obs[:, 1], [1, 1, 1])
    resting.close()
    all_step.close()


def test_stacks_begin_anew_with_each_episode() -> None:
    envs = make_envs(own("Counting-v0"), 2, EnvConfig(frame_stack=3))
    assert envs.observation.shape == (3, 3)
    history = [envs.reset(0)[0]]
    np.testing.assert_array_equal(history[0], [[1, 0, 0]] * 3)
    for _ in range(12):
        step = envs.step(np.zeros(2, int))
        new = step.obs[0, -1]
        begins = step.terminated[0] or step.truncated[0]
        expected = [new] * 3 if begins else [*history[-1][1:], new]
        np.testing.assert_array_equal(step.obs[0], expected)
        history.append(step.obs[0])
    envs.close()


def test_an_environment_s_own_wrappers_go_by_import_path() -> None:
    wrapped = EnvConfig(wrappers=(own("Doubled"), "FlattenObservation"))
    envs, plain = (make_envs(own("Counting-v0"), 2, env) for env in (wrapped, AS_IT_IS))
    np.testing.assert_array_equal(envs.reset(0), 2 * plain.reset(0))


@pytest.mark.parametrize(
    ("game", "env", "shape"),
    [
        ("ShownImage-v0", AS_IT_IS, (3, 7, 9)),
        ("ShownImage-v0", EnvConfig(grayscale=True, frame_stack=2), (2, 7, 9)),
        ("ShownImage-v0", EnvConfig(frame_stack=2), (6, 7, 9)),
        ("ShownFrames-v0", AS_IT_IS, (3, 40, 60)),
        ("ShownFrames-v0", EnvConfig(resize=84, frame_stack=4), (12, 84, 84)),
        ("ShownPlanes-v0", AS_IT_IS, (20, 7, 7)),
        ("ShownGrey-v0", AS_IT_IS, (1, 20, 30)),
        ("ShownBytes-v0", AS_IT_IS, (12,)),
        ("ShownTable-v0", AS_IT_IS, (3, 4)),
        ("ShownTable-v0", EnvConfig(frame_stack=4), (48,)),
        ("ShownBoard-v0", EnvConfig(frame_stack=2), (84,)),  # unstacked it is no image either
        ("ShownNumber-v0", AS_IT_IS, (1,)),
        ("ShownNumber-v0", EnvConfig(frame_stack=3), (3,)),
        ("ShownDict-v0", FLAT, (5,)),
        ("ShownTuple-v0", FLAT, (6,)),
        ("ShownMulti-v0", AS_IT_IS, (2,)),
    ],
)
def test_spaces_of_every_kind(game: str, env: EnvConfig, shape: tuple[int, ...]) -> None:
    envs = make_envs(own(game), 2, env)
    assert envs.observation.shape == shape
    assert envs.observation.frames == (env.frame_stack if envs.observation.is_pixels else 1)
    assert envs.reset(0).shape == (2, *shape)
    for _ in range(6):
        obs = envs.step(np.ones(2, int)).obs
        assert obs.shape == (2, *shape)
        assert obs.dtype == envs.observation.dtype
    envs.close()


def test_the_actions_of_a_multidiscrete_space_are_all_its_combinations() -> None:
    envs: Any = make_envs(own("ShownMulti-v0"), 6)
    assert envs.num_actions == 6
    taken = envs._actions.own(np.arange(6)).tolist()
    assert taken == [[0, 4], [0, 5], [0, 6], [1, 4], [1, 5], [1, 6]]


@pytest.mark.parametrize("side", [5, 30, 84])
def test_images_are_resized_by_averaging_areas(side: int) -> None:
    """Against a slow average over a grid in which pixels and cells are both whole."""
    raw, shown = (
        make_envs(own("ShownFrames-v0"), 1, env).reset(3)
        for env in (AS_IT_IS, EnvConfig(resize=side))
    )
    fine = raw[0].astype(float).repeat(side, axis=1).repeat(side, axis=2)
    slow = fine.reshape(3, side, 40, side, 60).mean(axis=(2, 4))
    np.testing.assert_allclose(shown[0], slow, atol=0.51)


def test_an_image_in_grey_weighs_its_channels_by_luminance() -> None:
    rgb, grey = (
        make_envs(own("ShownImage-v0"), 1, env).reset(3)
        for env in (AS_IT_IS, EnvConfig(grayscale=True))
    )
    slow = 0.299 * rgb[0, 0] + 0.587 * rgb[0, 1] + 0.114 * rgb[0, 2]
    np.testing.assert_allclose(grey[0, 0], slow, atol=0.51)


def test_seeds_decide_everything() -> None:
    def play(seed: int) -> np.ndarray:
        envs, rng = make_envs("CartPole-v1", 4), np.random.default_rng(0)
        rows = [envs.reset(seed), *(envs.step(rng.integers(2, size=4)).obs for _ in range(60))]
        return np.stack(rows)

    np.testing.assert_array_equal(play(5), play(5))
    assert not np.array_equal(play(5), play(6))


def test_atari_has_its_own_vector_entry_point_with_lives_and_raw_scores() -> None:
    envs, own_envs = make_envs("ALE/Breakout-v5", 2), make_envs("breakout", 2)
    assert envs.observation == own_envs.observation
    assert envs.num_actions == own_envs.num_actions
    envs.reset(3)
    rng, lost, over = np.random.default_rng(0), 0, 0
    while over < 2:
        step = envs.step(rng.integers(envs.num_actions, size=2))
        assert step.life_lost is not None
        lost += int(step.life_lost.sum())
        over += int(step.terminated.sum())
    assert lost >= 8  # the fifth life ends the game
    envs.close()
    own_envs.close()


def test_lives_are_lost_where_an_environment_says_so() -> None:
    """Where it says nothing Gymnasium's vector has zeros, which are no lives."""
    envs, rng = make_envs(own("Mortal-v0"), 3), np.random.default_rng(0)
    envs.reset(0)
    lost = 0
    for _ in range(8):
        actions = rng.integers(2, size=3)
        step = envs.step(actions)
        if actions.any():
            np.testing.assert_array_equal(step.life_lost, actions == 1)
            lost += int(actions.sum())
    assert lost > 8
    envs.close()


def test_lives_that_are_no_numbers_are_passed_over() -> None:
    envs = make_envs(own("Untold-v0"), 3)
    envs.reset(0)
    assert all(envs.step(np.zeros(3, int)).life_lost is None for _ in range(6))
    envs.close()
    assert _lives_of({"lives": np.array(2.0)}) == {"lives": 2}


def test_observations_that_hold_nothing_are_refused() -> None:
    with pytest.raises(UserError, match=r"shape \[3, 0\], which holds no number"):
        Observations(Box(-1.0, 1.0, (3, 0)), 1, EnvConfig())


@pytest.mark.parametrize("space", ["Map", "SteeredMap"])
def test_environments_that_are_refused_are_closed(space: str) -> None:
    kind = gymnasium.make(own(f"{space}-v0")).unwrapped
    before = kind.are_open  # pyright: ignore[reportAttributeAccessIssue]
    for _ in range(2):
        with pytest.raises(UserError, match=r"continuous|images of 3 channels"):
            make_envs(own(f"{space}-v0"), 3, EnvConfig(grayscale=True))
    assert type(kind).are_open == before  # pyright: ignore[reportAttributeAccessIssue]


def test_planes_of_ones_survive_their_resizing() -> None:
    envs = make_envs(own("Map-v0"), 1, EnvConfig(resize=84))
    shown = envs.reset(0)[0]
    assert (shown > 0).any((1, 2)).tolist() == [True, True, True, False]
    # By hand: 84 cells of 128 pixels, so that one pixel is 84/128 of a cell on either axis.
    assert shown[0].sum() == pytest.approx(255.0 * (84 / 128) ** 2, abs=2.0)
    envs.close()


@pytest.mark.parametrize(
    ("game", "env", "message"),
    [
        ("Pendulum-v1", AS_IT_IS, "its actions are continuous, Box"),
        (own("ShownContinuous-v0"), AS_IT_IS, "its actions are continuous, Box"),
        (own("ShownText-v0"), FLAT, "show one by a wrapper of your own, --set"),
        (own("ShownCountless-v0"), AS_IT_IS, f"has {2**64} combinations, and at most 1024"),
        (own("ShownAxes-v0"), AS_IT_IS, r"MultiDiscrete\(\[\[2 2\] \[2 2\]\]\); .* of one axis,"),
        (own("ShownHuge-v0"), AS_IT_IS, "has 6561 combinations, and at most 1024"),
        (own("ShownDict-v0"), AS_IT_IS, r"Dict, .*--set env\.wrappers=FlattenObservation"),
        (own("ShownTuple-v0"), AS_IT_IS, r"Tuple, .*--set env\.wrappers=FlattenObservation"),
        ("LunarLandr-v3", AS_IT_IS, "does not exist; did you mean 'LunarLander-v3'"),
        ("ALE/Pogn-v5", AS_IT_IS, "does not exist; did you mean 'ALE/Pong-v5'"),
        ("no_such_package:My-v0", AS_IT_IS, "importing 'no_such_package' failed"),
        (own("Countin-v0"), AS_IT_IS, "did you mean 'accerl_test_games:Counting-v0'"),
        (own("Needy-v0"), AS_IT_IS, "pip install 'accerl_package_that_nobody_has'"),
        ("CartPole-v1", EnvConfig(resize=84), "go with images"),
        (own("ShownGrey-v0"), EnvConfig(grayscale=True), "needs images of 3 channels"),
        ("CartPole-v1", EnvConfig(wrappers=("Flaten",)), "wrapper 'Flaten' does not exist"),
        ("CartPole-v1", EnvConfig(wrappers=(own("Needs"),)), r"accerl_package.*\(accerl_test_g"),
        ("CartPole-v1", EnvConfig(wrappers=("Autoreset",)), "wrapper Autoreset cannot be used"),
        ("CartPole-v1", EnvConfig(wrappers=("NormalizeReward",)), "statistics of its own"),
        ("CartPole-v1", EnvConfig(wrappers=("TimeLimit",)), r"'max_episode_steps'; env\.wrappers"),
        ("CartPole-v1", EnvConfig(wrappers=("nobody:Has",)), "wrapper 'nobody:Has': No module"),
        ("pong", EnvConfig(resize=84), "is shown in one way"),
    ],
)
def test_what_cannot_be_learned_is_refused_in_one_line(
    game: str, env: EnvConfig, message: str
) -> None:
    with pytest.raises(UserError, match=message) as refused:
        make_envs(game, 2, env)
    assert "\n" not in str(refused.value)


def test_a_module_that_fails_is_to_be_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "accerl_test_failing.py").write_text("speed = 1\nspeed / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=r"division by zero; mend it \(accerl_test_failing\.py:2"):
        make_envs("accerl_test_failing:My-v0", 2, AS_IT_IS)


def test_a_name_that_cannot_be_imported_is_no_missing_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "accerl_test_importing.py").write_text(
        "import gymnasium\n"
        "class Env(gymnasium.Env):\n"
        "    def __init__(self):\n"
        "        from numpy import no_such_name\n"
        "gymnasium.register('Importing-v0', Env)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="cannot be made: ImportError: cannot import name"):
        make_envs("accerl_test_importing:Importing-v0", 2, AS_IT_IS)


def test_a_missing_dependency_is_named_with_its_pip_line() -> None:
    code = (
        "import sys; sys.modules['Box2D'] = None\n"
        "from accerl.envs import make_envs\n"
        "try: make_envs('LunarLander-v3', 1)\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("UserError game 'LunarLander-v3' needs a package")
    assert done.stdout.endswith("run `pip install 'gymnasium[box2d]'`\n")


@pytest.mark.parametrize(
    ("game", "message"),
    [
        ("Failing-raises-v0", "environment 1 raised RuntimeError in step 310: the simulator cr"),
        (
            "Failing-shape-v0",
            r"environment 1 returned an observation of shape \(2,\), and .* \(3,\)",
        ),
        (
            "Failing-gym-v0",
            r"step\(\) of environment 1 returned 4 values; Gymnasium's returns \(observation, re",
        ),
        (
            "Failing-type-v0",
            "environment 1 returned an observation of type complex128, and .* says float64",
        ),
        (
            "Failing-reward-v0",
            r"environment 1 returned a reward of shape \(1,\), and a number is needed",
        ),
        ("Failing-no-reward-v0", "environment 1 returned None as its reward, and a number is need"),
        ("Failing-end-v0", "environment 1 returned None as 'truncated', and True or False is"),
        ("Failing-info-v0", "environment 1 returned NoneType as its info, and a dictionary is"),
        ("Failing-nan-obs-v0", "environment 1 returned NaN or infinity in its observation, in ste"),
        (
            "Failing-nan-reward-v0",
            "environment 1 returned NaN or infinity in its reward, in step",
        ),
        ("Failing-huge-obs-v0", "environment 1 returned NaN or infinity in its observation, in s"),
        ("Failing-huge-reward-v0", "environment 1 returned NaN or infinity in its reward, in ste"),
    ],
)
def test_an_environment_that_fails_is_named(game: str, message: str) -> None:
    envs = make_envs(own(game), 4)
    envs.reset(0)
    for _ in range(309):
        envs.step(np.zeros(4, int))
    with pytest.raises(GameError, match=message) as failed:
        envs.step(np.zeros(4, int))
    assert "\n" not in str(failed.value)
    assert (f"({NAME}.py:" in str(failed.value)) == ("raises" in game)
    assert ("the simulator crashed\nfor good" in failed.value.details) == ("raises" in game)


def test_resuming_starts_new_episodes() -> None:
    envs = make_envs("CartPole-v1", 2)
    first = envs.reset(7)
    again = envs.load_state_dict(envs.state_dict())
    assert again.shape == first.shape
    assert not np.array_equal(again, first)


def test_a_game_is_an_id_of_gymnasium_s_registry_as_gymnasium_knows_it() -> None:
    envs = make_envs("Acrobot-v1", 2)
    raw: Any = gymnasium.make("Acrobot-v1")
    obs, single = envs.reset(11), raw.reset(seed=11)[0]
    np.testing.assert_array_equal(obs[0], single)
    for action in (0, 2, 2, 1, 0):
        step, (single, reward, *_) = envs.step(np.full(2, action)), raw.step(action)
        np.testing.assert_array_equal(step.obs[0], single)
        assert step.reward[0] == reward
