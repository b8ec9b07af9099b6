"""Compressor: the object that runs use to turn the learner's policy into artifacts."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from accerl.compress.artifact import Artifact
from accerl.compress.chain import CompressorChain
from accerl.compress.check import check_engine, kl_nats
from accerl.compress.config import CompressionConfig
from accerl.compress.distillation.distill import Distiller
from accerl.compress.distillation.networks import empty_net, net_to_json, require_smaller
from accerl.compress.engine import make_engine
from accerl.compress.graphs.torch_artifact import architecture_from_json, architecture_to_json
from accerl.compress.links import CompressionState, Link
from accerl.compress.lowrank import Factoriser
from accerl.compress.pruning.criteria import has_gradients
from accerl.compress.pruning.prune import prune
from accerl.compress.quantization.quantize import spread
from accerl.compress.quantization.ranges import RangeTracker
from accerl.compress.quantization.rounding import round_weights
from accerl.errors import UserError
from accerl.networks.adopt import OpaquePolicy, require_chain
from accerl.networks.policy_net import Architecture, ObservationSpec, PolicyNet
from accerl.networks.students import make_student
from accerl.spec import CompressionSpec, StudentKey

COMPARED_STATES = 16
"""on which a student is compared with the learner at each publication"""


@dataclass(frozen=True)
class BuildReport:
    """What the last build had to do besides exporting, so that a clock can charge it."""

    distill_updates: int = 0


class Compressor:
    """Owns the recorded states and the distilled networks; builds artifacts from specs.

    Pruned networks are distilled like students: the paper always combines the two (section 2.2).
    Equal generators and equal calls give equal artifacts.
    """

    def __init__(
        self,
        observation: ObservationSpec,
        num_actions: int,
        config: CompressionConfig,
        generator: torch.Generator,
        links: Sequence[Link] = (),
    ) -> None:
        """Start without states.

        Args:
            observation: what the networks see.
            num_actions: of the game.
            config: how to distil, prune and quantise.
            generator: what its own dice are seeded from.
            links: of the user's own; every network goes through them before it is rounded.
        """
        self.links = tuple(links)
        self.observation = observation
        self.num_actions = num_actions
        self.config = config
        self.last_build = BuildReport()
        self._ring = np.zeros((config.calibration_states, *observation.shape), observation.dtype)
        self._next = 0
        self._filled = 0
        self._seed = int(torch.randint(2**31, (), generator=generator))
        self._distillers: dict[StudentKey, Distiller] = {}
        self._shown: dict[StudentKey, PolicyNet | OpaquePolicy] = {}  # distilled by other processes
        self._factorisers: dict[tuple[StudentKey | None, float], Factoriser] = {}
        self._trackers: dict[tuple[StudentKey | None, float], RangeTracker] = {}
        self._policy_arch: Architecture | None = None
        self._checked: set[CompressionSpec] = set()
        self._last_good: CompressionSpec | None = None
        # Who acted at the last two publications: whoever did not must be warmed up again.
        self._version = -1
        self._acting: set[StudentKey] = set()
        self._acted: set[StudentKey] = set()

    @property
    def states(self) -> np.ndarray:
        """The recorded states [N, *shape], in no particular order; do not write to them."""
        return self._ring[: self._filled]

    def observe(self, obs: np.ndarray) -> None:
        """Record states obs [N, *shape]; the newest `calibration_states` are kept.

        Raises:
            ValueError: shape or dtype differ from the observation spec.
        """
        if obs.shape[1:] != self.observation.shape or obs.dtype != self._ring.dtype:
            raise ValueError(
                f"expected states [N, {', '.join(map(str, self.observation.shape))}] of "
                f"{self._ring.dtype}, got {obs.shape} of {obs.dtype}"
            )
        obs = obs[-len(self._ring) :]
        slots = (self._next + np.arange(len(obs))) % len(self._ring)
        self._ring[slots] = obs
        self._next = (self._next + len(obs)) % len(self._ring)
        self._filled = min(self._filled + len(obs), len(self._ring))

    def distill(self, policy: PolicyNet, specs: Iterable[CompressionSpec]) -> int:
        """Do `distill_updates` updates of every student and pruned network that `specs` name.

        Returns:
            How many updates it did in all.

        Raises:
            UserError: no state was recorded yet.
        """
        keys = [spec.student_key for spec in specs]
        unique = dict.fromkeys(key for key in keys if key is not None)
        for key in unique:
            self._train(key, policy, updates=self.config.distill_updates)
        return len(unique) * self.config.distill_updates

    def build(self, spec: CompressionSpec, policy: PolicyNet, version: int) -> Artifact:
        """Compress `policy` as `spec` says.

        A student that did not act at the previous publication is warmed up first; `last_build`
        then says with how many updates. What is built for the first time is checked against its
        network, see `check_engine`.

        Args:
            spec: how hard to compress.
            policy: the learner's policy.
            version: learner updates of `policy`.

        Raises:
            UserError: no state was recorded yet, or the weights are not finite.
            EngineMismatchError: the engine acts unlike its network.
        """
        self._require_states()
        if version != self._version:
            self._version = version
            self._acted, self._acting = self._acting, set()
        key = spec.student_key
        net, updates = policy, 0
        if key is not None:
            rested = key not in self._acted | self._acting
            if rested and key not in self._shown:
                updates = self.config.distill_warmup_updates
            net = self._student(key, policy, updates)
            self._acting.add(key)
        self.last_build = BuildReport(distill_updates=updates)
        if spec.rank < 1.0:
            net = self._factoriser(key, spec.rank).factorise(require_chain(net))
        if self.config.simulated_bits and spec.bits == 32:
            net = round_weights(require_chain(net), self.config.simulated_bits)
        state = CompressionState(
            policy=policy,
            net=net,
            observations=self.states,
            version=version,
            student=spec.student,
            sparsity=spec.sparsity,
            rank=spec.rank,
        )
        if self.links:  # they may write to what they are given; the learner's weights must not move
            state = replace(state, net=copy.deepcopy(net))
        for link in self.links:
            state = link.apply(state)
        # The network at hand is distilled, pruned and factorised; what is left is to finish it.
        rest = replace(spec, student="original", sparsity=0.0, rank=1.0)
        chain = CompressorChain.from_spec(
            rest, method=self.config.quantise_method, tracker=self._tracker(key, spec.rank)
        )
        artifact = chain.run(state)
        if spec not in self._checked:
            check_engine(artifact, state.net, spread(self.states))
            self._checked.add(spec)
        self._last_good = spec
        return artifact

    def fallback(self, policy: PolicyNet, version: int) -> Artifact:
        """Compress `policy` as was last done with success, in place of what failed its check.

        If nothing was yet, that is the policy itself in plain torch.
        """
        return self.build(self._last_good or CompressionSpec(graph="eager"), policy, version)

    def students(self, specs: Iterable[CompressionSpec]) -> list[dict[str, Any]]:
        """Return the networks that were distilled here for `specs`, for `take_students`."""
        wanted = {spec.student_key for spec in specs}
        return [
            {
                "student": list(key),
                "arch": net_to_json(distiller.net),
                "weights": distiller.net.state_dict(),
            }
            for key, distiller in self._distillers.items()
            if key in wanted
        ]

    def take_students(self, students: Iterable[Mapping[str, Any]]) -> None:
        """Act from now on with students that another process distils, see `students`."""
        for entry in students:
            key = StudentKey(*entry["student"])
            net = self._shown.get(key) or self._empty_net(entry).eval()
            net.load_state_dict(entry["weights"])
            self._shown[key] = net

    def kl_to(
        self, policy: PolicyNet, artifact: Artifact, obs: np.ndarray
    ) -> tuple[float, float, float]:
        """Return mean, variance and maximum of KL(policy || artifact) over obs, in nats (eq. 5)."""
        with torch.no_grad():
            states = torch.from_numpy(np.ascontiguousarray(obs))
            logits, _ = policy(states.to(policy.device))
        acted, _ = make_engine(artifact).infer(obs)
        kl = kl_nats(logits.cpu().numpy(), acted)
        return float(kl.mean()), float(kl.var()), float(kl.max())

    def student_kl_nats(self, spec: CompressionSpec, policy: PolicyNet) -> float | None:
        """Return the mean KL(policy || student or pruned network of `spec`) over recorded states.

        None if `spec` acts with the learner's own network, or nothing was built for it yet.
        """
        key = spec.student_key
        if key is None or key not in self._distillers | self._shown:
            return None
        states = torch.from_numpy(np.ascontiguousarray(spread(self.states, COMPARED_STATES)))
        states = states.to(policy.device)
        with torch.no_grad():
            nets = (policy, self._student(key, policy, 0))
            logits, others = (net(states)[0].cpu().numpy() for net in nets)
        return float(kl_nats(logits, others).mean())

    def state_dict(self) -> dict[str, Any]:
        """Return copies of everything that an exact resume needs, as a plain tree."""
        arch = self._policy_arch
        return {
            "ring": self.states.copy(),
            "next": self._next,
            "seed": self._seed,
            "policy_arch": None if arch is None else architecture_to_json(arch),
            "distillers": [
                {
                    "student": list(key),
                    "arch": net_to_json(distiller.net),
                    "state": distiller.state_dict(),
                }
                for key, distiller in self._distillers.items()
            ],
            "factorisers": [
                {
                    "student": None if key is None else list(key),
                    "rank": rank,
                    "state": factoriser.state_dict(),
                }
                for (key, rank), factoriser in self._factorisers.items()
            ],
            "trackers": [
                {
                    "student": None if key is None else list(key),
                    "rank": rank,
                    "state": tracker.state_dict(),
                }
                for (key, rank), tracker in self._trackers.items()
            ],
            "checked": sorted((spec.to_json() for spec in self._checked), key=str),
            "last_good": None if self._last_good is None else self._last_good.to_json(),
            "version": self._version,
            "acting": sorted(list(key) for key in self._acting),
            "acted": sorted(list(key) for key in self._acted),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Become the compressor that `state` was taken from (built with the same config)."""
        ring = np.asarray(state["ring"])
        self._ring[: len(ring)] = ring
        self._filled = len(ring)
        self._next = int(state["next"])
        self._seed = int(state["seed"])
        self._version = int(state["version"])
        self._acting = {StudentKey(*key) for key in state["acting"]}
        self._acted = {StudentKey(*key) for key in state["acted"]}
        # Checkpoints once had none of these.
        self._checked = set(map(CompressionSpec.from_json, state.get("checked", ())))
        good = state.get("last_good")
        self._last_good = None if good is None else CompressionSpec.from_json(good)
        self._factorisers, self._trackers = {}, {}
        for entry in state["factorisers"]:
            self._factoriser(*_key(entry)).load_state_dict(entry["state"])
        for entry in state.get("trackers", ()):  # checkpoints once had none
            self._tracker(*_key(entry)).load_state_dict(entry["state"])
        self._distillers, self._shown = {}, {}
        if state["policy_arch"] is not None:
            self._policy_arch = architecture_from_json(state["policy_arch"])
            learner = PolicyNet(self._policy_arch, self.observation, self.num_actions)
            for entry in state["distillers"]:
                net = self._empty_net(entry)
                distiller = self._make_distiller(net, learner, torch.Generator())
                distiller.load_state_dict(entry["state"])
                self._distillers[StudentKey(*entry["student"])] = distiller

    def _student(
        self, key: StudentKey, policy: PolicyNet, updates: int
    ) -> PolicyNet | OpaquePolicy:
        """Return the network of `key` as it was shown, or after `updates` more updates here."""
        if key in self._shown:
            return self._shown[key]
        return self._train(key, policy, updates=updates).net

    def _train(self, key: StudentKey, policy: PolicyNet, *, updates: int) -> Distiller:
        self._require_states()
        distiller = self._distiller(key, policy)
        if updates:
            distiller.update(torch.from_numpy(self.states), policy, updates)
        return distiller

    def _distiller(self, key: StudentKey, policy: PolicyNet) -> Distiller:
        """Return the distiller of `key`, created from `policy` on its first use."""
        if key in self._distillers:
            return self._distillers[key]
        # A seed of its own: who is created first must not change the others.
        name = f"{key.student}@{key.sparsity!r}"
        seed = (self._seed + zlib.crc32(name.encode())) % 2**63
        generator = torch.Generator().manual_seed(seed)
        net = policy
        if key.student != "original":
            net = make_student(key.student, self.observation, self.num_actions, generator)
            net = net.to(policy.device)
            require_smaller(net, policy, key.student)
        self._policy_arch = policy.arch
        if key.student == "original" or key.sparsity:
            chain, method = require_chain(net), self.config.prune_method
            if method.criterion == "taylor" and not has_gradients(chain):
                method = replace(method, criterion="l1")  # nothing was learned yet
            net = prune(chain, key.sparsity, method, obs=self.states)
        self._distillers[key] = self._make_distiller(net, policy, generator)
        return self._distillers[key]

    def _empty_net(self, entry: Mapping[str, Any]) -> PolicyNet | OpaquePolicy:
        """Return a network for the weights of an entry of `state_dict` or `students`."""
        key = StudentKey(*entry["student"])
        return empty_net(key, entry["arch"], self.observation, self.num_actions)

    def _factoriser(self, key: StudentKey | None, rank: float) -> Factoriser:
        """Return what factorises that network to that rank, and remembers its last result."""
        owner = (key, rank)
        if owner not in self._factorisers:
            self._factorisers[owner] = Factoriser(rank, self.config.rank_method)
        return self._factorisers[owner]

    def _tracker(self, key: StudentKey | None, rank: float) -> RangeTracker:
        """Return what remembers the activation ranges of that network."""
        owner = (key, rank)
        if owner not in self._trackers:
            self._trackers[owner] = RangeTracker(self.config.quantise_method.ranges)
        return self._trackers[owner]

    def _make_distiller(
        self, net: PolicyNet | OpaquePolicy, policy: PolicyNet, generator: torch.Generator
    ) -> Distiller:
        return Distiller(
            net,
            policy,
            learning_rate=self.config.distill_learning_rate,
            entropy_cost=self.config.distill_entropy_cost,
            sync_every=self.config.distill_sync_every,
            generator=generator,
            batch=self.config.distill_batch,
        )

    def _require_states(self) -> None:
        if self._filled == 0:
            raise UserError(
                "compress: no state was recorded yet; call observe() with the first observations"
            )


def _key(entry: Mapping[str, Any]) -> tuple[StudentKey | None, float]:
    """Return which network an entry of a `state_dict` belongs to."""
    named = entry["student"]
    return None if named is None else StudentKey(*named), float(entry["rank"])
