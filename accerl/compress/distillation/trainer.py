"""Policy distillation into a smaller network from a teacher that stands still (Figure 3)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from accerl.networks.graph_policy import Policy
from accerl.networks.optimiser_state import load_optimiser_state, optimiser_state


def distillation_loss(
    teacher_logits: Tensor,
    teacher_values: Tensor,
    student_logits: Tensor,
    student_values: Tensor,
    entropy_cost: float,
) -> Tensor:
    """Return the paper's equation 1, averaged over states.

    KL(pi_teacher || pi_student) + 1/2 (v_teacher - v_student)^2 - beta H(pi_student)

    Args:
        teacher_logits: [B, A]; no gradient flows into the teacher.
        teacher_values: [B]
        student_logits: [B, A]
        student_values: [B]
        entropy_cost: beta.

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
    log_p = functional.log_softmax(teacher_logits.detach(), dim=-1)
    log_q = functional.log_softmax(student_logits, dim=-1)
    kl_nats = (log_p.exp() * (log_p - log_q)).sum(-1)
    entropy_nats = -(log_q.exp() * log_q).sum(-1)
    error = teacher_values.detach() - student_values
    return (kl_nats + 0.5 * error.square() - entropy_cost * entropy_nats).mean()


class StudentTrainer:
    """Owns one student, its Adam, and a frozen copy of the learner's policy.

    The learner never stands still, which would make the target drift within every step; so the
    teacher is a copy that is synchronised only every `sync_every` updates.
    """

    def __init__(
        self,
        student: Policy,
        learner_policy: Policy,
        *,
        learning_rate: float,
        entropy_cost: float,
        sync_every: int,
        generator: torch.Generator,
        batch: int | None = None,
    ) -> None:
        """Take over `student`; `update` draws `batch` states from `generator` (None: uses all)."""
        self.net = student
        self.entropy_cost = entropy_cost
        self.sync_every = sync_every
        self.batch = batch
        self.updates = 0
        self.generator = generator
        self._synchronised = 0  # value of `updates` when the teacher was last copied
        self._teacher = copy.deepcopy(learner_policy).requires_grad_(False)
        self._adam = torch.optim.Adam(student.parameters(), lr=learning_rate)

    def update(self, obs: Tensor, learner_policy: Policy, updates: int = 1) -> float:
        """Do `updates` Adam steps on states obs [N, *shape] and return the last loss.

        The teacher may be synchronised at the start of a call, never within it: it looks at every
        state once, however many steps follow.

        Raises:
            ValueError: `obs` holds no state.
        """
        if self.updates - self._synchronised >= self.sync_every or self.updates == 0:
            self._teacher.load_state_dict(learner_policy.state_dict())
            self._synchronised = self.updates
        obs = obs.to(self.net.device)
        with torch.no_grad():
            teacher_logits, teacher_values = self._teacher(obs)
        loss = torch.zeros(())
        self.net.train()
        for _ in range(updates):
            drawn = self._draw(len(obs))
            logits, values = self.net(obs[drawn])
            loss = distillation_loss(
                teacher_logits[drawn], teacher_values[drawn], logits, values, self.entropy_cost
            )
            self._adam.zero_grad(set_to_none=True)
            loss.backward()
            self._adam.step()
        self.net.eval()
        self.updates += updates
        return loss.item()

    def _draw(self, states: int) -> Tensor | slice:
        """Return which states to learn from: `batch` of them, or all."""
        if self.batch is None or states <= self.batch:
            return slice(None)
        return torch.randperm(states, generator=self.generator)[: self.batch]

    def state_dict(self) -> dict[str, Any]:
        """Return copies of everything that an exact resume needs, as a plain tree."""
        return {
            "student": _copies(self.net),
            "teacher": _copies(self._teacher),
            "adam": optimiser_state(self._adam),
            "generator": self.generator.get_state(),
            "updates": self.updates,
            "synchronised": self._synchronised,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Become the trainer that `state` was taken from."""
        self.net.load_state_dict(state["student"])
        self._teacher.load_state_dict(state["teacher"])
        load_optimiser_state(self._adam, state["adam"])
        self.generator.set_state(state["generator"])
        self.updates = int(state["updates"])
        self._synchronised = int(state["synchronised"])


def _copies(net: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in net.state_dict().items()}
