"""Rollouts: pure functions of plain data, masks kept, decisions held, twins mirrored."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from accerl.errors import UserError
from accerl.monitor.features import FEATURE_NAMES
from controller.actions import find_actions
from controller.env.control_env import CompressionControlEnv
from controller.policy.dwell import Dwell
from controller.policy.policy import ControllerPolicy, LearnedStrategy
from controller.training.config import MetaTrainConfig
from controller.training.policy_gradient import collect_group
from controller.training.rollouts import Trajectory, rollout
from tests.fixtures.controllers.outer_envs import limited_instance
from tests.fixtures.controllers.trajectories import ACTIONS, GAME, log_probs_of, make_policy


def test_a_rollout_is_a_pure_function_of_its_arguments() -> None:
    state = json.loads(json.dumps(make_policy().to_json()))
    first, again, other = (rollout(state, ACTIONS, GAME, 3, action) for action in (8, 8, 10))
    assert first.to_json() == again.to_json()
    assert first.seed == other.seed
    assert not np.array_equal(first.actions, other.actions)
    assert first.observations.shape == (4, len(FEATURE_NAMES))
    assert first.actions.shape == (4, 3)
    assert first.seconds.tolist() == [3.0] * 4
    assert first.mask.all()


def test_trajectories_survive_json() -> None:
    trajectory = rollout(make_policy().to_json(), ACTIONS, GAME, 3, 8)
    copy = Trajectory.from_json(json.loads(json.dumps(trajectory.to_json())))
    assert copy.to_json() == trajectory.to_json()
    for name, value in vars(trajectory).items():
        if isinstance(value, np.ndarray):
            assert vars(copy)[name].dtype == value.dtype, name
            np.testing.assert_array_equal(vars(copy)[name], value)


def test_odd_action_seeds_mirror_even_ones() -> None:
    # The uniform policy picks level floor(u * size); the mirrored draw picks the mirrored level.
    uniform = make_policy()
    torch.nn.init.zeros_(uniform.slopes.weight)
    even, odd, own = (
        rollout(uniform.to_json(), ACTIONS, GAME, 0, seed, antithetic=pairs)
        for seed, pairs in ((6, True), (7, True), (7, False))
    )
    top = np.array(ACTIONS.sizes) - 1
    np.testing.assert_array_equal(odd.actions, top - even.actions)
    assert not np.array_equal(own.actions, odd.actions)


def test_groups_share_the_inner_seed_and_start_pairs_evenly() -> None:
    config = MetaTrainConfig(rollouts=4)
    group = collect_group(make_policy().to_json(), ACTIONS, GAME, 5, 11, config)
    assert [t.action_seed for t in group] == [10, 11, 12, 13]
    assert {t.seed for t in group} == {5}
    assert np.ptp([t.observations[0] for t in group], axis=0).max() == 0.0


def test_without_dice_it_takes_the_most_likely_actions() -> None:
    policy = make_policy(spread=0.5)
    trajectory = rollout(policy.to_json(), ACTIONS, GAME, 0, None)
    likeliest = [policy.act(vector).indices for vector in trajectory.observations]
    assert trajectory.actions.tolist() == [list(indices) for indices in likeliest]


def test_recorded_probabilities_are_those_of_whole_episodes() -> None:
    policy = make_policy(spread=0.5)
    limited = limited_instance(lambda spec: spec.bits == 32 or spec.student != "net3")
    instance = replace(limited, horizon_seconds=GAME.horizon_seconds)
    trajectory = rollout(policy.to_json(), ACTIONS, instance, 0, 4)
    log_probs = log_probs_of(
        policy,
        torch.from_numpy(trajectory.observations),
        torch.from_numpy(trajectory.actions),
        torch.from_numpy(trajectory.mask),
    )
    assert log_probs.tolist() == pytest.approx(trajectory.log_probs.tolist(), abs=1e-5)


def test_what_does_not_exist_is_never_tried() -> None:
    actions = find_actions("factored")
    limited = limited_instance(lambda spec: spec.bits != 8 and spec.student != "net2")
    instance = replace(limited, horizon_seconds=GAME.horizon_seconds)
    env = CompressionControlEnv([instance], actions=actions)
    mask = env.reset(seed=0)[1]["action_mask"]
    policy = ControllerPolicy(actions.sizes, generator=torch.Generator().manual_seed(0))
    tried = set()
    for seed in range(20):
        trajectory = rollout(policy.to_json(), actions, instance, 0, seed)
        np.testing.assert_array_equal(trajectory.mask, mask)
        tried |= {actions.position(indices) for indices in trajectory.actions.tolist()}
    assert len(tried) > 10
    assert mask[list(tried)].all()


def test_a_new_choice_is_held_and_a_repeated_one_is_free() -> None:
    dwell = Dwell[str](3)
    wanted = ["a", "b", "c", "d", "d", "e", "e", "e", "e", "f"]
    settled = [dwell.settle(choice) for choice in wanted]
    # a is held for 3; d from 3 on for 3; e was chosen at 6 and again at 9, no: f is free there.
    assert [choice for choice, _ in settled] == ["a", "a", "a", "d", "d", "d", "e", "e", "e", "f"]
    assert [free for _, free in settled] == [True, False, False] * 3 + [True]
    dwell.reset()
    assert dwell.settle("b") == ("b", True)
    dwell = Dwell[str](2)
    # a is repeated once it may change, and may then change in any interval.
    assert [dwell.settle(choice) for choice in "aaab"] == [
        ("a", True), ("a", False), ("a", True), ("b", True),
    ]  # fmt: skip
    with pytest.raises(UserError, match="min_dwell"):
        Dwell[str](0)


@pytest.mark.parametrize("min_dwell_intervals", [1, 3])
def test_a_strategy_does_what_a_rollout_without_dice_did(min_dwell_intervals: int) -> None:
    policy, instance = make_policy(1, spread=1.0), replace(GAME, horizon_seconds=36.0)
    trajectory = rollout(
        policy.to_json(), ACTIONS, instance, 1, None, min_dwell_intervals=min_dwell_intervals
    )
    strategy = LearnedStrategy(policy, ACTIONS, min_dwell_intervals=min_dwell_intervals)
    env = CompressionControlEnv([instance], actions=ACTIONS)
    for _ in range(2):  # the second time after a reset
        strategy.reset()
        env.reset(seed=1)
        for indices in trajectory.actions.tolist():
            decision = strategy.decide(env.features)
            assert decision == ACTIONS.decision(indices)
            env.step_decision(decision)
    assert trajectory.chosen.all() == (min_dwell_intervals == 1)
    np.testing.assert_array_equal(trajectory.log_probs == 0.0, ~trajectory.chosen)
    changes = np.flatnonzero((np.diff(trajectory.actions, axis=0) != 0).any(axis=1)) + 1
    assert len(changes) > 1
    assert trajectory.chosen[changes].all()
    assert np.diff(np.append(0, changes)).min() >= min_dwell_intervals
