"""`accerl bench clock`: whether runs on the virtual clock predict runs on the real one."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from accerl.errors import UserError, did_you_mean
from accerl.monitor.strategies import make_strategy
from accerl.runtime.latency.compare import drift, middle
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.run import IntervalReport
from accerl.spec import CompressionSpec
from accerl.training.run import run_training
from analysis.comparison.stats import spearman
from studies.benchmarks.clocks.clock_cases import (
    SECONDS,
    WARM_UP_INTERVALS,
    Case,
    all_specs,
    cases_of,
    clock_config,
)
from studies.benchmarks.clocks.here import measured_here, on_virtual_clock
from studies.benchmarks.repeats import apart, refuse_killed, result_of, rotated, timed_here
from studies.jobs.cache import ResultCache
from studies.progress import bar

RESAMPLES = 2000
LEAST_SECONDS = 4.0


def bench_clock(
    *,
    games: Sequence[str] = tuple(SECONDS),
    seconds: float | None = None,
    seeds: int = 3,
    repeats: int = 5,
    workers: int = 2,
    kept: ResultCache | None = None,
) -> dict[str, Any]:
    """Run every case on the real clock and on the virtual one, and compare.

    All cases run in the process runtime, one at a time and interleaved over seeds, on an otherwise
    idle machine. Before and after, a latency profile is measured of each game's own environments
    and networks; machines drift, so the mean of both charges the same cases on the virtual clock,
    where they do not disturb each other.
    The first intervals (imports, first publication, first sessions) are left out on both sides.

    Args:
        games: what to play.
        seconds: length of each run; None: `SECONDS`.
        seeds: runs of each case.
        repeats: rounds of the measured profiles.
        workers: processes for the virtual runs.
        kept: holds what an earlier call that was interrupted has done, and gets what is done here.

    Raises:
        UserError: a game does not exist, a number is not allowed, or a process was killed.
    """
    for game in games:
        if game not in SECONDS:
            raise UserError(f"bench clock: no game {game!r}; {did_you_mean(game, [*SECONDS])}")
    if not games or min(seeds, workers, repeats) < 1:
        raise UserError("bench clock: name a game; --seeds, --workers, --repeats are positive")
    if seconds is not None and not LEAST_SECONDS <= seconds < 3600.0:
        raise UserError(f"bench clock: --seconds must lie in {LEAST_SECONDS:g}..3600")
    lengths = {game: seconds or SECONDS[game] for game in games}
    kept = ResultCache(None) if kept is None else kept
    here = timed_here()  # whose seconds are not to be mixed with another's

    def measured(game: str, when: str) -> LatencyProfile:
        config = clock_config(game, lengths[game])
        make = partial(measured_here, f"clock-{game}", config, all_specs(game), repeats)
        key = ["profile", here, when, config.hash, repeats]
        return LatencyProfile.from_json(kept.get(key, lambda: make().to_json()))

    before = {game: measured(game, "before") for game in games}
    cases = [case for game in games for case in cases_of(game)]
    keys = [(case, seed) for seed in range(seeds) for case in rotated(cases, 7 * seed)]
    real: dict[tuple[str, str, int], dict[str, Any]] = {}
    with bar("real clock", len(keys)) as advance:
        for case, seed in keys:
            key = ["real", here, _key(case, lengths[case.game], seed)]
            found = kept.get(
                key,
                lambda case=case, seed=seed: apart(
                    _run, case, lengths[case.game], seed, None, what=f"{case.game} {case.label}"
                ),
            )
            real[case.game, case.label, seed] = found
            advance(1, f"{case.game} {case.label}: {found['env_steps_per_second']:,.0f} steps/s")
    after = {game: measured(game, "after") for game in games}
    profiles = {game: middle(before[game], after[game]) for game in games}
    virtual = _predicted(keys, lengths, profiles, workers, kept)
    rows = [_row(case, range(seeds), real, virtual) for case in cases]
    return result_of(
        "clock",
        games=list(games),
        seconds=lengths,
        seeds=list(range(seeds)),
        rows=rows,
        **_agreement(rows),
        drift={game: drift(before[game], after[game]) for game in games},
        profiles={game: profile.to_json() for game, profile in profiles.items()},
    )


def _predicted(
    keys: Sequence[tuple[Case, int]],
    lengths: Mapping[str, float],
    profiles: Mapping[str, LatencyProfile],
    workers: int,
    kept: ResultCache,
) -> dict[tuple[str, str, int], dict[str, Any]]:
    """Run every (case, seed) on the virtual clock; return what each showed."""
    virtual: dict[tuple[str, str, int], dict[str, Any]] = {}
    spawn = multiprocessing.get_context("spawn")
    with (
        refuse_killed("the virtual clock"),
        bar("virtual clock", len(keys)) as advance,
        ProcessPoolExecutor(workers, spawn) as pool,
        ExitStack() as leaving,
    ):
        # An interruption must not wait for runs that have not begun.
        leaving.callback(pool.shutdown, wait=False, cancel_futures=True)
        names, futures = {}, {}
        for case, seed in keys:
            run, profile = (case, lengths[case.game], seed), profiles[case.game]
            place = (case.game, case.label, seed)
            names[place] = ["virtual", profile.hash, _key(*run)]
            if names[place] not in kept:
                futures[place] = pool.submit(_run, *run, profile.to_json())
        for place, name in names.items():
            virtual[place] = kept.get(name, lambda place=place: futures[place].result())
            advance()
    return virtual


def _key(case: Case, seconds: float, seed: int) -> list[Any]:
    """Return what a run on either clock depends on."""
    config = replace(clock_config(case.game, seconds), seed=seed)
    return [config.hash, case.strategy, dict(case.params)]


def _run(case: Case, seconds: float, seed: int, profile: dict[str, Any] | None) -> dict[str, Any]:
    """Run one case; on the virtual clock if there is a profile. Return what it showed."""
    torch.set_num_threads(1)
    config = replace(clock_config(case.game, seconds), seed=seed)
    latency = None
    if profile is not None:
        config = on_virtual_clock(config)
        latency = LatencyProfile.from_json(profile)
    strategy = make_strategy(case.strategy, **case.params)
    reports = run_training(config, strategy, profile=latency).reports
    return {**_speed(reports[WARM_UP_INTERVALS:]), **_learned(reports)}


def _speed(reports: Sequence[IntervalReport]) -> dict[str, Any]:
    lags: Counter[int] = Counter()
    for report in reports:
        lags.update({int(lag): count for lag, count in report.lag_rollouts.items()})
    seconds = sum(report.seconds for report in reports)
    shares = {
        name: sum(report.phase_seconds[name] for report in reports) / seconds
        for name in reports[0].phase_seconds
    }
    return {
        "env_steps_per_second": sum(report.env_steps for report in reports) / seconds,
        "lags": {str(lag): count for lag, count in lags.items()},
        "phase_shares": shares,
    }


def _learned(reports: Sequence[IntervalReport]) -> dict[str, Any]:
    """Return the area under J over the run's seconds, per second: the mean of its measurements.

    What J rose by would say nothing of runs that have learned the game before they end, and its
    last value little of how soon.
    """
    found = [report.learner_return for report in reports if report.learner_return is not None]
    return {"return_per_second": float(np.mean(found)) if found else None}


def _spec_of(case: Case) -> dict[str, Any]:
    """Return the spec that a case holds, if it holds one."""
    given = case.params.get("spec")
    return {} if given is None else {"spec": CompressionSpec.from_json(given).to_json()}


def _row(
    case: Case,
    seeds: Sequence[int],
    real: Mapping[tuple[str, str, int], dict[str, Any]],
    virtual: Mapping[tuple[str, str, int], dict[str, Any]],
) -> dict[str, Any]:
    mine = [real[case.game, case.label, seed] for seed in seeds]
    theirs = [virtual[case.game, case.label, seed] for seed in seeds]

    def speeds(runs: Sequence[Mapping[str, Any]]) -> list[float]:
        return [run["env_steps_per_second"] for run in runs]

    measured, predicted = float(np.median(speeds(mine))), float(np.median(speeds(theirs)))
    if not measured:
        raise UserError(
            f"bench clock: {case.game} with {case.label} made no env step after its warm-up; give "
            "more --seconds"
        )
    row: dict[str, Any] = {
        "game": case.game,
        "label": case.label,
        "strategy": case.strategy,
        **_spec_of(case),
        "real": measured,
        "virtual": predicted,
        "error": predicted / measured - 1.0,
        "real_all": speeds(mine),
        "virtual_all": speeds(theirs),
        "lag": _lags(mine, theirs),
        "phase_shares": {
            "real": _medians([run["phase_shares"] for run in mine]),
            "virtual": _medians([run["phase_shares"] for run in theirs]),
        },
    }
    if mine[0].get("return_per_second") is not None:
        row["return_real_all"] = [run["return_per_second"] for run in mine]
        row["return_virtual_all"] = [run["return_per_second"] for run in theirs]
    return row


def _medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: float(np.median([run[name] for run in runs])) for name in runs[0]}


def _lags(
    real: Sequence[Mapping[str, Any]], virtual: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return both distributions of policy lag, and how far apart they are.

    `distance_updates` is the area between the two distribution functions (Wasserstein-1).
    """
    pooled = []
    for runs in (real, virtual):
        lags: Counter[int] = Counter()
        for run in runs:
            lags.update({int(lag): count for lag, count in run["lags"].items()})
        total = max(sum(lags.values()), 1)
        pooled.append({lag: count / total for lag, count in sorted(lags.items())})
    last = max((lag for shares in pooled for lag in shares), default=0)
    tables = [np.cumsum([shares.get(lag, 0.0) for lag in range(last + 1)]) for shares in pooled]
    means = [sum(lag * share for lag, share in shares.items()) for shares in pooled]
    return {
        "real_mean": means[0],
        "virtual_mean": means[1],
        "distance_updates": float(np.abs(tables[0] - tables[1]).sum()),
        "real": {str(lag): share for lag, share in pooled[0].items()},
        "virtual": {str(lag): share for lag, share in pooled[1].items()},
    }


def _agreement(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how well the tiers agree, over all games and by game."""
    errors = np.abs([row["error"] for row in rows])
    learned = [row for row in rows if "return_real_all" in row]
    by_game = {}
    for game in dict.fromkeys(row["game"] for row in rows):
        own = [row for row in rows if row["game"] == game]
        found = np.abs([row["error"] for row in own])
        by_game[game] = {
            "time_error_median": float(np.median(found)),
            "time_error_max": float(np.max(found)),
            "spearman_speed": _known(
                spearman([r["real"] for r in own], [r["virtual"] for r in own])
            ),
        }
    return {
        "time_error_median": float(np.median(errors)),
        "time_error_max": float(np.max(errors)),
        **_rank_agreement(learned),
        "by_game": by_game,
        "disagreements": _disagreements(rows),
    }


def _known(value: float) -> float | None:
    """JSON has no NaN."""
    return None if np.isnan(value) else value


def _rank_agreement(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return Spearman's rho of the return per second between the tiers, with its 95% interval.

    The interval is a bootstrap's over cases and, within each, over seeds (n - 1 of n are drawn).
    A case that is drawn twice ties with itself on both sides, so it is somewhat optimistic.
    """
    if len(rows) < 3:
        return {"spearman": None, "spearman_low": None, "spearman_high": None}
    real = np.array([row["return_real_all"] for row in rows])
    virtual = np.array([row["return_virtual_all"] for row in rows])
    rho = spearman(list(np.median(real, axis=1)), list(np.median(virtual, axis=1)))
    rng = np.random.default_rng(0)
    drawn = []
    count, seeds = real.shape
    for _ in range(RESAMPLES):
        cases = rng.integers(count, size=count)
        size = (count, max(seeds - 1, 1))
        mine = real[cases[:, None], rng.integers(seeds, size=size)]
        theirs = virtual[cases[:, None], rng.integers(seeds, size=size)]
        drawn.append(spearman(list(np.median(mine, axis=1)), list(np.median(theirs, axis=1))))
    drawn = [each for each in drawn if not np.isnan(each)]
    if np.isnan(rho) or not drawn:  # nothing was gained on one of the clocks
        return {"spearman": None, "spearman_low": None, "spearman_high": None}
    low, high = np.quantile(drawn, (0.025, 0.975))
    return {"spearman": rho, "spearman_low": float(low), "spearman_high": float(high)}


def _disagreements(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say in words where the virtual clock is wrong."""
    lines = []
    for row in sorted(rows, key=lambda row: -abs(row["error"])):
        if abs(row["error"]) > 0.08:
            side = "faster" if row["error"] > 0.0 else "slower"
            lines.append(
                f"{row['game']} {row['label']}: the virtual clock is {abs(row['error']):.0%} "
                f"{side} ({row['virtual']:,.0f} against {row['real']:,.0f} env steps/s)"
            )
        if row["lag"]["distance_updates"] > 1.0:
            lines.append(
                f"{row['game']} {row['label']}: policy lag {row['lag']['virtual_mean']:.1f} "
                f"against {row['lag']['real_mean']:.1f} updates"
            )
    return lines
