"""Steps: distillation in small pieces, by a process that also reads its messages.

Between two pieces it looks for messages and for newer weights of the learner's; nobody has to give
it work. It waits only when it has done all that the learner's last update allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accerl.compress.compressor import Compressor
from accerl.compress.distillation.sharing import Shown
from accerl.networks.graph_policy import Policy
from accerl.runtime.process.board import Board
from accerl.runtime.process.messages import Distilled, Message
from accerl.runtime.process.wire import Channel
from accerl.runtime.publishing.charges import Charge
from accerl.runtime.publishing.pieces import BASE_BITS, Pieces
from accerl.weights import WeightVector

REPORT_SECONDS = 0.1
"""of distilling that nobody heard of yet"""
LOOK_SECONDS = 0.002
"""how often a process that waits for newer weights looks for them"""


class Students:
    """The students on all distillers' boards."""

    def __init__(self, boards: Sequence[Board]) -> None:
        self.boards = boards
        self.shown = Shown(len(boards))

    def look(self) -> bool:
        """Read the boards; return whether anything was new."""
        news = [(index, board.news()) for index, board in enumerate(self.boards)]
        for index, entries in news:
            self.shown.put(index, entries)
        return any(entries for _, entries in news)

    def close(self) -> None:
        """Let go of the shared memory."""
        for board in self.boards:
            board.close()


class Steps:
    """Distils what the learner's process says, one piece at a time."""

    def __init__(
        self,
        channel: Channel,
        compressor: Compressor,
        policy: Policy,
        weights: WeightVector,
        index: int = 0,
        students: Students | None = None,
        restarts: int = 0,
    ) -> None:
        """Distil with `compressor` towards `policy`, which `weights` are copied into.

        Args:
            channel: to the learner's process.
            compressor: whose students are distilled.
            policy: of the learner's kind.
            weights: the learner's.
            index: of the board that is this process's own.
            students: on the boards; None: nobody else distils or reads them.
            restarts: how many predecessors it had, whose numbers it does not use again.
        """
        self._channel = channel
        self._policy = policy
        self._weights = weights
        self._index = index
        self._students = students
        self._pieces = Pieces(compressor, policy, index, first_base=restarts << BASE_BITS)

    def distil(self, charges: tuple[Charge, ...]) -> None:
        """Distil these from now on."""
        self._pieces.charges = charges
        if self._pieces.seconds:
            self._report()

    def recover(self) -> None:
        """Go on from what a predecessor has put on its board."""
        if self._students is not None:
            self._students.look()
            self._pieces.recover(self._students.shown.of(self._index))

    def load_weights(self) -> None:
        """Have the policy be the learner's, as it is now."""
        if self._weights.latest != self._pieces.version:
            self._report()
            self._pieces.version = self._weights.load_into(self._policy)

    @property
    def has_followed(self) -> bool:
        """Whether a piece has followed the weights that were loaded last, or there is none."""
        return self._pieces.has_followed

    def step(self) -> bool:
        """Do the next piece towards the weights that were loaded; return whether there was one."""
        students = self._students
        if not self._pieces.step(None if students is None else self._others):
            return False
        if students is not None:
            students.boards[self._index].put(self._pieces.entries())
        if self._pieces.seconds > REPORT_SECONDS:
            self._report()
        return True

    def _others(self) -> list[Any]:
        assert self._students is not None
        self._students.look()
        return self._students.shown.besides(self._index)

    def _report(self) -> None:
        """Say what was done; the learner then shows its weights after its next update."""
        self._channel.send(Distilled(*self._pieces.take_report()))

    def next_message(self) -> Message:
        """Distil until there is a message, and return it."""
        waits = False
        while self._pieces.charges and not self._channel.poll(LOOK_SECONDS if waits else 0.0):
            self.load_weights()
            waits = not self.step()
        return self._channel.receive()
