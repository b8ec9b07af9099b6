"""Episode: the loop that drives every run, from its start to its horizon."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from accerl.monitor.features import Features
from accerl.monitor.indicators import Indicator
from accerl.monitor.monitor import Monitor
from accerl.runtime.run import InnerRun, IntervalReport, Snapshot
from accerl.spec import Decision


class Episode:
    """One inner run, interval by interval: apply a decision, advance, update the monitor.

    Training and the control environment both drive it, so a controller learns on the loop that it
    is used in. The first interval may be shorter than the others, and the last one is where they
    do not fill the horizon. The features give the time in seconds and as a fraction of the horizon.

    Args:
        run: the inner run, before its first interval; `close` closes it.
        horizon_seconds: length of the episode on the run's clock.
        interval_seconds: length of one interval.
        first_interval_seconds: length of the first one; 0: as long as the others.
        indicators: the user's own, new ones; see `Monitor`.
    """

    def __init__(
        self,
        run: InnerRun,
        *,
        horizon_seconds: float,
        interval_seconds: float,
        first_interval_seconds: float = 0.0,
        indicators: Sequence[Indicator] = (),
    ) -> None:
        self.run = run
        self.horizon_seconds = horizon_seconds
        self.interval_seconds = interval_seconds
        self.first_interval_seconds = first_interval_seconds or interval_seconds
        self.intervals = 0
        """how many have been run"""
        self.total_seconds = 0.0
        """the run's clock"""
        self._monitor = Monitor(run.num_actions, horizon_seconds, indicators)
        self.features: Features = self._monitor.start()
        """what a strategy sees before the next interval"""

    @property
    def finished(self) -> bool:
        """Whether the run's clock has reached the horizon, but for rounding."""
        return self.total_seconds >= self.horizon_seconds * (1.0 - 1e-9)

    def step(self, decision: Decision) -> tuple[Features, IntervalReport]:
        """Act for one interval; return the features after it, and its report with `indicators`."""
        self.run.apply(decision)
        left = self.horizon_seconds - self.total_seconds
        length = self.interval_seconds if self.intervals else self.first_interval_seconds
        report = self.run.advance(min(length, left))
        self._update(report)
        known = self._monitor.known(self.features)
        return self.features, replace(report, indicators=known)

    def _update(self, report: IntervalReport) -> None:
        # Strategies see what a process sees of its machine, not what is done to the machine.
        # A report that is read again has what was added to it afterwards.
        seen = replace(report, conditions=(), indicators={}, explanation={})
        self.features = self._monitor.update(seen)
        self.intervals += 1
        self.total_seconds = report.total_seconds

    def snapshot(self) -> Snapshot:
        """Return what `restore` needs besides the reports."""
        return {"intervals": self.intervals, "run": self.run.snapshot()}

    def restore(
        self, snapshot: Mapping[str, Any], reports: Iterable[IntervalReport]
    ) -> list[Features]:
        """Become the episode that `snapshot` was taken from; only before the first interval.

        Args:
            snapshot: see `snapshot`.
            reports: of the intervals that it had run.

        Returns:
            the features before each of these intervals.
        """
        self.run.restore(snapshot["run"])
        before = []
        for report in reports:
            before.append(self.features)
            self._update(report)
        return before

    def close(self) -> None:
        """Close the run; safe to call twice."""
        self.run.close()
