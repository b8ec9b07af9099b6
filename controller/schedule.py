"""Open-loop schedules: what a controller usually did, by fraction of the horizon."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accerl.errors import UserError
from accerl.monitor.features import Features
from accerl.spec import CompressionSpec, Decision
from controller.actions import Actions
from controller.objective import num_intervals

POOLED = "all"
"""The schedule over every game together, for a game that was not trained on."""


@dataclass(frozen=True, kw_only=True)
class SchedulePoint:
    """From this moment on, act with this decision."""

    fraction: float
    """of the horizon, in [0, 1)"""
    seconds: float
    """the same moment on the clock of the recorded runs"""
    decision: Decision
    agreement: float
    """share of the recorded runs that chose it, in (0, 1]"""


@dataclass(frozen=True)
class Schedule:
    """Decisions in time order; the first one starts at 0.

    Raises:
        UserError: there are no points, or they are out of order.
    """

    points: tuple[SchedulePoint, ...]

    def __post_init__(self) -> None:
        fractions = [point.fraction for point in self.points]
        if not fractions or fractions[0] != 0.0 or fractions[-1] >= 1.0:
            raise UserError("schedule: points must start at fraction 0 and end before 1")
        if sorted(set(fractions)) != fractions:
            raise UserError("schedule: the fractions of its points must increase")

    def at(self, fraction: float) -> Decision:
        """Return the decision at a fraction of the horizon; the last one holds beyond the end."""
        # A clock summed up from intervals may stop a rounding error short of the next point.
        past = [point for point in self.points if point.fraction <= fraction + 1e-9]
        return (past[-1] if past else self.points[0]).decision

    def to_json(self) -> list[dict[str, Any]]:
        """Return the points as JSON objects."""
        return [
            {
                "fraction": point.fraction,
                "seconds": point.seconds,
                "decision": point.decision.to_json(),
                "agreement": point.agreement,
            }
            for point in self.points
        ]

    @classmethod
    def from_json(cls, data: Sequence[Mapping[str, Any]]) -> Schedule:
        """Read a schedule written by `to_json`."""
        points = [{**item, "decision": Decision.from_json(item["decision"])} for item in data]
        return cls(tuple(SchedulePoint(**point) for point in points))


def summarise(
    actions: Actions,
    episodes: Sequence[Sequence[Sequence[int]]],
    horizon_seconds: float,
    interval_seconds: float,
) -> Schedule:
    """Return the most common joint action of each interval; ties go to the milder one.

    Args:
        actions: what the indices mean.
        episodes: per recorded run, one index tuple per interval.
        horizon_seconds: length of a run.
        interval_seconds: length of an interval.

    Raises:
        UserError: there are no runs, or one is not as long as the horizon.
    """
    steps = num_intervals(horizon_seconds, interval_seconds)
    if not episodes or any(len(episode) != steps for episode in episodes):
        raise UserError(
            f"schedule: needs runs of {steps} intervals each, "
            f"got lengths {sorted({len(episode) for episode in episodes})}"
        )
    points = []
    for step in range(steps):
        votes = Counter(tuple(int(i) for i in episode[step]) for episode in episodes)
        indices, count = min(votes.items(), key=lambda item: (-item[1], sum(item[0]), item[0]))
        points.append(
            SchedulePoint(
                fraction=step * interval_seconds / horizon_seconds,
                seconds=step * interval_seconds,
                decision=actions.decision(indices),
                agreement=count / len(episodes),
            )
        )
    return Schedule(tuple(points))


def summarise_games(
    actions: Actions,
    episodes: Mapping[str, Sequence[Sequence[Sequence[int]]]],
    lengths: Mapping[str, tuple[float, float]],
) -> dict[str, Schedule]:
    """Return one schedule per game, and the pooled one of all games.

    Args:
        actions: what the indices mean.
        episodes: per game, recorded runs as in `summarise`.
        lengths: per game, horizon and interval in seconds. All games must have the same number
            of intervals; the pooled schedule has the longest game's seconds.
    """
    schedules = {game: summarise(actions, runs, *lengths[game]) for game, runs in episodes.items()}
    pooled = [episode for game in episodes.values() for episode in game]
    schedules[POOLED] = summarise(actions, pooled, *max(lengths.values()))
    return schedules


class ReplayedSchedule:
    """A Strategy that follows a schedule by the clock alone and ignores every other feature."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule

    @property
    def specs(self) -> tuple[CompressionSpec, ...]:
        """Every spec of the schedule, each once."""
        decisions = (point.decision for point in self.schedule.points)
        return tuple(dict.fromkeys(spec for decision in decisions for spec in decision.specs))

    def reset(self) -> None:
        """Nothing to forget."""

    def decide(self, features: Features) -> Decision:
        """Return the schedule's decision at this fraction of this run's horizon."""
        return self.schedule.at(features.raw["seconds"] / features.raw["horizon_seconds"])
