"""The loss by which a smaller network learns from the learner's policy (paper, equation 1)."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def distillation_loss(
    teacher_logits: Tensor,
    teacher_values: Tensor,
    student_logits: Tensor,
    student_values: Tensor,
    entropy_cost: float,
    *,
    value_cost: float = 1.0,
    temperature: float = 1.0,
) -> Tensor:
    """Return the paper's equation 1, averaged over states.

    KL(pi_teacher || pi_student) + c/2 (v_teacher - v_student)^2 - beta H(pi_student)

    where the paper's c is 1. At a temperature t the KL is that of both policies with their logits
    divided by t, times t^2, which keeps the size of its gradients (Hinton et al. 2015).

    Args:
        teacher_logits: [B, A]; no gradient flows into the teacher.
        teacher_values: [B]
        student_logits: [B, A]
        student_values: [B]
        entropy_cost: beta.
        value_cost: c. Nobody reads a student's values; without them its policy has more room.
        temperature: t.

    Raises:
        ValueError: shapes differ, or there are no states.
    """
    if teacher_logits.shape != student_logits.shape or teacher_logits.ndim != 2:
        raise ValueError(
            f"logits must be two equal [B, A] shapes, got {tuple(teacher_logits.shape)} and "
            f"{tuple(student_logits.shape)}"
        )
    if not teacher_values.shape == student_values.shape == teacher_logits.shape[:1]:
        raise ValueError(
            f"values must have shape [B], got {tuple(teacher_values.shape)} and "
            f"{tuple(student_values.shape)}"
        )
    if len(teacher_logits) == 0:
        raise ValueError("distillation needs at least one state")
    log_p = functional.log_softmax(teacher_logits.detach() / temperature, dim=-1)
    log_q = functional.log_softmax(student_logits / temperature, dim=-1)
    loss = temperature**2 * (log_p.exp() * (log_p - log_q)).sum(-1)
    if value_cost:
        loss = loss + 0.5 * value_cost * (teacher_values.detach() - student_values).square()
    if entropy_cost:
        log_pi = log_q if temperature == 1.0 else functional.log_softmax(student_logits, dim=-1)
        loss = loss + entropy_cost * (log_pi.exp() * log_pi).sum(-1)
    return loss.mean()
