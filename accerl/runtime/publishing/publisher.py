"""Publisher: turns a decision and the learner's weights into publications, when they are due.

The bookkeeping (`orders.py`) and the work (`sample_states`, `distill_students`,
`build_publication`) stand apart, so that the work can be done by another process.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from accerl.compress.artifact import Artifact
from accerl.compress.check import EngineMismatchError
from accerl.compress.compressor import Compressor
from accerl.compress.config import CompressionConfig
from accerl.compress.graphs.onnx_payload import same_integers
from accerl.networks.policy_net import PolicyNet
from accerl.rollout import Rollout
from accerl.runtime.publishing.orders import Ledger, Order
from accerl.runtime.publishing.probe import KLProbe, KLSplit
from accerl.spec import CompressionSpec
from accerl.weights import Publication


@dataclass(frozen=True)
class BuiltPart:
    """One artifact of a publication and what it took."""

    asked: CompressionSpec
    artifact: Artifact
    seconds: float
    """measured by the process that made it, warm-up included"""
    warmup_states: int
    """states that were distilled before a student could act (again)"""
    rejected: str | None = None
    """why the engine that was asked for does not act; `artifact` stands in for it"""


@dataclass(frozen=True)
class Built:
    """A publication that has just been made."""

    publication: Publication
    parts: list[BuiltPart]
    unchanged: bool = False
    """whether what acts already would act alike, so that nothing needs to be sent"""
    check: bool = False
    """whether it is to be sampled, see `KLProbe`"""

    @property
    def size_bytes(self) -> int:
        """What is sent to each actor."""
        artifacts = self.publication.artifacts
        return 0 if self.unchanged else sum(len(artifact.payload) for artifact in artifacts)

    @property
    def acted(self) -> list[list[Any]]:
        """What acts: spec and version of each part, as `Ledger.delivered` takes them."""
        return [[part.artifact.spec.to_json(), part.artifact.version] for part in self.parts]

    @property
    def rejected(self) -> dict[str, str]:
        """Why parts that were asked for do not act, by their label."""
        return {part.asked.label: part.rejected for part in self.parts if part.rejected}


def sample_states(rollout: Rollout, config: CompressionConfig) -> np.ndarray:
    """Return a sample [N, *shape] of a rollout's states, spread over its steps and environments."""
    steps, envs = rollout.action.shape
    wanted = min(max(config.calibration_states // 4, 1), steps * envs)
    step = np.linspace(0, steps - 1, wanted).round().astype(int)
    # An even stride through [T, B] would meet the same few environments at every step.
    return rollout.obs[step, np.arange(wanted) % envs]


def states_per_update(compressor: Compressor) -> int:
    """Return how many states one distillation update uses."""
    return min(compressor.config.distill_batch, len(compressor.states))


def distill_students(
    compressor: Compressor, policy: PolicyNet, specs: Iterable[CompressionSpec]
) -> list[tuple[CompressionSpec, int]]:
    """Distil every student in use; return the specs that needed it and the states it took."""
    # Two specs that differ in bits alone share their student.
    unique = {spec.student_key: spec for spec in specs}.values()
    done = [(spec, compressor.distill(policy, [spec])) for spec in unique]
    return [(spec, updates * states_per_update(compressor)) for spec, updates in done if updates]


def build_publication(
    compressor: Compressor, policy: PolicyNet, order: Order, current: Publication | None = None
) -> Built:
    """Compress the policy as `order` says; what fails its check is replaced, see `fallback`.

    Args:
        compressor: what compresses.
        policy: the learner's policy.
        order: what is asked for.
        current: what acts now, if that is known: it may serve on.
    """
    parts = []
    for spec, _ in order.decision.mix:
        before = perf_counter()
        rejected = None
        try:
            artifact = compressor.build(spec, policy, order.updates)
        except EngineMismatchError as error:
            artifact, rejected = compressor.fallback(policy, order.updates), str(error)
        seconds = perf_counter() - before
        warmup = compressor.last_build.distill_updates * states_per_update(compressor)
        parts.append(BuiltPart(spec, artifact, seconds, warmup, rejected))
    shares = [share for _, share in order.decision.mix]
    publication = Publication(order.number, [part.artifact for part in parts], shares)
    unchanged = current is not None and acts_alike(publication, current)
    return Built(publication, parts, unchanged, order.check)


def students_kl_nats(
    compressor: Compressor, policy: PolicyNet, specs: Iterable[CompressionSpec]
) -> dict[CompressionSpec, float]:
    """Return how far students and pruned networks are from the learner, by spec.

    Measured when they are published already: nobody waits for it.
    """
    found = {spec: compressor.student_kl_nats(spec, policy) for spec in specs}
    return {spec: kl for spec, kl in found.items() if kl is not None}


def acts_alike(publication: Publication, current: Publication) -> bool:
    """Whether two publications hold the same integers; only INT8 can be alike in that sense."""
    pairs = list(zip(publication.artifacts, current.artifacts, strict=False))
    return (
        publication.shares == current.shares
        and len(publication.artifacts) == len(current.artifacts)
        and all(new.spec == old.spec and new.spec.bits == 8 for new, old in pairs)
        and all(same_integers(new.payload, old.payload) for new, old in pairs)
    )


class Publisher(Ledger):
    """A ledger and the compressor that does the work, in one process."""

    def __init__(self, compressor: Compressor, publish_every: int, check_every: int = 1) -> None:
        super().__init__(publish_every, check_every)
        self.compressor = compressor
        self.probe = KLProbe()

    def observe(self, rollout: Rollout) -> None:
        """Give the compressor an even sample of a rollout's states."""
        self.compressor.observe(sample_states(rollout, self.compressor.config))

    def distill(self, policy: PolicyNet) -> list[tuple[CompressionSpec, int]]:
        """Distil every student in use; return the specs that needed it and the states it took."""
        return distill_students(self.compressor, policy, self.acting)

    def build(self, policy: PolicyNet, updates: int, current: Publication | None = None) -> Built:
        """Compress the policy for what was asked for last; `current` is what acts now."""
        order = self.order(updates)
        built = build_publication(self.compressor, policy, order, current)
        if built.unchanged:
            self.unchanged(order.number)
        else:
            self.delivered(order.number, built.acted, built.rejected)
        return built

    def students_kl_nats(self, policy: PolicyNet) -> dict[CompressionSpec, float]:
        """Return how far students in use are from the learner, see `students_kl_nats`."""
        return students_kl_nats(self.compressor, policy, self.acting)

    def split(self, policy: PolicyNet, built: Built) -> KLSplit:
        """Return what the actors' KL is made of, as far as this publication is sampled."""
        states = self.compressor.states
        return self.probe.measure(policy, built.publication, states, check=built.check)

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on bit-exactly."""
        return {"compressor": self.compressor.state_dict(), **super().state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state returned by `state_dict`."""
        self.compressor.load_state_dict(state["compressor"])
        super().load_state_dict(state)
