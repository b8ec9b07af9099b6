"""Processes that live and do not finish their work: their environment may never return."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, thread_time

STUCK_SECONDS = 60.0
"""without a rollout, at least, after which an actor counts as stuck"""
MANY = 20.0
"""and so many times what its rollouts took"""
MORE = 2.0
"""times as long as a stuck one had, its successor has: the work itself may take long"""
LONGEST_FIRST_SECONDS = 3600.0
"""of measuring J, and of publishing, for the first time in a run: long episodes of slow games take
minutes, and so do large networks on slow links"""
PAUSED_SECONDS = 5.0
"""without a look or work of the learner's thread, from which on the whole run has been suspended,
or the learner waited (for a GPU, for its group): nobody is to blame for that time"""


class StuckActors:
    """How long actors have been filling what they were lent.

    Args:
        clock: in seconds.
        first_seconds: that one is given which has never finished anything.
        link_seconds: that all are given besides, as a link may become slow later.
        busy: processor seconds of the thread that looks: meanwhile the run was not suspended.
    """

    def __init__(
        self,
        clock: Callable[[], float] = monotonic,
        first_seconds: float = 2.0 * STUCK_SECONDS,
        link_seconds: float = 0.0,
        busy: Callable[[], float] = thread_time,
    ) -> None:
        self._clock, self._first_seconds, self._link_seconds = clock, first_seconds, link_seconds
        self._busy = busy
        self._looked: tuple[float, float] | None = None  # both clocks at the last look
        self._since: dict[str, float] = {}
        self._longest: dict[str, float] = {}
        self._patience: dict[str, float] = {}  # of those that were stuck and finished nothing since

    def lent(self, actor: str) -> None:
        """Note that an actor has been lent slots; it may have some already."""
        self._since.setdefault(actor, self._clock())

    def filled(self, actor: str, *, has_more: bool) -> None:
        """Note that an actor has filled a slot, if it had any, and whether it has more to fill."""
        now = self._clock()
        if (since := self._since.pop(actor, None)) is not None:
            self._longest[actor] = max(now - since, self._longest.get(actor, 0.0))
            self._patience.pop(actor, None)
        if has_more:
            self._since[actor] = now

    def look(self) -> None:
        """Note that somebody looks: a long time without a look or work does not count."""
        now, busy = self._clock(), self._busy()
        then, before = self._looked or (now, busy)
        self._looked = now, busy
        paused = now - then - (busy - before)
        if paused > PAUSED_SECONDS:
            self._since = {actor: min(since + paused, now) for actor, since in self._since.items()}

    def forget(self, actor: str) -> None:
        """Note that an actor has nothing to fill, as it is being replaced or away.

        If it was stuck, it is given longer from now on, until it fills something.
        """
        if (passed := self.seconds(actor)) is not None:
            self._patience[actor] = MORE * passed
        self._since.pop(actor, None)

    def seconds(self, actor: str) -> float | None:
        """Return for how long an actor has been stuck; None: it is not."""
        if actor not in self._since:
            return None
        passed, longest = self._clock() - self._since[actor], self._longest.get(actor)
        least = self._first_seconds if longest is None else STUCK_SECONDS
        patience = max(
            least + self._link_seconds,
            MANY * (longest or 0.0),
            self._patience.get(actor, 0.0),
        )
        return passed if passed > patience else None


class Watch:
    """What the processes of a run have to finish, and who has not for too long.

    Args:
        link_seconds: that actors are given besides, see `StuckActors`.
    """

    def __init__(self, link_seconds: float = 0.0) -> None:
        self.rollouts = StuckActors(link_seconds=link_seconds)
        """what actors fill"""
        self.publications = StuckActors(first_seconds=LONGEST_FIRST_SECONDS)
        """what the compressor makes, and what is looked at besides"""
        self.measurements = StuckActors(first_seconds=LONGEST_FIRST_SECONDS)
        """of J, what the evaluator does"""
        self._all = {
            "rollout": self.rollouts,
            "publication": self.publications,
            "measurement": self.measurements,
        }

    def look(self) -> None:
        """See `StuckActors.look`."""
        for each in self._all.values():
            each.look()

    def forget(self, process: str) -> None:
        """See `StuckActors.forget`."""
        for each in self._all.values():
            each.forget(process)

    def unfinished(self, process: str) -> str:
        """Return what a process has not finished for how long, in words; nothing if all is well."""
        for what, each in self._all.items():
            if (seconds := each.seconds(process)) is not None:
                return f"finished no {what} in {seconds:.0f} seconds"
        return ""
