"""StudentPool: the networks that must be distilled before they act, and their training."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from accerl.compress.config import CompressionConfig
from accerl.compress.distillation.trainer import StudentTrainer
from accerl.compress.graphs.torch_artifact import architecture_from_json, architecture_to_json
from accerl.compress.pruning.criteria import has_gradients
from accerl.compress.pruning.prune import prune
from accerl.errors import UserError
from accerl.networks.adopt import OpaquePolicy, require_chain
from accerl.networks.observation import ObservationSpec
from accerl.networks.policy_net import Architecture, PolicyNet
from accerl.networks.students import make_student
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
        self._received: dict[StudentKey, PolicyNet | OpaquePolicy] = {}
        self._policy_arch: Architecture | None = None
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

    def network(
        self, key: StudentKey, policy: PolicyNet, states: np.ndarray, updates: int = 0
    ) -> PolicyNet | OpaquePolicy:
        """Return the network as another process sent it, or after `updates` more updates here."""
        if key in self._received:
            return self._received[key]
        return self.train(key, policy, states, updates)

    def train(
        self, key: StudentKey, policy: PolicyNet, states: np.ndarray, updates: int
    ) -> PolicyNet | OpaquePolicy:
        """Return the network after `updates` more updates towards `policy` on `states`."""
        if key not in self._trainers:
            self._trainers[key] = self._create(key, policy, states)
        trainer = self._trainers[key]
        if updates:
            trainer.update(torch.from_numpy(states), policy, updates)
        return trainer.net

    def _create(self, key: StudentKey, policy: PolicyNet, states: np.ndarray) -> StudentTrainer:
        # A seed of its own: the order of creation must not change the others.
        name = f"{key.student}@{key.sparsity!r}"
        generator = torch_generator(self._seed, Role.STUDENT, zlib.crc32(name.encode()))
        net, is_student = policy, key.student != "original"
        if is_student:
            net = make_student(key.student, self.observation, self.num_actions, generator)
            net = net.to(policy.device)
            _require_smaller(net, policy, key.student)
        self._policy_arch = policy.arch
        if key.sparsity or not is_student:
            chain, method = require_chain(net), self.config.prune_method
            if method.criterion == "taylor" and not has_gradients(chain):
                method = replace(method, criterion="l1")  # nothing was learned yet
            net = prune(chain, key.sparsity, method, obs=states)
        return self._trainer(net, policy, generator)

    def _trainer(
        self, net: PolicyNet | OpaquePolicy, policy: PolicyNet, generator: torch.Generator
    ) -> StudentTrainer:
        return StudentTrainer(
            net,
            policy,
            learning_rate=self.config.distill_learning_rate,
            entropy_cost=self.config.distill_entropy_cost,
            sync_every=self.config.distill_sync_every,
            generator=generator,
            batch=self.config.distill_batch,
        )

    def send(self, keys: Iterable[StudentKey | None]) -> list[dict[str, Any]]:
        """Return the networks of `keys` that were trained here, for `receive`."""
        wanted = set(keys)
        return [
            {**_description(key, trainer.net), "weights": trainer.net.state_dict()}
            for key, trainer in self._trainers.items()
            if key in wanted
        ]

    def receive(self, students: Iterable[Mapping[str, Any]]) -> None:
        """Act from now on with networks that another process trains, see `send`."""
        for entry in students:
            key = StudentKey(*entry["student"])
            net = self._received.get(key) or self._empty(entry).eval()
            net.load_state_dict(entry["weights"])
            self._received[key] = net

    def _empty(self, entry: Mapping[str, Any]) -> PolicyNet | OpaquePolicy:
        """Return a network for the weights of an entry of `state_dict` or `send`."""
        if entry["arch"] is None:
            student = StudentKey(*entry["student"]).student
            return make_student(student, self.observation, self.num_actions, torch.Generator())
        arch = architecture_from_json(entry["arch"])
        return PolicyNet(arch, self.observation, self.num_actions)

    def state_dict(self) -> dict[str, Any]:
        """Return copies of everything that an exact resume needs, as a plain tree."""
        arch = self._policy_arch
        return {
            "seed": self._seed,
            "policy_arch": None if arch is None else architecture_to_json(arch),
            "distillers": [
                {**_description(key, trainer.net), "state": trainer.state_dict()}
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
        if state["policy_arch"] is not None:
            self._policy_arch = architecture_from_json(state["policy_arch"])
            learner = PolicyNet(self._policy_arch, self.observation, self.num_actions)
            for entry in state["distillers"]:
                trainer = self._trainer(self._empty(entry), learner, torch.Generator())
                trainer.load_state_dict(entry["state"])
                self._trainers[StudentKey(*entry["student"])] = trainer


def _description(key: StudentKey, net: PolicyNet | OpaquePolicy) -> dict[str, Any]:
    """Return what `StudentPool._empty` makes such a network of; no sizes if it is no chain."""
    arch = architecture_to_json(net.arch) if isinstance(net, PolicyNet) else None
    return {"student": list(key), "arch": arch}


def _require_smaller(net: nn.Module, policy: PolicyNet, student: str) -> None:
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
