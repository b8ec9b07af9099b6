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
    *rise* when the slope of recent episodes is `RISE_T` standard errors above zero and gains at
    least `RISE_SHARE` of their range within the window; they *rest* when it is less than `REST_T`
    from zero, or moves less than `REST_SHARE`, upwards or down: a collapse is no convergence.
    `RISING` such intervals in a row lead to improving, from either side; `RESTING` in a row lead
    from improving to convergence. Between the two bounds, and while too few episodes have ended,
    the stage stays what it is. Exploration ends once.

    Needs the values of `SlopeIndicator`, which must come before it.
    """

    names = ("stage",)
    RISE_T, RISE_SHARE = 3.0, 0.05
    REST_T, REST_SHARE = 1.5, 0.02
    RISING = 2
    RESTING = 4

    def __init__(self) -> None:
        self._stage = TrainingStage.EXPLORATION
        self._rising = 0
        self._resting = 0

    def update(self, report: IntervalReport, raw: Raw) -> Raw:
        """See `Indicator.update`."""
        slope_t, share = raw["return_slope_t"], raw["return_gain_share"]
        # An interval in which no episode ended repeats the last trend, and is no further evidence.
        if report.episode_returns and not math.isnan(slope_t):
            rises = slope_t >= self.RISE_T and share >= self.RISE_SHARE
            rests = abs(slope_t) < self.REST_T or abs(share) < self.REST_SHARE
            self._rising = self._rising + 1 if rises else 0
            self._resting = self._resting + 1 if rests else 0
            if self._rising >= self.RISING:
                self._stage = TrainingStage.IMPROVING
            elif self._stage is TrainingStage.IMPROVING and self._resting >= self.RESTING:
                self._stage = TrainingStage.CONVERGENCE
        return {"stage": float(self._stage)}
