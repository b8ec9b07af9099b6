"""Pieces: the distillation of one process, a few updates at a time, wherever it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import perf_counter, process_time
from typing import Any

from accerl.compress.compressor import Compressor
from accerl.compress.distillation.sharing import Entry, StudentShares
from accerl.networks.graph_policy import Policy
from accerl.runtime.publishing.charges import Charge, Pace

BASE_BITS = 20
"""of the numbers of bases that a process uses, more than it ever needs: its successor begins with
others"""


class Pieces:
    """Distils what its process is in charge of, one piece a call, and counts what that took."""

    def __init__(
        self, compressor: Compressor, policy: Policy, index: int = 0, *, first_base: int = 0
    ) -> None:
        """Distil with `compressor` towards `policy`, which others copy the learner's weights into.

        Args:
            compressor: whose students are distilled.
            policy: of the learner's kind.
            index: of the distiller.
            first_base: see `StudentShares`.
        """
        self.charges: Sequence[Charge] = ()
        """what to distil"""
        self.version = -1
        """learner updates of the weights in `policy`"""
        self.seconds = 0.0
        """of distilling since `take_report`"""
        self._updates, self._cpu_seconds = 0, 0.0
        self._policy = policy
        self._shares = StudentShares(compressor, index, first_base)
        self._pace = Pace(compressor.pool.updates_due)

    @property
    def has_followed(self) -> bool:
        """Whether a piece has followed the weights of `version`, or there is none."""
        followed = self._pace.begun(self.version)
        return followed or self._pace.next(self.charges, self.version) is None

    def step(self, others: Callable[[], Sequence[Entry]] | None = None) -> int:
        """Do the next piece.

        Args:
            others: returns what the other distillers show.

        Returns:
            How many updates that took the time of; none if there is nothing to do.
        """
        piece = self._pace.next(self.charges, self.version)
        if piece is None:
            return 0
        charge, updates = piece
        before, cpu_before = perf_counter(), process_time()  # on a GPU, not of one thread alone
        done = self._shares.train(
            charge.spec,
            self._policy,
            updates,
            self.version,
            leads=charge.leads,
            sharers=charge.sharers,
            shown=() if others is None else others(),
        )
        self._pace.add(charge, updates)  # if it came to nothing, too: others have their turn
        if done:
            self._updates += done
            self.seconds += perf_counter() - before
            self._cpu_seconds += process_time() - cpu_before
        return done

    def entries(self) -> list[dict[str, Any]]:
        """Return what others are to see of the students in `charges`."""
        return self._shares.entries([charge.key for charge in self.charges])

    def recover(self, own: Iterable[Entry]) -> None:
        """Go on from what a predecessor has shown."""
        self._shares.recover(own, self._policy)

    def take_report(self) -> tuple[int, float, float]:
        """Return updates, seconds and processor seconds since the last call."""
        report = (self._updates, self.seconds, self._cpu_seconds)
        self._updates, self.seconds, self._cpu_seconds = 0, 0.0, 0.0
        return report
