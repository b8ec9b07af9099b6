"""Slots: who holds which rollout of a slab; pure bookkeeping, so that every order can be tested."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Any


class SlotState(Enum):
    """Where a slot is on its way round: free -> filling -> ready -> learning -> free."""

    FREE = "free"
    FILLING = "filling"
    """an actor's process may write to it"""
    READY = "ready"
    """it waits for the learner, whole"""
    LEARNING = "learning"


SPARE = 1
"""rollouts that may wait for the learner before slots are held back"""
FEWEST = 2
"""rollouts under way: one is learned from while another is filled"""
AT_FIRST = 2
"""rollouts under way for each actor: one that it fills, and one to go on with"""


class Slots:
    """`each` slots for every actor; a slot never changes its owner.

    Free slots are lent to their actors at once, unless they are held back: then at most `limit`
    rollouts are under way, from lending to the end of learning, and actors take turns. Rollouts
    that always waited during a round, in which the learner uses as many as are under way, were not
    needed: the limit, at first `AT_FIRST` for each actor that is there, falls by their number, but
    for `SPARE`. It grows by one whenever the learner had to wait. What actors hold that have left
    does not count.

    Args:
        actors: how many.
        each: slots of each.
        holds_back: whether slots are held back.
        present: actors that are there from the start; None: all.

    Raises:
        ValueError: a step that the protocol does not have, such as using a slot twice.
    """

    def __init__(
        self, actors: int, each: int, *, holds_back: bool = False, present: int | None = None
    ) -> None:
        self.each = each
        self.holds_back = holds_back
        self._actors = actors
        here = actors if present is None else present
        self.limit = here * min(AT_FIRST, each) if holds_back else actors * each
        self._states = [SlotState.FREE] * (actors * each)
        self._ready: deque[int] = deque()
        self._turns = list(range(actors))  # who was lent to longest ago comes first
        self._round, self._fewest = 0, len(self)  # rollouts used in it; waiting, at the fewest
        self._away: set[int] = set()

    def __len__(self) -> int:
        return len(self._states)

    def __getitem__(self, slot: int) -> SlotState:
        return self._states[slot]

    @property
    def waiting(self) -> int:
        """Rollouts that wait for the learner."""
        return len(self._ready)

    def owner(self, slot: int) -> int:
        """Return the actor that fills `slot`."""
        return slot // self.each

    def of(self, actor: int, state: SlotState) -> list[int]:
        """Return the slots of an actor that are in `state`."""
        own = range(actor * self.each, (actor + 1) * self.each)
        return [slot for slot in own if self._states[slot] is state]

    @property
    def under_way(self) -> int:
        """Rollouts that are being filled by actors who are there, wait, or are learned from."""
        held = sum(len(self.of(actor, SlotState.FILLING)) for actor in self._away)
        return len(self) - self._states.count(SlotState.FREE) - held

    def lend(self, actor: int) -> list[int]:
        """Free -> filling: hand out all slots that this actor may fill now.

        That is what is left of its share of the limit, or one if nothing is, while there is room.
        """
        here = max(self._actors - len(self._away), 1)
        share = self.limit // here - len(self.of(actor, SlotState.FILLING))
        room = max(self.limit - self.under_way, 0)
        slots = self.of(actor, SlotState.FREE)[: min(max(share, 1), room)]
        for slot in slots:
            self._states[slot] = SlotState.FILLING
        if slots:
            self._turns.remove(actor)
            self._turns.append(actor)
        return slots

    def next_after(self, owner: int) -> list[int]:
        """Return the actors to lend to, in order, when a slot of `owner` has become free.

        Those that fill nothing come first, where slots are held back.
        """
        if not self.holds_back:
            return [owner]
        here = [actor for actor in self._turns if actor not in self._away]
        return sorted(here, key=lambda actor: len(self.of(actor, SlotState.FILLING)))

    def leave(self, actor: int) -> None:
        """Note that an actor fills nothing until it joins again."""
        self._away.add(actor)

    def join(self, actor: int) -> None:
        """Note that an actor is there again."""
        self._away.discard(actor)

    def filled(self, actor: int, slot: int) -> None:
        """Filling -> ready: the actor says that it has finished this slot."""
        if not 0 <= slot < len(self) or self.owner(slot) != actor:
            raise ValueError(f"slot {slot} is not actor {actor}'s")
        self._move(slot, SlotState.FILLING, SlotState.READY)
        self._ready.append(slot)

    def take(self, *, waited: bool = False) -> int:
        """Ready -> learning: return the slot that has waited longest.

        Args:
            waited: whether the learner had to wait for it.
        """
        if not self._ready:
            raise ValueError("no slot is ready")
        slot = self._ready.popleft()
        self._move(slot, SlotState.READY, SlotState.LEARNING)
        if self.holds_back:
            self._adapt(waited)
        return slot

    def _adapt(self, waited: bool) -> None:
        """Have as many rollouts under way as keep the learner busy."""
        self._round, self._fewest = self._round + 1, min(self._fewest, self.waiting)
        if waited:
            self.limit = min(self.limit + 1, len(self))
        elif self._round < self.limit:
            return
        else:
            fewer = self.limit - max(self._fewest - SPARE, 0)
            self.limit = min(max(fewer, FEWEST), len(self))
        self._round, self._fewest = 0, len(self)

    def done(self, slot: int) -> None:
        """Learning -> free: the learner needs it no more."""
        self._move(slot, SlotState.LEARNING, SlotState.FREE)

    def reclaim(self, actor: int) -> int:
        """Filling -> free, of an actor whose process has ended; return how many slots it held.

        What it had finished before stays ready: it is whole.
        """
        slots = self.of(actor, SlotState.FILLING)
        for slot in slots:
            self._states[slot] = SlotState.FREE
        return len(slots)

    def state_dict(self) -> dict[str, Any]:
        """Return who holds what, as plain lists."""
        return {
            "states": [state.value for state in self._states],
            "ready": list(self._ready),
            "limit": self.limit,
            "turns": list(self._turns),
            "round": self._round,
            "fewest": self._fewest,
            "away": sorted(self._away),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state returned by `state_dict`."""
        self._states = [SlotState(value) for value in state["states"]]
        self._ready = deque(state["ready"])
        self.limit, self._turns = state["limit"], list(state["turns"])
        self._round, self._fewest = state["round"], state["fewest"]
        self._away = set(state["away"])

    def _move(self, slot: int, before: SlotState, after: SlotState) -> None:
        if self._states[slot] is not before:
            raise ValueError(f"slot {slot} is {self._states[slot].value}, not {before.value}")
        self._states[slot] = after
