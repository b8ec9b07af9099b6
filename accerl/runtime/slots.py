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


class Slots:
    """`each` slots for every actor; a slot never changes its owner.

    Raises:
        ValueError: a step that the protocol does not have, such as using a slot twice.
    """

    def __init__(self, actors: int, each: int) -> None:
        self.each = each
        self._states = [SlotState.FREE] * (actors * each)
        self._ready: deque[int] = deque()

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

    def lend(self, actor: int) -> list[int]:
        """Free -> filling: hand out all slots that this actor may fill now."""
        slots = self.of(actor, SlotState.FREE)
        for slot in slots:
            self._states[slot] = SlotState.FILLING
        return slots

    def filled(self, actor: int, slot: int) -> None:
        """Filling -> ready: the actor says that it has finished this slot."""
        if not 0 <= slot < len(self) or self.owner(slot) != actor:
            raise ValueError(f"slot {slot} is not actor {actor}'s")
        self._move(slot, SlotState.FILLING, SlotState.READY)
        self._ready.append(slot)

    def take(self) -> int:
        """Ready -> learning: return the slot that has waited longest."""
        if not self._ready:
            raise ValueError("no slot is ready")
        slot = self._ready.popleft()
        self._move(slot, SlotState.READY, SlotState.LEARNING)
        return slot

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
        return {"states": [state.value for state in self._states], "ready": list(self._ready)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state returned by `state_dict`."""
        self._states = [SlotState(value) for value in state["states"]]
        self._ready = deque(state["ready"])

    def _move(self, slot: int, before: SlotState, after: SlotState) -> None:
        if self._states[slot] is not before:
            raise ValueError(f"slot {slot} is {self._states[slot].value}, not {before.value}")
        self._states[slot] = after
