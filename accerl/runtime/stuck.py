"""Workers that live and do not finish: an environment, say, may never return."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, thread_time

STUCK_SECONDS = 60.0
"""without a rollout or a measurement, at least, after which a process counts as stuck"""
LEAST_PUBLICATION_SECONDS = 600.0
"""the same without a publication or distillation: a student that is new to a run, or a slow link,
takes minutes, and meanwhile actors go on with what acts"""
MANY = 20.0
"""and so many times what it took before"""
MORE = 2.0
"""times as long as a stuck one had, its successor has: the work itself may take long"""
LONGEST_FIRST_SECONDS = 3600.0
"""of measuring J, and of publishing, for the first time in a run: long episodes of slow games take
minutes, and so do large networks on slow links"""
PAUSED_SECONDS = 5.0
"""without a look or work of the learner's thread, from which on the whole run has been suspended,
or the learner waited (for a GPU, for its group): nobody is to blame for that time"""


class StuckWorkers:
    """How long workers have been at what they were lent: slots to fill, or other work.

    Args:
        clock: in seconds.
        least_seconds: that all are given; None: `STUCK_SECONDS`.
        first_seconds: that one is given which has never finished anything.
        link_seconds: that all are given besides, as a link may become slow later.
        busy: processor seconds of the thread that looks: meanwhile the run was not suspended.
    """

    def __init__(
        self,
        clock: Callable[[], float] = monotonic,
        least_seconds: float | None = None,
        first_seconds: float = 2.0 * STUCK_SECONDS,
        link_seconds: float = 0.0,
        busy: Callable[[], float] = thread_time,
    ) -> None:
        self._clock, self._busy = clock, busy
        self._least_seconds = STUCK_SECONDS if least_seconds is None else least_seconds
        self._first_seconds, self._link_seconds = first_seconds, link_seconds
        self._looked: tuple[float, float] | None = None  # both clocks at the last look
        self._since: dict[str, float] = {}
        self._longest: dict[str, float] = {}
        self._patience: dict[str, float] = {}  # of those that were stuck and finished nothing since

    def lent(self, worker: str) -> None:
        """Note that a worker has been lent work; it may have some already."""
        self._since.setdefault(worker, self._clock())

    def filled(self, worker: str, *, has_more: bool) -> None:
        """Note that a worker has finished a piece, if it had any, and whether it has more."""
        now = self._clock()
        if (since := self._since.pop(worker, None)) is not None:
            self._longest[worker] = max(now - since, self._longest.get(worker, 0.0))
            self._patience.pop(worker, None)
        if has_more:
            self._since[worker] = now

    def paused(self, worker: str) -> None:
        """Note that a worker has nothing to do for now, whether it finished anything or not."""
        self._since.pop(worker, None)

    def look(self) -> None:
        """Note that somebody looks: a long time without a look or work does not count."""
        now, busy = self._clock(), self._busy()
        then, before = self._looked or (now, busy)
        self._looked = now, busy
        paused = now - then - (busy - before)
        if paused > PAUSED_SECONDS:
            self._since = {
                worker: min(since + paused, now) for worker, since in self._since.items()
            }

    def forget(self, worker: str) -> None:
        """Note that a worker has nothing to do, as it is being replaced or away.

        If it was stuck, it is given longer from now on, until it finishes something.
        """
        if (passed := self.seconds(worker)) is not None:
            self._patience[worker] = MORE * passed
        self._since.pop(worker, None)

    def seconds(self, worker: str) -> float | None:
        """Return for how long a worker has been stuck; None: it is not."""
        if worker not in self._since:
            return None
        passed, longest = self._clock() - self._since[worker], self._longest.get(worker)
        least = self._first_seconds if longest is None else self._least_seconds
        patience = max(
            least + self._link_seconds,
            MANY * (longest or 0.0),
            self._patience.get(worker, 0.0),
        )
        return passed if passed > patience else None


class Watch:
    """What the workers of a run have to finish, and who has not for too long.

    Args:
        link_seconds: that actors are given besides, see `StuckWorkers`.
    """

    def __init__(self, link_seconds: float = 0.0) -> None:
        self.rollouts = StuckWorkers(link_seconds=link_seconds)
        """what actors fill"""
        self.publications = StuckWorkers(
            least_seconds=LEAST_PUBLICATION_SECONDS, first_seconds=LONGEST_FIRST_SECONDS
        )
        """what the compressor makes; a shadow, or its state, if that is what it was asked for"""
        self.distillations = StuckWorkers(
            least_seconds=LEAST_PUBLICATION_SECONDS, first_seconds=LONGEST_FIRST_SECONDS
        )
        """what a distiller does between two looks at the learner's weights"""
        self.measurements = StuckWorkers(first_seconds=LONGEST_FIRST_SECONDS)
        """of J, what the evaluator does"""
        self._all = {
            "rollout": self.rollouts,
            "publication": self.publications,
            "distillation": self.distillations,
            "measurement": self.measurements,
        }

    def look(self) -> None:
        """See `StuckWorkers.look`."""
        for each in self._all.values():
            each.look()

    def forget(self, worker: str) -> None:
        """See `StuckWorkers.forget`."""
        for each in self._all.values():
            each.forget(worker)

    def unfinished(self, worker: str) -> str:
        """Return what a worker has not finished for how long, in words; nothing if all is well."""
        for what, each in self._all.items():
            if (seconds := each.seconds(worker)) is not None:
                return f"finished no {what} in {seconds:.0f} seconds"
        return ""
