"""Distillers: processes that only distil, beside the one that compresses (ND in the paper).

Each distils what it is in charge of, without pause and in small pieces, from the learner's weights
and the recorded states in shared memory, and puts what it has made on its board after each piece.
Distillers that have the same student read each other's boards and add up what they do
(`compress/distillation/sharing.py`); the compressor reads the boards when it publishes. Nobody
waits for anybody. Students that rest are kept close to the learner by distillers that nothing that
acts needs: they need no warm-up when they act again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import monotonic
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
from accerl.runtime.publishing.charges import Charge, Charges
from accerl.spec import CompressionSpec, StudentKey

PATIENCE_SECONDS = 10.0
"""a distiller that does not send its state in that time is stuck: what was known of it counts"""


class DistillerProcess:
    """One distilling process as the learner's process sees it."""

    def __init__(self, worker: Worker, board: Board) -> None:
        self.worker = worker
        self.board = board
        self.charges: tuple[Charge, ...] = ()
        """what it was told to distil"""
        self.wants_weights = True
        """whether it has read the learner's weights since they were last shown, or never"""
        self.asked: float | None = None
        """when it was asked for its state, if it has not sent it yet"""


class DistillerPool:
    """All distilling processes of a run, and which student is whose.

    Like the compressor's, their state is asked for at snapshots only: the optimisers of one that
    is killed go on from the last of them, its students from what is on its board.
    """

    def __init__(self, distillers: Sequence[DistillerProcess], distill_updates: int) -> None:
        """Manage `distillers`; `distill_updates` is that of `CompressionConfig`."""
        self.distillers = list(distillers)
        self.charges = Charges(len(distillers), distill_updates)
        self.known: dict[StudentKey, Any] = {}
        """entries of the compressor's `state_dict`, by network"""
        self._learner: Any = None

    def lead(self, students: Iterable[tuple[str, float]]) -> None:
        """Have distillers lead students that are known from a checkpoint."""
        keys = [StudentKey(*student) for student in students]
        self.charges.assign([CompressionSpec(**key._asdict()) for key in keys])

    @property
    def workers(self) -> list[Worker]:
        """Their processes."""
        return [distiller.worker for distiller in self.distillers]

    @property
    def is_known(self) -> bool:
        """Whether `known` is up to date, but for distillers that are stuck."""
        asked = [each.asked for each in self.distillers if each.asked is not None]
        return all(monotonic() - since > PATIENCE_SECONDS for since in asked)

    def after_update(
        self, acting: Sequence[CompressionSpec], put_weights: Callable[[], None]
    ) -> None:
        """Say what is to be distilled where that has changed, and show the learner's weights.

        Args:
            acting: the specs in effect.
            put_weights: makes the learner's weights current; called if anybody wants them.
        """
        self.charges.assign(acting)
        ready = [
            (each, self.charges.work(index, acting))
            for index, each in enumerate(self.distillers)
            if each.worker.ready
        ]
        if any(charges and each.wants_weights for each, charges in ready):
            put_weights()
        for each, charges in ready:
            if charges:
                each.wants_weights = False
            if charges != each.charges:
                each.charges = charges
                each.worker.send(Distil(charges))

    def handle(self, worker: Worker, message: Message, known: dict[str, Any]) -> None:
        """Take a message of a distiller.

        Args:
            worker: who sent it.
            message: what it sent.
            known: the compressor's `state_dict`, from which a new process starts.
        """
        distiller = self._of(worker)
        own = self.charges.keys(self.distillers.index(distiller))
        match message:
            case Hello():
                state = self.merged(known)
                led = [e for e in state["distillers"] if StudentKey(*e["student"]) in own]
                worker.send(State({**state, "distillers": led}))
            case Ready():
                distiller.charges = ()
            case Distilled():
                distiller.wants_weights = True
            case State(state):
                found = {StudentKey(*entry["student"]): entry for entry in state["distillers"]}
                self.known |= {key: found[key] for key in own if key in found}
                self._learner = state["learner"] or self._learner
                distiller.asked = None

    def died(self, worker: Worker) -> str:
        """Its process has ended; return what was done about it."""
        distiller = self._of(worker)
        distiller.wants_weights, distiller.asked = True, None
        own = self.charges.keys(self.distillers.index(distiller))
        return f"its {len(own)} students go on from what it has shown"

    def ask_state(self) -> None:
        """Ask all that distil for their state; they answer between two pieces."""
        for distiller in self.distillers:
            if distiller.charges and distiller.worker.ready and distiller.asked is None:
                distiller.asked = monotonic()
                distiller.worker.send(AskState())

    def merged(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the compressor's `state_dict` with what distillers know better."""
        entries = {
            StudentKey(*entry["student"]): entry for entry in state["distillers"]
        } | self.known
        learner = state["learner"] or self._learner
        return {**state, "learner": learner, "distillers": list(entries.values())}

    def close(self) -> None:
        """Let go of the shared memory."""
        for distiller in self.distillers:
            distiller.board.close()

    def _of(self, worker: Worker) -> DistillerProcess:
        return next(each for each in self.distillers if each.worker is worker)
