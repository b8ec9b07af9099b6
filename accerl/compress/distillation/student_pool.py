"""StudentPool: the networks that must be distilled before they act, and their training."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from accerl.compress.config import CompressionConfig
from accerl.compress.distillation.trainer import StateSource, StudentTrainer
from accerl.compress.pruning.criteria import has_gradients
from accerl.compress.pruning.prune import prune
from accerl.errors import UserError
from accerl.networks.graph_policy import Policy
from accerl.networks.make import make_network
from accerl.networks.observation import ObservationSpec
from accerl.networks.structure import describe, rebuild
from accerl.seeds import Role, torch_generator
from accerl.spec import StudentKey


class StudentPool:
    """Students and pruned networks: created on first use, trained here or by another process.

    Pruned networks are distilled like students: the paper always combines the two (section 2.2).
    """

    def __init__(
        self,
        observation: ObservationSpec,
        num_actions: int,
        config: CompressionConfig,
        generator: torch.Generator,
    ) -> None:
        self.observation = observation
        self.num_actions = num_actions
        self.config = config
        self._seed = int(torch.randint(2**31, (), generator=generator))
        self._trainers: dict[StudentKey, StudentTrainer] = {}
        self._received: dict[StudentKey, _Received] = {}
        self._learner: dict[str, Any] | None = None  # what `describe` says of its network
        # What acted at the last two publications: what did not must be warmed up again.
        self._version = -1
        self._acting: set[StudentKey] = set()
        self._acted: set[StudentKey] = set()

    def __contains__(self, key: StudentKey) -> bool:
        return key in self._trainers or key in self._received

    def warm_up_updates(self, key: StudentKey | None, version: int) -> int:
        """Return how many updates `key` needs before it acts at publication `version`."""
        if version != self._version:
            self._version = version
            self._acted, self._acting = self._acting, set()
        if key is None:
            return 0
        rested = key not in self._acted | self._acting
        self._acting.add(key)
        return self.config.distill_warmup_updates if rested and key not in self._received else 0

    def network(self, key: StudentKey, policy: Policy, states: np.ndarray) -> Policy:
        """Return the network as another process sent it, or as it is here.

        It is made if there is none; `states` [N, *shape] may be needed for that.
        """
        if key in self._received:
            return self._received[key].net
        if key not in self._trainers:
            self._trainers[key] = self._create(key, policy, states)
        return self._trainers[key].net

    def train(
        self, key: StudentKey, policy: Policy, source: StateSource, updates: int, version: int
    ) -> None:
        """Do `updates` more updates of a network that was made here towards `policy`.

        Args:
            key: which.
            policy: the learner's.
            source: of the states.
            updates: how many.
            version: learner updates of `policy`.
        """
        if updates:
            self._trainers[key].update(source, policy, updates, version=version)

    def generation(self, key: StudentKey) -> int:
        """Return how often the network of `key` was begun anew; 0 if there is none yet."""
        if key in self._received:
            return self._received[key].generation
        return self._trainers[key].generation if key in self._trainers else 0

    def _create(self, key: StudentKey, policy: Policy, states: np.ndarray) -> StudentTrainer:
        # A seed of its own: the order of creation must not change the others.
        name = f"{key.student}@{key.sparsity!r}"
        generator = torch_generator(self._seed, Role.STUDENT, zlib.crc32(name.encode()))
        net, is_student = policy, key.student != "original"
        if is_student:
            net = make_network(key.student, self.observation, self.num_actions, generator)
            net = net.to(policy.device)
            _require_smaller(net, policy, key.student)
        self._learner = describe(policy)
        if key.sparsity or not is_student:
            method = self.config.prune_method
            if method.criterion == "taylor" and not has_gradients(net):
                method = replace(method, criterion="l1")  # nothing was learned yet
            net = prune(net, key.sparsity, method, obs=states)
        return self._trainer(net, policy, generator)

    def _trainer(self, net: Policy, policy: Policy, generator: torch.Generator) -> StudentTrainer:
        return StudentTrainer(net, policy, self.config.distill_method, generator)

    def send(self, keys: Iterable[StudentKey | None]) -> list[dict[str, Any]]:
        """Return the networks of `keys` that were trained here, for `receive`."""
        wanted = set(keys)
        return [
            {**_entry(key, trainer), "weights": trainer.net.state_dict()}
            for key, trainer in self._trainers.items()
            if key in wanted
        ]

    def receive(self, students: Iterable[Mapping[str, Any]]) -> None:
        """Act from now on with networks that another process trains, see `send`.

        Whoever mixes the entries of several processes takes those of the highest `generation`
        alone: a network that was begun anew has nothing in common with what it was before.
        """
        for entry in students:
            key, generation = StudentKey(*entry["student"]), int(entry["generation"])
            known = self._received.get(key)
            if known is None or known.generation != generation:  # its widths may be others
                known = _Received(generation, self._rebuild(entry["network"]).eval())
            known.net.load_state_dict(entry["weights"])
            self._received[key] = known

    def _rebuild(self, description: Mapping[str, Any]) -> Policy:
        return rebuild(description, self.observation, self.num_actions)

    def state_dict(self) -> dict[str, Any]:
        """Return copies of everything that an exact resume needs, as a plain tree."""
        return {
            "seed": self._seed,
            "learner": self._learner,
            "distillers": [
                {**_entry(key, trainer), "state": trainer.state_dict()}
                for key, trainer in self._trainers.items()
            ],
            "version": self._version,
            "acting": sorted(list(key) for key in self._acting),
            "acted": sorted(list(key) for key in self._acted),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Become the pool that `state` was taken from (built with the same config)."""
        self._seed = int(state["seed"])
        self._version = int(state["version"])
        self._acting = {StudentKey(*key) for key in state["acting"]}
        self._acted = {StudentKey(*key) for key in state["acted"]}
        self._trainers, self._received = {}, {}
        self._learner = state["learner"]
        if self._learner is not None:
            learner = self._rebuild(self._learner)
            for entry in state["distillers"]:
                net = self._rebuild(entry["network"])
                trainer = self._trainer(net, learner, torch.Generator())
                trainer.load_state_dict(entry["state"])
                trainer.generation = int(entry["generation"])
                self._trainers[StudentKey(*entry["student"])] = trainer


class _Received(NamedTuple):
    """A network that another process trains."""

    generation: int
    net: Policy


def _entry(key: StudentKey, trainer: StudentTrainer) -> dict[str, Any]:
    """Return whose network that is, and what `StudentPool._rebuild` makes an empty one of."""
    return {
        "student": list(key),
        "generation": trainer.generation,
        "network": describe(trainer.net),
    }


def _require_smaller(net: nn.Module, policy: Policy, student: str) -> None:
    """Refuse a student with more weights than the learner's network.

    Raises:
        UserError: it has.
    """
    own, learners = (sum(weight.numel() for weight in m.parameters()) for m in (net, policy))
    if own > learners:
        raise UserError(
            f"student {student!r} has {own:,} weights, more than the learner's network "
            f"({learners:,}); give a smaller one"
        )
