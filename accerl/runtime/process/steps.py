"""Steps: distillation in small pieces, by a process that also reads its messages.

Between two pieces it looks for messages and for newer weights of the learner's; nobody has to give
it work. It waits only when it has done all that the learner's last update allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter, thread_time
from typing import Any

from accerl.compress.compressor import Compressor
from accerl.compress.distillation.sharing import Shown, StudentShares
from accerl.networks.graph_policy import Policy
from accerl.runtime.process.board import Board
from accerl.runtime.process.messages import Distilled, Message
from accerl.runtime.process.wire import Channel
from accerl.runtime.publishing.charges import Charge, Pace
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
    ) -> None:
        """Distil with `compressor` towards `policy`, which `weights` are copied into.

        Args:
            channel: to the learner's process.
            compressor: whose students are distilled.
            policy: of the learner's kind.
            weights: the learner's.
            index: of the board that is this process's own.
            students: on the boards; None: nobody else distils or reads them.
        """
        self._charges: tuple[Charge, ...] = ()
        self._channel = channel
        self._compressor = compressor
        self._policy = policy
        self._weights = weights
        self._index = index
        self._students = students
        self._shares = StudentShares(compressor, index)
        self._pace = Pace()
        self._version = -1
        self._updates, self._seconds, self._cpu_seconds = 0, 0.0, 0.0

    def distil(self, charges: tuple[Charge, ...]) -> None:
        """Distil these from now on."""
        self._charges = charges
        if self._updates:
            self._report()

    def recover(self) -> None:
        """Go on from what a predecessor has put on its board."""
        if self._students is not None:
            self._students.look()
            self._shares.recover(self._students.shown.of(self._index), self._policy)

    def load_weights(self) -> int:
        """Have the policy be the learner's, as it is now; return its version."""
        if self._weights.latest != self._version:
            self._report()
            self._version = self._weights.load_into(self._policy)
        return self._version

    @property
    def has_followed(self) -> bool:
        """Whether a piece has followed the weights that were loaded last, or there is none."""
        followed = self._pace.begun(self._version)
        return followed or self._pace.next(self._charges, self._version) is None

    def step(self) -> bool:
        """Do the next piece towards the weights that were loaded; return whether there was one."""
        piece = self._pace.next(self._charges, self._version)
        if piece is None:
            return False
        (charge, updates), students = piece, self._students
        before, cpu_before = perf_counter(), thread_time()
        shown: list[Any] = []
        if students is not None:
            students.look()
            shown = students.shown.besides(self._index)
        done = self._shares.train(
            charge.spec,
            self._policy,
            updates,
            self._version,
            leads=charge.leads,
            sharers=charge.sharers,
            shown=shown,
        )
        if not done:
            return False
        self._pace.add(charge, updates)
        if students is not None:
            keys = [charge.key for charge in self._charges]
            students.boards[self._index].put(self._shares.entries(keys))
        self._updates += done
        self._seconds += perf_counter() - before
        self._cpu_seconds += thread_time() - cpu_before
        if self._seconds > REPORT_SECONDS:
            self._report()
        return True

    def _report(self) -> None:
        """Say what was done; the learner then shows its weights after its next update."""
        self._channel.send(Distilled(self._updates, self._seconds, self._cpu_seconds))
        self._updates, self._seconds, self._cpu_seconds = 0, 0.0, 0.0

    def next_message(self) -> Message:
        """Distil until there is a message, and return it."""
        waits = False
        while self._charges and not self._channel.poll(LOOK_SECONDS if waits else 0.0):
            self.load_weights()
            waits = not self.step()
        return self._channel.receive()
