"""`accerl bench events`: the same events on the real clock and on the virtual one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from accerl.acting.rollout import RolloutShape
from accerl.config import RunConfig
from accerl.envs import make_envs
from accerl.errors import UserError
from accerl.monitor.strategies import FixedStrategy
from accerl.presets import load_preset
from accerl.runtime.conditions import (
    ACTORS,
    BANDWIDTH,
    CO_TENANT,
    THROTTLE,
    Condition,
    Conditions,
)
from accerl.runtime.latency.compare import drift, middle
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.process.shaped_pipe import rollout_bytes
from accerl.runtime.run import IntervalReport
from accerl.spec import IDENTITY, CompressionSpec
from accerl.training.run import run_training
from studies.benchmarks.clocks.here import measured_here, on_virtual_clock
from studies.benchmarks.repeats import apart, result_of, timed_here
from studies.jobs.cache import ResultCache
from studies.progress import bar

BYTES_PER_MBIT = 1e6 / 8.0
DOWN_MBIT_PER_SECOND = 200.0
"""of the link that publications pass, where nothing else is asked for"""
INTERVALS = 10
"""in the time that an event lasts, and between two"""
DURING = "during"
WINDOWS = ("before", DURING, "after")
MEDIAN_BAR, WORST_BAR = 0.10, 0.20
LEAST_SECONDS = 2.0


def bench_events(
    *,
    game: str = "breakout",
    network: str = "net1",
    spec: CompressionSpec = IDENTITY,
    actors: int = 2,
    down_mbit: float = DOWN_MBIT_PER_SECOND,
    up_mbit: float = 0.0,
    piece_seconds: float = 12.0,
    seeds: int = 3,
    repeats: int = 5,
    conditions: Conditions | None = None,
    kept: ResultCache | None = None,
) -> dict[str, Any]:
    """Run a schedule on the real clock of this machine, and on the virtual one with its profile.

    The profile is measured before and after; the mean of both charges the virtual runs. Compared
    are env steps/s in the piece before each event, during it, and in the piece after it, without
    the first interval of each, which an event may begin in. Medians over seeds.

    Args:
        game: to play.
        network: of the learner, and of actors.
        spec: that these act with.
        actors: processes.
        down_mbit: a second, of the link that publications pass; 0: memory does.
        up_mbit: likewise, that rollouts pass.
        piece_seconds: how long each event of `schedule` lasts, and the pause after it.
        seeds: runs on each clock.
        repeats: rounds of the measured profiles.
        conditions: other events, and their links; None: `schedule`.
        kept: holds what an earlier call that was interrupted has done, and gets what is done here.

    Raises:
        UserError: a number is not allowed, or a process that measures was killed.
    """
    _check(min(actors, seeds, repeats), piece_seconds, down_mbit, up_mbit)
    kept, here = ResultCache(None) if kept is None else kept, timed_here()
    if conditions is None:
        links = {"down": down_mbit * BYTES_PER_MBIT, "up": up_mbit * BYTES_PER_MBIT}
        conditions = schedule(piece_seconds, actors, **links)
    config = events_config(game, network, actors, piece_seconds, conditions)

    def measured(when: str) -> LatencyProfile:
        key = ["profile", here, when, config.hash, spec.label, repeats]
        data = kept.get(key, lambda: _measure(config, spec, repeats).to_json())
        return LatencyProfile.from_json(data)

    def played(clock: str, profile: LatencyProfile | None = None) -> list[dict[str, Any]]:
        found, charged = [], profile and profile.to_json()
        with bar(f"{clock} clock", seeds) as advance:
            for seed in range(seeds):
                machine = profile and profile.hash
                key = [clock, here, machine, replace(config, seed=seed).hash, spec.label]
                run = partial(apart, _run, config, spec, seed, charged, what=f"the {clock} clock")
                found.append(kept.get(key, run))
                advance()
        return found

    before, real, after = measured("before"), played("real"), measured("after")
    profile = middle(before, after)
    both = real, played("virtual", profile)
    rows = compare_events(conditions, piece_seconds, config.seconds, *both)
    return result_of(
        "events",
        game=game,
        network=network,
        spec=spec.to_json(),
        actors=actors,
        seconds=config.seconds,
        seeds=list(range(seeds)),
        conditions=conditions.to_json(),
        rows=rows,
        **_agreement(rows),
        drift=drift(before, after),
        profile=profile.to_json(),
    )


def _check(least: int, piece_seconds: float, *links: float) -> None:
    """Refuse numbers that cannot be.

    Args:
        least: of actors, seeds and repeats.
        piece_seconds: how long an event lasts.
        links: their Mbit a second.
    """
    if least < 1 or not LEAST_SECONDS <= piece_seconds <= 3600.0:
        raise UserError(
            "bench events: --actors, --seeds and --repeats are positive, and --piece-seconds lies "
            f"in {LEAST_SECONDS:g}..3600"
        )
    if not all(0.0 <= link < math.inf for link in links):
        raise UserError("bench events: --down-mbit and --up-mbit are finite and not negative")


def schedule(piece_seconds: float, actors: int, *, down: float, up: float = 0.0) -> Conditions:
    """Return one event of each kind, with as long a pause before, between and after.

    Others take one core; every core is two times slower, then that of an actor; half of the actors
    leave, then one more joins; if there is a link, its bandwidth falls to a fifth.

    Args:
        piece_seconds: how long each lasts.
        actors: processes.
        down: bytes a second of the link that publications pass; 0: there is none.
        up: of the one that rollouts pass.
    """
    kinds = [
        (CO_TENANT, 1.0, ""),
        (THROTTLE, 2.0, ""),
        (THROTTLE, 2.0, "actor-0"),
        (ACTORS, float(max(actors // 2, 1)), ""),
        (ACTORS, float(actors + 1), ""),
        (BANDWIDTH, 0.2, ""),
    ]
    events = (
        Condition(
            at_seconds=(2 * index + 2) * piece_seconds,  # the first piece is for warming up
            lasts_seconds=piece_seconds,
            kind=kind,
            amount=amount,
            process=process,
        )
        for index, (kind, amount, process) in enumerate(kinds)
        if not (kind == ACTORS and amount == actors)
        and not (kind == BANDWIDTH and down == up == 0.0)
    )
    return Conditions(tuple(events), down_bytes_per_second=down, up_bytes_per_second=up)


def events_config(
    game: str, network: str, actors: int, piece_seconds: float, conditions: Conditions
) -> RunConfig:
    """Return the run on the real clock, which ends a piece after the last event."""
    ends = max((event.ends for event in conditions.events), default=piece_seconds)
    config = replace(load_preset(game), network=network).with_runtime(
        runtime="process",
        clock="real",
        num_actors=actors,
        interval_seconds=piece_seconds / INTERVALS,
        eval_episodes=0,
    )
    return replace(config, seconds=ends + piece_seconds, conditions=conditions).adapted()


def compare_events(
    conditions: Conditions,
    piece_seconds: float,
    seconds: float,
    real: Sequence[Mapping[str, Any]],
    virtual: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Return env steps/s on both clocks, by event and window; ratio is real over virtual.

    Args:
        conditions: what happened.
        piece_seconds: length of the windows before and after an event.
        seconds: length of the runs.
        real: of each seed, `ends` (clock at the end of each interval) and `env_steps` of each.
        virtual: the same on the virtual clock.
    """
    rows = []
    alike = Counter(event.words for event in conditions.events)
    for event in sorted(conditions.events, key=lambda event: event.at_seconds):
        edges = (
            max(event.at_seconds - piece_seconds, 0.0),
            event.at_seconds,
            event.ends,
            min(event.ends + piece_seconds, seconds),
        )
        for name, (begins, ends) in zip(WINDOWS, pairwise(edges), strict=True):
            mine = _speed(real, begins, ends)
            theirs = _speed(virtual, begins, ends)
            rows.append(
                {
                    "event": event.words if alike[event.words] == 1 else _with_time(event),
                    "window": name,
                    "begins": begins,
                    "ends": ends,
                    "real": mine,
                    "virtual": theirs,
                    "ratio": mine / theirs if mine and theirs else None,
                }
            )
    return rows


def _with_time(event: Condition) -> str:
    """Return an event's words where others have the same."""
    return f"{event.words}, at {event.at_seconds:g} s"


def _agreement(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how far apart the clocks are, in all and during events, and if it is little enough.

    None stands for what was not measured.
    """
    errors = list(window_errors(rows).values())
    during = list(window_errors([row for row in rows if row["window"] == DURING]).values())
    if not errors:
        return dict.fromkeys(("error_median", "error_max", "error_median_during", "within"))
    median, worst = float(np.median(errors)), float(np.max(errors))
    return {
        "error_median": median,
        "error_max": worst,
        "error_median_during": float(np.median(during)) if during else None,
        "within": median <= MEDIAN_BAR and worst <= WORST_BAR,
    }


def window_errors(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[float, float], float]:
    """Return |real / virtual - 1| by window: what is after one event may be before the next.

    1 where one clock alone stood still, or had one interval for the whole window. Where both did,
    there is no error to speak of.
    """
    return {
        (row["begins"], row["ends"]): 1.0 if row["ratio"] is None else abs(row["ratio"] - 1.0)
        for row in rows
        if row["real"] or row["virtual"]
    }


def _speed(runs: Sequence[Mapping[str, Any]], begins: float, ends: float) -> float | None:
    """Return env steps/s within a window, without its first interval; the median over runs."""
    found = []
    for run in runs:
        clocks, steps = [0.0, *run["ends"]], run["env_steps"]
        inside = [
            (after - before, count)
            for (before, after), count in zip(pairwise(clocks), steps, strict=True)
            # On the real clock an interval ends with an update, a little late.
            if before >= begins and after <= ends + 0.5 * (after - before)
        ][1:]
        if inside:
            found.append(sum(count for _, count in inside) / sum(length for length, _ in inside))
    return float(np.median(found)) if found else None


def _measure(config: RunConfig, spec: CompressionSpec, repeats: int) -> LatencyProfile:
    """Return what the run takes on this machine, over the links of its conditions."""
    specs = list(dict.fromkeys((IDENTITY, spec)))
    return replace(
        measured_here(f"events-{config.game}", config, specs, repeats),
        down_bytes_per_second=config.conditions.down_bytes_per_second,
        up_bytes_per_second=config.conditions.up_bytes_per_second,
        step_bytes=_step_bytes(config),
    )


def _step_bytes(config: RunConfig) -> float:
    """Return the bytes of a rollout per env step, as they pass a real run's link."""
    with closing(make_envs(config.game, 1, config.env)) as envs:
        shape = RolloutShape.of(envs, config.learner.unroll)
    return rollout_bytes(shape) / shape.samples


def _run(
    config: RunConfig, spec: CompressionSpec, seed: int, profile: dict[str, Any] | None
) -> dict[str, Any]:
    """Run once; on the virtual clock if there is a profile. Return its intervals' env steps."""
    torch.set_num_threads(1)
    config, latency = replace(config, seed=seed), None
    if profile is not None:
        config = on_virtual_clock(config)
        latency = LatencyProfile.from_json(profile)
    reports: Sequence[IntervalReport] = run_training(
        config, FixedStrategy(spec), profile=latency
    ).reports
    return {
        "ends": [report.total_seconds for report in reports],
        "env_steps": [report.env_steps for report in reports],
    }
