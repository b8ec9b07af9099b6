"""Ledger: what was asked for, what was published and when, and who acted with what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from accerl.spec import CompressionSpec, Decision


@dataclass(frozen=True)
class Order:
    """A publication that is to be made."""

    number: int
    decision: Decision
    updates: int
    """learner updates of the weights that it is made of"""
    check: bool = False
    """whether to measure what compression does to it, see `KLProbe`"""

    def to_json(self) -> dict[str, Any]:
        """Return the order as a JSON object."""
        return {
            "number": self.number,
            "decision": self.decision.to_json(),
            "updates": self.updates,
            "check": self.check,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Order:
        """Read an order written by `to_json`."""
        decision = Decision.from_json(data["decision"])
        return cls(data["number"], decision, data["updates"], data["check"])


@dataclass(frozen=True)
class Tag:
    """What acted in a rollout: the spec, and the learner update its weights were taken at."""

    spec: CompressionSpec
    version: int


class Ledger:
    """What was asked for, what was published and when, what it cost, and who acted with what."""

    REMEMBERED = 1024  # publications; actors are never that far behind

    def __init__(self, publish_every: int, check_every: int = 1) -> None:
        """Publish, and check what was published, when that many updates have passed."""
        self.publish_every = publish_every
        self.check_every = check_every
        self._last_check: int | None = None
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
        check = self._last_check is None or updates - self._last_check >= self.check_every
        if check:
            self._last_check = updates
        return Order(number, decision, updates, check)

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
            "last_check": self._last_check,
            "switch_seconds": self._switch_seconds,
            "rejected": sorted(self._rejected),
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
        self._last_check = state.get("last_check")  # older checkpoints have none
        self._switch_seconds = state["switch_seconds"]
        self._rejected = set(state.get("rejected", ()))
