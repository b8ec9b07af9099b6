"""Retrace(lambda), and its untruncated limit: targets of action values (see `action_values`)."""

from __future__ import annotations

import math

from torch import Tensor

from accerl.correct.action_values import action_targets
from accerl.correct.checks import require_time_batch
from accerl.correct.importance import importance_sampling


def retrace(
    *,
    q_t: Tensor,
    expected_q_tp1: Tensor,
    behaviour_logp_t: Tensor,
    target_logp_t: Tensor,
    reward_t: Tensor,
    discount_t: Tensor,
    lam: float | Tensor = 1.0,
) -> Tensor:
    """Return Retrace(lambda) targets [T, B]; no gradient flows into them.

    Munos et al. (2016), "Safe and efficient off-policy reinforcement learning": traces
    ``c_t = lam * min(1, pi / mu)`` are cut only as far as the policies differ, and never grow.
    c_t belongs to the action taken at t; c_0 is never used.

    Args:
        q_t: Q(x_t, a_t) of the actions taken, [T, B].
        expected_q_tp1: sum_a pi(a|x_{t+1}) Q(x_{t+1}, a), [T, B].
        behaviour_logp_t: log mu(a|x) that the acting engine produced, [T, B].
        target_logp_t: log pi(a|x) of the learner's policy, [T, B].
        reward_t: rewards, [T, B].
        discount_t: gamma, or 0 where the episode terminated, [T, B].
        lam: in [0, 1], scales the link from each step to the next: one number or [T, B].

    Raises:
        ValueError: an input is not a floating [T, B] tensor or the shapes differ.
        UserError: `lam` is a number outside [0, 1].
    """
    require_time_batch(q_t=q_t, target_logp_t=target_logp_t)
    c_t = importance_sampling(
        behaviour_logp_t=behaviour_logp_t, target_logp_t=target_logp_t, rho_bar=1.0
    )
    return action_targets(q_t, expected_q_tp1, c_t, reward_t, discount_t, lam)


def per_decision_importance_sampling(
    *,
    q_t: Tensor,
    expected_q_tp1: Tensor,
    behaviour_logp_t: Tensor,
    target_logp_t: Tensor,
    reward_t: Tensor,
    discount_t: Tensor,
    lam: float | Tensor = 1.0,
) -> Tensor:
    """Return targets of per-decision importance sampling [T, B]; no gradient flows into them.

    Precup, Sutton and Singh (2000), "Eligibility traces for off-policy policy evaluation", with Q
    as a control variate: traces ``c_t = lam * pi / mu`` are not truncated, so that at lam 1 the
    targets are unbiased whatever Q is, and their variance has no bound. c_t belongs to the action
    taken at t; c_0 is never used.

    Args:
        q_t: Q(x_t, a_t) of the actions taken, [T, B].
        expected_q_tp1: sum_a pi(a|x_{t+1}) Q(x_{t+1}, a), [T, B].
        behaviour_logp_t: log mu(a|x) that the acting engine produced, [T, B].
        target_logp_t: log pi(a|x) of the learner's policy, [T, B].
        reward_t: rewards, [T, B].
        discount_t: gamma, or 0 where the episode terminated, [T, B].
        lam: in [0, 1], scales the link from each step to the next: one number or [T, B].

    Raises:
        ValueError: an input is not a floating [T, B] tensor or the shapes differ.
        UserError: `lam` is a number outside [0, 1].
    """
    require_time_batch(q_t=q_t, target_logp_t=target_logp_t)
    c_t = importance_sampling(
        behaviour_logp_t=behaviour_logp_t, target_logp_t=target_logp_t, rho_bar=math.inf
    )
    return action_targets(q_t, expected_q_tp1, c_t, reward_t, discount_t, lam)
