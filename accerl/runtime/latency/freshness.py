"""Freshness: how old the weights are that acted, when the learner uses a rollout.

A pipeline whose pace is known (`steady`) is played rollout by rollout, with the mean seconds that
everything takes there. G actors are equally fast and have s slots each, so the learner uses their
rollouts in turn, and the times of the n-th follow from those before:

    begins(n)  = max(ends(n - G), lent(n)), and up to the patience later if what was ordered when
                 the slot was lent is not there yet;      lent(n) = used(n - s G)
    ends(n)    = begins(n) + fill, and load where newer weights are there
    arrives(n) = max(ends(n), when the link is free) + upload
    used(n)    = max(arrives(n), used(n - 1)) + learn, and copy before a publication

The compressor publishes after an update, if nothing is under way and enough updates were made since
it did so last. If it distils, a piece of that comes first, and it goes on with pieces, as many as
are due with a learner update. What is ordered after v updates is there `made` seconds later. The
policy lag of a rollout that began with those weights is n - v. Where slots are held back, s G is at
most what keeps the learner busy.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from statistics import fmean

from accerl.runtime.latency.steady import Steady, Work
from accerl.runtime.slots import SPARE

_LIMITS = 0.98  # of its time that the learner is busy, from which on all slots wait for it
_ROUNDS, _UPDATES = 2, 40  # that are counted at least: of all slots, and of the learner
_PUBLICATIONS = 3  # likewise, and as many before: a slow link takes hundreds of updates for each
_LONGEST = 20_000  # updates that are played at most, where one publication takes many thousands
_MANY = 64  # pieces: as good as no limit


def learner_busy(work: Work, state: Steady) -> float:
    """Return the seconds of the learner's process, per env step."""
    own = state.learning / work.rollout + state.copying
    if work.wiring.compressor:
        return own
    return own + state.publishing + state.sending + state.distilling


def learner_limits(work: Work, state: Steady) -> bool:
    """Whether the learner is always busy, and all slots wait for it."""
    return learner_busy(work, state) > _LIMITS * state.seconds


def freshness(work: Work, state: Steady, every: int) -> tuple[float, float]:
    """Return the policy lag of rollouts, and the learner updates between two publications.

    Args:
        work: of the pipeline.
        state: its pace, as `settle` returns it.
        every: updates between two publications at least, of the configuration.
    """
    groups, rollouts = work.wiring.actors, work.wiring.actors * work.slots
    fill = work.act * groups * work.rollout * state.actors_slower
    load = work.load * state.actors_slower
    if not (learner_limits(work, state) or state.waits_for_upload):
        # Nobody waits where cores limit: actors take as long as all the rest leaves them.
        fill += max(groups * work.rollout * state.seconds - state.acting, 0.0)
    # Copies are made for publications alone, unless somebody distils after every update.
    learn = learner_busy(work, state) * work.rollout
    learn -= 0.0 if work.distill else state.copying * work.rollout
    copy = 0.0 if work.distill else work.copy * state.slowdown
    if work.holds_back and learner_limits(work, state):
        # What the learner uses while one is filled and sent, that one, and what is spare.
        needed = math.ceil((fill + work.upload) / learn) + 1 + SPARE
        rollouts = min(rollouts, needed)
    compressor = _Compressor(work, state, every)
    ends, acted = [0.0] * groups, [0] * groups
    links = [0.0] * min(work.hosts, groups)
    lent = [(0.0, 0)] * rollouts  # when each slot was lent, and what had been ordered by then
    # Where the learner limits, all slots wait for it in the end: it begins when they do.
    used = work.slots * fill if learner_limits(work, state) else 0.0
    expected = max(float(every), state.age_updates)
    skipped = max(_ROUNDS * rollouts, round(_PUBLICATIONS * expected))
    counted = max(_ROUNDS * rollouts, _UPDATES, round((_PUBLICATIONS + 1) * expected))
    lags: list[int] = []
    for n in range(min(skipped + counted, _LONGEST)):
        actor, slot = n % groups, n % rollouts
        given, ordered = lent[slot]
        begins = max(ends[actor], given)
        compressor.go_on(begins)
        if compressor.there[ordered] > begins:
            begins = min(compressor.there[ordered], begins + work.patience)
        newest = bisect_right(compressor.there, begins) - 1
        arrives = ends[actor] = begins + fill + (load if newest > acted[actor] else 0.0)
        acted[actor] = newest
        if links:
            host = actor % len(links)
            arrives = links[host] = max(arrives, links[host]) + work.upload
        used = max(arrives, used) + learn
        compressor.go_on(used)
        if compressor.look(used + copy):
            used += copy
        lent[slot] = used, len(compressor.there) - 1
        lags.append(n - compressor.versions[newest])
    # Whole turns: just before new weights act, the lag is longest.
    turns = [version for version in compressor.versions if version >= skipped]
    if len(turns) < 2:
        return fmean(lags[len(lags) // 2 :]), expected
    between = (turns[-1] - turns[0]) / (len(turns) - 1)
    return fmean(lags[turns[0] : turns[-1]]), between


class _Compressor:
    """What the compressor does, on the clock of `freshness`."""

    def __init__(self, work: Work, state: Steady, every: int) -> None:
        self.there, self.versions = [0.0], [0]
        """when publications reach actors, and the updates that they are made after"""
        # The learner publishes in its own time, which it is charged.
        self._made = state.made if work.wiring.compressor else 0.0
        self._piece, self._pieces = 0.0, 0  # seconds of each, and how many an update allows
        if work.piece and work.wiring.compressor:
            self._piece = state.age - state.made - work.copy
            self._pieces = max(round(min(work.distill / work.piece, _MANY)), 1)
        self._every = every
        self._updates = 0
        self._left = 0  # pieces that the last update allows
        self._busy_until = 0.0
        self._task = ""

    def look(self, now: float) -> bool:
        """Begin what there is to do after an update; return whether it publishes at once."""
        self._updates += 1
        self._left = self._pieces
        if self._task:
            return False
        if self._left:
            self._distil(now)
        elif self._is_due:
            self._publish(now)
        return self._task == "publish"

    def go_on(self, now: float) -> None:
        """Do what follows by itself until then."""
        while self._task and self._busy_until <= now:
            task, self._task = self._task, ""
            if task == "piece" and self._is_due:
                self._publish(self._busy_until)
            elif self._left:
                self._distil(self._busy_until)

    @property
    def _is_due(self) -> bool:
        return self._updates - self.versions[-1] >= self._every

    def _distil(self, now: float) -> None:
        self._left -= 1
        self._task, self._busy_until = "piece", now + self._piece

    def _publish(self, now: float) -> None:
        self._task, self._busy_until = "publish", now + self._made
        self.there.append(self._busy_until)
        self.versions.append(self._updates)
