"""Beginnings: the networks that distillation starts from, copies of the learner where it helps.

A smaller network that has the learner's most important units, fitted to what the learner puts out
on recorded states, needs a fraction of the updates that a random one needs. The learner moves on:
where other units have become the important ones, a network may do better to begin anew.
"""

from __future__ import annotations

import copy
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from accerl.compress.check import kl_nats
from accerl.compress.distillation.state_ring import HELD_OUT, StateRing
from accerl.compress.pruning.compensate import fit_policy_head
from accerl.compress.pruning.criteria import PruneMethod, has_gradients, unit_scores
from accerl.compress.pruning.matching import match_units, matching_layers
from accerl.compress.pruning.prune import prune, shrink
from accerl.errors import CannotCompressError, require_choice, require_fields
from accerl.networks.graph_policy import Policy, count_bytes
from accerl.networks.make import make_network
from accerl.networks.observation import ObservationSpec
from accerl.networks.policy_net import PolicyNet
from accerl.seeds import Role, torch_generator
from accerl.spec import STUDENTS, StudentKey

STARTS = ("random", "learner")
COMPARED = 256
"""held-out states on which two beginnings are compared"""
SPACING = 4
"""states of the ring from one that is fitted to the next: neighbours are alike"""
COST = 3
"""states of a distillation update that one fitted state takes as long as"""


@dataclass(frozen=True, kw_only=True)
class BeginMethod:
    """What students and pruned networks start from, and when they start again.

    Raises:
        UserError: a value is not allowed.
    """

    start: str = "random"
    """of students: random weights, or the learner's most important units, fitted to recorded
    states"""
    states: int = 1024
    """recorded states that are fitted to, at most: every fourth of the newest, none held out"""
    renew_every: int = 0
    """distillation updates of a network between two looks at whether a new copy of the learner
    would be closer to it, more after copies that were not; 0: never"""
    renew_share: float = 0.1
    """share of its units that must no longer be among the most important ones before one looks"""
    renew_margin: float = 0.1
    """share by which the KL of the new copy must be lower"""

    def __post_init__(self) -> None:
        require_choice("distil: start", self.start, STARTS)
        check = partial(require_fields, self, "distil")
        check("states", "must be at least 1", lambda count: count >= 1)
        check("renew_every", "must not be negative", lambda count: count >= 0)
        share = "is a share and must lie in [0, 1]"
        check("renew_share renew_margin", share, lambda value: 0.0 <= value <= 1.0)


class Beginnings:
    """Makes networks that are to be distilled; equal calls make equal networks."""

    def __init__(
        self,
        observation: ObservationSpec,
        num_actions: int,
        method: BeginMethod,
        prune_method: PruneMethod,
        ring: StateRing | None,
    ) -> None:
        """Take the recorded states from `ring`, once it holds some."""
        self.observation = observation
        self.num_actions = num_actions
        self.method = method
        self.prune_method = prune_method
        self._ring = ring
        self._fits = 0  # to recorded states, since somebody asked what they took

    def make(
        self,
        key: StudentKey,
        policy: Policy,
        states: np.ndarray,
        generator: torch.Generator,
        trained: Mapping[StudentKey, Policy],
    ) -> Policy:
        """Return a network for `key`.

        With `start` "learner", that of a sparsity begins as a copy of the learner, or of what was
        distilled for the nearest lower sparsity, whichever has the lower KL on held-out states.

        Args:
            key: which.
            policy: the learner's.
            states: [N, *shape], for want of others.
            generator: of random weights.
            trained: the networks that are there already.

        Raises:
            CannotCompressError: the student has more weights than the learner, or cannot be pruned.
        """
        net = self._from_learner(key, policy, states, generator)
        milder = [
            other
            for other in trained
            if other.student == key.student and other.sparsity < key.sparsity
        ]
        if not milder or self.method.start == "random":
            return net
        source = trained[max(milder, key=lambda other: other.sparsity)]
        other = self._narrowed(net, source, states)
        if other is None:
            return net
        first, second = self.kl_nats(policy, [net, other], states)
        return other if second < first else net

    def _from_learner(
        self, key: StudentKey, policy: Policy, states: np.ndarray, generator: torch.Generator
    ) -> Policy:
        net, obs = policy, self._recorded(states)
        if key.student != "original":
            copied = self.method.start == "learner"
            # Copies of the first layer's weights want their inputs scaled as there.
            seen = policy.observation if copied and key.student in STUDENTS else self.observation
            net = make_network(key.student, seen, self.num_actions, generator)
            net = net.to(policy.device)
            _require_smaller(net, policy, key.student)
            if copied:
                self._imitate(net, policy, obs)
        if key.sparsity:
            method = self._method(net)
            net = prune(net, key.sparsity, method, obs=obs)
            self._fits += method.compensate
        return net

    def _imitate(self, net: Policy, policy: Policy, obs: np.ndarray) -> None:
        """Make of a student the copy of the learner that its layers allow."""
        self._fits += 1
        if isinstance(net, PolicyNet) and isinstance(policy, PolicyNet):
            shrink(net, policy, replace(self._method(policy), compensate=True), obs)
        else:
            fit_policy_head(net, policy, obs)

    def _narrowed(self, net: Policy, source: Policy, states: np.ndarray) -> PolicyNet | None:
        """Return a copy of `source` as narrow as `net`; None if it is narrower somewhere."""
        if not (isinstance(net, PolicyNet) and isinstance(source, PolicyNet)):
            return None
        if None in matching_layers(net.arch, source.arch):
            return None
        method = self._method(source)
        self._fits += method.compensate
        return shrink(copy.deepcopy(net), source, method, self._recorded(states))

    def _method(self, net: Policy) -> PruneMethod:
        """Return how units of a network are chosen: before it has learned, not by gradients."""
        method = self.prune_method
        if method.criterion == "taylor" and not has_gradients(net):
            return replace(method, criterion="l1")
        return method

    def cost_updates(self, batch: int) -> int:
        """Return how many distillation updates of `batch` states the last beginnings took.

        All since the last call, that is.
        """
        fits, self._fits = self._fits, 0
        return fits * math.ceil(COST * self.method.states / batch)

    def units(self, net: Policy, policy: Policy) -> list[Tensor]:
        """Return which of the learner's units a network of these sizes would begin with.

        One mask [units] for each of its layers that corresponds to one of the learner's; none if
        one of both is no chain of layers.
        """
        if not (isinstance(net, PolicyNet) and isinstance(policy, PolicyNet)):
            return []
        scores = unit_scores(policy, self._method(policy))
        matches = match_units(net.arch, policy.arch, scores)
        return [match.keep.cpu() for match in matches if match is not None]

    @torch.no_grad()
    def kl_nats(self, policy: Policy, nets: Sequence[Policy], states: np.ndarray) -> list[float]:
        """Return the mean KL(policy || net) of each network over held-out states."""
        ring = self._ring
        batch = None if ring is None else ring.held_out(COMPARED)
        obs = states if batch is None else batch.obs
        tensor = torch.from_numpy(np.ascontiguousarray(obs)).to(policy.device)
        logits = policy(tensor)[0].cpu().numpy()
        return [float(kl_nats(logits, net(tensor)[0].cpu().numpy()).mean()) for net in nets]

    def _recorded(self, states: np.ndarray) -> np.ndarray:
        """Return the newest states to fit to, none of those that are held out."""
        ring = self._ring
        while ring is not None and len(ring):
            newest = ring.total - 1
            numbers = newest - SPACING * np.arange(self.method.states)
            numbers = numbers[numbers >= ring.first]
            # Its numbers differ by a divisor of HELD_OUT: one of a few is held out.
            numbers = numbers[numbers % HELD_OUT != 0]
            if len(numbers) == 0:
                return states
            batch = ring.take(numbers)
            if batch is not None:
                return batch.obs
        return states[-self.method.states :]


def changed_share(before: Sequence[Tensor], now: Sequence[Tensor]) -> float:
    """Return the share of the units in masks `before` that are not in masks `now`."""
    count = sum(int(mask.sum()) for mask in before)
    gone = sum(int((old & ~new).sum()) for old, new in zip(before, now, strict=True))
    return gone / max(count, 1)


def key_generator(seed: int, key: StudentKey, helper: int | None = None) -> torch.Generator:
    """Return the dice of one network: the order of creation must not change the others.

    Each distiller that helps to train it has dice of its own.
    """
    name = f"{key.student}@{key.sparsity!r}"
    indices = [zlib.crc32(name.encode()), *([] if helper is None else [helper])]
    return torch_generator(seed, Role.STUDENT, *indices)


def _require_smaller(net: nn.Module, policy: Policy, student: str) -> None:
    """Refuse a student that has more weights and buffers than the learner's network.

    Raises:
        CannotCompressError: it has.
    """
    own, learners = count_bytes(net), count_bytes(policy)
    if own > learners:
        raise CannotCompressError(
            f"student {student!r} has {own:,} bytes of weights and buffers, more than the "
            f"learner's network ({learners:,}); give a smaller one"
        )
