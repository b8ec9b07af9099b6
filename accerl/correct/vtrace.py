"""V-trace: off-policy corrected value targets and policy-gradient advantages."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from accerl.correct.checks import require_fraction, require_level, require_time_batch
from accerl.correct.importance import importance_sampling
from accerl.correct.traces import state_returns


class VTraceReturns(NamedTuple):
    """What V-trace makes of one batch of rollouts; both are [T, B] without gradient."""

    vs: Tensor
    """targets of the value function at the observations acted on"""
    pg_advantage: Tensor
    """min(pg_rho_bar, rho) * (q - v): what multiplies grad log pi"""


def vtrace(
    *,
    behaviour_logp_t: Tensor,
    target_logp_t: Tensor,
    reward_t: Tensor,
    discount_t: Tensor,
    value_t: Tensor,
    bootstrap_value: Tensor,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    pg_rho_bar: float = 1.0,
    lam: float | Tensor = 1.0,
    value_tp1: Tensor | None = None,
) -> VTraceReturns:
    """Return V-trace targets and advantages; no gradient flows into them.

    Equation 2 of Zhang (2022), from Espeholt et al. (2018), "IMPALA", with the lambda of its
    remark 2. For rho_t = pi(a_t|x_t) / mu(a_t|x_t) and c_t = lam * min(c_bar, rho_t),

        vs_s = V_s + sum_{t >= s} gamma^{t-s} (prod_{i=s}^{t-1} c_i) delta_t
        delta_t = min(rho_bar, rho_t) * (reward_t + gamma * V_{t+1} - V_t)
        pg_advantage_t = min(pg_rho_bar, rho_t)
                         * (reward_t + gamma * (lam * vs_{t+1} + (1 - lam) * V_{t+1}) - V_t)

    and both vs and V are `bootstrap_value` after the last step.

    Episodes may end inside a rollout. At a *termination* ``discount_t`` is 0. At a *truncation*
    ``discount_t`` stays gamma, ``value_tp1`` is a value of the episode's own (not of the next
    one's first observation; the learner takes that of the state before the cut), and ``lam`` is 0,
    so that the trace does not run on into the next episode; both vs and the advantage then
    bootstrap from ``value_tp1``.

    Args:
        behaviour_logp_t: log mu(a|x) that the acting engine produced, [T, B].
        target_logp_t: log pi(a|x) of the learner's policy, [T, B].
        reward_t: rewards, [T, B].
        discount_t: gamma, or 0 where the episode terminated, [T, B].
        value_t: V of the observations acted on, [T, B].
        bootstrap_value: V of the observation after the last step, [B].
        rho_bar: decides which value function is learned, between that of mu (0) and pi.
        c_bar: decides how fast; IMPALA assumes c_bar <= rho_bar.
        pg_rho_bar: truncation of the policy gradient's importance weight.
        lam: in [0, 1], scales the link from each step to the next: one number or [T, B].
        value_tp1: V of the observations that followed, [T, B]; without it, `value_t` one step
            later and `bootstrap_value` at the end.

    Raises:
        ValueError: an input is not a floating [T, B] tensor or the shapes differ.
        UserError: a truncation level is negative, or `lam` is a number outside [0, 1].
    """
    return leaky_vtrace(
        behaviour_logp_t=behaviour_logp_t,
        target_logp_t=target_logp_t,
        reward_t=reward_t,
        discount_t=discount_t,
        value_t=value_t,
        bootstrap_value=bootstrap_value,
        rho_bar=rho_bar,
        c_bar=c_bar,
        pg_rho_bar=pg_rho_bar,
        lam=lam,
        value_tp1=value_tp1,
        alpha=1.0,
    )


@torch.no_grad()
def leaky_vtrace(
    *,
    behaviour_logp_t: Tensor,
    target_logp_t: Tensor,
    reward_t: Tensor,
    discount_t: Tensor,
    value_t: Tensor,
    bootstrap_value: Tensor,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    pg_rho_bar: float = 1.0,
    lam: float | Tensor = 1.0,
    value_tp1: Tensor | None = None,
    alpha: float = 0.9,
) -> VTraceReturns:
    """Return leaky V-trace targets and advantages; no gradient flows into them.

    Zahavy et al. (2020), "A self-tuning actor-critic algorithm": V-trace in which a part of what
    truncation cuts off leaks through. Both rho and c are ``(1 - alpha) * rho + alpha * min(bar,
    rho)``; `pg_rho_bar` truncates altogether. `alpha` in [0, 1] is how much of the truncation is
    kept: at 1 this is V-trace, at 0 importance sampling without truncation. The other arguments,
    the episode ends and the errors are those of `vtrace`.
    """
    for name, bar in (("rho_bar", rho_bar), ("c_bar", c_bar), ("pg_rho_bar", pg_rho_bar)):
        require_level(name, bar)
    require_fraction("alpha", alpha)
    require_time_batch(
        value_t=value_t,
        behaviour_logp_t=behaviour_logp_t,
        target_logp_t=target_logp_t,
        reward_t=reward_t,
        discount_t=discount_t,
        lam=lam,
    )
    if bootstrap_value.shape != value_t.shape[1:]:
        raise ValueError(
            f"bootstrap_value is {tuple(bootstrap_value.shape)}, not [B] with B {value_t.shape[1]}"
        )
    if value_tp1 is None:
        value_tp1 = torch.cat([value_t[1:], bootstrap_value.unsqueeze(0)])
    require_time_batch(value_t=value_t, value_tp1=value_tp1)
    ratio_t = importance_sampling(
        behaviour_logp_t=behaviour_logp_t, target_logp_t=target_logp_t, rho_bar=math.inf
    )
    vs, advantage_t = state_returns(
        rho_t=leaky_truncation(ratio_t, rho_bar, alpha),
        c_t=leaky_truncation(ratio_t, c_bar, alpha),
        reward_t=reward_t,
        discount_t=discount_t,
        value_t=value_t,
        value_tp1=value_tp1,
        lam=lam,
    )
    return VTraceReturns(vs, pg_advantage=ratio_t.clamp(max=pg_rho_bar) * advantage_t)


def leaky_truncation(ratio_t: Tensor, bar: float, alpha: float) -> Tensor:
    """Return ``(1 - alpha) * ratio + alpha * min(bar, ratio)``, of the shape of `ratio_t`."""
    return torch.lerp(ratio_t, ratio_t.clamp(max=bar), alpha)
