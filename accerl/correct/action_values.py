"""Targets of action-value functions: Retrace, Tree-backup and their limits.

All four are the same return (`accerl.correct.traces.action_returns`) with different traces, and
index them alike: the coefficient of step t judges the action taken at t, so it scales what flows
from step t back to step t - 1, and that of the first step is never used. `lam` scales the link
from step t to step t + 1.

Episodes may end inside a rollout. At a termination ``discount_t`` is 0. At a truncation
``discount_t`` stays gamma, ``expected_q_tp1`` is one of the episode's own (the learner takes that
of the state before the cut), and ``lam`` is 0.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from accerl.correct.checks import require_time_batch
from accerl.correct.importance import importance_sampling
from accerl.correct.traces import action_returns


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
    return _action_targets(q_t, expected_q_tp1, c_t, reward_t, discount_t, lam)


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
    targets are unbiased whatever Q is, and their variance has no bound. Arguments and errors are
    those of `retrace`.
    """
    require_time_batch(q_t=q_t, target_logp_t=target_logp_t)
    c_t = importance_sampling(
        behaviour_logp_t=behaviour_logp_t, target_logp_t=target_logp_t, rho_bar=math.inf
    )
    return _action_targets(q_t, expected_q_tp1, c_t, reward_t, discount_t, lam)


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
    ``c_t = lam * pi(a_t|x_t)`` need not know who acted, and are short even on-policy.
    `target_prob_t` is pi(a|x) of the learner's policy, not its logarithm, [T, B]; the other
    arguments and the errors are those of `retrace`.
    """
    require_time_batch(q_t=q_t, target_prob_t=target_prob_t)
    return _action_targets(q_t, expected_q_tp1, target_prob_t, reward_t, discount_t, lam)


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
    Arguments and errors are those of `retrace`.
    """
    require_time_batch(q_t=q_t)
    return _action_targets(q_t, expected_q_tp1, torch.ones_like(q_t), reward_t, discount_t, lam)


def _action_targets(
    q_t: Tensor,
    expected_q_tp1: Tensor,
    c_t: Tensor,
    reward_t: Tensor,
    discount_t: Tensor,
    lam: float | Tensor,
) -> Tensor:
    """Return the targets [T, B] that traces c_t [T, B] make, of arguments that are checked first.

    Raises:
        ValueError: an input is not a floating [T, B] tensor or the shapes differ.
        UserError: `lam` is a number outside [0, 1].
    """
    returns = {
        "q_t": q_t,
        "expected_q_tp1": expected_q_tp1,
        "c_t": c_t,
        "reward_t": reward_t,
        "discount_t": discount_t,
    }
    require_time_batch(**returns, lam=lam)
    return action_returns(**returns, lam=lam)
