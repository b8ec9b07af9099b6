"""Which calls the distillers of a Ray run have, before anything goes to a cluster."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any, cast

from accerl.compress.compliance import VECTOR, decided_policy
from accerl.compress.config import CompressionConfig
from accerl.runtime.ray.compressing import packed
from accerl.runtime.ray.distillers import CALLS_AHEAD, RayDistillers
from accerl.runtime.ray.worker import Call
from accerl.spec import IDENTITY, CompressionSpec

NET3 = CompressionSpec(student="net3", bits=8)


class Asked:
    """A distiller that has calls, and answers none by itself."""

    name, ready = "distiller-0", True

    def __init__(self) -> None:
        self.calls: deque[Call] = deque()

    @property
    def asked(self) -> list[str]:
        """What it has yet to answer."""
        return [call.method for call in self.calls]

    def call(self, method: str, *_: Any, **__: Any) -> None:
        self.calls.append(Call(method, None, parts=("shown",)))

    def tell(self, method: str, *_: Any) -> None:
        """News is not waited for."""


def one_distiller(worker: Any) -> RayDistillers:
    cluster: Any = SimpleNamespace(ray=SimpleNamespace(put=lambda value: value))
    config = CompressionConfig(distill_updates=0)
    return RayDistillers(cluster, [worker], config, decided_policy(VECTOR), follow_idle=False)


def test_who_rests_is_asked_for_nothing_until_the_learner_goes_on() -> None:
    worker, compressor = Asked(), Asked()
    found = one_distiller(worker)

    def answer() -> int:
        call = worker.calls.popleft()
        found.distilled(cast("Any", worker), call, 1, cast("Any", compressor))
        return len(worker.calls)

    found.after_update([NET3], 0)
    assert worker.asked == ["distil"] * CALLS_AHEAD
    assert answer() == CALLS_AHEAD
    found.rest()
    assert [answer() for _ in range(CALLS_AHEAD)] == [1, 0]
    found.ask_state()  # for a checkpoint: it has something to tell
    assert worker.asked == ["state"]
    worker.calls.clear()
    found.after_update([NET3], 1)
    assert worker.asked == ["distil"] * CALLS_AHEAD


def test_what_was_distilled_is_asked_for_though_it_acts_no_more() -> None:
    worker = Asked()
    found, role = one_distiller(worker), cast("Any", worker)
    found.after_update([NET3], 0)
    found.distilled(role, worker.calls.popleft(), 3, cast("Any", Asked()))
    found.after_update([IDENTITY], 1)
    worker.calls.clear()
    found.ask_state()
    assert worker.asked == ["state"]
    worker.calls.clear()
    found.take_state(role, packed({"students": [], "learner": None}))
    found.ask_state()  # it has done nothing since
    assert worker.asked == []
