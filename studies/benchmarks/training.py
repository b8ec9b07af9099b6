"""`accerl bench training`: learning with compressed actors on this machine's real clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.monitor.strategies import FixedStrategy
from accerl.settings import configure
from accerl.spec import CompressionSpec
from accerl.training.run import run_training
from studies.benchmarks.repeats import result_of, timed_here
from studies.jobs.cache import ResultCache
from studies.learning.curve import LearningCurve
from studies.learning.job import INTERVALS
from studies.progress import bar
from studies.students.plan import SCORES, Case, acting
from studies.students.table import case_result

HERE = "this machine"


def bench_training(
    *,
    game: str = "breakout",
    network: str = "net1",
    specs: Sequence[CompressionSpec],
    scores: Sequence[float] = (),
    seconds: float = 300.0,
    seeds: int = 2,
    seed: int = 0,
    kept: ResultCache | None = None,
) -> dict[str, Any]:
    """Train with each spec for as long, interleaved; return scores, speeds and KL.

    Seed by seed every spec has its run of the process runtime, in rotated order. A student pays
    for its distilling as it would for its user: with the cores that it takes.

    Args:
        game: what is learned.
        network: the learner's.
        specs: that actors act with; the first is what the others are compared with.
        scores: that they are timed to, as means of 20 episodes; by default those that are known.
        seconds: of each run.
        seeds: runs of each spec.
        seed: the first.
        kept: holds what an earlier call that was interrupted has done, and gets what is done here.

    Raises:
        UserError: a name or number is not allowed.
    """
    if not 0.0 < seconds < 86_400.0:
        raise UserError(f"--seconds must be positive and below a day, got {seconds:g}")
    if seeds < 1:
        raise UserError(f"--seeds must be at least 1, got {seeds}")
    if not all(math.isfinite(score) for score in scores):
        raise UserError(f"--scores must be finite numbers, got {list(scores)}")
    kept = ResultCache(None) if kept is None else kept
    here = timed_here()  # whose seconds are not to be mixed with another's
    case = Case(
        game=game,
        profile=HERE,
        network=network,
        env_steps=0,
        scores=tuple(scores) or SCORES.get(game, ()),
        variants=acting(*specs),
        seeds=seeds,
    )
    configs = [_config(game, network, seconds, each) for each in range(seed, seed + seeds)]
    order, curves = list(case.variants), {}
    with bar("training", len(order) * seeds) as advance:
        for config in configs:
            for variant in order:
                key = {"timed": here, "config": config.hash, "seconds": seconds}
                key |= {"spec": variant.spec.to_json()}
                data = kept.get(key, lambda c=config, v=variant: _train(c, v.spec).to_json())
                curve = curves[variant.label, config.seed] = LearningCurve(**data)
                speed = curve.env_steps[-1] / curve.seconds[-1]
                advance(1, f"{variant.label}: {speed:,.0f} env steps/s")
            order = [*order[1:], order[0]]
    return result_of("training", seconds=seconds, cases=[case_result(case, curves)])


def _config(game: str, network: str, seconds: float, seed: int) -> RunConfig:
    settings = {
        "runtime.runtime": "process",
        "runtime.clock": "real",
        "runtime.eval_episodes": 0,
        "runtime.interval_seconds": max(seconds / INTERVALS, 1.0),
    }
    own = {"network": network, "seconds": seconds, "seed": seed}
    return configure(game, settings, label="setting", **own)


def _train(config: RunConfig, spec: CompressionSpec) -> LearningCurve:
    return LearningCurve.of(run_training(config, FixedStrategy(spec)).reports)
