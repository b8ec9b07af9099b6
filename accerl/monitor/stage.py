"""Stage: exploration, improving or convergence (paper, Figure 5), read from the returns' trend."""

from __future__ import annotations

import math
from enum import IntEnum

from accerl.monitor.indicators import Raw
from accerl.runtime.run import IntervalReport


class TrainingStage(IntEnum):
    """The three stages of a run; `raw["stage"]` holds the number."""

    EXPLORATION = 0
    IMPROVING = 1
    CONVERGENCE = 2


class StageIndicator:
    """Detects the stage, with hysteresis: what begins a stage is more than what keeps it going.

    The paper asks "how to judge which stage the training is in" and leaves it open. Here returns
    *rise* when the slope of recent episodes is `rise_t` standard errors above zero and gains at
    least `rise_share` of their range within the window; they *rest* when it is below `rest_t` or
    gains less than `rest_share`. `RISING` such intervals in a row lead to improving, from either
    side; `RESTING` in a row lead from improving to convergence. Between the two bounds, and while
    too few episodes have ended, the stage stays what it is. Exploration ends once.

    Needs the values of `SlopeIndicator`, which must come before it.
    """

    names = ("stage",)
    RISING = 2
    RESTING = 4

    def __init__(
        self,
        *,
        rise_t: float = 3.0,
        rise_share: float = 0.05,
        rest_t: float = 1.5,
        rest_share: float = 0.02,
    ) -> None:
        if rest_t > rise_t or rest_share > rise_share:
            raise ValueError("the bounds of resting must not exceed those of rising")
        self._rise = (rise_t, rise_share)
        self._rest = (rest_t, rest_share)
        self._stage = TrainingStage.EXPLORATION
        self._rising = 0
        self._resting = 0

    def update(self, report: IntervalReport, raw: Raw) -> Raw:
        """See `Indicator.update`."""
        slope_t, share = raw["return_slope_t"], raw["return_gain_share"]
        # An interval in which no episode ended repeats the last trend, and is no further evidence.
        if report.episode_returns and not math.isnan(slope_t):
            rises = slope_t >= self._rise[0] and share >= self._rise[1]
            rests = slope_t < self._rest[0] or share < self._rest[1]
            self._rising = self._rising + 1 if rises else 0
            self._resting = self._resting + 1 if rests else 0
            if self._rising >= self.RISING:
                self._stage = TrainingStage.IMPROVING
            elif self._stage is TrainingStage.IMPROVING and self._resting >= self.RESTING:
                self._stage = TrainingStage.CONVERGENCE
        return {"stage": float(self._stage)}
