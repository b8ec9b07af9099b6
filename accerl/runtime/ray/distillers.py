"""RayDistillers: the Ray actors that only distil, as the learner's process sees them.

Boards in shared memory end at a node. Here the learner's process passes on, by reference, what each
distiller shows after a tenth of a second of distilling: to the compressor, and to distillers of the
same student. Nobody waits for anybody: who has not yet taken what was shown last is shown what
comes next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accerl.compress.config import CompressionConfig
from accerl.runtime.publishing.charges import Charge
from accerl.runtime.publishing.led import LedStudents
from accerl.runtime.ray.compressing import packed, unpacked
from accerl.runtime.ray.placement import RayCluster
from accerl.runtime.ray.worker import Call, RayWorker
from accerl.spec import CompressionSpec
from accerl.weights import weight_arrays

CALLS_AHEAD = 2
"""calls that a distiller has: it begins with the next before the learner has heard of the last"""
FETCH_SECONDS = 5.0
"""for what a dead distiller has shown; longer than that it does not hold up the learner"""


class RayDistillers:
    """All distillers of a run."""

    def __init__(
        self,
        cluster: RayCluster,
        workers: Sequence[RayWorker],
        config: CompressionConfig,
        policy: Any,
        *,
        follow_idle: bool = True,
    ) -> None:
        """Have `workers` distil towards `policy`; see `Charges` for students that do not act."""
        self.workers = list(workers)
        self.led = LedStudents(len(workers), config.distill_updates, follow_idle=follow_idle)
        self._cluster = cluster
        self._gradients = config.needs_gradients
        self._policy = policy
        self._charges: list[tuple[Charge, ...]] = [() for _ in workers]
        # Whether each has distilled since the learner's weights were last shown to it, or never.
        self._wants_weights = [True for _ in workers]
        self._has_worked = [False for _ in workers]  # and may hold more than it has said
        self._shown: list[Any] = [None for _ in workers]  # references, newest
        self._untaken: dict[tuple[str, int], Any] = {}  # by reader, and distiller
        self._resting = False

    def after_update(self, acting: Sequence[CompressionSpec], version: int) -> None:
        """Say what is to be distilled, and show the learner's weights to who wants them.

        Args:
            acting: the specs in effect.
            version: learner updates.
        """
        self._resting = False
        self.led.charges.assign(acting)
        weights: Any = None
        for index, worker in enumerate(self.workers):
            self._charges[index] = charges = self.led.charges.work(index, acting)
            if charges and worker.ready and self._wants_weights[index]:
                if weights is None:  # once for all
                    arrays = weight_arrays(self._policy, gradients=self._gradients)
                    weights = self._cluster.ray.put(arrays)
                worker.tell("follow", weights, version)
                self._wants_weights[index] = False
            self._call(index)

    def rest(self) -> None:
        """Ask for no more until the learner's next update; what was asked for ends by itself."""
        self._resting = True

    @property
    def following(self) -> dict[str, bool]:
        """Which distillers, by name, have been shown weights and not said that they took them."""
        states = zip(self.workers, self._charges, self._wants_weights, strict=True)
        return {
            worker.name: worker.ready and bool(charges) and not wants
            for worker, charges, wants in states
        }

    def _call(self, index: int) -> None:
        worker, charges = self.workers[index], self._charges[index]
        while charges and not self._resting and worker.ready and len(worker.calls) < CALLS_AHEAD:
            worker.call("distil", charges, parts=2)

    def distilled(self, worker: RayWorker, call: Call, updates: int, compressor: RayWorker) -> None:
        """A distiller has answered a call; pass on what it shows, and give it the next."""
        index = self.workers.index(worker)
        self._wants_weights[index] = True
        if updates:
            self._has_worked[index] = True
            (self._shown[index],) = call.parts
            own = {charge.key for charge in self._charges[index]}
            sharing = [
                other
                for other, charges in zip(self.workers, self._charges, strict=True)
                if other is not worker and own & {charge.key for charge in charges}
            ]
            for reader in (compressor, *sharing):
                self._show(index, reader)
        self._call(index)

    def _show(self, index: int, reader: RayWorker) -> None:
        last = self._untaken.get((reader.name, index))
        if reader.ready and (last is None or self._cluster.ready([last], 0.0)):
            told = reader.tell("show", index, self._shown[index])
            self._untaken[reader.name, index] = told

    def show_all(self, reader: RayWorker) -> None:
        """Show a process that is new what all others have shown."""
        for index, (worker, shown) in enumerate(zip(self.workers, self._shown, strict=True)):
            self._untaken.pop((reader.name, index), None)
            if shown is not None and worker is not reader:
                self._show(index, reader)

    def start_arguments(self, index: int, known: dict[str, Any], restarts: int) -> tuple[Any, ...]:
        """Return what a distiller begins with, for the first and last arguments of its `start`.

        Args:
            index: of the distiller.
            known: what is known of the compressor, see `RayPublishing`.
            restarts: of the distiller.
        """
        state = {**known, "compressor": self.led.start_state(index, known["compressor"])}
        return (index, restarts, self._last_shown(index)), packed(state)

    def _last_shown(self, index: int) -> Any:
        """Return what a distiller has shown last; None if that is lost, as with its node."""
        shown, ray = self._shown[index], self._cluster.ray
        if shown is None:
            return None
        try:
            return ray.get(shown, timeout=FETCH_SECONDS)
        except ray.exceptions.RayError:  # a timeout, too
            self._shown[index] = None
            return None

    def died(self, worker: RayWorker) -> str:
        """A distiller has ended; return what is done about it."""
        index = self.workers.index(worker)
        self._wants_weights[index], self._has_worked[index] = True, False
        return self.led.died(index)

    def ask_state(self) -> None:
        """Ask all that have distilled for their state, which they send in turn."""
        for index, worker in enumerate(self.workers):
            if self._has_worked[index] and worker.ready and not self.led.is_asked(index):
                self.led.ask(index)
                worker.call("state")

    def take_state(self, worker: RayWorker, answer: Any) -> None:
        """Take a distiller's state."""
        index = self.workers.index(worker)
        self._has_worked[index] = False  # it answers in turn: what it does next is still to come
        self.led.take(index, unpacked(answer))
