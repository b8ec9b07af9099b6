"""PublicationOrders: what was asked for, what was published and when, and who acted with what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from accerl.runtime.events import RunEvent
from accerl.runtime.interval import IntervalRecorder
from accerl.runtime.publishing.delivery import Delivery, Order, Shadow, Tag
from accerl.runtime.run import Takeover
from accerl.spec import CompressionSpec, Decision, by_label, by_spec
from accerl.weights import Publication


class PublicationOrders:
    """The orders of one run, and what became of them: the same bookkeeping in every runtime."""

    REMEMBERED = 1024  # publications; only an actor whose environment stalls is further behind
    MOST_FAILURES = 8  # publications in a row, with other weights each, before a spec is given up

    def __init__(
        self,
        publish_every: int,
        check_every: int = 1,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Publish, and check what was published, when that many updates have passed.

        Args:
            publish_every: learner updates between two publications.
            check_every: learner updates between two that are measured.
            clock: returns the run's seconds.
        """
        self._clock = clock
        self.publish_every = publish_every
        self.check_every = check_every
        self._last_check: int | None = None
        self._check_before: int | None = None
        """what `_last_check` was before the last order"""
        self._asked: Decision | None = None
        self._decision: Decision | None = None  # in effect
        self._tags: dict[int, tuple[Tag, ...]] = {}
        self._next_number = 0
        self._current = -1  # what was delivered last
        self._last_ordered = -1
        self._last_update = 0
        self._switch_seconds = 0.0
        self._acting: tuple[CompressionSpec, ...] = ()  # by the last delivery
        self._waiting: tuple[CompressionSpec, ...] = ()
        self._shadow_due = True  # whether this interval has not seen it measured
        self._asked_at: dict[CompressionSpec, float] = {}  # of what does not act yet
        self._failures: dict[CompressionSpec, int] = {}  # in a row, of what was rejected
        self._given_up: set[CompressionSpec] = set()  # those of them that were reported as such
        self._events: list[tuple[CompressionSpec, str, bool]] = []

    @property
    def decision(self) -> Decision | None:
        """What was asked for last; None before the first request."""
        return self._asked

    @property
    def last_ordered(self) -> int:
        """Number of the newest publication that acts or will; -1 before any was ordered."""
        return self._last_ordered

    @property
    def in_use(self) -> tuple[CompressionSpec, ...]:
        """What is to be kept close to the learner.

        The specs of the decision that is in effect, its shadow, and what acts for those that wait;
        nothing that cannot be built.
        """
        named = () if self._decision is None else self._decision.named
        asked = [spec for spec in named if spec not in self._failures]
        return (*asked, *(spec for spec in self._acting if spec not in asked))

    def request(self, decision: Decision) -> None:
        """Act with `decision` from the next publication on."""
        if self._asked is None or decision.shadow != self._asked.shadow:
            self._shadow_due = True
        self._asked = decision
        now, asked = self._clock(), self._asked_at
        specs = [spec for spec in decision.specs if spec not in self._acting]
        self._asked_at = {spec: asked.get(spec, now) for spec in specs}

    def is_due(self, updates: int) -> bool:
        """Whether a publication should follow update number `updates`.

        A shadow that is new comes with the next one that is due anyway.
        """
        return self._is_switch(self._asked) or updates - self._last_update >= self.publish_every

    def _is_switch(self, decision: Decision | None) -> bool:
        """Whether something else acts with `decision` than with the one that is in effect."""
        pair = (decision, self._decision)
        asked, acting = (None if each is None else each.without_shadow for each in pair)
        return asked != acting

    def order(self, updates: int) -> Order:
        """Order a publication of what was asked for last; its number is never used again.

        Raises:
            RuntimeError: nothing was asked for.
        """
        decision = self.decision
        if decision is None:
            raise RuntimeError("no decision has been applied yet")
        number = self._next_number
        self._tags[number] = tuple(Tag(spec, updates) for spec in decision.specs)
        if (stale := number - self.REMEMBERED) != self._current:
            self._tags.pop(stale, None)
        self._next_number += 1
        self._last_ordered = number
        self._last_update = updates
        check = self._last_check is None or updates - self._last_check >= self.check_every
        self._check_before = self._last_check
        if check:
            self._last_check = updates
        shadow = decision.shadow if self._shadow_due else None
        return Order(number, decision, updates, check, shadow)

    def book(self, delivery: Delivery, recorder: IntervalRecorder, *, by: str = "learner") -> None:
        """Note what a publication really holds and what it cost, here and in the interval's report.

        If it changed the decision in effect, or let act what had waited, its seconds are those of
        switching.

        Args:
            delivery: what was made of an order.
            recorder: of the run.
            by: the process that made it.
        """
        number, decision = delivery.order.number, delivery.order.decision
        if delivery.unchanged:  # what acts already stands for it too
            del self._tags[number]
            self._tags[self._current] = delivery.acted
            self._last_ordered = self._current
        else:
            self._current = number
            self._tags[number] = delivery.acted
        for spec, cause in delivery.rejected.items():
            self._note_failure(spec, cause, is_refused=spec in delivery.refused)
        passed = {spec for spec, kl_nats in delivery.waiting.items() if kl_nats is not None}
        for spec in {*(tag.spec for tag in delivery.acted), *passed} - {*delivery.rejected}:
            self._note_success(spec)
        first, changed = self._decision is None, self._is_switch(decision)
        if not first and (changed or any(spec in self._waiting for spec in delivery.admitted)):
            self._switch_seconds += delivery.seconds
        self._decision = decision
        recorder.add_publication(delivery, self._take_over(delivery), by=by)

    def book_shadow(self, shadow: Shadow, recorder: IntervalRecorder) -> None:
        """Note what became of an order's shadow, here and in the interval's report.

        Args:
            shadow: what became of it.
            recorder: of the run.
        """
        if self._asked is not None and shadow.spec == self._asked.shadow and shadow.is_settled:
            self._shadow_due = False
        if shadow.rejected is not None:
            self._note_failure(shadow.spec, shadow.rejected, is_refused=shadow.is_refused)
        elif shadow.kl_nats is not None:
            self._note_success(shadow.spec)
        recorder.add_shadow(shadow)

    def _note_failure(self, spec: CompressionSpec, cause: str, *, is_refused: bool) -> None:
        """Report a spec that fails once, and once more when it is given up.

        An engine that failed its check may pass with other weights.
        """
        failures = self._failures.get(spec, 0) + 1
        ends = (is_refused or failures >= self.MOST_FAILURES) and spec not in self._given_up
        if ends or failures == 1:
            self._events.append((spec, cause, not ends))
        if ends:
            self._given_up.add(spec)
        self._failures[spec] = failures

    def _note_success(self, spec: CompressionSpec) -> None:
        self._failures.pop(spec, None)
        self._given_up.discard(spec)

    def _take_over(self, delivery: Delivery) -> list[Takeover]:
        """Note what acts and what waits from now on; return what was asked for and has begun to."""
        now = self._clock()
        self._acting = tuple(tag.spec for tag in delivery.acted)
        self._waiting = tuple(delivery.waiting)
        taken = [
            Takeover(
                spec=spec,
                asked_seconds=asked,
                seconds=now - asked,
                kl_nats=delivery.admitted.get(spec),
            )
            for spec, asked in self._asked_at.items()
            if spec in self._acting
        ]
        specs = () if self._asked is None else self._asked.specs
        missing = [spec for spec in specs if spec not in self._acting]
        self._asked_at = {spec: self._asked_at.get(spec, now) for spec in missing}
        return taken

    @property
    def is_under_way(self) -> bool:
        """Whether the last order was not delivered yet."""
        return self._last_ordered != self._current

    def lost(self) -> None:
        """The last order will not be delivered, or nobody will say so: order again soon."""
        self._last_update -= self.publish_every
        self._last_check = self._check_before  # what it was to measure, the next one does
        self._last_ordered = self._current  # nobody is to wait for what does not come

    def take_events(self, seconds: float) -> tuple[RunEvent, ...]:
        """Return what was rejected since the last call; `seconds` is the run's clock."""
        events, self._events = self._events, []
        action = "actors go on as they were compressed before"
        return tuple(
            RunEvent(
                role="compressor",
                seconds=seconds,
                label=spec.label,
                cause=cause,
                action=action,
                is_retried=is_retried,
            )
            for spec, cause, is_retried in events
        )

    def end_interval(self) -> float:
        """Return the switching cost booked in the interval; in the next one a shadow is due."""
        self._shadow_due = True
        seconds, self._switch_seconds = self._switch_seconds, 0.0
        return seconds

    def found(self, publication: Publication) -> None:
        """Note what actors have found, while the delivery that says so is still on its way."""
        artifacts = publication.artifacts
        self._tags[publication.number] = tuple(Tag(a.spec, a.version) for a in artifacts)

    def tag(self, publication: int, spec_index: int) -> Tag | None:
        """Return what acted in a rollout, by the two numbers of its header.

        None where more publications have been ordered since than are remembered.
        """
        tags = self._tags.get(publication)
        return None if tags is None else tags[spec_index]

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on bit-exactly."""
        asked, decision = self._asked, self._decision
        return {
            "asked": None if asked is None else asked.to_json(),
            "decision": None if decision is None else decision.to_json(),
            "tags": {str(n): [tag.to_json() for tag in tags] for n, tags in self._tags.items()},
            "next_number": self._next_number,
            "current": self._current,
            "last_ordered": self._last_ordered,
            "last_update": self._last_update,
            "last_check": self._last_check,
            "check_before": self._check_before,
            "switch_seconds": self._switch_seconds,
            "shadow_due": self._shadow_due,
            "acting": [spec.to_json() for spec in self._acting],
            "waiting": [spec.to_json() for spec in self._waiting],
            "asked_at": [[spec.to_json(), seconds] for spec, seconds in self._asked_at.items()],
            "failures": by_label(self._failures),
            "given_up": sorted(spec.label for spec in self._given_up),
            "events": [[spec.to_json(), *how] for spec, *how in self._events],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state returned by `state_dict`."""
        asked, decision = state["asked"], state["decision"]
        self._asked = None if asked is None else Decision.from_json(asked)
        self._decision = None if decision is None else Decision.from_json(decision)
        self._tags = {int(n): tuple(map(Tag.from_json, tags)) for n, tags in state["tags"].items()}
        self._next_number = state["next_number"]
        self._current = state["current"]
        self._last_ordered = state["last_ordered"]
        self._last_update = state["last_update"]
        self._last_check = state["last_check"]
        self._check_before = state["check_before"]
        self._switch_seconds = state["switch_seconds"]
        self._shadow_due = state["shadow_due"]
        self._acting = tuple(map(CompressionSpec.from_json, state["acting"]))
        self._waiting = tuple(map(CompressionSpec.from_json, state["waiting"]))
        self._asked_at = {CompressionSpec.from_json(s): seconds for s, seconds in state["asked_at"]}
        self._failures = by_spec(state["failures"])
        self._given_up = set(map(CompressionSpec.from_label, state["given_up"]))
        self._events = [(CompressionSpec.from_json(s), *how) for s, *how in state["events"]]
