"""`accerl controller train`: meta-train on analytic games, where the optimum is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from accerl.seeds import Role, generator, torch_generator
from analysis.comparison.stats import paired_mean
from controller.actions import ActionSpace
from controller.analytic.model import AnalyticConfig, sample_config
from controller.analytic.run import optimum, schedule_value
from controller.bundle.bundle import check_place, export_bundle
from controller.bundle.meta import BundleMeta, Result, TrainedOn
from controller.bundle.schedule import median_schedule
from controller.env.instances import (
    ANALYTIC_HORIZON_SECONDS,
    ANALYTIC_INTERVAL_SECONDS,
    analytic_instance,
)
from controller.objective import default_beta
from controller.policy.policy import ControllerPolicy, LearnedStrategy
from controller.training.config import MetaTrainConfig
from controller.training.pretraining import pretrain_tier0
from controller.training.rollouts import rollout
from studies.options import check_seed
from studies.progress import console

GAMES = 6
HELD_OUT_SEED = 1_000_003


def train_tier0(out: Path, iterations: int, seed: int) -> dict[str, Any]:
    """Train a controller on random analytic games, compare it with the optimum, export it.

    Returns:
        ``share_of_optimum`` (mean over held-out games), ``shares``, ``games``, ``bundle``.
    """
    check_seed(seed)
    check_place(out)
    actions = ActionSpace()
    config = MetaTrainConfig(groups=8, rollouts=4)
    policy = ControllerPolicy(actions.sizes, generator=torch_generator(seed, Role.CONTROLLER))
    console.print(f"meta-training on {iterations * config.groups} analytic games")
    pretrain_tier0(policy, actions, config, generator(seed, Role.PRETRAINING), iterations)
    seeds = range(HELD_OUT_SEED, HELD_OUT_SEED + GAMES)
    shares = [_share_of_optimum(policy, actions, game_seed) for game_seed in seeds]
    # A schedule is made of other games than those that say what it is worth.
    episodes = [_play(policy, actions, game_seed + GAMES)[1] for game_seed in seeds]
    found = paired_mean(np.array(shares), ["analytic"] * GAMES, generator(seed, Role.BOOTSTRAP))
    meta = BundleMeta(
        interval_seconds=ANALYTIC_INTERVAL_SECONDS,
        horizon_seconds=ANALYTIC_HORIZON_SECONDS,
        tier="analytic",
        instances=(
            TrainedOn(
                game="analytic",
                seeds=(seed,),
                horizon_seconds=ANALYTIC_HORIZON_SECONDS,
                interval_seconds=ANALYTIC_INTERVAL_SECONDS,
            ),
        ),
        inner_runs=iterations * config.groups * config.rollouts,
        results=(
            Result(
                instance="held out",
                metric="discounted_gain",
                against="optimum",
                ratio=found.estimate,
                low=found.low,
                high=found.high,
                n=GAMES,
            ),
        ),
    )
    schedule = median_schedule(
        actions, episodes, ANALYTIC_HORIZON_SECONDS, ANALYTIC_INTERVAL_SECONDS
    )
    learned = LearnedStrategy(policy, actions)
    export_bundle(out, learned, meta, {"analytic": schedule, "all": schedule})
    return {
        "share_of_optimum": found.estimate,
        "shares": shares,
        "games": GAMES,
        "bundle": str(out),
    }


def _play(
    policy: ControllerPolicy, actions: ActionSpace, seed: int
) -> tuple[AnalyticConfig, list[tuple[int, ...]]]:
    """Play one game greedily; return the game and the actions."""
    game = sample_config(generator(seed, Role.BOOTSTRAP))
    played = rollout(policy.to_json(), actions, analytic_instance(game), seed, None)
    return game, [tuple(indices) for indices in played.actions.tolist()]


def _share_of_optimum(policy: ControllerPolicy, actions: ActionSpace, seed: int) -> float:
    """Return the share of its optimum that greedy play of one game reaches."""
    game, chosen = _play(policy, actions, seed)
    beta = default_beta(ANALYTIC_HORIZON_SECONDS)
    best, _ = optimum(game, actions, ANALYTIC_HORIZON_SECONDS, ANALYTIC_INTERVAL_SECONDS, beta)
    # What was measured along the way is noisy; what the decisions are worth is not.
    return schedule_value(game, actions, chosen, ANALYTIC_INTERVAL_SECONDS, beta) / best
