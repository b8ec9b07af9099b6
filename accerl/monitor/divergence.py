"""Divergence: how far the policy that acted is from the learner's, state by state (paper, 2.4)."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class RolloutMeasures(NamedTuple):
    """How the policy that acted in a rollout compares with the learner's; without gradient."""

    kl_nats: Tensor
    """KL(learner || actor) of every state, [T, B] (paper, eq. 5)"""
    entropy_nats: Tensor
    """entropy of the learner's policy in every state, [T, B]"""
    argmax_agreement: float
    """share of the states in which both find the same action best"""
    ess_fraction: float
    """effective sample size of the importance weights over the number of samples, in (0, 1]
    (Kish 1965): 1 when all ratios are equal"""
    clipped_share: float
    """share of the ratios that rho_bar truncates"""


CHEAP_MACS = 1e9
"""an update of fewer multiply-accumulates does not measure every rollout"""
SPARSEST = 9


def updates_between(macs: float) -> int:
    """Return the number of updates between measurements that keeps their cost below 1%.

    Measuring costs some 0.1 ms whatever the network, which only the smallest ones notice. The
    number is odd, so that measurements do not coincide with publications, which mostly come
    every 2^n updates.

    Args:
        macs: multiply-accumulates of one update's passes forward over its samples.
    """
    wished = math.ceil(CHEAP_MACS / max(macs, 1.0))
    return min(wished + (wished + 1) % 2, SPARSEST)


@torch.no_grad()
def measure_rollout(
    logits: Tensor,
    behaviour_logits: Tensor,
    target_logp_t: Tensor,
    behaviour_logp_t: Tensor,
    *,
    rho_bar: float = 1.0,
) -> RolloutMeasures:
    """Compare the learner's policy with the one that acted.

    Args:
        logits: of the learner's policy, [T, B, A].
        behaviour_logits: of the engine that acted, [T, B, A].
        target_logp_t: log pi(a|x) of the learner's policy, [T, B].
        behaviour_logp_t: log mu(a|x) of the engine that acted, [T, B].
        rho_bar: the truncation level of the ratios pi / mu.

    Raises:
        ValueError: the shapes differ.
    """
    if logits.shape != behaviour_logits.shape or target_logp_t.shape != behaviour_logp_t.shape:
        raise ValueError(
            f"the learner's {tuple(logits.shape)} and {tuple(target_logp_t.shape)} do not match "
            f"the actor's {tuple(behaviour_logits.shape)} and {tuple(behaviour_logp_t.shape)}"
        )
    # For a small network this is a noticeable part of an update: as few operations as will do, and
    # actions first, because a softmax over so short a last dimension takes ten times as long.
    log_p, log_q = (
        torch.log_softmax(each.float().flatten(0, -2).t().contiguous(), dim=0)
        for each in (logits, behaviour_logits)
    )
    p = log_p.exp()
    same = logits.argmax(-1) == behaviour_logits.argmax(-1)
    log_ratio = (target_logp_t - behaviour_logp_t).flatten().double()
    # Scaled by the largest, which changes nothing: the square of a huge ratio would overflow.
    weights = (log_ratio - log_ratio.max()).exp()
    size = weights.sum().square() / weights.dot(weights)
    clipped = torch.count_nonzero(log_ratio > math.log(rho_bar)) if rho_bar > 0.0 else len(weights)
    samples = same.numel()
    return RolloutMeasures(
        # Rounding can leave a sum of -1e-8 where the policies agree.
        kl_nats=(p * (log_p - log_q)).sum(0).clamp(min=0.0).view(same.shape),
        entropy_nats=-(p * log_p).sum(0).view(same.shape),
        argmax_agreement=int(torch.count_nonzero(same)) / samples,
        ess_fraction=size.item() / samples,
        clipped_share=int(clipped) / samples,
    )
