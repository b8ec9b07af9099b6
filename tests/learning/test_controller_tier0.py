"""Learned controllers against the known optimum of games and machines they have never seen."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch

from controller.actions import ActionSpace
from controller.analytic.model import AnalyticConfig
from controller.analytic.run import AnalyticRun, optimum, schedule_value
from controller.env.instances import AnalyticInstances, Instance
from controller.objective import default_beta
from controller.policy.policy import ControllerPolicy
from controller.training.config import MetaTrainConfig
from controller.training.evolution import EvolutionConfig
from controller.training.pretraining import evolve_tier0, pretrain_tier0
from controller.training.rollouts import rollout

ACTIONS = ActionSpace()
GAMES = 6


class HeldOut(NamedTuple):
    """A game that nothing is trained on, and what is known of it."""

    config: AnalyticConfig
    instance: Instance
    optimum: float
    statics: list[float]
    """value of every spec held all the time, as a share of the optimum"""


def value(game: AnalyticConfig, instance: Instance, schedule: list[tuple[int, ...]]) -> float:
    beta = default_beta(instance.horizon_seconds)
    return schedule_value(game, ACTIONS, schedule, instance.interval_seconds, beta)


@pytest.fixture(scope="module")
def games() -> list[HeldOut]:
    found, split = [], AnalyticInstances("test")
    for number in range(GAMES):
        instance = split[number]
        run = instance.make_run(0)
        assert isinstance(run, AnalyticRun)
        config, horizon, interval = run.config, instance.horizon_seconds, instance.interval_seconds
        best, _ = optimum(config, ACTIONS, horizon, interval, default_beta(horizon), grid_size=81)
        statics = [value(config, instance, [i] * 20) / best for i in ACTIONS.all_indices()]
        found.append(HeldOut(config, instance, best, statics))
    return found


def share(policy: ControllerPolicy, games: list[HeldOut]) -> float:
    """Mean share of the optimum that the noise-free value of what it does in a noisy run is."""
    shares = []
    for game in games:
        played = rollout(policy.to_json(), ACTIONS, game.instance, 50, None)
        schedule = [tuple(indices) for indices in played.actions.tolist()]
        shares.append(value(game.config, game.instance, schedule) / game.optimum)
    return float(np.mean(shares))


def new_policy(seed: int) -> ControllerPolicy:
    return ControllerPolicy(ACTIONS.sizes, generator=torch.Generator().manual_seed(seed))


def check(policy: ControllerPolicy, games: list[HeldOut], least: float) -> None:
    """It reaches `least` of the optimum, and more than any spec held all the time."""
    assert share(policy, games) >= least
    statics = np.array([game.statics for game in games])
    single = statics.mean(axis=0).max()  # the best one spec for all of these games
    own = statics.max(axis=1).mean()  # each game's own best, known in advance
    assert least > single + 0.02
    assert share(policy, games) > own + 0.01


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_policy_gradient_comes_near_the_optimum(games: list[HeldOut], seed: int) -> None:
    """480 inner runs."""
    policy = new_policy(seed)
    untrained = share(policy, games)
    config = MetaTrainConfig(groups=4, rollouts=8, epochs=8, learning_rate=0.03)
    history = pretrain_tier0(policy, ACTIONS, config, np.random.default_rng(seed), iterations=15)
    check(policy, games, 0.95)
    assert share(policy, games) > untrained + 0.05
    assert history[-1]["entropy_nats"] < history[0]["entropy_nats"]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_evolution_comes_near_the_optimum(games: list[HeldOut], seed: int) -> None:
    """As many inner runs: 480."""
    policy = new_policy(seed)
    untrained = share(policy, games)
    config = EvolutionConfig(pairs=8, seed=1)
    evolve_tier0(policy, ACTIONS, config, np.random.default_rng(seed), generations=15, games=2)
    check(policy, games, 0.93)
    assert share(policy, games) > untrained + 0.05
