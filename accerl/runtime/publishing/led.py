"""LedStudents: which distiller leads which students, and what was last known of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import monotonic
from typing import Any

from accerl.runtime.publishing.charges import Charges
from accerl.spec import CompressionSpec, StudentKey

PATIENCE_SECONDS = 10.0
"""a distiller that does not send its state in that time is stuck: what was known of it counts"""


class LedStudents:
    """The students of a run's distillers as the learner's process knows them.

    Like the compressor's, the state of distillers is asked for at snapshots only: the optimisers of
    one that dies go on from the last of them, and what it was distilling from what it has shown.
    """

    def __init__(self, distillers: int, distill_updates: int, *, follow_idle: bool = True) -> None:
        """Share out students; see `Charges`."""
        self.charges = Charges(distillers, distill_updates, follow_idle=follow_idle)
        self._known: dict[StudentKey, Any] = {}  # entries of the compressor's `state_dict`
        self._learner: Any = None
        self._asked: dict[int, float] = {}  # since when a distiller's state is on its way

    def lead(self, students: Iterable[tuple[str, float]]) -> None:
        """Have distillers lead students that are known from a checkpoint."""
        keys = [StudentKey(*student) for student in students]
        self.charges.assign([CompressionSpec(**key._asdict()) for key in keys])

    def start_state(self, index: int, known: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a distiller's new process starts from.

        Args:
            index: of the distiller.
            known: the compressor's `state_dict`.
        """
        own, state = self.charges.keys(index), self.merged(known)
        led = [entry for entry in state["students"] if StudentKey(*entry["student"]) in own]
        return {**state, "students": led}

    def merged(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """Return the compressor's `state_dict` with what distillers know better."""
        entries = {StudentKey(*entry["student"]): entry for entry in known["students"]}
        learner = known["learner"] or self._learner
        return {**known, "learner": learner, "students": [*(entries | self._known).values()]}

    def is_asked(self, index: int) -> bool:
        """Whether a distiller's state is on its way."""
        return index in self._asked

    def ask(self, index: int) -> None:
        """A distiller is asked for its state."""
        self._asked[index] = monotonic()

    def take(self, index: int, state: Mapping[str, Any]) -> None:
        """A distiller has sent its state."""
        found = {StudentKey(*entry["student"]): entry for entry in state["students"]}
        own = self.charges.keys(index)
        self._known |= {key: found[key] for key in own if key in found}
        self._learner = state["learner"] or self._learner
        self._asked.pop(index, None)

    def died(self, index: int) -> str:
        """A distiller's process has ended; return what is done about it."""
        self._asked.pop(index, None)
        return f"its {len(self.charges.keys(index))} students go on from what it has shown"

    @property
    def is_known(self) -> bool:
        """Whether all states have come that were asked for, but for distillers that are stuck."""
        return all(monotonic() - since > PATIENCE_SECONDS for since in self._asked.values())
