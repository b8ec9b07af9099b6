"""`accerl bench advice`: whether what `accerl profile advise` predicts holds on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.runtime.latency.predict import advise
from accerl.runtime.latency.profile import LatencyProfile
from accerl.settings import configure
from accerl.spec import IDENTITY, CompressionSpec, Decision
from accerl.training.run import make_run
from studies.benchmarks.clocks.here import measured_here
from studies.benchmarks.repeats import apart, median_and_spread, result_of, timed_here
from studies.jobs.cache import ResultCache
from studies.progress import bar

SERVED = 0.9
"""share of a window that a spec must have acted in, for the window to be of it"""
WARM_UP = 0.4
"""share of the time of each spec that is left out: it has to be published and loaded first"""


def bench_advice(
    *,
    game: str = "pong",
    network: str = "original",
    specs: Sequence[CompressionSpec],
    actors: int = 0,
    seconds: float = 12.0,
    repeats: int = 1,
    rounds: int = 5,
    seed: int = 0,
    kept: ResultCache | None = None,
) -> dict[str, Any]:
    """Measure this machine's profile, predict each spec from it, and let each act for real.

    In each repeat all specs act one after the other in one run, in rotated order. A machine's other
    sizes are tried by giving the command fewer cores (`taskset`).

    Args:
        game: what is played.
        network: the learner's.
        specs: that act, fp32 first.
        actors: processes that act; 0: as many as a run would have here.
        seconds: of each spec and repeat.
        repeats: runs, in which each spec has its turn.
        rounds: of the profile's measurements.
        seed: of the first repeat.
        kept: holds what an earlier call that was interrupted has done, and gets what is done here.

    Raises:
        UserError: a name or number is not allowed, a spec cannot act here, no update falls into the
            time of one, or the process that measures was killed.
    """
    if min(repeats, rounds) < 1 or actors < 0 or not 4.0 <= seconds < 3600.0:
        raise UserError(
            "bench advice: --repeats and --rounds are positive, --actors is not negative, and "
            f"--seconds lies in 4..3600, not {seconds:g}"
        )
    specs = list(dict.fromkeys([IDENTITY, *specs]))
    config = _config(game, network, actors)
    actors = config.runtime.num_actors
    kept = ResultCache(None) if kept is None else kept
    here = timed_here()  # whose seconds are not to be mixed with another's
    labels = [spec.label for spec in specs]
    key = ["profile", here, config.hash, labels, rounds]
    data = kept.get(key, lambda: measured_here("here", config, specs, rounds).to_json())
    profile = LatencyProfile.from_json(data)
    advice = advise(profile, config)
    predicted = {row.spec: row for row in advice.rows}
    for spec in specs:
        if spec not in predicted:
            raise UserError(f"bench advice: {spec.label} cannot be made of {network}; leave it out")
    real: dict[CompressionSpec, list[dict[str, Any]]] = {spec: [] for spec in specs}
    with bar("real clock", repeats) as advance:
        for repeat in range(repeats):
            order = [*specs[repeat % len(specs) :], *specs[: repeat % len(specs)]]
            run = replace(config, seed=seed + repeat)
            key = ["real", here, run.hash, [spec.label for spec in order], seconds]
            found = kept.get(
                key, lambda run=run, order=order: apart(_run, run, order, seconds, what="the specs")
            )
            for spec, shown in zip(order, found, strict=True):
                real[spec].append(shown)
            advance()
    rows = [_row(predicted[spec].to_json(), spec, real[spec], real[IDENTITY]) for spec in specs]
    return result_of(
        "advice",
        game=game,
        network=config.network,
        device=config.learner.device,
        precision=config.learner.precision,
        actors=actors,
        cores=profile.cores,
        seconds=seconds,
        seeds=list(range(seed, seed + repeats)),
        rows=rows,
        advised=advice.start.spec.label,
        **_agreement(rows, advice.start.spec.label),
        profile=profile.to_json(),
    )


def _config(game: str, network: str, actors: int) -> RunConfig:
    settings = {
        "runtime.runtime": "process",
        "runtime.clock": "real",
        "runtime.eval_episodes": 0,
        "runtime.num_actors": actors,
        "runtime.interval_seconds": 3600.0,
    }
    return configure(game, settings, label="setting", network=network, seconds=3600.0).adapted()


def _run(
    config: RunConfig, specs: Sequence[CompressionSpec], seconds: float
) -> list[dict[str, Any]]:
    """Let specs act one after the other in one run; return what each showed."""
    torch.set_num_threads(1)
    run = make_run(config)
    try:
        found = []
        for spec in specs:
            run.apply(Decision.of(spec))
            run.advance(WARM_UP * seconds)
            report = run.advance((1.0 - WARM_UP) * seconds)
            if not report.env_steps:
                raise UserError(
                    f"bench advice: {spec.label}: no update in the window; give more --seconds"
                )
            acted = report.spec_seconds.get(spec, 0.0) / sum(report.spec_seconds.values())
            cores = {name: took / report.seconds for name, took in report.cpu_seconds.items()}
            found.append(
                {
                    "env_steps_per_second": report.env_steps / report.seconds,
                    "policy_lag": report.policy_lag,
                    "acted": acted,
                    "cores": cores,
                }
            )
        return found
    finally:
        run.close()


def _row(
    predicted: Mapping[str, Any],
    spec: CompressionSpec,
    runs: Sequence[Mapping[str, Any]],
    fp32: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    speeds = [run["env_steps_per_second"] for run in runs]
    real, spread = median_and_spread(speeds)
    pairs = zip(speeds, fp32, strict=True)
    processes = sorted({name for run in runs for name in run["cores"]})
    return {
        "spec": spec.to_json(),
        "label": spec.label,
        "predicted": predicted["env_steps_per_second"],
        "predicted_lag": predicted["policy_lag"],
        "predicted_speedup": predicted["speedup"],
        "limit": predicted["limit"],
        "real": real,
        "spread": spread,
        "real_all": speeds,
        "acted": float(min(run["acted"] for run in runs)),
        "real_lag": float(np.median([run["policy_lag"] for run in runs])),
        "real_speedup": median_and_spread([x / y["env_steps_per_second"] for x, y in pairs])[0],
        "error": predicted["env_steps_per_second"] / real - 1.0,
        "cores": {
            name: float(np.median([run["cores"].get(name, 0.0) for run in runs]))
            for name in processes
        },
    }


def _agreement(rows: Sequence[Mapping[str, Any]], advised: str) -> dict[str, Any]:
    """Return how far off the predictions are, and what following the advice costs.

    What hardly acted, such as a student that waited to be admitted, shows another's pace, and is
    left out.
    """
    served = [row for row in rows if row["acted"] >= SERVED]
    if not served:
        raise UserError(
            f"bench advice: no spec acted for {SERVED:.0%} of its window; give more --seconds"
        )
    errors = np.abs([row["error"] for row in served])
    ratios = [row["predicted_speedup"] / row["real_speedup"] for row in served if row != rows[0]]
    speedups = np.abs(np.array(ratios) - 1.0)
    fastest = max(served, key=lambda row: row["real"])
    mine = next((row for row in served if row["label"] == advised), None)
    return {
        "left_out": [row["label"] for row in rows if row not in served],
        "error_median": float(np.median(errors)),
        "error_max": float(np.max(errors)),
        "speedup_error_median": float(np.median(speedups)) if len(speedups) else 0.0,
        "speedup_error_max": float(np.max(speedups)) if len(speedups) else 0.0,
        "fastest": fastest["label"],
        "advised_over_fastest": None if mine is None else mine["real"] / fastest["real"],
    }
