"""Actors that live, hold slots, and fill none: their environment may never return."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

STUCK_SECONDS = 60.0
"""without a rollout, at least, after which an actor counts as stuck"""
MANY = 20.0
"""and so many times what its rollouts took"""


class StuckActors:
    """How long actors have been filling what they were lent.

    Args:
        clock: in seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}
        self._longest: dict[str, float] = {}

    def lent(self, actor: str) -> None:
        """Note that an actor has been lent slots; it may have some already."""
        self._since.setdefault(actor, self._clock())

    def filled(self, actor: str, *, has_more: bool) -> None:
        """Note that an actor has filled a slot, and whether it has more to fill."""
        now = self._clock()
        took = now - self._since.pop(actor, now)
        self._longest[actor] = max(took, self._longest.get(actor, 0.0))
        if has_more:
            self._since[actor] = now

    def forget(self, actor: str) -> None:
        """Note that an actor has nothing to fill, as it is being replaced or away."""
        self._since.pop(actor, None)

    def seconds(self, actor: str) -> float | None:
        """Return for how long an actor has been stuck; None: it is not.

        One that has never filled a slot is given as long as a process to start.
        """
        if actor not in self._since:
            return None
        passed, longest = self._clock() - self._since[actor], self._longest.get(actor)
        patience = 2.0 * STUCK_SECONDS if longest is None else max(STUCK_SECONDS, MANY * longest)
        return passed if passed > patience else None
