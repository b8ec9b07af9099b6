"""Indicators: what a run's reports say about it, by name and in their own units (paper, 2.4)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

from accerl.monitor.trend import Trend, TrendWindow
from accerl.runtime.run import IntervalReport
from accerl.spec import STUDENTS, Decision

Raw = Mapping[str, float]
_MUCH_LONGER = 1.5  # times, beyond which an interval is not just late


class Indicator(Protocol):
    """One or several numbers made of every interval's report.

    A user's own needs no more than these two::

        class Troubles:
            names = ("troubles",)

            def update(self, report, raw):
                return {"troubles": float(len(report.events))}

    An indicator that remembers is made anew for every run.
    """

    @property
    def names(self) -> Sequence[str]:
        """What it is called by; before the first interval each is NaN."""
        ...

    def update(self, report: IntervalReport, raw: Raw) -> Raw:
        """Return a value for each name after `report`; NaN where it cannot be known.

        Args:
            report: what happened in the interval.
            raw: the values of the indicators before this one, after the same report.
        """
        ...


def last_known(known: dict[str, float], measured: Mapping[str, float | None]) -> dict[str, float]:
    """Return `known` with what was measured now; an interval that measures nothing changes nothing.

    A strategy must not take silence for agreement.
    """
    known.update({name: value for name, value in measured.items() if value is not None})
    return known


class EntropyIndicator:
    """Entropy of the learner's policy, in nats and as a share of the largest possible."""

    names = ("entropy_nats", "entropy_fraction")

    def __init__(self, num_actions: int) -> None:
        self._largest_nats = math.log(num_actions)

    def update(self, report: IntervalReport, raw: Raw) -> Raw:
        """See `Indicator.update`."""
        # A game with a single action has nothing to explore.
        share = report.entropy_nats / self._largest_nats if self._largest_nats else 0.0
        return {"entropy_nats": report.entropy_nats, "entropy_fraction": share}


class ReturnIndicator:
    """The paper's cumulative reward: raw scores of the actors' episodes, and the learner's J.

    `actor_return` is the mean of the last `WINDOW` episodes, `actor_return_new` of those of them
    that ended in the interval; low, median and high are quantiles (10, 50, 90%) of the last
    `QUANTILE_WINDOW`. `learner_return` is J when it was measured last, `learner_return_new` if that
    was in the interval. The reward gap is J minus `actor_return`: what
    compression costs in points, as far as both are known. Level and trend place `actor_return`
    within the range that it has had; `episodes` counts those that have ended so far.
    """

    WINDOW: ClassVar[int] = 20
    QUANTILE_WINDOW: ClassVar[int] = 100
    TREND_INTERVALS: ClassVar[int] = 4
    names = (
        "actor_return",
        "actor_return_new",
        "actor_return_low",
        "actor_return_median",
        "actor_return_high",
        "learner_return",
        "learner_return_new",
        "reward_gap",
        "return_level",
        "return_trend",
        "episodes",
    )

    def __init__(self) -> None:
        self._episodes: list[float] = []
        self._levels: list[float] = []
        self._low, self._high = math.inf, -math.inf
        self._learner_return = math.nan
        self._count = 0

    def update(self, report: IntervalReport, raw: Raw) -> Raw:
        """See `Indicator.update`."""
        self._episodes = [*self._episodes, *report.episode_returns][-self.QUANTILE_WINDOW :]
        self._count += len(report.episode_returns)
        measured = report.learner_return
        if measured is not None:
            self._learner_return = measured
        recent = self._episodes[-self.WINDOW :]
        actor_return = sum(recent) / len(recent) if recent else math.nan
        new = report.episode_returns[-self.WINDOW :]
        ordered = sorted(self._episodes)
        low, median, high = (_quantile(ordered, share) for share in (0.1, 0.5, 0.9))
        level, trend = self._on_own_range(actor_return)
        return {
            "actor_return": actor_return,
            "actor_return_new": sum(new) / len(new) if new else math.nan,
            "actor_return_low": low,
            "actor_return_median": median,
            "actor_return_high": high,
            "learner_return": self._learner_return,
            "learner_return_new": math.nan if measured is None else measured,
            "reward_gap": self._learner_return - actor_return,
            "return_level": level,
            "return_trend": trend,
            "episodes": float(self._count),
        }

    def _on_own_range(self, actor_return: float) -> tuple[float, float]:
        """Return where the return lies in its own running range, and its change of late on that."""
        if math.isnan(actor_return):
            return 0.0, 0.0
        self._low, self._high = min(self._low, actor_return), max(self._high, actor_return)
        self._levels = [*self._levels, actor_return][-self.TREND_INTERVALS :]
        span = self._high - self._low
        if span <= 0.0:
            return 0.0, 0.0
        return (actor_return - self._low) / span, (actor_return - self._levels[0]) / span


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which that share of `ordered` lies, between two by interpolation."""
    if not ordered:
        return math.nan
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


class SlopeIndicator:
    """How fast the actors' return rises, and how surely: least squares over recent episodes.

    `return_slope_t` is the slope over its standard error; `return_gain_share` is the rise over
    the window as a share of the range that interval means have had. The window is 6 intervals, and
    a tenth of the run if that is longer: what is slow within hours is fast within minutes.
    """

    SHARE: ClassVar[float] = 0.1

    names = ("return_slope_per_second", "return_slope_t", "return_gain_share")

    def __init__(self, horizon_seconds: float) -> None:
        self._window = TrendWindow(seconds=self.SHARE * horizon_seconds)

    def update(self, report: IntervalReport, raw: Raw) -> Raw:
        """See `Indicator.update`."""
        self._window.add(report.total_seconds, report.episode_returns)
        trend: Trend = self._window.trend()
        return dict(zip(self.names, trend, strict=True))


class CorrectionIndicator:
    """How much the correctors have to do, and how well the values fit what they make."""

    names = ("ess_fraction", "clipped_share", "value_error", "explained_variance")

    def __init__(self) -> None:
        self._known: dict[str, float] = dict.fromkeys(self.names, math.nan)

    def update(self, report: IntervalReport, raw: Raw) -> Raw:
        """See `Indicator.update`."""
        measured = {name: report.losses.get(name) for name in self.names}
        return dict(last_known(self._known, measured))


class MachineIndicator:
    """Where the seconds go: throughput, which process waits, and what publishing costs.

    `env_share`, `infer_share` and `write_share` are of the actors' busy seconds;
    `publish_share` (compressing, distilling, publishing) and `switch_share` are of the interval's.
    `core_share` is the part of their busy seconds in which actors had a core, as a process sees it:
    its processor seconds over the clock's. `speed_ratio` compares env steps per second with those
    of the first interval, or of the second where the first was much shorter.
    """

    names = (
        "env_steps_per_second",
        "speed_ratio",
        "learner_idle",
        "queue_fill",
        "policy_lag",
        "env_share",
        "infer_share",
        "write_share",
        "core_share",
        "publish_share",
        "bytes_per_second",
        "switch_seconds",
        "switch_share",
    )

    def __init__(self) -> None:
        self._usual_speed, self._usual_seconds = 0.0, 0.0  # what others are compared with
        self._is_second = False

    def update(self, report: IntervalReport, raw: Raw) -> Raw:
        """See `Indicator.update`."""
        seconds = max(report.seconds, 1e-9)
        speed = report.env_steps / seconds
        is_first = self._usual_speed == 0.0
        is_full = self._is_second and seconds > _MUCH_LONGER * self._usual_seconds
        if speed > 0.0 and (is_first or is_full):
            self._usual_speed, self._usual_seconds = speed, seconds
        self._is_second = is_first and speed > 0.0
        phases = report.phase_seconds
        learning = phases.get("learn", 0.0) + phases.get("wait", 0.0)
        actors = ("env", "infer", "write")
        acting = sum(phases.get(name, 0.0) for name in actors)
        core = report.actor_core_seconds
        publishing = phases.get("compress", 0.0) + phases.get("publish", 0.0)
        return {
            "env_steps_per_second": speed,
            "speed_ratio": speed / self._usual_speed if self._usual_speed > 0.0 else 1.0,
            "learner_idle": phases.get("wait", 0.0) / learning if learning > 0.0 else 0.0,
            "queue_fill": report.queue_fill,
            "policy_lag": report.policy_lag,
            **{
                f"{name}_share": phases.get(name, 0.0) / acting if acting > 0.0 else 0.0
                for name in actors
            },
            "core_share": min(core / acting, 1.0) if acting > 0.0 and core > 0.0 else math.nan,
            "publish_share": publishing / seconds,
            "bytes_per_second": report.publication_bytes / seconds,
            "switch_seconds": report.switch_seconds,
            "switch_share": report.switch_seconds / seconds,
        }


class SlowdownIndicator:
    """How many times as long the same work takes as it did before in this run.

    Seconds of the interval over those of all intervals before it: per env step (`env`, `infer`),
    per update (`learn`), per publication (`publish`). What depends on the spec is compared with
    intervals in which the same was decided to act only; NaN where there is nothing to compare.
    """

    names = ("env_slowdown", "infer_slowdown", "learn_slowdown", "publish_slowdown")

    def __init__(self) -> None:
        self._past: dict[tuple[str, Decision | None], tuple[float, int]] = {}

    def update(self, report: IntervalReport, raw: Raw) -> Raw:
        """See `Indicator.update`."""
        decision = report.decision.without_shadow
        return {
            "env_slowdown": self._ratio(report, "env", report.env_steps),
            "infer_slowdown": self._ratio(report, "infer", report.env_steps, decision),
            "learn_slowdown": self._ratio(report, "learn", report.learner_updates),
            "publish_slowdown": self._ratio(report, "publish", report.publications, decision),
        }

    def _ratio(
        self, report: IntervalReport, phase: str, count: int, decision: Decision | None = None
    ) -> float:
        seconds = report.phase_seconds.get(phase, 0.0)
        if count <= 0 or seconds <= 0.0:
            return math.nan
        past_seconds, past_count = self._past.get((phase, decision), (0.0, 0))
        self._past[phase, decision] = (past_seconds + seconds, past_count + count)
        return seconds * past_count / (count * past_seconds) if past_count else math.nan


def decision_levels(decision: Decision) -> dict[str, float]:
    """Return what a decision acts with as numbers in [0, 1]: means over the mix, 0: uncompressed.

    `bits_level` is 0, 0.5, 1 for 32, 16, 8 bits; `sparsity` is the spec's; `student_level` is the
    place in the network's family (`CompressionSpec.size_rank`) over 3, which is Net3's.
    """
    students = max(len(STUDENTS) - 1, 1)
    return {
        "bits_level": sum(share * (5 - math.log2(spec.bits)) / 2.0 for spec, share in decision.mix),
        "sparsity": sum(share * spec.sparsity for spec, share in decision.mix),
        "student_level": sum(share * spec.size_rank / students for spec, share in decision.mix),
    }


class DecisionIndicator:
    """What was decided, see `decision_levels`, and whether it acted all along.

    `served_share` is the part of the actors' seconds in which they acted with what was decided:
    compressing and publishing take their time, and until then they act with what they have; while
    a student waits to be admitted, something milder acts.
    """

    names = (
        "bits_level",
        "sparsity",
        "student_level",
        "intervals_since_switch",
        "served_share",
    )

    def __init__(self) -> None:
        self._last: Decision | None = None
        self._since_switch = 0

    def update(self, report: IntervalReport, raw: Raw) -> Raw:
        """See `Indicator.update`."""
        decision = report.decision.without_shadow
        self._since_switch = self._since_switch + 1 if decision == self._last else 0
        self._last = decision
        # Exact sums: a resumed run reads them in another order.
        acting = math.fsum(report.spec_seconds.values())
        served = math.fsum(report.spec_seconds.get(spec, 0.0) for spec in report.decision.specs)
        return {
            **decision_levels(report.decision),
            "intervals_since_switch": float(self._since_switch),
            "served_share": served / acting if acting > 0.0 else math.nan,
        }
