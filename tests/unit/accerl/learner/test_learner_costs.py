"""Costs of the loss: those that fall while a policy is learned, and that of leaving the actors."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch.distributions import Categorical, kl_divergence

from accerl.errors import UserError
from tests.fixtures.chains import as_chain
from tests.fixtures.runs.learners import CONFIG, make_learner, make_rollout, tensors


def test_learning_rate_and_entropy_cost_fall_linearly_and_stay() -> None:
    config = replace(CONFIG, anneal_updates=4, anneal_to=0.2)
    shares = [config.annealed(updates) for updates in range(7)]
    assert shares == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2, 0.2, 0.2])
    assert CONFIG.annealed(10**9) == 1.0
    # Entropy alone drives it, and Adam's first step is as long as the learning rate.
    still = replace(config, entropy_cost=1.0, value_cost=0.0, max_grad_norm=1e-3)
    moved = {}
    for updates in (0, 4):
        learner = make_learner(still)
        learner.updates = updates
        before = as_chain(learner.policy).policy_head.weight.detach().clone()
        learner.update(make_rollout())
        moved[updates] = (
            (as_chain(learner.policy).policy_head.weight - before).abs().median().item()
        )
    assert moved[4] == pytest.approx(0.2 * moved[0], rel=0.05)
    learner = make_learner(replace(config, entropy_cost=0.1))
    batch = tensors(make_rollout())
    _, losses, first = learner._loss(batch)
    learner.updates = 4
    difference = learner._loss(batch)[2] - first
    assert difference.item() == pytest.approx(0.8 * 0.1 * losses["entropy"].item(), rel=1e-4)


def test_the_learner_is_drawn_towards_what_acted() -> None:
    batch = tensors(make_rollout())
    plain = make_learner(CONFIG)._loss(batch)[2]
    output, _, drawn = make_learner(replace(CONFIG, actor_kl_cost=0.5))._loss(batch)
    acted, learned = (Categorical(logits=logits) for logits in (batch["logits"], output.logits))
    kl = kl_divergence(acted, learned)
    assert (drawn - plain).item() == pytest.approx(0.5 * kl.mean().item(), rel=1e-4)
    assert kl.mean() > 0.01
    distances = {}
    for cost in (0.0, 100.0):
        config = replace(CONFIG, actor_kl_cost=cost, learning_rate=1e-2, entropy_cost=0.0)
        learner = make_learner(config)
        measured = [learner.update(make_rollout()).kl_nats for _ in range(22)]
        distances[cost] = [kl for kl in measured if kl.numel()][-1].mean().item()
    assert distances[100.0] < 0.5 * distances[0.0]
    with pytest.raises(UserError, match="actor_kl_cost must not be negative"):
        replace(CONFIG, actor_kl_cost=-0.1)


@pytest.mark.parametrize("moments", ["plain", "weighted"])
def test_a_minibatch_may_be_a_single_sample(moments: str) -> None:
    config = replace(
        CONFIG, unroll=1, minibatches=2, normalise_advantages=True, advantage_moments=moments
    )
    rollout = make_rollout(envs=2)
    cut = {
        name: array[: 2 if name == "obs" else 1]
        for name, array in vars(rollout).items()
        if name != "header"
    }
    stats = make_learner(config).update(replace(rollout, **cut))
    assert math.isfinite(stats.losses["explained_variance"])
    assert math.isfinite(stats.losses["policy"])


def test_an_infinite_ratio_makes_no_nan_of_the_gradient() -> None:
    """What the minimum leaves out has a slope too: infinity times 0."""
    config = replace(CONFIG, policy_loss="clipped", proximal="pass", reuse=2)
    learner, batch = make_learner(config), tensors(make_rollout())
    output, _, _ = learner._loss(batch)
    batch["proximal"] = output.target_logp_t - 1000.0
    _, _, loss = learner._loss(batch)
    found = torch.autograd.grad(loss, list(learner.policy.parameters()))
    assert all(gradient.isfinite().all() for gradient in found)
