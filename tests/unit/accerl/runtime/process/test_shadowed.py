"""Shadows in another process: they come after their publication, and before the next one."""

from __future__ import annotations

from accerl.runtime.process.messages import Done, Hello, Ready, Shadowed, Taken
from accerl.runtime.publishing.delivery import Tag
from accerl.spec import IDENTITY, Decision
from tests.fixtures.runs.remote_publishing import INT8, NET3, Remote, Room


def test_a_shadow_follows_its_publication_and_the_next_one_waits_for_it() -> None:
    room = Room()
    remote = Remote(room, publish_every=2)
    remote.thread.start()
    remote.take(Hello, Ready)
    remote.orders.request(Decision(((IDENTITY, 1.0),), INT8))
    remote.after_update(room.update())
    remote.take(Taken, Done)
    assert remote.orders.tag(0, 0) == Tag(IDENTITY, 1)
    assert not remote.idle
    assert room.phases()["compress"] == 0.0
    remote.take(Shadowed)
    assert remote.idle
    assert room.phases()["compress"] > 0.0
    for _ in range(2):  # the second is due
        remote.after_update(room.update())
    remote.take(Taken, Done)
    assert remote.idle  # measured in this interval
    remote.orders.end_interval()
    remote.orders.request(Decision(((IDENTITY, 1.0),), NET3))
    for _ in range(2):
        remote.after_update(room.update())
    remote.take(Taken, Done, Shadowed)
    assert room.blocks.mailbox.get().artifacts[0].spec == IDENTITY
    remote.thread.stop()
    room.close()
