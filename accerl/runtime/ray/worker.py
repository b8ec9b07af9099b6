"""RayWorker: a Ray actor of a run as the learner's process sees it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from accerl.runtime.process.supervise import Supervised
from accerl.runtime.ray.placement import RayCluster
from accerl.runtime.ray.roles import BESIDE, Started


class Call(NamedTuple):
    """Something that a worker was asked for and has not answered yet."""

    method: str
    ref: Any
    slot: int = -1
    """that the answer belongs into; -1: none"""
    parts: tuple[Any, ...] = ()
    """references to the other parts of the answer, which may stay where they are"""


class RayWorker(Supervised):
    """A Ray actor, and the calls that it has not answered; it answers them in order."""

    slow_start = (
        "are the cluster's CPUs taken by others (`ray status`), or is a node out of memory or "
        "overloaded?"
    )

    def __init__(
        self,
        cluster: RayCluster,
        role: str,
        index: int | None,
        kind: type,
        arguments: Callable[[int], tuple[Any, ...]],
    ) -> None:
        """Describe it; `arguments` of its `start` are called with the number of restarts so far."""
        super().__init__(role, index)
        self.calls: deque[Call] = deque()
        self.started: Started | None = None
        """where it runs, once that is known"""
        self._cluster = cluster
        self._kind = kind
        self._arguments = arguments
        self._handle: Any = None

    @property
    def handle(self) -> Any:
        """What other actors call it by."""
        return self._handle

    def start(self) -> None:
        """Have Ray create the actor wherever there is room; it answers when it is ready."""
        self._handle = self._cluster.start(self.role, self._kind)
        self.ready, self.started = False, None
        self.calls.clear()
        self.call("start", *self._arguments(self.restarts))

    def call(self, method: str, *arguments: Any, slot: int = -1, parts: int = 1) -> None:
        """Call a method; its answer, or the first of its `parts`, is waited for in turn."""
        called = getattr(self._handle, method).options(num_returns=parts).remote(*arguments)
        ref, *others = called if parts > 1 else [called]
        self.calls.append(Call(method, ref, slot, tuple(others)))

    def tell(self, method: str, *arguments: Any) -> Any:
        """Call a method beside the others; return the reference to its end."""
        called = getattr(self._handle, method).options(concurrency_group=BESIDE)
        return called.remote(*arguments)

    def end(self, patience_seconds: float = 2.0) -> int | None:
        """End the actor at once, as dead ones are; there is no exit code. Safe to call twice."""
        if self._handle is not None:
            self._cluster.ray.kill(self._handle)
            self._handle = None
        self.ready = False
        self.calls.clear()
        return None
