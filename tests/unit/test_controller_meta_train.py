"""Meta-training: pure rollouts, unbiased baselines, and the gradient it claims to follow."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from accerl.errors import UserError
from accerl.monitor.features import FEATURE_NAMES
from controller.actions import ActionSpace
from controller.instances import analytic_instance
from controller.meta_train import (
    MetaTrainConfig,
    Trajectory,
    advantages,
    collect_group,
    leave_one_out,
    meta_train,
    pretrain_tier0,
    returns_to_go,
    rollout,
    update,
)
from controller.objective import discounted_gain
from controller.policy import ControllerPolicy
from controller.simulator import AnalyticConfig

ACTIONS = ActionSpace()
CONFIG = AnalyticConfig()
GAME = replace(analytic_instance(CONFIG), horizon_seconds=12.0)


def make_policy(seed: int = 0) -> ControllerPolicy:
    return ControllerPolicy(ACTIONS.sizes, generator=torch.Generator().manual_seed(seed))


def make_group(rewards: list[list[float]], *, antithetic: bool = False) -> list[Trajectory]:
    """A group with these rewards [rollouts, K] and real actions of an untrained policy."""
    config = MetaTrainConfig(rollouts=len(rewards), antithetic=antithetic)
    instance = replace(GAME, horizon_seconds=3.0 * len(rewards[0]))
    group = collect_group(make_policy().to_json(), ACTIONS, instance, 0, 0, config)
    return [replace(t, rewards=np.array(r)) for t, r in zip(group, rewards, strict=True)]


def test_a_rollout_is_a_pure_function_of_its_arguments() -> None:
    state = json.loads(json.dumps(make_policy().to_json()))
    first, again, other = (rollout(state, ACTIONS, GAME, 3, action) for action in (8, 8, 10))
    assert first.to_json() == again.to_json()
    assert first.seed == other.seed
    assert not np.array_equal(first.actions, other.actions)
    assert first.observations.shape == (4, len(FEATURE_NAMES))
    assert first.actions.shape == (4, 3)


def test_trajectories_survive_json() -> None:
    trajectory = rollout(make_policy().to_json(), ACTIONS, GAME, 3, 8)
    copy = Trajectory.from_json(json.loads(json.dumps(trajectory.to_json())))
    assert copy.to_json() == trajectory.to_json()
    assert copy.observations.dtype == np.float32
    np.testing.assert_array_equal(copy.log_probs, trajectory.log_probs)


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


def test_returns_to_go_are_discounted_to_the_start() -> None:
    togo = returns_to_go(np.array([1.0, 2.0, 4.0]), 0.5)
    assert togo.tolist() == [1.0 + 1.0 + 1.0, 1.0 + 1.0, 1.0]


def test_the_first_return_is_the_outer_objective() -> None:
    trajectory = rollout(make_policy().to_json(), ACTIONS, GAME, 0, 0)
    levels = np.cumsum([0.0, *trajectory.rewards])
    beta = -np.log(trajectory.discount) / 3.0
    value = discounted_gain(3.0 * np.arange(5), levels, beta)
    togo = returns_to_go(trajectory.rewards, trajectory.discount)
    assert togo[0] * trajectory.discount == pytest.approx(value)


@pytest.mark.parametrize("block", [1, 2])
def test_advantages_of_a_group_sum_to_zero_and_ignore_constants(block: int) -> None:
    returns = np.random.default_rng(0).normal(size=(6, 5))
    advantage = leave_one_out(returns, block)
    assert advantage.sum(axis=0) == pytest.approx(np.zeros(5))
    assert leave_one_out(returns + 7.0, block) == pytest.approx(advantage)
    assert leave_one_out(np.full((6, 5), 3.0), block) == pytest.approx(np.zeros((6, 5)))


def test_leave_one_out_written_out() -> None:
    returns = np.array([[1.0], [2.0], [6.0], [9.0]])
    assert leave_one_out(returns).ravel() == pytest.approx([1 - 17 / 3, 2 - 16 / 3, 2.0, 6.0])
    paired = leave_one_out(returns, 2).ravel()
    assert paired == pytest.approx([1 - 7.5, 2 - 7.5, 6 - 1.5, 9 - 1.5])


@pytest.mark.parametrize(("members", "block"), [(1, 1), (2, 2), (5, 2)])
def test_leave_one_out_needs_others(members: int, block: int) -> None:
    with pytest.raises(UserError, match="leave-one-out"):
        leave_one_out(np.zeros((members, 2)), block)


def expected_gradient(block: int) -> float:
    """E[mean_i A_i d log p(a_i)] over all dice of two mirrored pairs, one binary decision each."""
    prob, cells = 0.3, (np.arange(20) + 0.5) / 20
    score, reward = {1: 1.0 - prob, 0: -prob}, {1: 1.0, 0: 0.25}  # d log p / d logit
    total = 0.0
    for u in cells:
        for v in cells:
            choices = [int(draw < prob) for draw in (u, 1.0 - u, v, 1.0 - v)]
            returns = np.array([[reward[choice]] for choice in choices])
            scores = np.array([score[choice] for choice in choices])
            total += float((leave_one_out(returns, block).ravel() * scores).mean())
    return total / len(cells) ** 2


def test_leaving_out_the_mirrored_twin_keeps_the_gradient_unbiased() -> None:
    true = 0.3 * 0.7 * (1.0 - 0.25)  # d/d logit of p r_1 + (1 - p) r_0
    assert expected_gradient(block=2) == pytest.approx(true)
    assert abs(expected_gradient(block=1) - true) > 0.01


def test_update_follows_the_policy_gradient() -> None:
    rewards = np.random.default_rng(1).normal(size=(4, 3)).tolist()
    groups = [make_group(rewards), make_group(rewards[::-1])]
    config = MetaTrainConfig(
        antithetic=False, epochs=1, entropy_weight=0.0, max_gradient_norm=1e9, learning_rate=1.0
    )
    policy, twin = make_policy(), make_policy()
    update(policy, torch.optim.SGD(policy.parameters(), lr=1.0), groups, config)

    advantage = np.concatenate([advantages(group, 1).ravel() for group in groups])
    advantage = torch.from_numpy(advantage / (advantage.std() + 1e-8)).float()
    steps = [t for group in groups for t in group]
    observations = torch.from_numpy(np.concatenate([t.observations for t in steps]))
    indices = torch.from_numpy(np.concatenate([t.actions for t in steps]))
    (twin.evaluate(observations, indices)[0] * advantage).mean().backward()
    for after, before in zip(policy.parameters(), twin.parameters(), strict=True):
        assert before.grad is not None
        assert torch.allclose(after - before, before.grad, atol=1e-5)
    assert float((policy.offsets - twin.offsets).detach().abs().max()) > 1e-4


def test_update_stops_where_the_ratio_leaves_the_clip() -> None:
    # Good actions are already twice as likely, bad ones half as likely: nothing is left to gain.
    group = []
    for trajectory, advantage in zip(
        make_group([[1.0], [-1.0]]), advantages(make_group([[1.0], [-1.0]]), 1), strict=True
    ):
        shift = -np.log(2.0) * np.sign(advantage)
        group.append(replace(trajectory, log_probs=trajectory.log_probs + shift))
    config = MetaTrainConfig(rollouts=2, antithetic=False, entropy_weight=0.0)
    policy, before = make_policy(), make_policy()
    stats = update(policy, torch.optim.SGD(policy.parameters(), lr=1.0), [group], config)
    assert stats["clipped_share"] == 1.0
    for after, start in zip(policy.parameters(), before.parameters(), strict=True):
        assert torch.equal(after, start)


def test_entropy_bonus_alone_flattens_the_policy() -> None:
    policy = make_policy()
    with torch.no_grad():
        policy.offsets[0] = 2.0
    group = make_group([[0.0, 0.0]] * 4, antithetic=True)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
    config = MetaTrainConfig(entropy_weight=1.0, epochs=1)
    entropies = [update(policy, optimizer, [group], config)["entropy_nats"] for _ in range(5)]
    assert entropies == sorted(set(entropies))


def test_groups_that_do_not_belong_together_are_refused() -> None:
    group = make_group([[0.0], [1.0], [2.0], [3.0]], antithetic=True)
    with pytest.raises(UserError, match="share instance and seed"):
        advantages([group[0], replace(group[1], seed=9)], 1)
    with pytest.raises(UserError, match="share their action seed"):
        advantages([group[0], group[0]], 1)
    with pytest.raises(UserError, match="side by side"):
        advantages([group[0], group[2], group[1], group[3]], 2)


@pytest.mark.parametrize(
    "fields",
    [
        {"rollouts": 1, "antithetic": False},
        {"rollouts": 2},
        {"rollouts": 5},
        {"groups": 0},
        {"clip": 0.0},
        {"entropy_weight": -0.1},
        {"learning_rate": float("nan")},
    ],
)
def test_impossible_configs_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="meta-training"):
        MetaTrainConfig(**fields)


def test_meta_train_hands_out_the_current_policy() -> None:
    config = MetaTrainConfig(groups=1)
    policy, seen = make_policy(), []

    def collect(state: dict[str, Any], iteration: int) -> list[list[Trajectory]]:
        seen.append(state["weights"]["offsets"])
        return [collect_group(state, ACTIONS, GAME, iteration, 100 * iteration, config)]

    history = meta_train(policy, collect, 3, config)
    assert [row["iteration"] for row in history] == [0, 1, 2]
    assert seen[0] == [0.0] * 9
    assert seen[0] != seen[1] != seen[2] != policy.offsets.tolist()


def test_pretraining_is_a_function_of_its_generators() -> None:
    weights = []
    for seed in (0, 0, 1):
        policy = make_policy()
        config = MetaTrainConfig(groups=1)
        pretrain_tier0(policy, ACTIONS, config, np.random.default_rng(seed), 2)
        weights.append(policy.to_json())
    assert weights[0] == weights[1] != weights[2]
