"""Importance sampling: ratios of the target policy to the policy that really acted."""

from __future__ import annotations

import torch
from torch import Tensor

from accerl.correct.checks import require_time_batch


@torch.no_grad()
def importance_ratios(target_log_prob: Tensor, behaviour_log_prob: Tensor) -> Tensor:
    """Return pi(a|x) / mu(a|x) [T, B], without gradient and not truncated.

    Args:
        target_log_prob: log pi(a|x) of the learner's policy, [T, B].
        behaviour_log_prob: log mu(a|x) that the acting engine produced, after quantisation, [T, B].

    Raises:
        ValueError: an input is not a floating [T, B] tensor or the shapes differ.
    """
    require_time_batch(target_log_prob=target_log_prob, behaviour_log_prob=behaviour_log_prob)
    return (target_log_prob - behaviour_log_prob).exp()


def importance_weights(
    target_log_prob: Tensor, behaviour_log_prob: Tensor, *, clip: float = 1.0
) -> Tensor:
    """Return truncated importance weights min(clip, pi / mu) [T, B], without gradient.

    The weight of the policy gradient in equation 3 of Zhang (2022), which limits it to 1.

    Args:
        target_log_prob: log pi(a|x) of the learner's policy, [T, B].
        behaviour_log_prob: log mu(a|x) that the acting engine produced, [T, B].
        clip: the largest weight; infinity leaves the ratio as it is.

    Raises:
        ValueError: an input is not a floating [T, B] tensor or the shapes differ.
    """
    return importance_ratios(target_log_prob, behaviour_log_prob).clamp(max=clip)


def importance_sampling_policy_loss(
    target_log_prob: Tensor, behaviour_log_prob: Tensor, advantages: Tensor, *, clip: float = 1.0
) -> Tensor:
    """Return the policy-gradient loss of equation 3, Zhang (2022): a scalar, mean over [T, B].

    ``-mean(min(clip, pi / mu) * log pi(a|x) * advantage)``; its gradient flows through log pi
    alone, never through the weight or the advantage.

    Args:
        target_log_prob: log pi(a|x) of the learner's policy, with gradient, [T, B].
        behaviour_log_prob: log mu(a|x) that the acting engine produced, [T, B].
        advantages: ADV(x, a), [T, B].
        clip: the largest weight.

    Raises:
        ValueError: an input is not a floating [T, B] tensor or the shapes differ.
    """
    require_time_batch(target_log_prob=target_log_prob, advantages=advantages)
    weights = importance_weights(target_log_prob, behaviour_log_prob, clip=clip)
    return -(weights * advantages.detach() * target_log_prob).mean()
