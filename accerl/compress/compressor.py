"""Compressor: the object that runs use to turn the learner's policy into artifacts."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from accerl.compress.admission import Admission, Verdict
from accerl.compress.artifact import Artifact
from accerl.compress.chain import ChainMemory, CompressorChain
from accerl.compress.check import (
    EngineMismatchError,
    StudentDivergedError,
    check_engine,
    kl_nats,
)
from accerl.compress.config import CompressionConfig
from accerl.compress.distillation.state_ring import StateRing
from accerl.compress.distillation.student_pool import StudentPool
from accerl.compress.distillation.trainer import FixedStates, StateSource
from accerl.compress.links import CompressionState, Link
from accerl.compress.quantization.quantize import CALIBRATION_STATES, spread
from accerl.errors import CannotCompressError, DivergedError, RefusedBeforeError, UserError
from accerl.networks.graph_policy import Policy
from accerl.networks.observation import ObservationSpec
from accerl.spec import IDENTITY, CompressionSpec, StudentKey

FIRST_STATES = CALIBRATION_STATES // 2
"""of those that games begin with, at most, before the first rollout: they look alike, so ranges and
the check of an engine wait for others"""
STUDENT_STATES = 16
"""on which a student is compared with the learner at each publication"""


class Compressor:
    """Owns the recorded states and the distilled networks; builds artifacts from specs.

    A spec becomes an artifact in three steps: `StudentPool` has the network that it names, the
    `CompressorChain` of the spec compresses that, and `check_engine` compares the two. Equal
    generators and equal calls give equal artifacts.
    """

    def __init__(
        self,
        observation: ObservationSpec,
        num_actions: int,
        config: CompressionConfig,
        generator: torch.Generator,
        links: Sequence[Link] = (),
        ring: StateRing | None = None,
        device: str = "cpu",
    ) -> None:
        """Start without states.

        Args:
            observation: what the networks see.
            num_actions: of the game.
            config: how to distil, prune and quantise.
            generator: what its own dice are seeded from.
            links: of the user's own, which become part of every chain.
            ring: the states that students learn from, once it holds some; without it those that
                are calibrated on.
            device: trains students, cpu or cuda; all else happens on the CPU.
        """
        self.links = tuple(links)
        self.admission = Admission(config.admit_kl_nats, ring)
        self._ring = ring
        self.observation = observation
        self.num_actions = num_actions
        self.config = config
        self.last_build_updates = 0
        """distilling updates that the last build made, so that a clock can charge them"""
        self._calibration = np.zeros(
            (config.calibration_states, *observation.shape), observation.dtype
        )
        self._next = 0
        self._filled = 0
        self._pool = StudentPool(observation, num_actions, config, generator, ring, device)
        self._memories: dict[tuple[StudentKey | None, float], ChainMemory] = {}
        self._published = (0, 0)
        """learner updates at the publication before the latest, and at the latest"""
        self._checked: set[CompressionSpec] = set()
        self._refused: dict[CompressionSpec, str] = {}
        """what this network cannot be compressed to, and why: trying again costs as much"""
        self._last_good: CompressionSpec | None = None

    @property
    def states(self) -> np.ndarray:
        """The recorded states [N, *shape], in no particular order; do not write to them."""
        return self._calibration[: self._filled]

    def observe(self, obs: np.ndarray) -> None:
        """Record states obs [N, *shape]; the newest `calibration_states` are kept.

        Raises:
            ValueError: shape or dtype differ from the observation spec.
        """
        if obs.shape[1:] != self.observation.shape or obs.dtype != self._calibration.dtype:
            raise ValueError(
                f"expected states [N, {', '.join(map(str, self.observation.shape))}] of "
                f"{self._calibration.dtype}, got {obs.shape} of {obs.dtype}"
            )
        obs = obs[-len(self._calibration) :]
        slots = (self._next + np.arange(len(obs))) % len(self._calibration)
        self._calibration[slots] = obs
        self._next = (self._next + len(obs)) % len(self._calibration)
        self._filled = min(self._filled + len(obs), len(self._calibration))

    def distill(
        self,
        policy: Policy,
        specs: Iterable[CompressionSpec],
        version: int = 0,
        updates: int = 0,
    ) -> int:
        """Do updates of every student and pruned network that `specs` name.

        Args:
            policy: the learner's.
            specs: which.
            version: learner updates of `policy`.
            updates: of each; 0: `distill_updates`, or 1 if that is no limit.

        Returns:
            How many updates that took the time of, the beginnings of networks included: none where
            students are admitted and too few states were played, which they would learn by heart.

        Raises:
            UserError: no state was recorded yet.
        """
        if self.admission.enabled and not self.admission.has_states:
            return 0
        unique: dict[StudentKey, CompressionSpec] = {}
        for spec in specs:
            if spec.student_key is not None and spec not in self._refused:
                unique.setdefault(spec.student_key, spec)
        updates, done = updates or self.config.distill_updates or 1, 0
        for key, spec in unique.items():
            self._require_states()
            try:
                self._pool.network(key, policy, self.states)
                done += self._train(key, policy, updates, version)
            except CannotCompressError as error:  # whoever publishes it says why
                self._refused[spec] = str(error)
        return done

    def _train(self, key: StudentKey, policy: Policy, updates: int, version: int) -> int:
        return self._pool.train(key, policy, self.source(), updates, version, self.states)

    @property
    def pool(self) -> StudentPool:
        """The networks that are distilled."""
        return self._pool

    @property
    def states_per_update(self) -> int:
        """How many states one distillation update uses."""
        batch, ring = self.config.distill_batch, self._ring
        return min(batch, len(self.states)) if ring is None or not len(ring) else batch

    def source(self) -> StateSource:
        """Return where students find the states that they learn from."""
        ring = self._ring
        return FixedStates(self.states) if ring is None or not len(ring) else ring

    def build(self, spec: CompressionSpec, policy: Policy, version: int) -> Artifact:
        """Compress `policy` as `spec` says, whether it is admitted or not.

        A student that did not act at the previous publication is warmed up first, unless students
        are admitted; `last_build_updates` then says with how many updates. What is built for the
        first time is checked against its network, see `check_engine`.

        Args:
            spec: how hard to compress.
            policy: the learner's policy.
            version: learner updates of `policy`.

        Raises:
            UserError: no state was recorded yet.
            DivergedError: the learner's weights are not finite.
            CannotCompressError: the network cannot be compressed so; `RefusedBeforeError`: that was
                found before.
            StudentDivergedError: those of its student are not.
            EngineMismatchError: the engine acts unlike its network.
        """
        self.last_build_updates = 0  # of a build that fails too
        if (why := self._refused.get(spec)) is not None:
            raise RefusedBeforeError(why)
        try:
            return self._build(spec, policy, version)
        except (EngineMismatchError, StudentDivergedError):
            raise  # other weights may be acted with
        except CannotCompressError as error:
            self._refused[spec] = str(error)
            raise

    def refuses(self, spec: CompressionSpec) -> bool:
        """Whether it was found that the network cannot be compressed so, whatever its weights."""
        return spec in self._refused

    def _build(self, spec: CompressionSpec, policy: Policy, version: int) -> Artifact:
        self._require_states()
        self._pool.let_go(version)
        key = spec.student_key
        admits = self.admission.enabled
        updates = 0 if admits else self._pool.warm_up_updates(key, version)
        net = policy
        if key is not None:
            self._pool.network(key, policy, self.states)
            updates = self._train(key, policy, updates, version)
            net = self._pool.network(key, policy, self.states)  # it may have begun anew
        self.last_build_updates = updates
        if self.links:  # they may write to what they are given; the learner's weights must not move
            net = copy.deepcopy(net)
        chain = CompressorChain.from_spec(
            spec,
            None if key is None else net,
            config=self.config,
            memory=self._memory(key, spec.rank, version),
            own_links=self.links,
        )
        state = CompressionState(policy=policy, net=net, observations=self.states, version=version)
        try:
            state = chain.run(state)
        except DivergedError as error:
            if key is None:
                raise
            raise StudentDivergedError(
                f"{spec.label}: distilling has made its weights NaN or infinite; lower "
                "compression.distill_learning_rate"
            ) from error
        if spec not in self._checked:
            check_engine(state.result, state.exact_net, spread(self.states))
            if self._filled >= min(CALIBRATION_STATES, len(self._calibration)):
                self._checked.add(spec)
        self._last_good = spec
        return state.result

    def admit(
        self, spec: CompressionSpec, policy: Policy, version: int
    ) -> tuple[Artifact | None, Verdict]:
        """Compress `policy` as `spec` says if that may act; see `Admission`, and `build`.

        Returns:
            The artifact, None if `spec` must wait; and why.
        """
        if not self.admission.concerns(spec, version):
            return self.build(spec, policy, version), Verdict()
        if not self.admission.has_states:
            return None, Verdict(admitted=False)
        artifact = self.build_aside(spec, policy, version)
        verdict = self.admission.judge(artifact, policy)
        if not verdict.admitted:
            return None, verdict
        self._last_good = spec
        return artifact, verdict

    def build_aside(self, spec: CompressionSpec, policy: Policy, version: int) -> Artifact:
        """Build an artifact only to measure it; see `build`.

        It is never published, and never becomes the fallback for one that fails its check.
        """
        good = self._last_good
        artifact = self.build(spec, policy, version)
        self._last_good = good
        return artifact

    def keep_warm(self, spec: CompressionSpec, version: int) -> None:
        """Note at a publication that the student of `spec` is distilled on without acting.

        Once it was warmed up, it need not be again before it acts.
        """
        if spec.student_key is not None:
            self._pool.keep_warm(spec.student_key, version)

    @property
    def has_built(self) -> bool:
        """Whether anything was built that may act."""
        return self._last_good is not None

    def fallback(self, policy: Policy, version: int) -> Artifact:
        """Compress `policy` as was last done with success, in place of what failed its check.

        Where nothing was yet, or that fails too, the policy itself acts, in plain torch if need be.
        """
        for spec in (self._last_good or IDENTITY, IDENTITY):
            try:
                return self.build(spec, policy, version)
            except CannotCompressError:
                continue
        return self.build(CompressionSpec(graph="eager"), policy, version)

    def take_students(self, students: Iterable[Mapping[str, Any]]) -> None:
        """Act from now on with students that another process distils, see `StudentPool.send`."""
        self._pool.receive(students)

    def student_kl_nats(self, spec: CompressionSpec, policy: Policy) -> float | None:
        """Return the mean KL(policy || student or pruned network of `spec`) over recorded states.

        None if `spec` acts with the learner's own network, or nothing was built for it yet.
        """
        key = spec.student_key
        if key is None or key not in self._pool:
            return None
        states = torch.from_numpy(np.ascontiguousarray(spread(self.states, STUDENT_STATES)))
        states = states.to(policy.device)
        with torch.no_grad():
            nets = (policy, self._pool.network(key, policy, self.states))
            logits, others = (net(states)[0].cpu().numpy() for net in nets)
        return float(kl_nats(logits, others).mean())

    def state_dict(self) -> dict[str, Any]:
        """Return copies of everything that an exact resume needs, as a plain tree."""
        return {
            **self._pool.state_dict(),
            "calibration": self.states.copy(),
            "next": self._next,
            "memories": [
                {"student": None if key is None else list(key), "rank": rank, **memory.state_dict()}
                for (key, rank), memory in self._memories.items()
            ],
            "published": list(self._published),
            "admission": self.admission.state_dict(),
            "checked": sorted((spec.to_json() for spec in self._checked), key=str),
            "refused": [[spec.to_json(), why] for spec, why in self._refused.items()],
            "last_good": None if self._last_good is None else self._last_good.to_json(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Become the compressor that `state` was taken from (built with the same config)."""
        states = np.asarray(state["calibration"])
        self._calibration[: len(states)] = states
        self._filled = len(states)
        self._next = int(state["next"])
        self._checked = set(map(CompressionSpec.from_json, state["checked"]))
        self._refused = {CompressionSpec.from_json(spec): why for spec, why in state["refused"]}
        self.admission.load_state_dict(state["admission"])
        good = state["last_good"]
        self._last_good = None if good is None else CompressionSpec.from_json(good)
        before, latest = state["published"]
        self._published = int(before), int(latest)
        self._memories = {}
        for entry in state["memories"]:
            named = entry["student"]
            key = None if named is None else StudentKey(*named)
            number, version = int(entry["network"]), int(entry["version"])
            memory = ChainMemory.of(float(entry["rank"]), self.config, number, version)
            memory.load_state_dict(entry)
            self._memories[key, float(entry["rank"])] = memory
        self._pool.load_state_dict(state)

    def _memory(self, key: StudentKey | None, rank: float, version: int) -> ChainMemory:
        """Return what is remembered of that network, factorised to that rank."""
        if version != self._published[1]:
            self._published = self._published[1], version
        number = 0 if key is None else self._pool.network_number(key)
        memory = self._memories.get((key, rank))
        if memory is None or memory.network != number:
            memory = ChainMemory.of(rank, self.config, number)
        elif memory.version not in self._published:
            memory.factoriser.forget()  # half a pass does not catch up with more than a publication
        if memory.tracker.measured_at not in self._published:  # the learner acted meanwhile, say
            memory.tracker.forget()
        memory = self._memories[key, rank] = replace(memory, version=version)
        return memory

    def _require_states(self) -> None:
        if self._filled == 0:
            raise UserError(
                "compress: no state was recorded yet; call observe() with the first observations"
            )
