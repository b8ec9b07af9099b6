"""Open-loop schedules: what a controller usually did, by fraction of the horizon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from accerl.errors import UserError
from accerl.monitor.features import Features
from accerl.runtime.latency.families import machine_of
from accerl.spec import CompressionSpec, Decision
from controller.actions import HEADS, Actions
from controller.objective import interval_starts

POOLED = "all"
"""The schedule over every game together, for a game that was not trained on."""
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
"""shares of the recorded runs at which a schedule has the level of each head"""
FARTHEST = 2.0
"""share of its horizon up to which a schedule answers: a run may last longer than planned"""
RULES: dict[str, Any] = {
    "heads": list(HEADS),
    "quantiles": list(QUANTILES),
    "combination": "medoid",
}
"""how schedules are made from runs; a point's combination is the `medoid`"""


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
    levels: Mapping[str, Sequence[Any]]
    """per head, its level at each of QUANTILES over the recorded runs"""


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

    @property
    def specs(self) -> tuple[CompressionSpec, ...]:
        """Every spec that it acts with, each once."""
        decisions = (point.decision for point in self.points)
        return tuple(dict.fromkeys(spec for decision in decisions for spec in decision.named))

    def at(self, fraction: float) -> Decision:
        """Return the decision at a fraction of the horizon; the last one holds beyond the end.

        Raises:
            UserError: it is no fraction, but a count of updates, say.
        """
        if not 0.0 <= fraction <= FARTHEST:
            raise UserError(
                "schedule: at() takes the share of the training that is over, from 0 to 1, got "
                f"{fraction!r}"
            )
        # A clock summed up from intervals may stop a rounding error short of the next point.
        past = [point for point in self.points if point.fraction <= fraction + 1e-9]
        return (past[-1] if past else self.points[0]).decision

    def check(self, actions: Actions) -> None:
        """Refuse a schedule that leaves what a policy chooses from.

        Raises:
            UserError: a spec or a level is not in it, quantiles fall, or an agreement is no share.
        """
        for spec in self.specs:
            actions.indices(spec)
        levels = actions.knobs
        for point in self.points:
            if not 0.0 < point.agreement <= 1.0:
                raise UserError(f"schedule: agreement {point.agreement!r} is no share above 0")
            if set(point.levels) != set(HEADS):
                raise UserError(f"schedule: levels of {', '.join(HEADS)} are needed")
            for head, values in point.levels.items():
                places = [levels[head].index(value) for value in values if value in levels[head]]
                if len(places) != len(QUANTILES) or len(values) != len(QUANTILES):
                    raise UserError(
                        f"schedule: {head} has levels {list(values)}, {len(QUANTILES)} of "
                        f"{list(levels[head])} are needed"
                    )
                if places != sorted(places):
                    raise UserError(f"schedule: the quantiles of {head} fall: {list(values)}")

    def to_json(self) -> list[dict[str, Any]]:
        """Return the points as JSON objects."""
        return [
            {
                **vars(point),
                "decision": point.decision.to_json(),
                "levels": {head: list(values) for head, values in point.levels.items()},
            }
            for point in self.points
        ]

    @classmethod
    def from_json(cls, data: Sequence[Mapping[str, Any]]) -> Schedule:
        """Read a schedule written by `to_json`."""
        points = [{**item, "decision": Decision.from_json(item["decision"])} for item in data]
        return cls(tuple(SchedulePoint(**point) for point in points))


def medoid(chosen: np.ndarray) -> tuple[int, ...]:
    """Return the row of `chosen` with the fewest level steps in total to all rows.

    Heads may each have a median that no run ever chose together with the others'. The tuple of
    medians has the fewest steps of all combinations, so it is the medoid where a run did choose
    it; elsewhere the medoid is the nearest thing to it that exists. Ties go to the milder one.

    Args:
        chosen: level indices of one moment, [runs, heads].
    """
    candidates = np.unique(chosen, axis=0)
    steps = np.abs(candidates[:, None] - chosen[None]).sum(axis=(1, 2))
    found = min(zip(steps, candidates.tolist(), strict=True), key=lambda c: (c[0], sum(c[1]), c[1]))
    return tuple(found[1])


def median_schedule(
    actions: Actions,
    episodes: Sequence[Sequence[Sequence[int]]],
    horizon_seconds: float,
    interval_seconds: float,
    first_interval_seconds: float = 0.0,
) -> Schedule:
    """Return the median schedule: of each interval the `medoid`, and quantiles of every head.

    A quantile is the mildest level that at least this share of the runs did not exceed.

    Args:
        actions: what the indices mean.
        episodes: per recorded run, one index tuple per interval.
        horizon_seconds: length of a run.
        interval_seconds: length of an interval.
        first_interval_seconds: of the first one; 0: as long as the others.

    Raises:
        UserError: there are no runs, or one is not as long as the horizon.
    """
    starts = interval_starts(horizon_seconds, interval_seconds, first_interval_seconds)
    if not episodes or any(len(episode) != len(starts) for episode in episodes):
        raise UserError(
            f"schedule: needs runs of {len(starts)} intervals each, "
            f"got lengths {sorted({len(episode) for episode in episodes})}"
        )
    knobs, points = actions.knobs, []
    for step, seconds in enumerate(starts.tolist()):
        specs = [actions.spec(episode[step]) for episode in episodes]
        chosen = np.array([_places(spec, knobs) for spec in specs], dtype=np.int64)
        nearest = medoid(chosen)
        # Specs that differ in nothing but rank or graph are in the same place.
        there = [
            spec for spec, row in zip(specs, chosen.tolist(), strict=True) if tuple(row) == nearest
        ]
        spec = min(there, key=lambda each: (-there.count(each), actions.indices(each)))
        ranks = np.quantile(chosen, QUANTILES, axis=0, method="inverted_cdf").astype(int)
        points.append(
            SchedulePoint(
                fraction=seconds / horizon_seconds,
                seconds=seconds,
                decision=Decision.of(spec),
                agreement=specs.count(spec) / len(specs),
                levels={
                    head: [knobs[head][place] for place in ranks[:, column].tolist()]
                    for column, head in enumerate(HEADS)
                },
            )
        )
    return Schedule(tuple(points))


def _places(spec: CompressionSpec, knobs: Mapping[str, Sequence[Any]]) -> list[int]:
    """Return the place of a spec's level among each head's."""
    return [knobs[head].index(getattr(spec, head)) for head in HEADS]


def median_schedules(
    actions: Actions,
    episodes: Mapping[str, Sequence[Sequence[Sequence[int]]]],
    lengths: Mapping[str, tuple[float, ...]],
    groups: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Schedule]:
    """Return one schedule per instance, one per group, and the pooled one of all.

    Args:
        actions: what the indices mean.
        episodes: per instance, recorded runs as in `median_schedule`.
        lengths: per instance, horizon, interval and first interval in seconds. All must have the
            same number of intervals; schedules over several have the longest one's seconds.
        groups: per instance, what it belongs to, see `groups_of`; None: nothing.
    """
    members = {name: [name] for name in episodes}
    for name, belongs in (groups or {}).items():
        for group in belongs:
            if group != name:
                members.setdefault(group, []).append(name)
    members[POOLED] = list(episodes)
    return {
        group: median_schedule(
            actions,
            [episode for name in names for episode in episodes[name]],
            *max(lengths[name] for name in names),
        )
        for group, names in members.items()
    }


def groups_of(game: str, profile: str | None) -> tuple[str, ...]:
    """Return what schedules an instance belongs to: its machine's family, if any, and its game.

    Args:
        game: its name.
        profile: name of its latency profile; None: it has none.
    """
    machine = None if profile is None else machine_of(profile)
    return (game,) if machine is None else (machine[0], game)


def names_for(game: str, profile: str | None) -> tuple[str, ...]:
    """Return whose schedules suit a run, best first: its own, then those of its `groups_of`.

    Args:
        game: its name.
        profile: name of the latency profile that charges its clock; None: its clock is real, or
            its machine is not known.
    """
    groups = groups_of(game, profile)
    return groups if profile is None else (f"{game}-{profile}", *groups)


class ReplayedSchedule:
    """A Strategy that follows a schedule by the clock alone and ignores every other feature."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule

    @property
    def specs(self) -> tuple[CompressionSpec, ...]:
        """Every spec of the schedule, each once."""
        return self.schedule.specs

    def reset(self) -> None:
        """Nothing to forget."""

    def decide(self, features: Features) -> Decision:
        """Return the schedule's decision at this fraction of this run's horizon."""
        return self.schedule.at(features.raw["seconds"] / features.raw["horizon_seconds"])
