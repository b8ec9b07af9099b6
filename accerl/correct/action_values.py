"""Targets of action-value functions: what Retrace, Tree-backup and their limits share.

All four are the same return (`accerl.correct.traces.action_returns`) with different traces, and
index them alike: the coefficient of step t judges the action taken at t, so it scales what flows
from step t back to step t - 1, and that of the first step is never used. `lam` scales the link
from step t to step t + 1.

Episodes may end inside a rollout. At a termination ``discount_t`` is 0. At a truncation
``discount_t`` stays gamma, ``expected_q_tp1`` is that of the episode's own last observation, and
``lam`` is 0.
"""

from __future__ import annotations

from torch import Tensor

from accerl.correct.checks import require_time_batch
from accerl.correct.traces import action_returns


def action_targets(
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
    require_time_batch(
        q_t=q_t,
        expected_q_tp1=expected_q_tp1,
        c_t=c_t,
        reward_t=reward_t,
        discount_t=discount_t,
        lam=lam,
    )
    return action_returns(
        c_t=c_t,
        reward_t=reward_t,
        discount_t=discount_t,
        q_t=q_t,
        expected_q_tp1=expected_q_tp1,
        lam=lam,
    )
