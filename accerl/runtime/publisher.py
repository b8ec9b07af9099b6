"""Publisher: turns a decision and the learner's weights into publications, when they are due."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any

from accerl.compress.artifact import Artifact
from accerl.compress.compressor import Compressor
from accerl.networks import PolicyNet
from accerl.rollout import Rollout
from accerl.spec import CompressionSpec, Decision
from accerl.weights import Publication


@dataclass(frozen=True)
class BuiltPart:
    """One artifact of a publication and what it took."""

    artifact: Artifact
    seconds: float
    """measured by this process, warm-up included"""
    warmup_states: int
    """states that were distilled before a student could act (again)"""


@dataclass(frozen=True)
class Built:
    """A publication that has just been made."""

    publication: Publication
    parts: list[BuiltPart]


@dataclass(frozen=True)
class Tag:
    """What acted in a rollout: the spec, and the learner update its weights were taken at."""

    spec: CompressionSpec
    version: int


class Publisher:
    """Owns the compressor and remembers what actors may still be acting with."""

    REMEMBERED = 1024  # publications; actors are never that far behind

    def __init__(self, compressor: Compressor, publish_every: int) -> None:
        self.compressor = compressor
        self.publish_every = publish_every
        self._pending: Decision | None = None
        self._decision: Decision | None = None
        self._tags: dict[int, list[Tag]] = {}
        self._next_number = 0
        self._last_update = 0
        self._switch_seconds = 0.0

    @property
    def decision(self) -> Decision | None:
        """What was asked for last; None before the first request."""
        return self._pending or self._decision

    def request(self, decision: Decision) -> None:
        """Act with `decision` from the next publication on."""
        self._pending = None if decision == self._decision else decision

    @property
    def distill_states(self) -> int:
        """States that one distillation update uses."""
        return min(self.compressor.config.distill_batch, len(self.compressor.states))

    def is_due(self, updates: int) -> bool:
        """Whether a publication should follow update number `updates`."""
        return self._pending is not None or updates - self._last_update >= self.publish_every

    def observe(self, rollout: Rollout) -> None:
        """Give the compressor an even sample of a rollout's states."""
        states = rollout.obs[:-1].reshape(-1, *rollout.obs.shape[2:])
        wanted = max(self.compressor.config.calibration_states // 4, 1)
        self.compressor.observe(states[:: max(len(states) // wanted, 1)])

    def distill(self, policy: PolicyNet) -> list[tuple[CompressionSpec, int]]:
        """Distil every student in use; return the specs that needed it and the states it took."""
        specs = () if self._decision is None else self._decision.specs
        # Two specs that differ in bits alone share their student.
        specs = {(spec.student, spec.sparsity): spec for spec in specs}.values()
        done = [(spec, self.compressor.distill(policy, [spec])) for spec in specs]
        return [(spec, updates * self.distill_states) for spec, updates in done if updates]

    def build(self, policy: PolicyNet, updates: int) -> Built:
        """Compress the policy for what was asked for last."""
        decision = self.decision
        if decision is None:
            raise RuntimeError("no decision has been applied yet")
        parts = []
        for spec, _ in decision.mix:
            before = perf_counter()
            artifact = self.compressor.build(spec, policy, updates)
            seconds = perf_counter() - before
            warmup = self.compressor.last_build.distill_updates * self.distill_states
            parts.append(BuiltPart(artifact, seconds, warmup))
        number = self._next_number
        self._tags[number] = [Tag(part.artifact.spec, updates) for part in parts]
        self._tags.pop(number - self.REMEMBERED, None)
        self._next_number += 1
        self._last_update = updates
        shares = [share for _, share in decision.mix]
        return Built(Publication(number, [part.artifact for part in parts], shares), parts)

    def charge(self, seconds: float) -> None:
        """Book what the last publication cost; if it changed the decision, that is switching."""
        if self._pending is None:
            return
        if self._decision is not None:
            self._switch_seconds += seconds
        self._decision, self._pending = self._pending, None

    def take_switch_seconds(self) -> float:
        """Return the switching cost booked since the last call."""
        seconds, self._switch_seconds = self._switch_seconds, 0.0
        return seconds

    def tag(self, publication: int, spec_index: int) -> Tag:
        """Return what acted in a rollout, by the two numbers of its header."""
        return self._tags[publication][spec_index]

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on bit-exactly."""
        return {
            "compressor": self.compressor.state_dict(),
            "pending": None if self._pending is None else self._pending.to_json(),
            "decision": None if self._decision is None else self._decision.to_json(),
            "tags": {
                str(number): [[tag.spec.to_json(), tag.version] for tag in tags]
                for number, tags in self._tags.items()
            },
            "next_number": self._next_number,
            "last_update": self._last_update,
            "switch_seconds": self._switch_seconds,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state returned by `state_dict`."""
        self.compressor.load_state_dict(state["compressor"])
        pending, decision = state["pending"], state["decision"]
        self._pending = None if pending is None else Decision.from_json(pending)
        self._decision = None if decision is None else Decision.from_json(decision)
        self._tags = {
            int(number): [Tag(CompressionSpec.from_json(spec), version) for spec, version in tags]
            for number, tags in state["tags"].items()
        }
        self._next_number = state["next_number"]
        self._last_update = state["last_update"]
        self._switch_seconds = state["switch_seconds"]
