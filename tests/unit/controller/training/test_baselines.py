"""Baselines of a group: written out by hand, unbiased also where intervals differ in length."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from accerl.errors import UserError
from controller.objective import discounted_gain
from controller.training.baselines import (
    group_baselines,
    instance_factors,
    mean_of_others,
    returns_to_go,
    time_bins,
)
from controller.training.rollouts import Trajectory, rollout
from tests.fixtures.controllers.trajectories import ACTIONS, GAME, make_policy, played, written


def test_returns_to_go_are_discounted_to_the_start_by_real_seconds() -> None:
    trajectory = written([1.0, 2.0, 4.0], [1.0, 3.0, 2.0], beta=np.log(2.0))
    weighted = trajectory.discounted_rewards
    assert weighted == pytest.approx([1 / 2, 2 / 2**4, 4 / 2**6])
    assert returns_to_go(weighted) == pytest.approx([0.6875, 0.1875, 0.0625])
    assert trajectory.gain == pytest.approx(0.6875)


def test_the_gain_of_a_rollout_is_the_outer_objective() -> None:
    trajectory = rollout(make_policy().to_json(), ACTIONS, GAME, 0, 0)
    levels = np.cumsum([0.0, *trajectory.rewards])
    times = np.cumsum([0.0, *trajectory.seconds])
    assert trajectory.gain == pytest.approx(discounted_gain(times, levels, trajectory.beta))


def test_equal_intervals_have_a_bin_each() -> None:
    assert time_bins(written([0.0] * 20)).tolist() == list(range(20))
    tenths = written([0.0] * 30, [0.1] * 30, interval_seconds=0.1)
    assert time_bins(tenths).tolist() == list(range(30))
    # The last interval may reach beyond the horizon.
    beyond = written([0.0] * 4, [3.0] * 4, interval_seconds=3.0, horizon_seconds=10.0)
    assert time_bins(beyond).tolist() == [0, 1, 2, 3]
    short = written([0.0] * 5, [0.1, 1.0, 1.0, 1.0, 0.9])
    assert time_bins(replace(short, first_interval_seconds=0.1)).tolist() == [0, 1, 2, 3, 4]


def test_unequal_intervals_fall_into_bins_of_elapsed_seconds() -> None:
    late = written([0.0] * 3, [2.5, 0.3, 1.2], horizon_seconds=4.0)
    assert time_bins(late).tolist() == [0, 2, 2]


def test_leave_one_out_written_out() -> None:
    values = np.array([[1.0], [2.0], [6.0], [9.0]])
    assert mean_of_others(values).ravel() == pytest.approx([17 / 3, 16 / 3, 4.0, 3.0])
    assert mean_of_others(values, 2).ravel() == pytest.approx([7.5, 7.5, 1.5, 1.5])


@pytest.mark.parametrize(("members", "block"), [(1, 1), (2, 2), (5, 2)])
def test_leave_one_out_needs_others(members: int, block: int) -> None:
    with pytest.raises(UserError, match="leave-one-out"):
        mean_of_others(np.zeros((members, 2)), block)


def test_with_equal_intervals_the_baseline_is_that_of_the_step() -> None:
    rewards = np.random.default_rng(0).normal(size=(4, 5))
    group = [written(row.tolist(), action_seed=n, beta=0.1) for n, row in enumerate(rewards)]
    togo = returns_to_go(np.stack([trajectory.discounted_rewards for trajectory in group]))
    for block in (1, 2):
        assert np.stack(group_baselines(group, block)) == pytest.approx(mean_of_others(togo, block))


def test_with_unequal_intervals_the_baseline_is_that_of_the_moment() -> None:
    # Three rollouts of 4 seconds: what the others gain from the beginning of the bin on.
    group = [
        written([1.0, 2.0, 4.0, 8.0], [1.0, 1.0, 1.0, 1.0], action_seed=0),
        written([10.0, 20.0], [2.0, 2.0], action_seed=1),
        written([100.0, 200.0, 300.0], [1.0, 2.0, 1.0], action_seed=2),
    ]
    first, second, third = group_baselines(group, 1)
    # Gained from bin 0, 1, 2, 3 on: 15, 14, 12, 8; 30, 20, 20, 0; 600, 500, 300, 300.
    assert first.tolist() == [(30 + 600) / 2, (20 + 500) / 2, (20 + 300) / 2, (0 + 300) / 2]
    assert second.tolist() == [(15 + 600) / 2, (12 + 300) / 2]
    assert third.tolist() == [(15 + 30) / 2, (14 + 20) / 2, (8 + 0) / 2]


P = 0.25  # of choosing 1, at both steps


def two_choices(a: int, b: int, action_seed: int) -> Trajectory:
    """A small semi-Markov game: the first choice sets how long it takes until the second."""
    seconds = [1.0, 2.0] if a else [2.0, 1.0]
    rewards = [1.0 if a else 0.25, 2.0 if b else 0.5 + 0.3 * a]
    return written(rewards, seconds, action_seed=action_seed, beta=0.1)


def expected_gradient(block: int) -> np.ndarray:
    """E[mean_i sum_k A_ik d log p(a_ik)] over all dice of two mirrored pairs, [2 logits]."""
    cells = (np.arange(4) + 0.5) / 4  # P is a whole number of cells, so this is exact
    score = {1: 1.0 - P, 0: -P}  # d log p / d logit
    total = np.zeros(2)
    for dice in product(cells, repeat=4):
        uniforms = [(dice[0], dice[1]), (1 - dice[0], 1 - dice[1])]
        uniforms += [(dice[2], dice[3]), (1 - dice[2], 1 - dice[3])]
        choices = [(int(u < P), int(v < P)) for u, v in uniforms]
        group = [two_choices(a, b, seed) for seed, (a, b) in enumerate(choices)]
        for trajectory, (a, b), value in zip(
            group, choices, group_baselines(group, block), strict=True
        ):
            advantage = returns_to_go(trajectory.discounted_rewards) - value
            total += advantage * [score[a], score[b]] / len(group)
    return total / len(cells) ** 4


def true_gradient() -> np.ndarray:
    """d/d logits of the expected gain: p (1 - p) (E[gain | 1] - E[gain | 0])."""
    gain = {(a, b): two_choices(a, b, 0).gain for a in (0, 1) for b in (0, 1)}
    first = [(1 - P) * gain[a, 0] + P * gain[a, 1] for a in (0, 1)]
    second = [(1 - P) * gain[0, b] + P * gain[1, b] for b in (0, 1)]
    return P * (1 - P) * np.array([first[1] - first[0], second[1] - second[0]])


def test_leaving_out_the_mirrored_twin_keeps_the_gradient_unbiased() -> None:
    assert expected_gradient(block=2) == pytest.approx(true_gradient())
    assert np.abs(expected_gradient(block=1) - true_gradient()).max() > 0.01


def test_groups_that_do_not_belong_together_are_refused() -> None:
    group = played([[0.0], [1.0], [2.0], [3.0]], antithetic=True)
    with pytest.raises(UserError, match="share instance and seed"):
        group_baselines([group[0], replace(group[1], seed=9)], 1)
    with pytest.raises(UserError, match="share their action seed"):
        group_baselines([group[0], group[0]], 1)
    with pytest.raises(UserError, match="or lack it"):
        group_baselines([group[0], replace(group[1], action_seed=None)], 1)
    with pytest.raises(UserError, match="side by side"):
        group_baselines([group[0], group[2], group[1], group[3]], 2)


def test_no_instance_dominates_and_none_is_turned_up() -> None:
    names = ["loud", "quiet", "loud", "silent"]
    advantages = [np.array([8.0, -8.0]), np.array([1.0, -1.0]), np.array([8.0]), np.zeros(2)]
    factors = instance_factors(names, advantages)
    assert factors.tolist() == [(8 + 1 + 0) / 3 / 8, 1.0, (8 + 1 + 0) / 3 / 8, 1.0]
    assert instance_factors(["alone"], [np.array([5.0])]).tolist() == [1.0]
    assert instance_factors(["a", "b"], [np.zeros(2), np.zeros(2)]).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("reward", [np.nan, np.inf])
def test_a_reward_that_is_no_number_names_its_rollout(reward: float) -> None:
    with pytest.raises(UserError, match=r"rollout of written, seed 0, action seed 7.* at step 1"):
        written([0.0, reward], action_seed=7)
    with pytest.raises(UserError, match="seconds positive"):
        written([0.0, 1.0], [1.0, 0.0])
