"""The clipped objective: a slow transcription, finite differences and written-out ratios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from controller.policy.policy import ControllerPolicy
from controller.training.baselines import group_baselines, returns_to_go
from controller.training.batch import Batch, make_batch
from controller.training.config import MetaTrainConfig
from controller.training.rollouts import Trajectory
from controller.training.surrogate import corrected_advantages, surrogate, update
from tests.fixtures.controllers.trajectories import log_probs_of, make_policy, played

PLAIN: dict[str, Any] = {"antithetic": False, "epochs": 1, "entropy_weight": 0.0}
STEEP: dict[str, Any] = {**PLAIN, "max_gradient_norm": 1e9}


def sgd(policy: ControllerPolicy, rate: float = 1.0) -> torch.optim.SGD:
    return torch.optim.SGD(policy.parameters(), lr=rate)


def log_probs_now(policy: ControllerPolicy, batch: Batch) -> torch.Tensor:
    with torch.no_grad():
        return batch.of_actions(batch.log_probs(policy))


def found_advantages(
    groups: Sequence[Sequence[Trajectory]], policy: ControllerPolicy, config: MetaTrainConfig
) -> Any:
    trajectories = [trajectory for group in groups for trajectory in group]
    batch = make_batch(
        policy.sizes, trajectories, [trajectory.chosen for trajectory in trajectories]
    )
    return corrected_advantages(groups, batch, log_probs_now(policy, batch), config.block)


# --- the objective -------------------------------------------------------------------------------

SIZES, FEATURES, HIDDEN = (2, 3), 3, 2
MASK = np.array([True, True, False, True, True, True])
CONFIG = MetaTrainConfig(clip=0.2, clone_kl_weight=0.3, entropy_weight=0.05)


def slow_objective(
    policy: ControllerPolicy,
    batch: Batch,
    before: np.ndarray,
    advantage: np.ndarray,
    clone: np.ndarray,
) -> float:
    """The objective in loops over numbers, from the weights alone."""
    weights = {name: value.detach().numpy() for name, value in policy.named_parameters()}
    total, vectors = 0.0, batch.vectors[batch.counts].numpy()
    for step, chosen in enumerate(batch.places[batch.counts].tolist()):
        hidden = np.tanh(weights["body.weight"] @ vectors[step] + weights["body.bias"])
        slopes = weights["slopes.weight"] @ hidden + weights["slopes.bias"]
        scores = np.full(len(MASK), -np.inf)
        for place, (i, j) in enumerate(product(range(2), range(3))):
            if MASK[place]:
                scores[place] = slopes[0] * (2 * i - 1) + weights["offsets"][i]
                scores[place] += slopes[1] * (j - 1) + weights["offsets"][2 + j]
        probs = np.exp(scores - scores.max())
        probs /= probs.sum()
        ratio = probs[chosen] / np.exp(before[step])
        gain = min(ratio * advantage[step], min(max(ratio, 0.8), 1.2) * advantage[step])
        kept = probs > 0.0
        entropy = -float(probs[kept] @ np.log(probs[kept]))
        kl = float(probs[kept] @ (np.log(probs[kept]) - clone[step][kept]))
        total += gain + 0.05 * entropy - 0.3 * kl
    return total / len(advantage)


def test_its_gradient_is_that_of_a_slow_transcription() -> None:
    generator = torch.Generator().manual_seed(0)
    policy = ControllerPolicy(SIZES, generator=generator, num_features=FEATURES, hidden=HIDDEN)
    policy.double()
    theta = torch.randn(policy.num_parameters(), generator=generator, dtype=torch.float64)
    vector_to_parameters(theta, policy.parameters())
    rng = np.random.default_rng(0)
    places = rng.choice(np.flatnonzero(MASK), (2, 6))
    batch = Batch(
        vectors=torch.from_numpy(rng.normal(size=(2, 6, FEATURES))),
        places=torch.from_numpy(places),
        masks=torch.from_numpy(MASK).expand(2, 1, -1),
        counts=torch.from_numpy(rng.random((2, 6)) < 0.8),
    )
    # Ratios on both sides of both edges of the clip, and inside it.
    shift = np.resize([0.0, 0.4, -0.4, 0.1, -0.1], int(batch.counts.sum()))
    before = log_probs_now(policy, batch).numpy() + shift
    advantage = rng.normal(size=len(before))
    clone = np.log(rng.dirichlet(np.ones(6), len(before)))
    clone[:, ~MASK] = -np.inf
    found = surrogate(
        policy,
        batch,
        torch.from_numpy(before),
        torch.from_numpy(advantage),
        CONFIG,
        clone_log_probs=torch.from_numpy(clone),
    )
    assert 0.0 < found.clipped_share.item() < 1.0
    assert found.objective.item() == pytest.approx(
        slow_objective(policy, batch, before, advantage, clone)
    )
    found.objective.backward()
    gradient = parameters_to_vector([p.grad for p in policy.parameters() if p.grad is not None])
    for place in range(len(theta)):
        sides = []
        for step in (1e-6, -1e-6):
            moved = theta.clone()
            moved[place] += step
            vector_to_parameters(moved, policy.parameters())
            sides.append(slow_objective(policy, batch, before, advantage, clone))
        assert gradient[place].item() == pytest.approx((sides[0] - sides[1]) / 2e-6, abs=1e-7)


def test_update_follows_the_policy_gradient() -> None:
    rewards = np.random.default_rng(1).normal(size=(4, 3)).tolist()
    groups = [played(rewards), played(rewards[::-1])]
    policy, twin = make_policy(), make_policy()
    update(policy, sgd(policy), groups, MetaTrainConfig(**STEEP))

    steps = [t for group in groups for t in group]
    gained = np.concatenate([returns_to_go(t.discounted_rewards) for t in steps])
    advantage = gained - np.concatenate([row for g in groups for row in group_baselines(g, 1)])
    scaled = torch.from_numpy(advantage / advantage.std()).float()
    observations = torch.from_numpy(np.concatenate([t.observations for t in steps]))
    indices = torch.from_numpy(np.concatenate([t.actions for t in steps]))
    (log_probs_of(twin, observations, indices) * scaled).mean().backward()
    for after, before in zip(policy.parameters(), twin.parameters(), strict=True):
        assert before.grad is not None
        assert torch.allclose(after - before, before.grad, atol=1e-5)
    assert float((policy.offsets - twin.offsets).detach().abs().max()) > 1e-4


def test_update_stops_where_the_ratio_leaves_the_clip() -> None:
    # One long step makes the good action far likelier: from the second pass on nothing is left.
    group = played([[1.0], [-1.0]])
    config = MetaTrainConfig(**{**STEEP, "epochs": 2}, rollouts=2)
    once, twice = make_policy(), make_policy()
    update(once, sgd(once), [group], replace(config, epochs=1))
    stats = update(twice, sgd(twice), [group], config)
    good, bad = (log_probs_now(once, make_batch(once.sizes, [step])).item() for step in group)
    assert good > group[0].log_probs[0] + 1.0 > group[1].log_probs[0] - 1.0 > bad
    assert stats["clipped_share"] == 1.0
    for first, second in zip(once.parameters(), twice.parameters(), strict=True):
        assert torch.equal(first, second)


def test_entropy_bonus_alone_flattens_the_policy() -> None:
    policy = make_policy()
    with torch.no_grad():
        policy.offsets[0] = 2.0
    group = played([[0.0, 0.0]] * 4, antithetic=True)
    config = MetaTrainConfig(entropy_weight=1.0, epochs=1)
    optimizer = sgd(policy, 0.1)
    entropies = [update(policy, optimizer, [group], config)["entropy_nats"] for _ in range(5)]
    assert entropies == sorted(set(entropies))


def test_the_leash_pulls_to_the_clone() -> None:
    policy, clone = make_policy(0, spread=0.3), make_policy(1, spread=0.3)
    group = played([[0.0, 0.0]] * 4, antithetic=True)  # nothing to gain: the leash alone pulls
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.02)
    config = MetaTrainConfig(entropy_weight=0.0, clone_kl_weight=1.0)
    rows = [update(policy, optimizer, [group], config, clone=clone) for _ in range(40)]
    distances = [row["clone_kl_nats"] for row in rows]
    assert distances[0] > 0.1
    assert distances[-1] < 0.1 * distances[0]
    loose = make_policy(0, spread=0.3)
    stats = update(loose, sgd(loose), [group], config)
    assert stats["clone_kl_nats"] == 0.0


# --- the advantages ------------------------------------------------------------------------------


def shifted(group: list[Trajectory], ratios: list[list[float]]) -> list[Trajectory]:
    """The same group as an older policy would have played it: ratios of now to then."""
    return [
        replace(trajectory, log_probs=trajectory.log_probs - np.log(row))
        for trajectory, row in zip(group, ratios, strict=True)
    ]


def test_of_fresh_rollouts_they_are_monte_carlo_returns_minus_the_others() -> None:
    group = played([[1.0, 2.0, 3.0], [0.0, 5.0, -1.0], [2.0, 2.0, 2.0]])
    found = found_advantages([group], make_policy(), MetaTrainConfig(antithetic=False))
    togo = [returns_to_go(trajectory.discounted_rewards) for trajectory in group]
    expected = np.concatenate(togo) - np.concatenate(group_baselines(group, 1))
    assert found.raw.numpy() == pytest.approx(expected, abs=1e-5)
    assert found.scaled.numpy() == pytest.approx(expected / expected.std(), abs=1e-5)
    assert found.truncated_share == 0.0


def test_of_older_rollouts_they_are_truncated_as_v_trace_does() -> None:
    ratios = [[2.0, 0.5, 1.0], [0.25, 3.0, 1.2], [1.0, 1.0, 0.8]]
    group = shifted(played([[1.0, 2.0, 3.0], [0.0, 5.0, -1.0], [2.0, 2.0, 2.0]]), ratios)
    found = found_advantages([group], make_policy(), MetaTrainConfig(antithetic=False))
    expected = []
    for trajectory, values, row in zip(group, group_baselines(group, 1), ratios, strict=True):
        rewards, weights = trajectory.discounted_rewards, np.minimum(row, 1.0)
        values, carried, own = np.append(values, 0.0), 0.0, np.zeros(3)
        for step in (2, 1, 0):
            error = rewards[step] + values[step + 1] - values[step] + carried
            carried = own[step] = weights[step] * error
        expected.append(own)
    assert found.raw.numpy() == pytest.approx(np.concatenate(expected), abs=1e-5)
    cut = np.concatenate(ratios) > 1.0
    assert found.truncated_share == pytest.approx(cut.mean())


def test_a_held_step_carries_no_gradient_but_its_reward_counts() -> None:
    rewards = np.random.default_rng(0).normal(size=(4, 6)).tolist()
    start = make_policy(spread=0.1)
    group = played(rewards, policy=start, min_dwell_intervals=3)
    held = [np.flatnonzero(~trajectory.chosen) for trajectory in group]
    assert all(len(places) > 0 for places in held)

    def weights_after(changed: list[Trajectory]) -> torch.Tensor:
        policy = make_policy(spread=0.1)
        update(policy, sgd(policy), [changed], MetaTrainConfig(**STEEP))
        return parameters_to_vector(policy.parameters()).detach()

    others = [replace(t, actions=np.where(t.chosen[:, None], t.actions, 0)) for t in group]
    assert any((a.actions != b.actions).any() for a, b in zip(group, others, strict=True))
    assert torch.equal(weights_after(group), weights_after(others))
    richer = np.array(group[0].rewards)
    richer[held[0][0]] += 5.0
    assert not torch.equal(
        weights_after(group), weights_after([replace(group[0], rewards=richer), *group[1:]])
    )
