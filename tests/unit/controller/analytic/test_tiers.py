"""The outer environment on tiers 0 and 1: contract, masks, snapshots, copies in processes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv

from accerl.checkpoint import load_checkpoint, save_checkpoint
from accerl.errors import UserError
from accerl.runtime.run import IntervalReport
from accerl.spec import CompressionSpec
from controller.actions import find_actions
from controller.env.control_env import CompressionControlEnv
from controller.env.instances import Instance
from controller.env.machine_instances import DrawnInstances
from tests.fixtures.controllers.outer_envs import (
    drawn_instance,
    limited_instance,
    maker,
    play,
    same_infos,
    tiny_cartpole,
    tiny_instance,
)

TIER0 = drawn_instance()


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("action_space", ["factored", "joint"])
@pytest.mark.parametrize("tier", ["analytic", "virtual"])
def test_gymnasium_env_checker_passes(tier: str, action_space: str) -> None:
    if tier == "analytic":
        env = maker(split="train", action_space=action_space)().unwrapped
    else:
        instance = tiny_instance()
        env = CompressionControlEnv([instance], actions=find_actions(action_space))
    check_env(env, skip_render_check=True)
    env.close()
    assert isinstance(env.action_space, gymnasium.spaces.Discrete) == (action_space == "joint")


class Deaths:
    """A user's own indicator, one that remembers."""

    names = ("reports_seen",)

    def __init__(self) -> None:
        self.seen = 0.0

    def update(self, report: IntervalReport, raw: Any) -> dict[str, float]:
        self.seen += 1.0
        return {"reports_seen": self.seen}


@pytest.mark.parametrize(
    "game",
    ["analytic", *(pytest.param(game, marks=pytest.mark.slow) for game in ("catch", "cartpole"))],
)
def test_a_restored_branch_goes_on_bit_by_bit(game: str, tmp_path: Path) -> None:
    instances: dict[str, Instance] = {
        "analytic": TIER0,
        "catch": tiny_instance(),
        "cartpole": tiny_instance(tiny_cartpole()),
    }
    settings: dict[str, Any] = {"make_indicators": lambda: (Deaths(),)}
    env = CompressionControlEnv([instances[game]], **settings)
    env.reset(seed=3)
    play(env, [(0, 0, 0), (2, 0, 3)])
    snapshot = env.snapshot()
    save_checkpoint(tmp_path / "outer", snapshot)
    expected = play(env, [(2, 2, 1), (0, 0, 0)])
    env.restore(snapshot)
    play(env, [(1, 3, 2), (2, 0, 0)])  # another branch
    fresh = CompressionControlEnv([instances[game]], **settings)
    for again, state in ((env, snapshot), (fresh, load_checkpoint(tmp_path / "outer"))):
        again.restore(state)
        observations, rewards, infos = play(again, [(2, 2, 1), (0, 0, 0)])
        np.testing.assert_array_equal(observations, expected[0])
        assert rewards == expected[1]
        assert all(map(same_infos, infos, expected[2]))
        assert infos[-1]["features"].raw["reports_seen"] == 4.0
        again.close()


def test_a_snapshot_keeps_the_dice_that_pick_instances() -> None:
    env = CompressionControlEnv(DrawnInstances("train"))
    env.reset(seed=0)
    snapshot = env.snapshot()
    expected = env.reset()[1]["instance"]
    env.restore(snapshot)
    assert env.reset()[1]["instance"] == expected


def test_snapshots_of_other_instances_are_refused() -> None:
    env, other = CompressionControlEnv(DrawnInstances("train")), CompressionControlEnv([TIER0])
    env.reset(seed=0)
    with pytest.raises(UserError, match="snapshot: it is of instance"):
        other.restore(env.snapshot())
    with pytest.raises(gymnasium.error.ResetNeeded):
        other.snapshot()


def test_options_fix_the_instance_and_seeds_pick_one() -> None:
    env = CompressionControlEnv(DrawnInstances("validation"))
    assert env.reset(seed=0, options={"instance": 7})[1]["instance"] == env.instances[7].name
    assert env.reset(options={"instance": TIER0})[1]["instance"] == TIER0.name
    assert env.reset(seed=1)[1]["instance"] == env.reset(seed=1)[1]["instance"]
    with pytest.raises(UserError, match="'catch' is not in 0"):
        env.reset(options={"instance": "catch"})


def test_equal_instance_seed_and_actions_give_equal_episodes() -> None:
    actions: list[Any] = [(0, 0, 0), (2, 1, 0), (2, 0, 3), (0, 0, 2)]
    episodes = []
    for _ in range(2):
        env = CompressionControlEnv([tiny_instance()])
        env.reset(seed=5)
        episodes.append(play(env, actions))
        env.close()
    np.testing.assert_array_equal(episodes[0][0], episodes[1][0])
    assert episodes[0][1] == episodes[1][1]
    assert all(map(same_infos, episodes[0][2], episodes[1][2]))


def test_info_tells_seconds_costs_and_raw_returns() -> None:
    env = CompressionControlEnv([tiny_instance()])
    env.reset(seed=0)
    _, rewards, (first, second) = play(env, [(0, 0, 0), (2, 0, 3)])
    assert (second["seconds"], second["total_seconds"]) == (0.025, 0.05)
    assert second["discount"] == pytest.approx(math.exp(-env.beta * 0.025))
    assert second["switch_seconds"] == second["report"].switch_seconds > 0.0
    gain = second["learner_return"] - first["learner_return"]
    assert rewards[1] == pytest.approx(gain / 1.6)
    assert second["eq6_ratio"] == pytest.approx(gain / 0.025)
    env.close()


@pytest.mark.parametrize("action_space", ["factored", "joint"])
def test_what_does_not_exist_is_masked_and_replaced(action_space: str) -> None:
    instance = limited_instance(lambda spec: spec.bits != 8)
    env = CompressionControlEnv([instance], actions=find_actions(action_space))
    mask = env.reset(seed=0)[1]["action_mask"]
    specs = [env.actions.spec(indices) for indices in env.actions.all_indices()]
    assert mask.tolist() == [spec.bits != 8 for spec in specs]
    wanted = CompressionSpec(bits=8)
    indices = env.actions.indices(wanted)
    info = env.step(indices[0] if action_space == "joint" else np.array(indices))[4]
    assert info["action_replaced"]
    assert info["report"].decision.main == CompressionSpec(bits=16)
    assert not env.step(0 if action_space == "joint" else np.zeros(3, int))[4]["action_replaced"]
    assert len(env.action_masks()) == sum(env.actions.sizes)
    assert not env.action_masks().all()


@pytest.mark.slow
def test_copies_in_processes_play_what_single_environments_play() -> None:
    names: dict[str, Any] = {"split": "train", "action_space": "joint"}
    vector = AsyncVectorEnv([maker(**names)] * 2, context="spawn")
    seeds: list[int | None] = [11, 12]
    actions = [[0, 7], [3, 3], [5, 1]]
    try:
        seen = [vector.reset(seed=seeds)[0].copy()]
        rewards = []
        for action in actions:
            observation, reward, *_ = vector.step(np.array(action))
            seen.append(observation.copy())
            rewards.append(reward.tolist())
    finally:
        vector.close()
    for copy, seed in enumerate(seeds):
        env = maker(**names)()
        first, _ = env.reset(seed=seed)
        observations, alone, _ = play(env, [action[copy] for action in actions])
        np.testing.assert_array_equal([first, *observations], [each[copy] for each in seen])
        assert alone == [reward[copy] for reward in rewards]
