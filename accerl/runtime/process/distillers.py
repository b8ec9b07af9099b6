"""Distillers: processes that only distil, beside the one that compresses (ND in the paper).

Each distils the students and pruned networks that it is in charge of, over and over, from the
learner's weights and the recorded states in shared memory, and puts what they have become on its
board. The compressor reads the boards when it publishes; nobody waits for anybody. Students that
rest are kept close to the learner while none of a distiller's acts: they need no warm-up when they
act again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from accerl.runtime.process.board import Board
from accerl.runtime.process.messages import (
    AskState,
    Done,
    Hello,
    Message,
    Ready,
    State,
    Taken,
    Work,
)
from accerl.runtime.process.samples import SampleRing
from accerl.runtime.process.supervise import Worker
from accerl.runtime.publishing.charges import Charges
from accerl.spec import CompressionSpec, StudentKey


class DistillerProcess:
    """One distilling process as the learner's process sees it."""

    def __init__(self, worker: Worker, samples: SampleRing, board: Board) -> None:
        self.worker = worker
        self.samples = samples
        self.board = board
        self.idle = False
        self.fresh = True
        """whether what is known of its state is what it holds"""


class DistillerPool:
    """All distilling processes of a run, and which student is whose.

    Like the compressor's, their state is asked for at snapshots only: one that is killed goes on
    from the last of them.
    """

    def __init__(self, distillers: Sequence[DistillerProcess]) -> None:
        self.distillers = list(distillers)
        self.charges = Charges(len(distillers))
        self.known: dict[StudentKey, Any] = {}
        """entries of the compressor's `state_dict`, by network"""
        self._learner: Any = None

    @property
    def workers(self) -> list[Worker]:
        """Their processes."""
        return [distiller.worker for distiller in self.distillers]

    @property
    def is_known(self) -> bool:
        """Whether `known` is up to date."""
        return all(distiller.fresh for distiller in self.distillers)

    def after_update(
        self, states: np.ndarray, acting: Sequence[CompressionSpec], put_weights: Callable[[], None]
    ) -> None:
        """Give work to every distiller that is idle.

        Args:
            states: recorded states [N, *shape] of the last rollout.
            acting: the specs in effect.
            put_weights: makes the learner's weights current; called if anybody gets work.
        """
        self.charges.assign(acting)
        given = False
        for index, distiller in enumerate(self.distillers):
            distiller.samples.add(states)
            chosen = self.charges.work(index, acting)
            if not (distiller.idle and chosen):
                continue
            if not given:
                put_weights()
                given = True
            distiller.idle, distiller.fresh = False, False
            distiller.worker.send(Work(tuple(chosen), distiller.samples.lend()))

    def handle(self, worker: Worker, message: Message, known: dict[str, Any]) -> float:
        """Take a message of a distiller; return the seconds that it says it distilled.

        Args:
            worker: who sent it.
            message: what it sent.
            known: the compressor's `state_dict`, from which a new process starts.
        """
        distiller = self._of(worker)
        match message:
            case Hello():
                worker.send(State(self.merged(known)))
            case Ready():
                distiller.idle = True
            case Taken():
                distiller.samples.returned()
            case State(state):
                found = {StudentKey(*entry["student"]): entry for entry in state["distillers"]}
                own = self.charges.keys(self.distillers.index(distiller))
                self.known |= {key: found[key] for key in own if key in found}
                self._learner = state["learner"]
                distiller.fresh = True
            case Done(distill_seconds):
                distiller.idle = True
                return distill_seconds
        return 0.0

    def died(self, worker: Worker) -> str:
        """Its process has ended; return what was done about it."""
        distiller = self._of(worker)
        distiller.idle, distiller.fresh = False, True
        distiller.samples.returned()
        own = self.charges.keys(self.distillers.index(distiller))
        return f"its {len(own)} students go on from the last checkpoint"

    def ask_state(self) -> None:
        """Ask all whose state is not known; they answer when their work is done."""
        for distiller in self.distillers:
            if not distiller.fresh:
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
            distiller.samples.close()
            distiller.board.close()

    def _of(self, worker: Worker) -> DistillerProcess:
        return next(each for each in self.distillers if each.worker is worker)
