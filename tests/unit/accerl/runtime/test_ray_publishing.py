"""Publishing on Ray as the learner's process sees it: calls and answers, without a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import MagicMock

import numpy as np
import pytest

from accerl.runtime.publishing.orders import PublicationOrders
from accerl.runtime.ray.compressing import packed
from accerl.runtime.ray.publishing import RayPublishing
from accerl.runtime.ray.roles import RolloutActor
from accerl.runtime.ray.worker import Call, RayWorker
from accerl.spec import IDENTITY, Decision
from tests.fixtures.runs.inner_runs import tiny_catch
from tests.fixtures.runs.remote_publishing import SHAPE, Room


@pytest.fixture
def room() -> Iterator[Room]:
    room = Room()
    yield room
    room.close()


def begin(worker: RayWorker) -> None:
    """Have it answered the call to start."""
    worker.start()
    worker.calls.clear()
    worker.ready = True


def test_a_snapshot_is_not_kept_waiting_by_a_compressor_that_starts_meanwhile(room: Room) -> None:
    """The old one dies while distillers' states are on their way; the new one publishes at once."""
    publishing = RayPublishing(
        MagicMock(),
        PublicationOrders(1),
        tiny_catch(),
        (),
        SHAPE,
        room.compressor(),
        room.learner,
        room.recorder,
    )
    worker = publishing.worker
    publishing.orders.request(Decision.of(IDENTITY))
    publishing.is_published = True
    begin(worker)
    publishing.publish()
    publishing.ask_state()
    assert [call.method for call in worker.calls] == ["work", "state"]
    publishing.died(worker)
    assert publishing.is_known
    begin(worker)
    publishing.ready(worker)
    assert not publishing.is_known
    assert [call.method for call in worker.calls] == ["work", "state"]
    held = {"compressor": room.compressor().state_dict(), "ring": None}
    publishing.handle(worker, Call("state", None), packed(held))
    assert publishing.is_known
    publishing.state_dict()
    worker.calls.clear()
    publishing.publish()
    assert [call.method for call in worker.calls] == ["work"]  # nobody waits any more


def test_a_new_actor_acts_with_what_it_is_sent_late() -> None:
    """The compressor's two threads tell it that number 5 serves on, and then what that is."""
    actor, fifth, stale = RolloutActor(), np.zeros(1), np.ones(1)
    actor.news(6, None)
    actor.news(5, fifth)
    actor.news(4, stale)
    assert actor._news is fifth
    assert actor._has(6)
    assert not actor._has(7)
