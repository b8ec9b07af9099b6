"""Any order of filling, learning and dying: no slot is lost, none has two holders."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from accerl.runtime.slots import AT_FIRST, FEWEST, Slots, SlotState


class FakeActor:
    """What an actor's process and its pipe hold; `wrote` is what the process has written."""

    def __init__(self) -> None:
        self.alive = True
        self.to_fill: deque[int] = deque()
        self.reported: deque[int] = deque()


class SlotMachine(RuleBasedStateMachine):
    """The run (as process.py uses Slots), its actors, and a killer, in any order."""

    @initialize(actors=st.integers(1, 3), each=st.integers(1, 4), holds_back=st.booleans())
    def begin(self, actors: int, each: int, holds_back: bool) -> None:
        self.slots = Slots(actors, each, holds_back=holds_back)
        self.actors = [FakeActor() for _ in range(actors)]
        self.learning: int | None = None
        self.contents: dict[int, int] = {}  # slot -> serial number of the rollout in it
        self.serial = 0
        self.unused: list[int] = []  # serial numbers received but not yet learned from, in order
        self.learned: list[int] = []
        for index in range(actors):
            self.lend(index)

    def lend(self, index: int) -> None:
        if self.actors[index].alive:
            lent = self.slots.lend(index)
            self.actors[index].to_fill.extend(lent)
            assert not lent or self.slots.under_way <= self.slots.limit

    def pick(self, data: st.DataObject, *, alive: bool) -> int | None:
        found = [index for index, actor in enumerate(self.actors) if actor.alive is alive]
        return data.draw(st.sampled_from(found)) if found else None

    @rule(data=st.data())
    def an_actor_fills_a_slot(self, data: st.DataObject) -> None:
        index = self.pick(data, alive=True)
        if index is None or not self.actors[index].to_fill:
            return
        slot = self.actors[index].to_fill.popleft()
        assert self.slots[slot] is SlotState.FILLING
        self.serial += 1
        self.contents[slot] = self.serial
        self.actors[index].reported.append(slot)

    @rule(data=st.data())
    def the_run_receives_a_message(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.actors) - 1))
        if self.actors[index].reported:
            slot = self.actors[index].reported.popleft()
            self.slots.filled(index, slot)
            self.unused.append(self.contents[slot])

    @precondition(lambda self: self.learning is None and self.slots.waiting)
    @rule(waited=st.booleans())
    def the_learner_takes_a_rollout(self, waited: bool) -> None:
        self.learning = self.slots.take(waited=waited)
        self.learned.append(self.contents[self.learning])

    @precondition(lambda self: self.learning is not None)
    @rule()
    def the_learner_is_done(self) -> None:
        assert self.learning is not None
        assert self.contents[self.learning] == self.learned[-1]  # nobody wrote to it meanwhile
        self.slots.done(self.learning)
        for index in self.slots.next_after(self.slots.owner(self.learning)):
            self.lend(index)
        self.learning = None

    @rule(data=st.data())
    def an_actor_dies(self, data: st.DataObject) -> None:
        index = self.pick(data, alive=True)
        if index is None:
            return
        actor = self.actors[index]
        if actor.to_fill and data.draw(st.booleans()):
            self.contents[actor.to_fill[0]] = -1  # it was in the middle of this one
        actor.alive = False

    @rule(data=st.data())
    def the_death_is_noticed(self, data: st.DataObject) -> None:
        index = self.pick(data, alive=False)
        # The end of a pipe is behind everything that was sent through it.
        if index is None or self.actors[index].reported:
            return
        self.actors[index].to_fill.clear()
        self.slots.reclaim(index)

    @rule(data=st.data())
    def a_replacement_is_ready(self, data: st.DataObject) -> None:
        index = self.pick(data, alive=False)
        if index is None or self.actors[index].reported or self.actors[index].to_fill:
            return
        if self.slots.of(index, SlotState.FILLING):
            return  # its death has not been noticed yet
        self.actors[index].alive = True
        self.lend(index)

    @invariant()
    def every_slot_is_in_one_place(self) -> None:
        if not hasattr(self, "slots"):
            return
        held = [slot for actor in self.actors for slot in (*actor.to_fill, *actor.reported)]
        assert len(held) == len(set(held))
        lent = {s for s in range(len(self.slots)) if self.slots[s] is SlotState.FILLING}
        assert set(held) <= lent  # what was finished but not yet received is still lent
        assert all(
            set(held) >= set(self.slots.of(index, SlotState.FILLING))
            for index, actor in enumerate(self.actors)
            if actor.alive
        )
        learning = [s for s in range(len(self.slots)) if self.slots[s] is SlotState.LEARNING]
        assert learning == ([] if self.learning is None else [self.learning])

    @invariant()
    def the_learner_uses_whole_rollouts_once_and_in_order(self) -> None:
        if hasattr(self, "slots"):
            assert -1 not in self.learned
            assert self.learned == self.unused[: len(self.learned)]
            assert self.slots.waiting == len(self.unused) - len(self.learned)

    @invariant()
    def something_can_always_be_filled(self) -> None:
        if hasattr(self, "slots"):
            assert min(FEWEST, len(self.slots)) <= self.slots.limit <= len(self.slots)
            assert self.slots.holds_back or self.slots.limit == len(self.slots)


TestSlots = SlotMachine.TestCase
TestSlots.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_step_that_the_protocol_does_not_have_is_refused() -> None:
    slots = Slots(2, 2)
    with pytest.raises(ValueError, match="no slot is ready"):
        slots.take()
    with pytest.raises(ValueError, match="slot 0 is free, not filling"):
        slots.filled(0, 0)
    assert slots.lend(0) == [0, 1]
    assert slots.lend(0) == []
    with pytest.raises(ValueError, match="slot 1 is not actor 1's"):
        slots.filled(1, 1)
    slots.filled(0, 1)
    with pytest.raises(ValueError, match="slot 1 is ready, not filling"):
        slots.filled(0, 1)
    assert slots.take() == 1
    with pytest.raises(ValueError, match="slot 0 is filling, not learning"):
        slots.done(0)
    assert slots.reclaim(0) == 1
    slots.done(1)
    assert slots.lend(0) == [0, 1]


def use(slots: Slots, *, waited: bool = False) -> None:
    """Learn from the rollout that waited longest, and lend what that frees."""
    slot = slots.take(waited=waited)
    slots.done(slot)
    for actor in slots.next_after(slots.owner(slot)):
        slots.lend(actor)


def fill_all(slots: Slots, actors: int) -> None:
    for actor in range(actors):
        for slot in slots.of(actor, SlotState.FILLING):
            slots.filled(actor, slot)


def test_what_always_waits_is_held_back_and_lent_again_when_the_learner_waits() -> None:
    """Seven actors are so fast that all that they hold is filled whenever the learner looks."""
    slots = Slots(7, 3, holds_back=True)
    for actor in range(7):
        assert len(slots.lend(actor)) == AT_FIRST
    assert slots.under_way == slots.limit == 14
    for _ in range(60):
        fill_all(slots, 7)
        use(slots)
    assert slots.under_way == slots.limit == FEWEST
    for _ in range(40):
        fill_all(slots, 7)
        use(slots, waited=True)
    assert slots.under_way == slots.limit == 21


def test_actors_take_turns_where_there_are_few_slots() -> None:
    slots = Slots(4, 2, holds_back=True)
    for actor in range(4):
        while slots.lend(actor):
            pass
    filled = []
    for _ in range(60):
        for actor in range(4):
            for slot in slots.of(actor, SlotState.FILLING):
                slots.filled(actor, slot)
                filled.append(actor)
        use(slots)
    assert slots.limit == FEWEST
    assert {filled[-8:].count(actor) for actor in range(4)} == {2}


def test_actors_that_join_later_leave_the_beginning_as_it_is() -> None:
    alone, more = Slots(4, 3, holds_back=True), Slots(12, 3, holds_back=True, present=4)
    for actor in range(4, 12):
        more.leave(actor)
    for slots in (alone, more):
        for actor in range(4):
            while slots.lend(actor):
                pass
    assert more.limit == alone.limit == more.under_way == alone.under_way == 8


def test_what_an_actor_held_that_died_is_lent_to_others() -> None:
    slots = Slots(3, 2, holds_back=True)
    slots.limit = 2
    assert [slots.lend(actor) for actor in range(3)] == [[0], [2], []]
    assert slots.reclaim(0) == 1
    assert slots.next_after(0) == [2, 0, 1]
    assert slots.lend(2) == [4]
    assert slots.lend(0) == []


def test_what_is_held_by_an_actor_who_left_is_made_up_for() -> None:
    slots = Slots(3, 2, holds_back=True)
    slots.limit = 2
    assert [slots.lend(actor) for actor in range(3)] == [[0], [2], []]
    slots.leave(0)
    assert slots.under_way == 1
    assert slots.next_after(0) == [2, 1]
    assert slots.lend(2) == [4]
    slots.join(0)
    assert slots.lend(0) == []


def test_a_state_goes_on_as_it_was() -> None:
    slots, copy = (Slots(3, 2, holds_back=True) for _ in range(2))
    for actor in range(3):
        slots.lend(actor)
    fill_all(slots, 3)
    use(slots)
    slots.leave(1)
    copy.load_state_dict(slots.state_dict())
    assert copy.state_dict() == slots.state_dict()
    assert vars(copy) == vars(slots)
