"""Importance sampling: unbiased without a bound, bounded with it, without gradient."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from accerl.correct import importance_sampling, truncated_importance_sampling
from accerl.errors import UserError


def policies() -> tuple[Tensor, Tensor]:
    """Log-probs of two policies over 5 actions, as [5, 1]: each action sampled once."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(2, 5, generator=generator, dtype=torch.float64)
    target, behaviour = torch.log_softmax(logits, dim=-1)
    return target.unsqueeze(1), behaviour.unsqueeze(1)


def test_weighted_expectations_are_those_of_the_target_policy() -> None:
    target, behaviour = policies()
    values = torch.arange(5, dtype=torch.float64).unsqueeze(1)
    weights = importance_sampling(
        behaviour_logp_t=behaviour, target_logp_t=target, rho_bar=math.inf
    )
    corrected = (behaviour.exp() * weights * values).sum()
    torch.testing.assert_close(corrected, (target.exp() * values).sum())
    assert not torch.isclose((behaviour.exp() * values).sum(), corrected)


def test_bounds_are_1_as_in_the_paper_and_2_as_in_flashrl() -> None:
    target, behaviour = torch.tensor([[0.9], [0.6], [0.1]]).log(), torch.full((3, 1), 0.4).log()
    weights = importance_sampling(behaviour_logp_t=behaviour, target_logp_t=target)
    assert weights.flatten().tolist() == pytest.approx([1.0, 1.0, 0.25])
    weights = truncated_importance_sampling(behaviour_logp_t=behaviour, target_logp_t=target)
    assert weights.flatten().tolist() == pytest.approx([2.0, 1.5, 0.25])


def test_equal_policies_have_ratio_one() -> None:
    target, _ = policies()
    weights = importance_sampling(behaviour_logp_t=target, target_logp_t=target, rho_bar=math.inf)
    assert torch.equal(weights, torch.ones_like(target))


def test_a_nearly_impossible_action_does_not_overflow_the_weight() -> None:
    target, behaviour = torch.zeros(1, 1), torch.full((1, 1), -200.0)
    assert importance_sampling(behaviour_logp_t=behaviour, target_logp_t=target).item() == 1.0
    # Where an episode ends the discount is 0, and 0 times what is not truncated must be 0.
    whole = importance_sampling(behaviour_logp_t=behaviour, target_logp_t=target, rho_bar=math.inf)
    assert 0.0 * whole.item() == 0.0


def test_no_gradient_flows_into_the_weights() -> None:
    target, behaviour = (item.requires_grad_() for item in policies())
    for weigh in (importance_sampling, truncated_importance_sampling):
        assert not weigh(behaviour_logp_t=behaviour, target_logp_t=target).requires_grad


def test_shapes_and_bounds_must_make_sense() -> None:
    two, three = torch.zeros(2, 2), torch.zeros(2, 3)
    with pytest.raises(ValueError, match="behaviour_logp_t is"):
        importance_sampling(target_logp_t=two, behaviour_logp_t=three)
    with pytest.raises(UserError, match="rho_bar is a truncation level"):
        importance_sampling(target_logp_t=two, behaviour_logp_t=two, rho_bar=-1.0)
    with pytest.raises(UserError, match="bound is a truncation level"):
        truncated_importance_sampling(target_logp_t=two, behaviour_logp_t=two, bound=math.nan)
