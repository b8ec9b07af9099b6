"""Publishing by another process: the bytes that it would make here, and what happens in between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from accerl.acting.rollout import Rollout
from accerl.compress import compressor as compressor_module
from accerl.compress.artifact import Artifact
from accerl.compress.check import EngineMismatchError
from accerl.runtime.process.messages import (
    AskState,
    Done,
    Hello,
    Ready,
    State,
    Taken,
)
from accerl.runtime.process.wire import pack
from accerl.runtime.publishing.charges import Charges
from accerl.runtime.publishing.delivery import Tag
from accerl.runtime.publishing.orders import PublicationOrders
from accerl.runtime.publishing.probe import KLProbe
from accerl.runtime.publishing.work import make_publication, sample_states
from accerl.spec import IDENTITY, Decision
from accerl.weights import Publication
from tests.fixtures.runs.processes import wait_for
from tests.fixtures.runs.remote_publishing import CONFIG, INT8, NET3, Remote, Room


class Here:
    """The same work done in this process, step by step: what another process is compared with."""

    def __init__(self, room: Room, publish_every: int) -> None:
        self.orders = PublicationOrders(publish_every)
        self.compressor = room.compressor()
        self.current: Publication | None = None
        self._room = room
        self._probe = KLProbe()

    def after_update(self, rollout: Rollout) -> None:
        room, orders = self._room, self.orders
        policy, updates = room.learner.policy, room.learner.updates
        self.compressor.observe(sample_states(rollout, CONFIG))
        for charge in Charges(0, CONFIG.distill_updates).left_to_compressor(orders.in_use):
            self.compressor.distill(policy, [charge.spec], updates, charge.updates)
        if orders.is_due(room.learner.updates):
            order = orders.order(room.learner.updates)
            made = make_publication(self.compressor, self._probe, policy, order, self.current)
            self.current = made.publication or self.current
            orders.book(made.delivery, room.recorder)

    def state_dict(self) -> dict[str, Any]:
        return {"orders": self.orders.state_dict(), "compressor": self.compressor.state_dict()}


@pytest.fixture
def room() -> Iterator[Room]:
    room = Room()
    yield room
    room.close()


@pytest.fixture
def remote(room: Room) -> Iterator[Remote]:
    remote = Remote(room, publish_every=2)
    remote.thread.start()
    remote.take(Hello, Ready)
    yield remote
    remote.thread.stop()


def test_another_process_publishes_the_same_bytes(room: Room, remote: Remote) -> None:
    other = Room()
    here = Here(other, 2)
    published = []
    script = {0: IDENTITY, 4: NET3, 9: INT8}
    for step in range(12):
        if step in script:
            for publishing in (remote, here):
                publishing.orders.request(Decision.of(script[step]))
        here.after_update(other.update())
        remote.after_update(room.update())
        if not remote.idle:
            remote.take(Taken, Done)
        assert here.current is not None
        assert room.blocks.mailbox.get().to_bytes() == here.current.to_bytes(), step
        published.append(room.blocks.mailbox.get().artifacts[0].spec)
        number = room.blocks.mailbox.latest
        assert remote.orders.tag(number, 0) == here.orders.tag(number, 0)
    assert set(published) == {IDENTITY, NET3, INT8}
    remote.ask_state()
    remote.take(State)
    mine, theirs = remote.state_dict(), here.state_dict()
    # The switch costs the same publications; only the seconds differ.
    for state in (mine, theirs):
        assert state["orders"].pop("switch_seconds") > 0.0
        del state["compressor"][
            "calibration"
        ]  # remote, the states since the last work are on their way
        del state["compressor"]["next"]
    assert pack(mine) == pack(theirs)  # every bit
    phases = room.phases()
    assert phases["publish"] > 0.0
    assert phases["compress"] > 0.0
    other.close()


def test_nothing_queues_while_work_is_under_way(room: Room, remote: Remote) -> None:
    remote.orders.request(Decision.of(IDENTITY))
    remote.after_update(room.update())
    assert not remote.idle
    for _ in range(5):  # it would like to publish, and to switch
        remote.orders.request(Decision.of(INT8))
        remote.after_update(room.update())
        remote.publish()
    remote.take(Taken, Done)
    assert remote.idle
    assert room.blocks.mailbox.latest == 0
    assert remote.orders.tag(0, 0) == Tag(IDENTITY, 1)
    assert remote.orders.decision == Decision.of(INT8)
    remote.after_update(room.update())
    remote.take(Taken, Done)
    assert remote.orders.tag(1, 0) == Tag(INT8, 7)
    assert room.blocks.mailbox.get().artifacts[0].version == 7
    assert remote.orders.end_interval() > 0.0


def test_a_snapshot_does_not_wait_for_a_publication_that_is_under_way(
    room: Room, remote: Remote
) -> None:
    """While one is taken the clock stands still: it would be made for nothing."""
    remote.orders.request(Decision.of(NET3))
    remote.after_update(room.update())
    remote.ask_state()
    assert not remote.is_known  # it has never said what it holds
    remote.take(Taken, Done, State)
    assert remote.is_known
    told = remote.state_dict()["compressor"]
    room.update()
    remote.after_update(room.update())
    assert not remote.idle
    remote.ask_state()
    assert remote.is_known
    snapshot = remote.state_dict()
    assert pack(snapshot["compressor"]) == pack(told)
    remote.take(Taken, Done)
    assert not remote.is_known  # it is asked now, before anything else
    remote.take(State)
    assert remote.is_known
    assert pack(remote.state_dict()["compressor"]) != pack(told)
    resumed = Remote(room, publish_every=100)
    resumed.load_state_dict(snapshot)
    assert resumed.orders.last_ordered == 0  # nobody is to wait for what does not come
    assert not resumed.orders.is_under_way
    assert snapshot["orders"]["last_ordered"] == 1


def test_distilling_goes_on_without_orders_as_far_as_an_update_allows(room: Room) -> None:
    remote = Remote(room, publish_every=100)
    remote.thread.start()
    remote.take(Hello, Ready)
    remote.orders.request(Decision.of(NET3))
    remote.after_update(room.update())
    remote.take(Taken, Done)
    for expected in (8, 11, 14):
        remote.after_update(room.update())
        remote.await_updates(expected)
    remote.orders.request(Decision.of(INT8))
    remote.after_update(room.update())
    remote.take(Taken, Done)
    for _ in range(4):  # nothing that acts needs it any more: the first of these says so
        remote.after_update(room.update())
        remote.ask_state()
        remote.take(State)
        assert remote.distilled == 3 * 4
    remote.thread.stop()


def test_a_request_that_is_taken_back_while_it_is_made_is_made_undone(
    room: Room, remote: Remote
) -> None:
    """IDENTITY acts; INT8 is being published when IDENTITY is asked for again."""
    remote.orders.request(Decision.of(IDENTITY))
    remote.after_update(room.update())
    remote.take(Taken, Done)
    remote.orders.request(Decision.of(INT8))
    remote.after_update(room.update())
    remote.orders.request(Decision.of(IDENTITY))
    remote.take(Taken, Done)
    assert room.blocks.mailbox.get().artifacts[0].spec == INT8
    assert remote.orders.is_due(room.learner.updates)
    remote.after_update(room.update())
    remote.take(Taken, Done)
    assert room.blocks.mailbox.get().artifacts[0].spec == IDENTITY
    assert not remote.orders.is_due(room.learner.updates)


@pytest.mark.parametrize("published", [False, True])
def test_an_order_of_a_dead_compressor_is_given_again(room: Room, published: bool) -> None:
    """Whether it had published and not said so, or had not."""
    remote = Remote(room, publish_every=100)
    remote.thread.start()
    remote.take(Hello, Ready)
    remote.orders.request(Decision.of(NET3))
    remote.after_update(room.update())
    remote.take(Taken, Done)
    remote.after_update(room.update())
    remote.await_updates(5 + 3)
    remote.orders.request(Decision.of(INT8))
    if published:
        remote.after_update(room.update())
        wait_for(lambda: room.blocks.mailbox.latest == 1, "a publication")
        remote.thread.stop()
    else:
        remote.thread.stop()
        remote.after_update(room.update())
    assert room.blocks.mailbox.latest == int(published)
    if published:  # it cannot say any more what it was
        assert remote.tag(1, 0) == Tag(INT8, 3)
    assert remote.died(remote.worker) == "with the students of update 2"
    assert not remote.idle
    remote.after_update(room.update())  # nobody is there: nothing happens
    remote.thread.start()
    remote.take(Hello, Ready)
    remote.after_update(room.update())
    remote.take(Taken, Done)
    assert room.blocks.mailbox.latest == 2  # number 1 is not used again
    assert room.blocks.mailbox.get().artifacts[0].spec == INT8
    assert remote.orders.tag(2, 0) == Tag(INT8, 5)
    # Warm-up and one piece before the death, one after: it was not made anew.
    remote.await_updates(5 + 3 + 3)
    remote.thread.stop()


def test_a_restored_run_starts_its_compressor_from_the_checkpoint(room: Room) -> None:
    here = Here(room, 2)
    here.orders.request(Decision.of(NET3))
    for _ in range(3):
        here.after_update(room.update())
    remote = Remote(room, publish_every=2)
    remote.load_state_dict(here.state_dict())
    assert remote.orders.decision == Decision.of(NET3)
    remote.thread.start()
    remote.take(Hello, Ready)
    remote.worker.send(AskState())
    remote.take(State)
    assert pack(remote.state_dict()) == pack(here.state_dict())
    remote.thread.stop()


def test_rollouts_are_tagged_with_what_really_acted(
    room: Room, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(artifact: Artifact, *_: object) -> float:
        if artifact.spec.bits == 8:
            raise EngineMismatchError(f"{artifact.spec.label} is far away")
        return 0.0

    monkeypatch.setattr(compressor_module, "check_engine", fail)
    remote.orders.request(Decision.of(IDENTITY))
    remote.after_update(room.update())
    remote.take(Taken, Done)
    remote.orders.request(Decision.of(INT8))
    for number in range(1, 4):
        for _ in range(2):
            remote.after_update(room.update())
        wait_for(lambda n=number: room.blocks.mailbox.latest == n, "a publication")
        # Actors may be done with a rollout before its delivery says what it was acted with.
        assert remote.tag(number, 0) == Tag(IDENTITY, 2 * number)
        remote.take(Taken, Done)
    assert room.blocks.mailbox.latest == 3
    tags = [remote.orders.tag(number, 0) for number in range(4)]
    assert tags == [Tag(IDENTITY, version) for version in (1, 2, 4, 6)]
    (event,) = remote.orders.take_events(7.0)
    assert (event.cause, event.seconds) == ("original INT8 is far away", 7.0)
    assert remote.orders.take_events(8.0) == ()
