"""Policy distillation into a smaller network: who takes the steps, and how (Figure 3)."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from accerl.compress.check import kl_nats
from accerl.compress.distillation.loss import distillation_loss
from accerl.compress.distillation.state_ring import StateBatch
from accerl.errors import require_choice, require_fields
from accerl.networks.autocast import autocast
from accerl.networks.graph_policy import Policy
from accerl.networks.optimiser_state import (
    copied_to_cpu,
    load_optimiser_state,
    optimiser_state,
)
from accerl.precision import BF16, PRECISIONS, choose_precision

NEVER = -(2**40)
"""learner updates at which logits were put out that do not exist"""
NEWEST_SHARE = 0.3
"""of the newest batch in what a trainer knows of its student's KL"""


@dataclass(frozen=True, kw_only=True)
class DistillMethod:
    """How a student follows the learner.

    Raises:
        UserError: a value is not allowed.
    """

    batch: int = 128
    """states per update"""
    learning_rate: float = 1e-3
    """of Adam, when a network has just begun"""
    decay_updates: int = 0
    """updates over which the learning rate falls along half a cosine; 0: it never does"""
    decay_to: float = 0.1
    """share of the learning rate that it falls to"""
    entropy_cost: float = 1e-3
    """beta of the loss (paper, equation 1)"""
    value_cost: float = 0.0
    """weight of the values in the loss; the paper's is 1"""
    temperature: float = 1.0
    """by which both policies' logits are divided"""
    sync_every: int = 4
    """updates between two copies of the learner into the teacher, at least; where students may rest
    (`compression.distill_rest_kl_nats`), every learner update that is followed is copied"""
    recorded_updates: int = 0
    """learner updates for which the logits that the learner itself put out stand in for the
    teacher's, which then need no forward pass; 0: never"""
    precision: str = "fp32"
    """fp32, bf16 (autocast, channels last), or auto: bf16 where that is faster"""
    rest_kl_nats: float = 0.0
    """KL at or above which a student gets all its updates; below it fewer in proportion, at least
    one in four learner updates. 0: it never rests"""

    def __post_init__(self) -> None:
        require_choice("distil: precision", self.precision, PRECISIONS)
        check = partial(require_fields, self, "distil")
        check("batch sync_every", "must be at least 1", lambda count: count >= 1)
        check("learning_rate", "must be positive", lambda value: 0.0 < value < math.inf)
        check("temperature", "must lie in (0, 1000]", lambda value: 0.0 < value <= 1_000.0)
        check("decay_to", "must lie in (0, 1]", lambda share: 0.0 < share <= 1.0)
        costs = "entropy_cost value_cost recorded_updates decay_updates rest_kl_nats"
        check(costs, "must not be negative", lambda cost: 0 <= cost < math.inf)

    def rate(self, updates: int) -> float:
        """Return the learning rate so many updates after a network began."""
        if not self.decay_updates:
            return self.learning_rate
        done = min(updates / self.decay_updates, 1.0)
        share = self.decay_to + (1.0 - self.decay_to) * 0.5 * (1.0 + math.cos(math.pi * done))
        return self.learning_rate * share


class StateSource(Protocol):
    """Where states to learn from come from; a `StateRing` is one."""

    def draw(self, count: int, generator: torch.Generator) -> StateBatch:
        """Return `count` states."""
        ...


class FixedStates:
    """The same few states, again and again."""

    def __init__(self, obs: np.ndarray) -> None:
        """Take states obs [N, *shape]."""
        self._obs = obs

    def draw(self, count: int, generator: torch.Generator) -> StateBatch:
        """Return `count` of the states, or all if there are no more."""
        obs = self._obs
        if len(obs) == 0:
            raise ValueError("distillation needs at least one state")
        if count < len(obs):
            obs = obs[torch.randperm(len(obs), generator=generator)[:count].numpy()]
        return StateBatch(obs, np.zeros((len(obs), 0), np.float32), np.full(len(obs), NEVER))


class StudentTrainer:
    """Owns one student, its Adam, and while it learns a frozen copy of the learner's policy.

    The learner never stands still, which would make the target drift within every step; so the
    teacher is a copy that is synchronised only every `sync_every` updates; of a student that rests,
    which has few, with every learner update that it follows. Where the learner's own logits came
    with the states and are recent enough, they take the copy's place.

    On a GPU student and teacher have copies of their own there; `net` stays where it is, and has
    the newest weights whenever it is asked for.
    """

    def __init__(
        self,
        student: Policy,
        method: DistillMethod,
        generator: torch.Generator,
        device: str = "cpu",
    ) -> None:
        """Take over `student`; states are drawn from `generator`, and `device` computes."""
        self.method = method
        self._device = torch.device(device)
        self._low = choose_precision(method.precision, self._device) == BF16
        if self._low:  # twice as fast on a CPU, where channels are few
            student = student.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        self._net = student
        self._trained = student
        if student.device != self._device:
            self._trained = copy.deepcopy(student).to(self._device)
        self._is_behind = False  # whether `_trained` is newer than `_net`
        self.updates = 0
        self.generation = 0
        """how often the network was begun anew"""
        self.looked = 0
        """value of `updates` when it was last asked whether it should be"""
        self.refused = 0
        """new beginnings in its place that were no closer to the learner, one after the other"""
        self.kl_nats: float | None = None
        """KL(teacher || student) before the last calls of `update`, the newer the weightier; None:
        there was none"""
        self._begun = 0  # value of `updates` when it last was
        self.generator = generator
        self._synchronised = 0  # value of `updates` when the teacher was last copied
        self._followed = 0  # learner updates that it had then
        self.trained_at = 0
        """learner updates of the policy that `update` was given last"""
        self._teacher: Policy | None = None
        fused = True if self._device.type == "cuda" else None  # fewer kernels to launch
        self._adam = torch.optim.Adam(
            self._trained.parameters(), lr=method.learning_rate, fused=fused
        )

    @property
    def net(self) -> Policy:
        """The student, to act with or to look at; `load_weights` changes it."""
        if self._is_behind:
            self._net.load_state_dict(self._trained.state_dict())
            pairs = zip(self._net.parameters(), self._trained.parameters(), strict=True)
            for mine, theirs in pairs:  # by which units are pruned (Taylor)
                mine.grad = None if theirs.grad is None else theirs.grad.to(mine.device, copy=True)
            self._net.eval()
            self._is_behind = False
        return self._net

    @property
    def followed(self) -> int:
        """Learner updates of the policy that the student has followed last."""
        return self._followed

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Go on from other weights of the student."""
        self._trained.load_state_dict(weights)
        self._is_behind = self._trained is not self._net

    @property
    def place(self) -> dict[str, int]:
        """What a trainer of the same network elsewhere goes on from, see `take_place`."""
        return {
            "updates": self.updates,
            "begun": self._begun,
            "looked": self.looked,
            "refused": self.refused,
        }

    def take_place(self, place: Mapping[str, int]) -> None:
        """Count on from where another trainer of the same network is: the rate depends on it.

        The next update copies the teacher first.
        """
        self.updates, self._begun = int(place["updates"]), int(place["begun"])
        self.looked, self.refused = int(place["looked"]), int(place["refused"])
        self.look_anew()

    def look_anew(self) -> None:
        """Copy the learner at the next update, however few there were since that was last done.

        Until then there is no teacher, which takes more memory than most students.
        """
        self._teacher = None

    def continue_from(self, other: StudentTrainer, version: int) -> None:
        """Count on from the trainer of a network that a new copy takes the place of.

        Args:
            other: that trainer.
            version: learner updates of the policy that the own network is a copy of.
        """
        self._followed = self.trained_at = version
        self.updates = self.looked = self._begun = self._synchronised = other.updates
        self.generation = other.generation + 1
        self.kl_nats = other.kl_nats

    def update(
        self,
        source: StateSource,
        learner_policy: Policy,
        updates: int = 1,
        *,
        version: int = 0,
    ) -> float:
        """Do `updates` Adam steps and return the last loss.

        The teacher may be synchronised at the start of a call, never within it.

        Args:
            source: of the states.
            learner_policy: what to follow.
            updates: how many steps.
            version: learner updates of `learner_policy`.

        Raises:
            ValueError: there is no state.
        """
        is_due = self.updates - self._synchronised >= self.method.sync_every
        is_due = is_due or bool(self.method.rest_kl_nats and version != self._followed)
        if self._teacher is None:
            self._teacher = copy.deepcopy(learner_policy).requires_grad_(False).to(self._device)
            self._synchronised, self._followed = self.updates, version
        elif is_due:
            self._teacher.load_state_dict(learner_policy.state_dict())
            self._synchronised, self._followed = self.updates, version
        teacher, self.trained_at = self._teacher, version
        loss = torch.zeros(())
        self._trained.train()
        self._is_behind = self._trained is not self._net
        for index in range(updates):
            batch = source.draw(self.method.batch, self.generator)
            obs = torch.from_numpy(batch.obs).to(self._device)
            teacher_logits, teacher_values = self._taught(teacher, batch, obs, version)
            logits, values = self._forward(self._trained, obs)
            if index == 0:
                self._note(teacher_logits, logits)
            loss = distillation_loss(
                teacher_logits,
                teacher_values,
                logits,
                values,
                self.method.entropy_cost,
                value_cost=self.method.value_cost,
                temperature=self.method.temperature,
            )
            self._adam.zero_grad(set_to_none=True)
            loss.backward()
            if self.method.decay_updates:
                for group in self._adam.param_groups:
                    group["lr"] = self.method.rate(self.updates - self._begun)
            self._adam.step()
            self.updates += 1
        self._trained.eval()
        return loss.item()

    def _note(self, teacher_logits: Tensor, logits: Tensor) -> None:
        rows = kl_nats(teacher_logits.cpu().numpy(), logits.detach().cpu().numpy())
        now, before = float(rows.mean()), self.kl_nats
        if before is None or not math.isfinite(before):  # one bad batch is not remembered for ever
            self.kl_nats = now
        else:
            self.kl_nats = before + NEWEST_SHARE * (now - before)

    def _forward(self, net: Policy, obs: Tensor) -> tuple[Tensor, Tensor]:
        if self._low and obs.ndim == 4:
            obs = obs.to(memory_format=torch.channels_last)
        with autocast(obs.device, low=self._low):
            logits, values = net(obs)
        return logits.float(), values.float()

    @torch.no_grad()
    def _taught(
        self, teacher: Policy, batch: StateBatch, obs: Tensor, version: int
    ) -> tuple[Tensor, Tensor]:
        """Return the logits [N, A] and values [N] to follow; values only if they are learned."""
        method = self.method
        old = version - batch.version >= method.recorded_updates
        if method.value_cost or not method.recorded_updates or old.all():
            return self._forward(teacher, obs)
        logits = torch.from_numpy(batch.logits).to(obs.device)
        if old.any():
            rows = torch.from_numpy(np.flatnonzero(old)).to(obs.device)
            logits[rows] = self._forward(teacher, obs[rows])[0]
        return logits, torch.zeros(len(logits), device=obs.device)

    def state_dict(self) -> dict[str, Any]:
        """Return copies of everything that an exact resume needs, as a plain tree."""
        return {
            "student": _copies(self.net),
            "gradients": _gradients(self.net),
            "teacher": None if self._teacher is None else _copies(self._teacher),
            "adam": optimiser_state(self._adam),
            "generator": self.generator.get_state(),
            **self.place,
            "synchronised": self._synchronised,
            "followed": self._followed,
            "trained_at": self.trained_at,
            "kl_nats": self.kl_nats,
        }

    def load_state_dict(self, state: Mapping[str, Any], learner_policy: Policy) -> None:
        """Become the trainer that `state` is of, whose teacher is like `learner_policy`."""
        self.load_weights(state["student"])
        for name, weight in self._trained.named_parameters():
            slope = state["gradients"].get(name)
            weight.grad = None if slope is None else slope.to(weight.device, copy=True)
        load_optimiser_state(self._adam, state["adam"])
        self.generator.set_state(state["generator"])
        self.take_place(state)
        if state["teacher"] is not None:
            self._teacher = copy.deepcopy(learner_policy).requires_grad_(False).to(self._device)
            self._teacher.load_state_dict(state["teacher"])
        self._synchronised = int(state["synchronised"])
        self._followed = int(state["followed"])
        self.trained_at = int(state["trained_at"])
        self.kl_nats = state["kl_nats"]


def _gradients(net: nn.Module) -> dict[str, Tensor]:
    """Return copies of the gradients of the last step, by which a milder network is narrowed."""
    slopes = {name: weight.grad for name, weight in net.named_parameters()}
    return {name: copied_to_cpu(slope) for name, slope in slopes.items() if slope is not None}


def _copies(net: nn.Module) -> dict[str, Tensor]:
    return {name: copied_to_cpu(tensor) for name, tensor in net.state_dict().items()}
