"""The joint distribution: the product of its heads where all exists, and never what is missing."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from controller.actions import ActionSpace
from controller.policy.joint import (
    cross_entropy_nats,
    draw,
    entropy_nats,
    joint_matrix,
    masked_kl_nats,
    masked_log_softmax,
)
from tests.fixtures.controllers.trajectories import make_policy

SIZES = (2, 3, 4)
COUNT = 24


def logits(seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(5, size, generator=generator) for size in SIZES]


def some_mask(seed: int = 0) -> torch.Tensor:
    mask = torch.from_numpy(np.random.default_rng(seed).random(COUNT) < 0.4)
    mask[3] = True
    return mask


def test_scores_are_in_the_order_of_all_indices() -> None:
    heads = [torch.tensor([[100.0, 200.0]]), torch.tensor([[0.0, 10.0, 20.0]])]
    heads.append(torch.tensor([[0.0, 1.0, 2.0, 3.0]]))
    scores = torch.cat(heads, dim=-1) @ joint_matrix(SIZES)
    assert scores[0].tolist() == [
        100 + 100 * i + 10 * j + k for i, j, k in product(*map(range, SIZES))
    ]
    assert ActionSpace().all_indices() == list(product(*map(range, SIZES)))


def test_free_heads_make_the_product_of_their_softmaxes() -> None:
    heads = logits()
    log_probs = masked_log_softmax(torch.cat(heads, dim=-1) @ joint_matrix(SIZES))
    each = [torch.log_softmax(head, dim=-1) for head in heads]
    for place, (i, j, k) in enumerate(product(*map(range, SIZES))):
        expected = each[0][:, i] + each[1][:, j] + each[2][:, k]
        assert torch.allclose(log_probs[:, place], expected, atol=1e-5)
    own = sum(-(one.exp() * one).sum(-1) for one in each)
    assert torch.allclose(entropy_nats(log_probs), torch.as_tensor(own), atol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_probabilities_sum_to_one_over_what_exists(seed: int) -> None:
    mask = some_mask(seed)
    scores = torch.cat(logits(seed), dim=-1) @ joint_matrix(SIZES)
    probs = masked_log_softmax(scores, mask).exp()
    assert torch.allclose(probs[:, mask].sum(-1), torch.ones(5))
    assert float(probs[:, ~mask].abs().max()) == 0.0
    # What exists keeps its odds.
    free = masked_log_softmax(scores).exp()[:, mask]
    assert torch.allclose(probs[:, mask], free / free.sum(-1, keepdim=True), atol=1e-6)


def test_entropy_and_kl_of_a_mask_are_those_of_what_is_left() -> None:
    mask = some_mask()
    p, q = (
        masked_log_softmax(torch.cat(logits(seed), dim=-1) @ joint_matrix(SIZES), mask)
        for seed in (0, 1)
    )
    left_p, left_q = p[:, mask], q[:, mask]
    assert torch.allclose(entropy_nats(p), -(left_p.exp() * left_p).sum(-1))
    assert torch.allclose(masked_kl_nats(p, q), (left_p.exp() * (left_p - left_q)).sum(-1))
    assert torch.allclose(cross_entropy_nats(p.exp(), q), entropy_nats(p) + masked_kl_nats(p, q))
    assert float(masked_kl_nats(p, p).abs().max()) == 0.0


def test_gradients_pass_the_mask_as_numbers() -> None:
    scores = torch.randn(3, COUNT, generator=torch.Generator().manual_seed(0), requires_grad=True)
    mask = some_mask()
    log_probs = masked_log_softmax(scores, mask)
    other = masked_log_softmax(torch.zeros(3, COUNT), mask)
    (entropy_nats(log_probs) + masked_kl_nats(log_probs, other)).sum().backward()
    assert scores.grad is not None
    assert bool(torch.isfinite(scores.grad).all())
    assert float(scores.grad[:, ~mask].abs().max()) == 0.0


def test_draws_have_the_joint_probabilities() -> None:
    mask = some_mask().numpy()
    probs = np.where(mask, np.random.default_rng(0).random(COUNT), 0.0)
    probs /= probs.sum()
    cells = (np.arange(16) + 0.5) / 16
    counts = np.zeros(COUNT)
    for uniforms in product(cells, repeat=3):
        counts[np.ravel_multi_index(draw(probs, SIZES, mask, np.array(uniforms)), SIZES)] += 1
    assert counts[~mask].sum() == 0.0
    assert counts / counts.sum() == pytest.approx(probs, abs=0.03)


@pytest.mark.parametrize("u", [0.0, 0.3, 1.0 - 2.0**-53, 1.0])
def test_no_rounding_draws_what_is_missing(u: float) -> None:
    for only in range(COUNT):
        mask = np.arange(COUNT) == only
        found = draw(mask.astype(float), SIZES, mask, np.full(3, u))
        assert np.ravel_multi_index(found, SIZES) == only


def test_a_policy_acts_and_explores_only_where_something_exists() -> None:
    policy, dice = make_policy(spread=0.5), np.random.default_rng(0)
    mask = some_mask(2).numpy()
    vectors = dice.uniform(-2, 2, (30, policy.num_features)).astype(np.float32)
    log_probs = policy.log_probs(torch.from_numpy(vectors), torch.from_numpy(mask)).detach()
    for row, vector in enumerate(vectors):
        likeliest = policy.act(vector, mask=mask)
        assert np.ravel_multi_index(likeliest.indices, SIZES) == int(log_probs[row].argmax())
        drawn = policy.act(vector, dice.random(3), mask=mask)
        place = np.ravel_multi_index(drawn.indices, SIZES)
        assert mask[place]
        assert drawn.log_prob == pytest.approx(float(log_probs[row, place]), abs=1e-5)
