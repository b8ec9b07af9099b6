"""The instances of the room: horizons, changing conditions, references and targets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.presets import load_preset
from accerl.records import json_hash
from accerl.runtime.conditions import UNCHANGING
from accerl.runtime.latency.games import times_of_run
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.profiles import PAPER, load_profile
from accerl.spec import IDENTITY, CompressionSpec
from analysis.comparison.curves import measurement_noise
from controller.env.compatibility import incompatibility
from controller.env.instances import Instance, keeping_pace, measured_preset
from controller.env.machine_instances import drawn_conditions, stretched_horizon
from controller.env.references import random_return
from studies.contest.budget import FP32, REFERENCE_SEEDS
from studies.contest.study import strategy_job
from studies.jobs.inner import StrategyJob, StrategyResult
from studies.room.plan import (
    CHANGING,
    CONFIRMED,
    CONFIRMED_MACHINES,
    CONFIRMED_SEEDS,
    CONTROL,
    EASY,
    INTERVALS,
    STEADY,
    STRETCH,
    RoomBudget,
)

CLEAR, NOISE_POINTS = 4.0, 3
"""what is learned must exceed `CLEAR` times the spread of J's first `NOISE_POINTS` values"""
ATARI_RANDOM = {"pong": -20.7, "breakout": 1.7}
"""mean score of random play (Mnih et al. 2015)"""


def run_config(game: str, budget: RoomBudget) -> RunConfig:
    """Return a game's preset with the precision and the distilling of a budget, measuring J."""
    config = measured_preset(game)
    if budget.precision is not None:
        config = config.with_precision(budget.precision)
    if budget.keeps_pace:
        config = keeping_pace(config)
    return config


def make_cell(
    game: str,
    latency: LatencyProfile,
    env_steps: float,
    specs: Sequence[CompressionSpec],
    group: str,
    budget: RoomBudget,
) -> Instance:
    """Return a game on a machine, as long as the fastest of some specs takes for so many env steps.

    Args:
        game: a preset.
        latency: of the machine.
        env_steps: of the spec that is predicted fastest.
        specs: that the machine has times for.
        group: that it belongs to; where conditions change, events are drawn from the hash of game,
            machine and horizon.
        budget: see `run_config`.
    """
    config = run_config(game, budget)
    times = times_of_run(latency, config)
    horizon, interval = stretched_horizon(config, times, env_steps, specs, INTERVALS)
    conditions = UNCHANGING
    if group == CHANGING:
        seed = int(json_hash([game, latency.hash, horizon])[:12], 16)
        conditions = drawn_conditions(seed, horizon, config, times)
    return Instance(
        game=game,
        profile=latency.name,
        latency=latency,
        base=replace(config, seconds=horizon, conditions=conditions),
        group=group,
        horizon_seconds=horizon,
        interval_seconds=interval,
    )


def find_specs(
    budget: RoomBudget, games: Sequence[str], machines: Mapping[str, LatencyProfile]
) -> tuple[tuple[CompressionSpec, ...], dict[str, list[str]]]:
    """Return the specs that every machine has times for, and the machines that lack the others'."""
    missing: dict[str, list[str]] = {}
    for game in games:
        config = run_config(game, budget)
        for name, latency in machines.items():
            times = times_of_run(latency, config)
            for spec in specs_beside(game, budget.specs):
                if not times.has(spec) and name not in missing.get(spec.label, []):
                    missing.setdefault(spec.label, []).append(name)
    return tuple(spec for spec in budget.specs if spec.label not in missing), missing


def make_cells(
    budget: RoomBudget,
    machines: Mapping[str, LatencyProfile],
    specs: Sequence[CompressionSpec],
) -> list[Instance]:
    """Return all instances of a budget, without references."""

    def cell(game: str, machine: str, env_steps: int, group: str) -> Instance:
        latency, config = machines[machine], run_config(game, budget)
        times = times_of_run(latency, config)
        own = [each for each in specs if incompatibility(config.network, times, each) is None]
        return make_cell(game, latency, STRETCH * env_steps, own, group, budget)

    found = [
        cell(game, machine, env_steps, CHANGING if (row + column) % 2 else STEADY)
        for row, (game, env_steps) in enumerate(budget.games.items())
        for column, machine in enumerate(budget.machines)
    ]
    found += [
        cell(game, machine, env_steps, EASY)
        for game, env_steps in budget.easy.items()
        for machine in budget.machines
    ]
    if budget.control_machine:
        found += [
            cell(game, budget.control_machine, env_steps, CONTROL)
            for game, env_steps in (budget.easy or budget.games).items()
        ]
    chosen = budget.machines[:: max(len(budget.machines) // CONFIRMED_MACHINES, 1)]
    found += [
        cell(game, machine, env_steps, CONFIRMED)
        for game, env_steps in budget.confirmed.items()
        for machine in chosen[:CONFIRMED_MACHINES]
    ]
    return found


def specs_beside(game: str, specs: Sequence[CompressionSpec]) -> tuple[CompressionSpec, ...]:
    """Return the specs that actors can act with beside the game's learner."""
    network = load_preset(game).network
    return tuple(spec for spec in specs if incompatibility(network, None, spec) is None)


def reference_cells(budget: RoomBudget) -> dict[str, Instance]:
    """Return by game what the long runs without compression are made on."""
    paper = load_profile(PAPER)
    lengths = {**budget.games, **budget.easy, **budget.confirmed}
    return {
        game: make_cell(game, paper, env_steps, (IDENTITY,), "", budget)
        for game, env_steps in lengths.items()
    }


def reference_jobs(budget: RoomBudget) -> list[StrategyJob]:
    """Return the long runs without compression, game by game."""
    return [
        strategy_job(item, seed, FP32)
        for item in reference_cells(budget).values()
        for seed in reference_seeds(budget, item.game)
    ]


def reference_seeds(budget: RoomBudget, game: str) -> list[int]:
    """Return the seeds of a game's long runs; the confirmation is given few."""
    count = CONFIRMED_SEEDS if game in budget.confirmed else budget.reference_runs
    return list(REFERENCE_SEEDS[:count])


def find_references(
    jobs: Sequence[StrategyJob], results: Sequence[StrategyResult]
) -> dict[str, dict[str, Any]]:
    """Return by game what random play and long runs reach, as fields of instances.

    Raises:
        UserError: training reached no more than random play, as far as J's noise lets one tell.
    """
    reached: dict[str, list[float]] = {}
    untrained: dict[str, list[float]] = {}
    for job, result in zip(jobs, results, strict=True):
        reached.setdefault(job.instance.game, []).append(result.final_return(job.instance))
        untrained.setdefault(job.instance.game, []).extend(result.returns[1 : 1 + NOISE_POINTS])
    found = {}
    for game, returns in reached.items():
        random = ATARI_RANDOM[game] if game in ATARI_RANDOM else random_return(game)
        middle = median(returns)
        noise = float(np.std(untrained[game]))
        if not middle - random > CLEAR * noise:
            raise UserError(
                f"{game}: fp32 training reached {middle:.3g}, random play {random:.3g}, and J is "
                f"uncertain by {noise:.2g}: that is no target; the game needs more env steps"
            )
        found[game] = {
            "random_return": random,
            "reference_return": middle,
            "target_return": middle,
            "fp32_returns": tuple(returns),
        }
    return found


def scales_of(
    jobs: Sequence[StrategyJob],
    results: Sequence[StrategyResult],
    references: Mapping[str, Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Return by game how far long runs without compression get, and how well J tells.

    `noise_share` is the standard deviation of one measurement of J over the way from random play
    to `reference_return`, of what is not the same in all of a run's, see `measurement_noise`; None:
    it is not known.

    Args:
        jobs: of `reference_jobs`.
        results: of them.
        references: of `find_references`.
    """
    rows = []
    for game, scale in references.items():
        curves = [
            np.array(result.returns)
            for job, result in zip(jobs, results, strict=True)
            if job.instance.game == game
        ]
        share = measurement_noise(curves) / (scale["reference_return"] - scale["random_return"])
        own = {name: scale[name] for name in ("random_return", "reference_return")}
        rows.append({"game": game, **own, "noise_share": share if math.isfinite(share) else None})
    return rows


def with_references(
    instances: Sequence[Instance], references: Mapping[str, Mapping[str, Any]]
) -> list[Instance]:
    """Return the instances with scale and targets of their games."""
    return [replace(item, **references[item.game]) for item in instances]
