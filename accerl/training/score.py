"""Score: where a run is, by the episodes that ended last."""

from __future__ import annotations

import math
from collections import deque

from accerl.runtime.run import IntervalReport

SCORED_EPISODES = 20
"""whose mean is the score, or a return of the summary, where J is not measured"""


class Score:
    """Follows a run's reports: J where they have it, else the mean of the last episodes.

    Args:
        goal: what is to be reached; None: nothing.
        of_actors: whether the actors' episodes count where J is measured too.
    """

    def __init__(self, goal: float | None = None, *, of_actors: bool = False) -> None:
        self.value: float | None = None
        """after the last interval; None before `SCORED_EPISODES` episodes have ended"""
        self._goal = goal
        self._of_actors = of_actors
        self._returns: deque[float] = deque(maxlen=SCORED_EPISODES)

    @property
    def is_reached(self) -> bool:
        """Whether the goal is reached now."""
        return self._goal is not None and self.value is not None and self.value >= self._goal

    def update(self, report: IntervalReport) -> float | None:
        """Take in one more interval; return the score after it."""
        self._returns.extend(report.episode_returns)
        if report.learner_return is not None and not self._of_actors:
            self.value = report.learner_return
        elif len(self._returns) == SCORED_EPISODES:
            self.value = math.fsum(self._returns) / SCORED_EPISODES
        return self.value
