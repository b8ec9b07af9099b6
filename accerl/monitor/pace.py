"""PaceIndicator: what one piece of each kind of work took, in seconds of the run's clock."""

from __future__ import annotations

import math
from collections.abc import Mapping

from accerl.runtime.run import IntervalReport

ACTING = ("env", "infer", "write")


class PaceIndicator:
    """Seconds of each piece of work in the last interval, as the processes saw them pass.

    Per env step for `env`, `infer` and `write` (of the one process, or group of processes, that
    makes it), per update for `learn`, per publication for `publish`; NaN where nothing was done.
    `busy_actors` is how many were at work on average. A process that has to share its core takes
    longer for the same work. Raw indicators: no entry of the feature vector has them, because
    their units differ from machine to machine.
    """

    names = (
        "env_seconds_per_step",
        "infer_seconds_per_step",
        "write_seconds_per_step",
        "learn_seconds_per_update",
        "publish_seconds_each",
        "busy_actors",
    )

    def update(self, report: IntervalReport, raw: Mapping[str, float]) -> Mapping[str, float]:
        """See `Indicator.update`."""

        def each(phase: str, count: int) -> float:
            seconds = report.phase_seconds.get(phase, 0.0)
            return seconds / count if count > 0 and seconds > 0.0 else math.nan

        acting = sum(report.phase_seconds.get(phase, 0.0) for phase in ACTING)
        return {
            **{f"{phase}_seconds_per_step": each(phase, report.env_steps) for phase in ACTING},
            "learn_seconds_per_update": each("learn", report.learner_updates),
            "publish_seconds_each": each("publish", report.publications),
            "busy_actors": acting / max(report.seconds, 1e-9),
        }
