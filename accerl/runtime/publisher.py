"""Publisher: turns a decision and the learner's weights into publications, when they are due.

The bookkeeping (`Ledger`) and the work (`sample_states`, `distill_students`, `build_publication`)
stand apart, so that the work can be done by another process.
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
from accerl.compress.onnx_payload import same_integers
from accerl.networks import PolicyNet
from accerl.rollout import Rollout
from accerl.spec import CompressionSpec, Decision
from accerl.weights import Publication


@dataclass(frozen=True)
class Order:
    """A publication that is to be made."""

    number: int
    decision: Decision
    updates: int
    """learner updates of the weights that it is made of"""

    def to_json(self) -> dict[str, Any]:
        """Return the order as a JSON object."""
        return {
            "number": self.number,
            "decision": self.decision.to_json(),
            "updates": self.updates,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Order:
        """Read an order written by `to_json`."""
        return cls(data["number"], Decision.from_json(data["decision"]), data["updates"])


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


@dataclass(frozen=True)
class Tag:
    """What acted in a rollout: the spec, and the learner update its weights were taken at."""

    spec: CompressionSpec
    version: int


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
    unique = {(spec.student, spec.sparsity): spec for spec in specs}.values()
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
    return Built(publication, parts, current is not None and acts_alike(publication, current))


def students_kl_nats(
    compressor: Compressor, policy: PolicyNet, specs: Iterable[CompressionSpec]
) -> dict[str, float]:
    """Return how far students and pruned networks are from the learner, by the label of their spec.

    Measured when they are published already: nobody waits for it.
    """
    found = {spec.label: compressor.student_kl_nats(spec, policy) for spec in specs}
    return {label: kl for label, kl in found.items() if kl is not None}


def acts_alike(publication: Publication, current: Publication) -> bool:
    """Whether two publications hold the same integers; only INT8 can be alike in that sense."""
    pairs = list(zip(publication.artifacts, current.artifacts, strict=False))
    return (
        publication.shares == current.shares
        and len(publication.artifacts) == len(current.artifacts)
        and all(new.spec == old.spec and new.spec.bits == 8 for new, old in pairs)
        and all(same_integers(new.payload, old.payload) for new, old in pairs)
    )


class Ledger:
    """What was asked for, what was published and when, what it cost, and who acted with what."""

    REMEMBERED = 1024  # publications; actors are never that far behind

    def __init__(self, publish_every: int) -> None:
        self.publish_every = publish_every
        self._asked: Decision | None = None
        self._decision: Decision | None = None  # in effect
        self._tags: dict[int, list[Tag]] = {}
        self._next_number = 0
        self._current = -1  # what was delivered last
        self._last_ordered = -1
        self._last_update = 0
        self._switch_seconds = 0.0
        self._rejected: set[str] = set()
        self._events: list[str] = []

    @property
    def decision(self) -> Decision | None:
        """What was asked for last; None before the first request."""
        return self._asked

    @property
    def last_ordered(self) -> int:
        """Number of the newest publication that acts or will; -1 before any was ordered."""
        return self._last_ordered

    @property
    def acting(self) -> tuple[CompressionSpec, ...]:
        """The specs of the decision that is in effect."""
        return () if self._decision is None else self._decision.specs

    def request(self, decision: Decision) -> None:
        """Act with `decision` from the next publication on."""
        self._asked = decision

    def is_due(self, updates: int) -> bool:
        """Whether a publication should follow update number `updates`."""
        changed = self._asked != self._decision
        return changed or updates - self._last_update >= self.publish_every

    def order(self, updates: int) -> Order:
        """Order a publication of what was asked for last; its number is never used again.

        Raises:
            RuntimeError: nothing was asked for.
        """
        decision = self.decision
        if decision is None:
            raise RuntimeError("no decision has been applied yet")
        number = self._next_number
        self._tags[number] = [Tag(spec, updates) for spec in decision.specs]
        if (stale := number - self.REMEMBERED) != self._current:
            self._tags.pop(stale, None)
        self._next_number += 1
        self._last_ordered = number
        self._last_update = updates
        return Order(number, decision, updates)

    def delivered(self, number: int, acted: list[list[Any]], rejected: dict[str, str]) -> None:
        """Note what a publication really holds.

        Args:
            number: of the publication.
            acted: [spec as JSON, version] of each of its parts.
            rejected: why parts that were ordered are not in it, by the label of their spec.
        """
        self._current = number
        self._tags[number] = [Tag(CompressionSpec.from_json(spec), v) for spec, v in acted]
        # A spec that fails does so at every publication: once is enough to know.
        self._events += [cause for label, cause in rejected.items() if label not in self._rejected]
        self._rejected |= set(rejected)

    def unchanged(self, number: int) -> None:
        """Note that what acts already stands for that publication too, which is not sent."""
        self._tags[self._current] = self._tags.pop(number)
        self._last_ordered = self._current

    def take_events(self, seconds: float) -> tuple[dict[str, Any], ...]:
        """Return what was rejected since the last call; `seconds` is the run's clock."""
        events, self._events = self._events, []
        action = "actors go on as they were compressed before"
        return tuple(
            {
                "role": "compressor",
                "index": None,
                "exit_code": None,
                "seconds": seconds,
                "cause": cause,
                "action": action,
            }
            for cause in events
        )

    def lost(self) -> None:
        """The last order will not be delivered, or nobody will say so: order again soon."""
        self._last_update -= self.publish_every

    def charge(self, seconds: float, decision: Decision | None = None) -> None:
        """Book what a publication cost; if it changed the decision, that is switching.

        Args:
            seconds: what it cost.
            decision: what was published; None stands for what was asked for last.
        """
        decision = decision or self._asked
        if decision != self._decision and self._decision is not None:
            self._switch_seconds += seconds
        self._decision = decision

    def take_switch_seconds(self) -> float:
        """Return the switching cost booked since the last call."""
        seconds, self._switch_seconds = self._switch_seconds, 0.0
        return seconds

    def tag(self, publication: int, spec_index: int) -> Tag:
        """Return what acted in a rollout, by the two numbers of its header."""
        return self._tags[publication][spec_index]

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on bit-exactly."""
        asked, decision = self._asked, self._decision
        return {
            "pending": None if asked is None or asked == decision else asked.to_json(),
            "decision": None if decision is None else decision.to_json(),
            "tags": {
                str(number): [[tag.spec.to_json(), tag.version] for tag in tags]
                for number, tags in self._tags.items()
            },
            "next_number": self._next_number,
            "current": self._current,
            "last_ordered": self._last_ordered,
            "last_update": self._last_update,
            "switch_seconds": self._switch_seconds,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state returned by `state_dict`."""
        pending, decision = state["pending"], state["decision"]
        self._decision = None if decision is None else Decision.from_json(decision)
        self._asked = self._decision if pending is None else Decision.from_json(pending)
        self._tags = {
            int(number): [Tag(CompressionSpec.from_json(spec), version) for spec, version in tags]
            for number, tags in state["tags"].items()
        }
        self._next_number = state["next_number"]
        self._current = state["current"]
        self._last_ordered = state["last_ordered"]
        self._last_update = state["last_update"]
        self._switch_seconds = state["switch_seconds"]


class Publisher(Ledger):
    """A ledger and the compressor that does the work, in one process."""

    def __init__(self, compressor: Compressor, publish_every: int) -> None:
        super().__init__(publish_every)
        self.compressor = compressor

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

    def students_kl_nats(self, policy: PolicyNet) -> dict[str, float]:
        """Return how far students in use are from the learner, see `students_kl_nats`."""
        return students_kl_nats(self.compressor, policy, self.acting)

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on bit-exactly."""
        return {"compressor": self.compressor.state_dict(), **super().state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state returned by `state_dict`."""
        self.compressor.load_state_dict(state["compressor"])
        super().load_state_dict(state)
