"""Distillers: processes that only distil, beside the one that compresses (ND in the paper).

Each distils what it is in charge of in small pieces, without pause until it has done what
`compression.distill_updates` allows it for one of the learner's updates, from the learner's weights
and the recorded states in shared memory, and puts what it has made on its board after each piece.
Distillers that have the same student read each other's boards and add up what they do
(`compress/distillation/sharing.py`); the compressor reads the boards when it publishes. Nobody
waits for anybody. Where all processes have a core each, students that do not act are kept near the
learner by distillers that nothing that acts needs: they need no warm-up when they act again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from accerl.runtime.process.board import Board
from accerl.runtime.process.messages import (
    AskState,
    Distil,
    Distilled,
    Hello,
    Message,
    Ready,
    State,
)
from accerl.runtime.process.supervise import Worker
from accerl.runtime.publishing.charges import Charge
from accerl.runtime.publishing.led import LedStudents
from accerl.spec import CompressionSpec


class DistillerProcess:
    """One distilling process as the learner's process sees it."""

    def __init__(self, worker: Worker, board: Board) -> None:
        self.worker = worker
        self.board = board
        self.charges: tuple[Charge, ...] = ()
        """what it was told to distil"""
        self.has_worked = False
        """whether it may hold more than it has said"""
        self.wants_weights = True
        """whether it has read the learner's weights since they were last shown, or never"""

    @property
    def follows(self) -> bool:
        """Whether it distils, and has yet to say that it took the weights it was shown."""
        return self.worker.ready and bool(self.charges) and not self.wants_weights


class DistillerPool:
    """All distilling processes of a run, and which student is whose.

    What one that is killed has shown is on its board; see `LedStudents`.
    """

    def __init__(
        self,
        distillers: Sequence[DistillerProcess],
        distill_updates: int,
        *,
        follow_idle: bool = True,
    ) -> None:
        """Manage `distillers`; see `Charges`."""
        self.distillers = list(distillers)
        self.led = LedStudents(len(distillers), distill_updates, follow_idle=follow_idle)

    @property
    def workers(self) -> list[Worker]:
        """Their processes."""
        return [distiller.worker for distiller in self.distillers]

    def after_update(
        self, acting: Sequence[CompressionSpec], put_weights: Callable[[], None]
    ) -> None:
        """Say what is to be distilled where that has changed, and show the learner's weights.

        Args:
            acting: the specs in effect.
            put_weights: makes the learner's weights current; called if anybody wants them.
        """
        self.led.charges.assign(acting)
        ready = [
            (each, self.led.charges.work(index, acting))
            for index, each in enumerate(self.distillers)
            if each.worker.ready
        ]
        if any(charges and each.wants_weights for each, charges in ready):
            put_weights()
        for each, charges in ready:
            if charges:
                each.wants_weights = False
            if charges != each.charges:
                each.charges, each.has_worked = charges, True
                each.worker.send(Distil(charges))

    def rest(self) -> None:
        """Have all end with the piece that they are at, until the learner's next update."""
        for each in self.distillers:
            if each.charges and each.worker.ready:
                each.charges = ()
                each.worker.send(Distil(()))

    def handle(self, worker: Worker, message: Message, known: dict[str, Any]) -> None:
        """Take a message of a distiller.

        Args:
            worker: who sent it.
            message: what it sent.
            known: the compressor's `state_dict`, from which a new process starts.
        """
        index = self._index(worker)
        distiller = self.distillers[index]
        match message:
            case Hello():
                worker.send(State(self.led.start_state(index, known)))
            case Ready():
                distiller.charges, distiller.has_worked = (), False
            case Distilled():
                distiller.wants_weights = True
            case State(state):
                distiller.has_worked = bool(distiller.charges)
                self.led.take(index, state)

    def died(self, worker: Worker) -> str:
        """Its process has ended; return what was done about it."""
        index = self._index(worker)
        self.distillers[index].wants_weights = True
        return self.led.died(index)

    def ask_state(self) -> None:
        """Ask all that have distilled for their state; they answer between two pieces."""
        for index, distiller in enumerate(self.distillers):
            if distiller.has_worked and distiller.worker.ready and not self.led.is_asked(index):
                self.led.ask(index)
                distiller.worker.send(AskState())

    def close(self) -> None:
        """Let go of the shared memory."""
        for distiller in self.distillers:
            distiller.board.close()

    def _index(self, worker: Worker) -> int:
        return self.workers.index(worker)
