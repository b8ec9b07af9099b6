"""Compressor: the object that runs use to turn the learner's policy into artifacts."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from accerl.compress.artifact import Artifact
from accerl.compress.chain import CompressorChain
from accerl.compress.check import check_engine, kl_nats
from accerl.compress.config import CompressionConfig
from accerl.compress.criteria import has_gradients
from accerl.compress.distill import Distiller
from accerl.compress.engine import make_engine
from accerl.compress.links import CompressionState
from accerl.compress.lowrank import Factoriser
from accerl.compress.prune import prune
from accerl.compress.quantize import spread
from accerl.compress.ranges import RangeTracker
from accerl.compress.rounding import round_weights
from accerl.compress.torch_artifact import architecture_from_json, architecture_to_json
from accerl.errors import UserError
from accerl.networks import Architecture, ObservationSpec, PolicyNet, make_policy
from accerl.spec import CompressionSpec

COMPARED_STATES = 16
"""on which a student is compared with the learner at each publication"""


@dataclass(frozen=True)
class BuildReport:
    """What the last build had to do besides exporting, so that a clock can charge it."""

    distill_updates: int = 0


@dataclass(frozen=True)
class Trainee:
    """A network that must be distilled before it can act: a student, or a pruned network."""

    student: str
    sparsity: float

    @property
    def key(self) -> str:
        """A name for state dicts, such as ``net3@0.5``."""
        return f"{self.student}@{self.sparsity!r}"

    @classmethod
    def of(cls, spec: CompressionSpec) -> Trainee | None:
        """Return whom `spec` needs distilled; None if it acts with the learner's own network."""
        if spec.student == "original" and spec.sparsity == 0.0:
            return None
        return cls(spec.student, spec.sparsity)


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
    ) -> None:
        self.observation = observation
        self.num_actions = num_actions
        self.config = config
        self.last_build = BuildReport()
        self._ring = np.zeros((config.calibration_states, *observation.shape), observation.dtype)
        self._next = 0
        self._filled = 0
        self._seed = int(torch.randint(2**31, (), generator=generator))
        self._distillers: dict[Trainee, Distiller] = {}
        self._factorisers: dict[tuple[Trainee | None, float], Factoriser] = {}
        self._trackers: dict[tuple[Trainee | None, float], RangeTracker] = {}
        self._policy_arch: Architecture | None = None
        self._checked: set[CompressionSpec] = set()
        self._last_good: CompressionSpec | None = None
        # Who acted at the last two publications: whoever did not must be warmed up again.
        self._version = -1
        self._acting: set[Trainee] = set()
        self._acted: set[Trainee] = set()

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
        trainees = [trainee for trainee in map(Trainee.of, specs) if trainee is not None]
        unique = dict.fromkeys(trainees)
        for trainee in unique:
            self._train(trainee, policy, updates=self.config.distill_updates)
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
        trainee = Trainee.of(spec)
        net, updates = policy, 0
        if trainee is not None:
            if trainee not in self._acted | self._acting:
                updates = self.config.distill_warmup_updates
            net = self._train(trainee, policy, updates=updates).net
            self._acting.add(trainee)
        self.last_build = BuildReport(distill_updates=updates)
        if spec.rank < 1.0:
            net = self._factoriser(trainee, spec.rank).factorise(net)
        if self.config.simulated_bits and spec.bits == 32:
            net = round_weights(net, self.config.simulated_bits)
        state = CompressionState(
            policy=policy,
            net=net,
            observations=self.states,
            version=version,
            student=spec.student,
            sparsity=spec.sparsity,
            rank=spec.rank,
        )
        # The network at hand is distilled, pruned and factorised; what is left is to finish it.
        rest = replace(spec, student="original", sparsity=0.0, rank=1.0)
        chain = CompressorChain.from_spec(
            rest, method=self.config.quantise_method, tracker=self._tracker(trainee, spec.rank)
        )
        artifact = chain.run(state)
        if spec not in self._checked:
            check_engine(artifact, net, spread(self.states))
            self._checked.add(spec)
        self._last_good = spec
        return artifact

    def fallback(self, policy: PolicyNet, version: int) -> Artifact:
        """Compress `policy` as was last done with success, in place of what failed its check.

        If nothing was yet, that is the policy itself in plain torch.
        """
        return self.build(self._last_good or CompressionSpec(graph="eager"), policy, version)

    def kl_to(
        self, policy: PolicyNet, artifact: Artifact, obs: np.ndarray
    ) -> tuple[float, float, float]:
        """Return mean, variance and maximum of KL(policy || artifact) over obs, in nats (eq. 5)."""
        with torch.no_grad():
            states = torch.from_numpy(np.ascontiguousarray(obs))
            logits, _ = policy(states.to(policy.policy_head.weight.device))
        acted, _ = make_engine(artifact).infer(obs)
        kl = kl_nats(logits.cpu().numpy(), acted)
        return float(kl.mean()), float(kl.var()), float(kl.max())

    def student_kl_nats(self, spec: CompressionSpec, policy: PolicyNet) -> float | None:
        """Return the mean KL(policy || student or pruned network of `spec`) over recorded states.

        None if `spec` acts with the learner's own network, or nothing was built for it yet.
        """
        trainee = Trainee.of(spec)
        if trainee is None or trainee not in self._distillers:
            return None
        states = torch.from_numpy(np.ascontiguousarray(spread(self.states, COMPARED_STATES)))
        states = states.to(policy.policy_head.weight.device)
        with torch.no_grad():
            nets = (policy, self._distillers[trainee].net)
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
                    "trainee": [trainee.student, trainee.sparsity],
                    "arch": architecture_to_json(distiller.net.arch),
                    "state": distiller.state_dict(),
                }
                for trainee, distiller in self._distillers.items()
            ],
            "factorisers": [
                {
                    "trainee": None if trainee is None else [trainee.student, trainee.sparsity],
                    "rank": rank,
                    "state": factoriser.state_dict(),
                }
                for (trainee, rank), factoriser in self._factorisers.items()
            ],
            "trackers": [
                {
                    "trainee": None if trainee is None else [trainee.student, trainee.sparsity],
                    "rank": rank,
                    "state": tracker.state_dict(),
                }
                for (trainee, rank), tracker in self._trackers.items()
            ],
            "version": self._version,
            "acting": _pairs(self._acting),
            "acted": _pairs(self._acted),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Become the compressor that `state` was taken from (built with the same config)."""
        ring = np.asarray(state["ring"])
        self._ring[: len(ring)] = ring
        self._filled = len(ring)
        self._next = int(state["next"])
        self._seed = int(state["seed"])
        self._version = int(state["version"])
        self._acting = {Trainee(str(name), float(part)) for name, part in state["acting"]}
        self._acted = {Trainee(str(name), float(part)) for name, part in state["acted"]}
        self._factorisers, self._trackers = {}, {}
        for entry in state["factorisers"]:
            self._factoriser(*_key(entry)).load_state_dict(entry["state"])
        for entry in state.get("trackers", ()):  # checkpoints once had none
            self._tracker(*_key(entry)).load_state_dict(entry["state"])
        self._distillers = {}
        if state["policy_arch"] is not None:
            self._policy_arch = architecture_from_json(state["policy_arch"])
            learner = PolicyNet(self._policy_arch, self.observation, self.num_actions)
            for entry in state["distillers"]:
                name, sparsity = entry["trainee"]
                arch = architecture_from_json(entry["arch"])
                net = PolicyNet(arch, self.observation, self.num_actions)
                distiller = self._make_distiller(net, learner, torch.Generator())
                distiller.load_state_dict(entry["state"])
                self._distillers[Trainee(str(name), float(sparsity))] = distiller

    def _train(self, trainee: Trainee, policy: PolicyNet, *, updates: int) -> Distiller:
        self._require_states()
        distiller = self._distiller(trainee, policy)
        if updates:
            distiller.update(torch.from_numpy(self.states), policy, updates)
        return distiller

    def _distiller(self, trainee: Trainee, policy: PolicyNet) -> Distiller:
        """Return the distiller of `trainee`, created from `policy` on its first use."""
        if trainee in self._distillers:
            return self._distillers[trainee]
        # A seed of its own: who is created first must not change the others.
        seed = (self._seed + zlib.crc32(trainee.key.encode())) % 2**63
        generator = torch.Generator().manual_seed(seed)
        net = policy
        if trainee.student != "original":
            net = make_policy(trainee.student, self.observation, self.num_actions, generator)
            net = net.to(policy.policy_head.weight.device)
        self._policy_arch = policy.arch
        method = self.config.prune_method
        if method.criterion == "taylor" and not has_gradients(net):
            method = replace(method, criterion="l1")  # nothing was learned yet
        pruned = prune(net, trainee.sparsity, method, obs=self.states)
        self._distillers[trainee] = self._make_distiller(pruned, policy, generator)
        return self._distillers[trainee]

    def _factoriser(self, trainee: Trainee | None, rank: float) -> Factoriser:
        """Return what factorises that network to that rank, and remembers its last result."""
        key = (trainee, rank)
        if key not in self._factorisers:
            self._factorisers[key] = Factoriser(rank, self.config.rank_method)
        return self._factorisers[key]

    def _tracker(self, trainee: Trainee | None, rank: float) -> RangeTracker:
        """Return what remembers the activation ranges of that network."""
        key = (trainee, rank)
        if key not in self._trackers:
            self._trackers[key] = RangeTracker(self.config.quantise_method.ranges)
        return self._trackers[key]

    def _make_distiller(
        self, net: PolicyNet, policy: PolicyNet, generator: torch.Generator
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


def _pairs(trainees: set[Trainee]) -> list[list[Any]]:
    return sorted([trainee.student, trainee.sparsity] for trainee in trainees)


def _key(entry: Mapping[str, Any]) -> tuple[Trainee | None, float]:
    """Return which network an entry of a `state_dict` belongs to."""
    named = entry["trainee"]
    trainee = None if named is None else Trainee(str(named[0]), float(named[1]))
    return trainee, float(entry["rank"])
