"""Traces: the backward recursion that all correctors share, for state and for action values.

Estimators differ in two numbers per step: how much a TD error weighs (rho) and how far it travels
back in time (c). What they share is here; nothing here is checked, callers check their arguments.
"""

from __future__ import annotations

import torch
from torch import Tensor


def backward_scan(delta_t: Tensor, decay_t: Tensor) -> Tensor:
    """Return ``error_t = delta_t + decay_t * error_{t+1}``, where nothing follows the last step.

    Args:
        delta_t: [T, B].
        decay_t: [T, B]; its last row is never used.
    """
    error_t = delta_t.clone()
    errors, decays = error_t.unbind(), decay_t.unbind()
    # One kernel a step: at [20, 32] the arithmetic costs nothing and every further call does.
    for step in reversed(range(len(errors) - 1)):
        errors[step].addcmul_(decays[step], errors[step + 1])
    if not _finite(error_t):
        # Ratios that nothing truncates may overflow. Zero times that is not a number, but where a
        # trace is cut (at the end of an episode) nothing may come through.
        error_t.copy_(delta_t)
        nothing = torch.zeros_like(errors[0])
        for step in reversed(range(len(errors) - 1)):
            carried = torch.where(decays[step] == 0.0, nothing, decays[step] * errors[step + 1])
            errors[step].add_(carried)
    return error_t


def _finite(tensor: Tensor) -> bool:
    return bool(torch.isfinite(tensor).all())


@torch.no_grad()
def state_returns(
    *,
    rho_t: Tensor,
    c_t: Tensor,
    reward_t: Tensor,
    discount_t: Tensor,
    value_t: Tensor,
    value_tp1: Tensor,
    lam: float | Tensor,
) -> tuple[Tensor, Tensor]:
    """Return targets vs and advantages [T, B] of a state-value function, without gradient.

    With ``delta_t = rho_t * (reward_t + discount_t * V_{t+1} - V_t)``,

        vs_s = V_s + sum_{t >= s} (prod_{i=s}^{t-1} discount_i * lam_i * c_i) * delta_t
        advantage_t = reward_t + discount_t * (lam_t * vs_{t+1} + (1 - lam_t) * V_{t+1}) - V_t

    where vs after the last step is V. At V^pi every delta is zero in expectation if rho is the
    whole ratio pi / mu, whatever the traces: c decides how fast, rho alone what is learned.

    Args:
        rho_t: weights of the TD errors, [T, B].
        c_t: trace coefficients, not yet scaled by `lam`, [T, B].
        reward_t: rewards, [T, B].
        discount_t: gamma, or 0 where the episode terminated, [T, B].
        value_t: values of the observations acted on, [T, B].
        value_tp1: values of the observations that followed, [T, B].
        lam: in [0, 1], scales the link from each step to the next; 0 cuts the trace there.
    """
    delta_t = rho_t * (reward_t + discount_t * value_tp1 - value_t)
    link_t = discount_t * lam
    error_t = backward_scan(delta_t, link_t * c_t)
    vs = value_t + error_t
    # Nothing follows the last step, so it can only bootstrap from the value function.
    vs_tp1 = torch.cat([vs[1:], value_tp1[-1:]])
    following = torch.lerp(value_tp1, vs_tp1, lam)
    if not _finite(error_t):  # as in `backward_scan`: nothing comes over the end of an episode
        following = torch.where(link_t == 0.0, value_tp1, following)
    return vs, reward_t + discount_t * following - value_t


@torch.no_grad()
def action_returns(
    *,
    c_t: Tensor,
    reward_t: Tensor,
    discount_t: Tensor,
    q_t: Tensor,
    expected_q_tp1: Tensor,
    lam: float | Tensor,
) -> Tensor:
    """Return targets [T, B] of an action-value function, without gradient.

    Equation 4 of Munos et al. (2016), "Safe and efficient off-policy reinforcement learning":

        correction_{t+1} = lam_t * c_{t+1} * (target_{t+1} - Q_{t+1})
        target_t = reward_t + discount_t * (E_pi Q_{t+1} + correction_{t+1})

    where the last correction is 0.

    Args:
        c_t: trace coefficients of the actions taken at t, not yet scaled by `lam`, [T, B]; the
            first row is never used, as the first action is given and not judged.
        reward_t: rewards, [T, B].
        discount_t: gamma, or 0 where the episode terminated, [T, B].
        q_t: Q(x_t, a_t) of the actions taken, [T, B].
        expected_q_tp1: sum_a pi(a|x_{t+1}) Q(x_{t+1}, a), [T, B].
        lam: in [0, 1], scales the link from each step to the next; 0 cuts the trace there.
    """
    delta_t = reward_t + discount_t * expected_q_tp1 - q_t
    c_tp1 = torch.cat([c_t[1:], torch.zeros_like(c_t[:1])])
    return q_t + backward_scan(delta_t, discount_t * lam * c_tp1)
