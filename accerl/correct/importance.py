"""Importance sampling: ratios of the target policy to the policy that really acted."""

from __future__ import annotations

import torch
from torch import Tensor

from accerl.correct.checks import require_level, require_time_batch


@torch.no_grad()
def importance_sampling(
    *, behaviour_logp_t: Tensor, target_logp_t: Tensor, rho_bar: float = 1.0
) -> Tensor:
    """Return truncated importance ratios min(rho_bar, pi / mu) [T, B], without gradient.

    The weight of the policy gradient in equation 3 of Zhang (2022), "AcceRL", which limits it to 1.

    Args:
        behaviour_logp_t: log mu(a|x) that the acting engine produced, after quantisation, [T, B].
        target_logp_t: log pi(a|x) of the learner's policy, [T, B].
        rho_bar: the largest ratio; infinity leaves ratios as they are.

    Raises:
        ValueError: an input is not a floating [T, B] tensor or the shapes differ.
        UserError: `rho_bar` is negative.
    """
    require_time_batch(target_logp_t=target_logp_t, behaviour_logp_t=behaviour_logp_t)
    require_level("rho_bar", rho_bar)
    ratio_t = (target_logp_t - behaviour_logp_t).exp()
    # A ratio that overflows stays a number: infinity times the discount 0 of an end is none.
    return ratio_t.clamp(max=min(rho_bar, torch.finfo(ratio_t.dtype).max))


def truncated_importance_sampling(
    *, behaviour_logp_t: Tensor, target_logp_t: Tensor, bound: float = 2.0
) -> Tensor:
    """Return min(bound, pi / mu) [T, B]: `importance_sampling` with the bound of FlashRL.

    Yao et al. (2025), "Your efficient RL framework secretly brings you off-policy RL training":
    truncating at C = 2 instead of 1 keeps part of the upweighting that a quantised actor calls for.

    Args:
        behaviour_logp_t: log mu(a|x) that the acting engine produced, [T, B].
        target_logp_t: log pi(a|x) of the learner's policy, [T, B].
        bound: C, the largest ratio.

    Raises:
        ValueError: an input is not a floating [T, B] tensor or the shapes differ.
        UserError: `bound` is negative.
    """
    require_level("bound", bound)
    return importance_sampling(
        behaviour_logp_t=behaviour_logp_t, target_logp_t=target_logp_t, rho_bar=bound
    )
