"""V-trace: off-policy corrected value targets and policy-gradient advantages."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from accerl.correct.checks import require_time_batch


class VTraceOutput(NamedTuple):
    """What V-trace makes of one batch of rollouts; every field is [T, B] without gradient."""

    vs: Tensor
    """targets of the value function at the observations of `v_tm1`"""
    pg_advantages: Tensor
    """min(clip_pg_rho, rho) * `advantages`: what multiplies grad log pi"""
    rhos: Tensor
    """the truncated ratios min(clip_rho, rho) that weighted the TD errors"""
    advantages: Tensor
    """q - v before the importance weight of the policy gradient"""


@torch.no_grad()
def vtrace(
    v_tm1: Tensor,
    v_t: Tensor,
    r_t: Tensor,
    discount_t: Tensor,
    rho_tm1: Tensor,
    *,
    lambda_: float | Tensor = 1.0,
    clip_rho: float = 1.0,
    clip_c: float = 1.0,
    clip_pg_rho: float = 1.0,
) -> VTraceOutput:
    """Return V-trace targets and advantages; no gradient flows into them.

    Equation 2 of Zhang (2022), from Espeholt et al. (2018), "IMPALA", with the lambda of its
    remark 2: ``vs = v + err``, where

        err_tm1 = min(clip_rho, rho) * (r + discount * v_t - v_tm1)
                  + discount * lambda * min(clip_c, rho) * err_t

    and the advantage is ``q - v`` with ``q = r + discount * (lambda * vs_t + (1 - lambda) * v_t)``.

    Episodes may end inside a rollout. At a *termination* ``discount_t`` is 0. At a *truncation*
    ``discount_t`` stays gamma, ``v_t`` is the value of the episode's own last observation (not of
    the next episode's first), and ``lambda_`` is 0, so that the trace does not run on into the
    next episode; both the targets and q then bootstrap from ``v_t``.

    Args:
        v_tm1: values of the observations acted on, [T, B].
        v_t: values of the observations that followed, [T, B]; without episode ends this is
            ``v_tm1`` one step later, and its last row is the bootstrap.
        r_t: rewards, [T, B].
        discount_t: gamma, or 0 where the episode terminated, [T, B].
        rho_tm1: importance ratios pi / mu of the actions taken, not yet truncated, [T, B].
        lambda_: how far traces carry on, in [0, 1]: one number or [T, B].
        clip_rho: rho_bar, decides which value function is learned.
        clip_c: c_bar, decides how fast; IMPALA requires c_bar <= rho_bar.
        clip_pg_rho: truncation of the policy gradient's importance weight.

    Raises:
        ValueError: an input is not a floating [T, B] tensor or the shapes differ.
    """
    if not isinstance(lambda_, Tensor):
        lambda_ = torch.full_like(v_tm1, lambda_)
    require_time_batch(
        v_tm1=v_tm1, v_t=v_t, r_t=r_t, discount_t=discount_t, rho_tm1=rho_tm1, lambda_=lambda_
    )

    rhos = rho_tm1.clamp(max=clip_rho)
    deltas = rhos * (r_t + discount_t * v_t - v_tm1)
    decays = discount_t * lambda_ * rho_tm1.clamp(max=clip_c)
    errors = torch.empty_like(deltas)
    error = torch.zeros_like(deltas[0])
    for step in reversed(range(len(deltas))):
        error = torch.addcmul(deltas[step], decays[step], error, out=errors[step])
    vs = v_tm1 + errors

    # Nothing follows the last step, so its q can only bootstrap from the value function.
    vs_t = torch.cat([vs[1:], v_t[-1:]])
    q_tm1 = r_t + discount_t * torch.lerp(v_t, vs_t, lambda_)
    advantages = q_tm1 - v_tm1
    return VTraceOutput(
        vs=vs,
        pg_advantages=rho_tm1.clamp(max=clip_pg_rho) * advantages,
        rhos=rhos,
        advantages=advantages,
    )
