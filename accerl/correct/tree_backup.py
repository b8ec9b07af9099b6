"""Tree-backup, and its uncut limit Q(lambda): targets of action values (see `action_values`)."""

from __future__ import annotations

import torch
from torch import Tensor

from accerl.correct.action_values import action_targets
from accerl.correct.checks import require_time_batch


def tree_backup(
    *,
    q_t: Tensor,
    expected_q_tp1: Tensor,
    target_prob_t: Tensor,
    reward_t: Tensor,
    discount_t: Tensor,
    lam: float | Tensor = 1.0,
) -> Tensor:
    """Return Tree-backup(lambda) targets [T, B]; no gradient flows into them.

    Precup, Sutton and Singh (2000), "Eligibility traces for off-policy policy evaluation": traces
    ``c_t = lam * pi(a_t|x_t)`` need not know who acted, and are short even on-policy. c_t belongs
    to the action taken at t; c_0 is never used.

    Args:
        q_t: Q(x_t, a_t) of the actions taken, [T, B].
        expected_q_tp1: sum_a pi(a|x_{t+1}) Q(x_{t+1}, a), [T, B].
        target_prob_t: pi(a|x) of the learner's policy, not its logarithm, [T, B].
        reward_t: rewards, [T, B].
        discount_t: gamma, or 0 where the episode terminated, [T, B].
        lam: in [0, 1], scales the link from each step to the next: one number or [T, B].

    Raises:
        ValueError: an input is not a floating [T, B] tensor or the shapes differ.
        UserError: `lam` is a number outside [0, 1].
    """
    require_time_batch(q_t=q_t, target_prob_t=target_prob_t)
    return action_targets(q_t, expected_q_tp1, target_prob_t, reward_t, discount_t, lam)


def q_lambda(
    *,
    q_t: Tensor,
    expected_q_tp1: Tensor,
    reward_t: Tensor,
    discount_t: Tensor,
    lam: float | Tensor = 1.0,
) -> Tensor:
    """Return Q(lambda) targets [T, B]; no gradient flows into them.

    Harutyunyan et al. (2016), "Q(lambda) with off-policy corrections": traces ``c_t = lam`` are
    never cut; iterated, it converges only where lam and the distance of the policies are small.

    Args:
        q_t: Q(x_t, a_t) of the actions taken, [T, B].
        expected_q_tp1: sum_a pi(a|x_{t+1}) Q(x_{t+1}, a), [T, B].
        reward_t: rewards, [T, B].
        discount_t: gamma, or 0 where the episode terminated, [T, B].
        lam: in [0, 1], scales the link from each step to the next: one number or [T, B].

    Raises:
        ValueError: an input is not a floating [T, B] tensor or the shapes differ.
        UserError: `lam` is a number outside [0, 1].
    """
    require_time_batch(q_t=q_t)
    return action_targets(q_t, expected_q_tp1, torch.ones_like(q_t), reward_t, discount_t, lam)
