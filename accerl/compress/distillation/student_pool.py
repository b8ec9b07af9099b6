"""StudentPool: the networks that must be distilled before they act, and their training."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from accerl.compress.config import CompressionConfig
from accerl.compress.distillation.beginnings import Beginnings, changed_share, key_generator
from accerl.compress.distillation.effort import updates_due
from accerl.compress.distillation.state_ring import StateRing
from accerl.compress.distillation.trainer import StateSource, StudentTrainer
from accerl.networks.graph_policy import Policy
from accerl.networks.observation import ObservationSpec
from accerl.networks.structure import describe, rebuild
from accerl.spec import StudentKey

MOST_DOUBLINGS = 4
"""of the updates between two looks at whether a network should begin anew"""

RESTED_UPDATES = 256
"""of the learner in which a network was not trained, after which its trainer looks anew"""


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
        ring: StateRing | None = None,
        device: str = "cpu",
    ) -> None:
        """Hold none yet; `device` trains them, the CPU does all else."""
        self._device = device
        self.observation = observation
        self.num_actions = num_actions
        self.config = config
        self._seed = int(torch.randint(2**31, (), generator=generator))
        self._beginnings = Beginnings(
            observation, num_actions, config.begin_method, config.prune_method, ring
        )
        self._trainers: dict[StudentKey, StudentTrainer] = {}
        # Which of the learner's units each began with, when that was last looked at.
        self._units: dict[StudentKey, list[Tensor]] = {}
        self._owed: dict[StudentKey, int] = {}  # updates that beginnings took the time of
        self._received: dict[StudentKey, _Received] = {}
        self._learner: dict[str, Any] | None = None  # what `describe` says of its network
        # What acted at the last two publications: what did not must be warmed up again.
        self._version = -1
        self._acting: set[StudentKey] = set()
        self._acted: set[StudentKey] = set()

    def __contains__(self, key: StudentKey) -> bool:
        return key in self._trainers or key in self._received

    def __iter__(self) -> Iterator[StudentKey]:
        return iter(self._trainers | self._received)

    def warm_up_updates(self, key: StudentKey | None, version: int) -> int:
        """Return how many updates `key` needs before it acts at publication `version`.

        0 if it acted last, or if another process has distilled it within as many learner updates.
        """
        self._begin_publication(version)
        if key is None:
            return 0
        rested, updates = key not in self._acted | self._acting, self.config.distill_warmup_updates
        self._acting.add(key)
        received = self._received.get(key)
        followed = received is not None and version - received.followed <= updates
        if not rested or followed:
            return 0
        if key in self._trainers:  # the learner has moved on meanwhile
            self._trainers[key].look_anew()
        return updates

    def keep_warm(self, key: StudentKey, version: int) -> None:
        """Have a network not count as rested at publication `version`, unless it did before."""
        self._begin_publication(version)
        if key in self._acted:
            self._acting.add(key)

    def _begin_publication(self, version: int) -> None:
        if version != self._version:
            self._version = version
            self._acted, self._acting = self._acting, set()

    def network(self, key: StudentKey, policy: Policy, states: np.ndarray) -> Policy:
        """Return the network as another process sent it, or as it is here.

        It is made if there is none; `states` [N, *shape] may be needed for that.
        """
        if key in self._received:
            return self._received[key].net
        if key not in self._trainers:
            self._create(key, policy, states)
        return self._trainers[key].net

    def train(
        self,
        key: StudentKey,
        policy: Policy,
        source: StateSource,
        updates: int,
        version: int,
        states: np.ndarray,
    ) -> int:
        """Do `updates` more updates of a network towards `policy`.

        Before that, the network begins anew if it is time to look and a new copy of the learner is
        closer to it. With no updates, nothing but the creation of the network is charged. If
        another process trained it, training goes on here from its weights; its copy acts until
        there are as many updates here.

        Args:
            key: which.
            policy: the learner's.
            source: of the states.
            updates: how many.
            version: learner updates of `policy`.
            states: [N, *shape] that a new beginning may need.

        Returns:
            How many updates that took the time of, beginnings included.
        """
        if updates:
            if (received := self._received.pop(key, None)) is not None:
                self.adopt(received.entry(key), policy)
            self._renew(key, policy, states, version)
            self._trainers[key].update(source, policy, updates, version=version)
        self.let_go(version)
        return updates + self._owed.pop(key, 0)

    def let_go(self, version: int) -> None:
        """Hold no copy of the learner for what has rested for long, at learner update `version`."""
        for trainer in self._trainers.values():
            if version - trainer.trained_at > RESTED_UPDATES:
                trainer.look_anew()

    def updates_due(self, key: StudentKey, allowed: int) -> float:
        """Return how many of the allowed updates a network needs, by how far off it was."""
        trainer = self._trainers.get(key)
        known = None if trainer is None else trainer.kl_nats
        return updates_due(allowed, known, self.config.rest_kl_nats)

    def trainer(self, key: StudentKey) -> StudentTrainer:
        """Return who trains the network of `key`, which is trained here."""
        return self._trainers[key]

    def adopt(self, entry: Mapping[str, Any], policy: Policy, *, helper: int | None = None) -> None:
        """Train a network from here on that another process began, or a predecessor of this one.

        Args:
            entry: what that shows of it, see `send`.
            policy: of the learner's kind.
            helper: number of the distiller that helps to train it: it draws states of its own.
        """
        key, generation = StudentKey(*entry["student"]), int(entry["generation"])
        trainer = self._trainers.get(key)
        if trainer is None or trainer.generation != generation:
            generator = key_generator(self._seed, key, helper)
            net = self._rebuild(entry["network"]).to(policy.device)
            self._learner = describe(policy)
            self._trainers[key] = trainer = self._trainer(net, generator)
            trainer.generation = generation
            trainer.take_place(entry)
            self._units[key] = self._beginnings.units(trainer.net, policy)
        trainer.load_weights(entry["weights"])
        if helper is None:
            trainer.updates = max(trainer.updates, int(entry["updates"]))

    def generation(self, key: StudentKey) -> int:
        """Return how often the network of `key` was begun anew; 0 if there is none yet."""
        if key in self._received:
            return self._received[key].generation
        return self._trainers[key].generation if key in self._trainers else 0

    def network_number(self, key: StudentKey) -> int:
        """Return a number that changes when the network of `key` is begun anew or taken over."""
        return 2 * self.generation(key) + (key in self._received)

    def _create(self, key: StudentKey, policy: Policy, states: np.ndarray) -> None:
        generator = key_generator(self._seed, key)
        net = self._begin(key, policy, states, generator)
        self._learner = describe(policy)
        self._trainers[key] = self._trainer(net, generator)

    def _begin(
        self, key: StudentKey, policy: Policy, states: np.ndarray, generator: torch.Generator
    ) -> Policy:
        trained = {other: trainer.net for other, trainer in self._trainers.items()}
        net = self._beginnings.make(key, policy, states, generator, trained)
        self._units[key] = self._beginnings.units(net, policy)
        cost = self._beginnings.cost_updates(self.config.distill_batch)
        self._owed[key] = self._owed.get(key, 0) + cost
        return net

    def _renew(self, key: StudentKey, policy: Policy, states: np.ndarray, version: int) -> None:
        """Put a new copy of the learner in the place of a network that has fallen behind it."""
        method, trainer = self.config.begin_method, self._trainers[key]
        # Each copy that was refused doubles the time until the next: they are not cheap.
        wait = method.renew_every * 2 ** min(trainer.refused, MOST_DOUBLINGS)
        if not method.renew_every or trainer.updates < trainer.looked + wait:
            return
        trainer.looked = trainer.updates
        units = self._beginnings.units(trainer.net, policy)
        if changed_share(self._units[key], units) < method.renew_share or not units:
            return
        generator = trainer.generator
        fresh = self._begin(key, policy, states, generator)
        now, then = self._beginnings.kl_nats(policy, [trainer.net, fresh], states)
        if then < (1.0 - method.renew_margin) * now or not math.isfinite(now):
            self._trainers[key] = self._trainer(fresh, generator)
            self._trainers[key].continue_from(trainer, version)
        else:
            trainer.refused += 1

    def _trainer(self, net: Policy, generator: torch.Generator) -> StudentTrainer:
        return StudentTrainer(net, self.config.distill_method, generator, self._device)

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
        alone: a network that was begun anew has nothing in common with what it was before. What
        was warmed up here acts on until it has had as many updates there.
        """
        for entry in students:
            key, generation = StudentKey(*entry["student"]), int(entry["generation"])
            known, own = self._received.get(key), self._trainers.get(key)
            if known is None and own is not None and int(entry["updates"]) < own.updates:
                continue
            if known is not None and known.generation == generation:
                net = known.net
            else:  # its widths may be others
                net = self._rebuild(entry["network"]).eval()
            net.load_state_dict(entry["weights"])
            place = {name: int(entry[name]) for name in ("updates", "begun", "looked", "refused")}
            self._received[key] = _Received(generation, net, place, int(entry["followed"]))

    def _rebuild(self, description: Mapping[str, Any]) -> Policy:
        return rebuild(description, self.observation, self.num_actions)

    def state_dict(self) -> dict[str, Any]:
        """Return copies of everything that an exact resume needs, as a plain tree."""
        return {
            "seed": self._seed,
            "learner": self._learner,
            "students": [
                {
                    **_entry(key, trainer),
                    "state": trainer.state_dict(),
                    "units": [mask.clone() for mask in self._units[key]],
                }
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
        self._trainers, self._received, self._units, self._owed = {}, {}, {}, {}
        self._learner = state["learner"]
        if self._learner is not None:
            learner = self._rebuild(self._learner)
            for entry in state["students"]:
                net = self._rebuild(entry["network"])
                trainer = self._trainer(net, torch.Generator())
                trainer.load_state_dict(entry["state"], learner)
                trainer.generation = int(entry["generation"])
                key = StudentKey(*entry["student"])
                self._trainers[key] = trainer
                self._units[key] = [mask.clone() for mask in entry["units"]]


class _Received(NamedTuple):
    """A network that another process trains."""

    generation: int
    net: Policy
    place: Mapping[str, int]
    """of its trainer, see `StudentTrainer.place`"""
    followed: int
    """learner updates of the policy that it has followed last"""

    def entry(self, key: StudentKey) -> dict[str, Any]:
        """Return what it was received as."""
        return {
            "student": list(key),
            "generation": self.generation,
            **self.place,
            "followed": self.followed,
            "network": describe(self.net),
            "weights": self.net.state_dict(),
        }


def _entry(key: StudentKey, trainer: StudentTrainer) -> dict[str, Any]:
    """Return whose network that is, and what `StudentPool._rebuild` makes an empty one of."""
    return {
        "student": list(key),
        "generation": trainer.generation,
        **trainer.place,
        "followed": trainer.followed,
        "network": describe(trainer.net),
    }
