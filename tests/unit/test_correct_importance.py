"""Importance sampling: unbiased without a clip, bounded with it, gradient through log pi."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from accerl.correct import (
    importance_ratios,
    importance_sampling_policy_loss,
    importance_weights,
)


def policies() -> tuple[Tensor, Tensor]:
    """Log-probs of two policies over 5 actions, as [5, 1]: each action sampled once."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(2, 5, generator=generator, dtype=torch.float64)
    target, behaviour = torch.log_softmax(logits, dim=-1)
    return target.unsqueeze(1), behaviour.unsqueeze(1)


def test_weighted_expectations_are_those_of_the_target_policy() -> None:
    target, behaviour = policies()
    values = torch.arange(5, dtype=torch.float64).unsqueeze(1)
    weights = importance_weights(target, behaviour, clip=math.inf)
    corrected = (behaviour.exp() * weights * values).sum()
    torch.testing.assert_close(corrected, (target.exp() * values).sum())
    assert not torch.isclose((behaviour.exp() * values).sum(), corrected)


@pytest.mark.parametrize("clip", [0.5, 1.0, 2.0])
def test_weights_are_ratios_up_to_the_clip(clip: float) -> None:
    target, behaviour = policies()
    ratios = (target.exp() / behaviour.exp()).clamp(max=clip)
    torch.testing.assert_close(importance_weights(target, behaviour, clip=clip), ratios)


def test_equal_policies_have_ratio_one() -> None:
    target, _ = policies()
    assert torch.equal(importance_ratios(target, target), torch.ones_like(target))


def test_a_nearly_impossible_action_does_not_overflow_the_weight() -> None:
    target, behaviour = torch.zeros(1, 1), torch.full((1, 1), -200.0)
    assert importance_weights(target, behaviour).item() == 1.0


def test_gradient_flows_through_the_target_log_prob_alone() -> None:
    target, behaviour = (item.clone().requires_grad_() for item in policies())
    advantages = torch.linspace(-1, 1, 5, dtype=torch.float64).unsqueeze(1).requires_grad_()
    loss = importance_sampling_policy_loss(target, behaviour, advantages, clip=1.0)
    loss.backward()
    weights = importance_weights(target, behaviour)
    torch.testing.assert_close(target.grad, (-weights * advantages / 5).detach())
    assert behaviour.grad is None
    assert advantages.grad is None


def test_loss_value() -> None:
    target, behaviour = torch.tensor([[-1.0], [-2.0]]), torch.tensor([[-2.0], [-1.0]])
    advantages = torch.tensor([[3.0], [4.0]])
    loss = importance_sampling_policy_loss(target, behaviour, advantages)
    # weights min(1, e) and min(1, 1 / e)
    assert loss.item() == pytest.approx(-(3.0 * -1.0 + math.exp(-1) * 4.0 * -2.0) / 2)


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match="behaviour_log_prob is"):
        importance_ratios(torch.zeros(2, 2), torch.zeros(2, 3))
    with pytest.raises(ValueError, match="advantages is"):
        importance_sampling_policy_loss(torch.zeros(2, 2), torch.zeros(2, 2), torch.zeros(2, 1))
