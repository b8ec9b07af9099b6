"""Which calls the distillers of a Ray run have, before anything goes to a cluster."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any, cast

from accerl.compress.compliance import VECTOR, decided_policy
from accerl.compress.config import CompressionConfig
from accerl.runtime.ray.distillers import CALLS_AHEAD, RayDistillers
from accerl.spec import CompressionSpec

NET3 = CompressionSpec(student="net3", bits=8)


class Asked:
    """A distiller that has calls, and answers none by itself."""

    name, ready = "distiller-0", True

    def __init__(self) -> None:
        self.calls: deque[str] = deque()

    def call(self, method: str, *_: Any, **__: Any) -> None:
        self.calls.append(method)

    def tell(self, method: str, *_: Any) -> None:
        """News is not waited for."""


def test_who_rests_is_asked_for_nothing_until_the_learner_goes_on() -> None:
    worker: Any = Asked()
    cluster: Any = SimpleNamespace(ray=SimpleNamespace(put=lambda value: value))
    config = CompressionConfig(distill_updates=0)
    found = RayDistillers(cluster, [worker], config, decided_policy(VECTOR))

    def answer() -> int:
        call = worker.calls.popleft()
        found.distilled(worker, cast("Any", call), 0, cast("Any", None))
        return len(worker.calls)

    found.after_update([NET3], 0)
    assert list(worker.calls) == ["distil"] * CALLS_AHEAD
    assert answer() == CALLS_AHEAD
    found.rest()
    assert [answer() for _ in range(CALLS_AHEAD)] == [1, 0]
    found.ask_state()  # for a checkpoint: it has something to tell
    assert list(worker.calls) == ["state"]
    worker.calls.clear()
    found.after_update([NET3], 1)
    assert list(worker.calls) == ["distil"] * CALLS_AHEAD
