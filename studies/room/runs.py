"""What a run of the matrix says: seconds and env steps to each target, and what it reached."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.comparison.curves import seconds_to_target
from analysis.comparison.room.matrix import Matrix
from controller.env.instances import Instance
from studies.jobs.inner import StrategyResult
from studies.room.plan import TARGETS

Rows = Sequence[Mapping[str, Any]]


def rows_of(instance: Instance, label: str, seed: int, result: StrategyResult) -> list[dict]:
    """Return a row for each target of a run.

    Env steps to target are read off the run's own clock, so that a run that misses the target has
    made `env_steps_to_target` by its horizon; None: it had not made a single one.

    Args:
        instance: with its game's reference.
        label: of the spec that acted, or name of what chose.
        seed: of the run.
        result: of the run.
    """
    times, returns = np.array(result.times), np.array(result.returns)
    rows = []
    for share in TARGETS:
        target = instance.random_return + share * instance.reference.span
        found = seconds_to_target(times, returns, target, instance.horizon_seconds)
        # At the very first measurement nothing has been done: a ratio would be none.
        seconds = max(found.seconds, float(times[1]) / 2.0)
        steps = float(np.interp(seconds, times, result.env_steps))
        rows.append(
            {
                "game": instance.game,
                "machine": instance.profile,
                "group": instance.group,
                "label": label,
                "seed": seed,
                "target": share,
                "seconds_to_target": seconds,
                "env_steps_to_target": steps if steps >= 1.0 else None,
                "censored": found.censored,
                "final_return": result.final_return(instance),
                "compression_kl_nats": result.compression_kl_nats,
            }
        )
    return rows


def log_seconds(rows: Rows) -> float:
    """Return the mean over a run's targets of log seconds: what runs are compared by."""
    return sum(math.log(row["seconds_to_target"]) for row in rows) / len(rows)


def log_steps(rows: Rows) -> float:
    """Return the mean over a run's targets of log env steps; NaN: at one of them it had none."""
    steps = [row["env_steps_to_target"] for row in rows]
    return math.nan if None in steps else sum(map(math.log, steps)) / len(steps)


def at_target(
    runs: Mapping[tuple[str, str, int], Rows], share: float
) -> dict[tuple[str, str, int], Rows]:
    """Return the rows of one target alone."""
    return {key: [row for row in rows if row["target"] == share] for key, rows in runs.items()}


def reached_share(rows: Rows) -> float:
    """Return the share of rows whose target was reached."""
    return sum(not row["censored"] for row in rows) / max(len(rows), 1)


def make_matrix(
    instances: Sequence[Instance],
    specs: Sequence[str],
    seeds: Sequence[int],
    runs: Mapping[tuple[str, str, int], Rows],
) -> Matrix:
    """Return runs as a matrix.

    Args:
        instances: its first axis.
        specs: its second.
        seeds: its third.
        runs: rows by name of the instance, spec and seed; what is not there was not run.
    """
    shape = (len(instances), len(specs), len(seeds))
    seconds, steps = np.full(shape, np.nan), np.full(shape, np.nan)
    is_bound = np.zeros(shape, dtype=bool)
    for n, item in enumerate(instances):
        for s, spec in enumerate(specs):
            for k, seed in enumerate(seeds):
                rows = runs.get((item.name, spec, seed))
                if rows:
                    seconds[n, s, k], steps[n, s, k] = log_seconds(rows), log_steps(rows)
                    is_bound[n, s, k] = reached_share(rows) < 1.0
    return Matrix(
        instances=tuple(item.name for item in instances),
        games=tuple(item.game for item in instances),
        machines=tuple(item.profile for item in instances),
        specs=tuple(specs),
        seeds=tuple(seeds),
        log_seconds=seconds,
        log_steps=steps,
        is_bound=is_bound,
        log_horizon=np.log([item.horizon_seconds for item in instances]),
    )
