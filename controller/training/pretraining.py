"""Training on tier 0: analytic games, new ones every iteration, in seconds instead of hours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from accerl.seeds import Role
from accerl.seeds import generator as seeded
from controller.actions import Actions
from controller.analytic.model import Machine, sample_config
from controller.env.instances import Instance, analytic_instance
from controller.policy.policy import ControllerPolicy
from controller.training.config import MetaTrainConfig
from controller.training.evolution import Evolution, EvolutionConfig
from controller.training.policy_gradient import MetaTrainer, collect_group
from controller.training.rollouts import Trajectory, rollout

Machines = Sequence[Machine | None]
"""Machines that games take turns on; None is a random one."""


def _games(
    root: int, iteration: int, count: int, machines: Machines, mildest: float = 1.0
) -> list[tuple[Instance, int, int]]:
    """Return random games, each with the seeds of its inner runs and of the controller."""
    rng = seeded(root, Role.PRETRAINING, iteration)
    games = []
    for number in range(count):
        config = sample_config(rng, machines[number % len(machines)], mildest=mildest)
        seed, action_seed = (int(drawn) for drawn in rng.integers(2**31, size=2))
        games.append((analytic_instance(config, f"tier0-{iteration}-{number}"), seed, action_seed))
    return games


def pretrain_tier0(
    policy: ControllerPolicy,
    actions: Actions,
    config: MetaTrainConfig,
    generator: np.random.Generator,
    iterations: int,
    machines: Machines = (None,),
    *,
    mildest: float = 1.0,
    clone: ControllerPolicy | None = None,
    checkpoint: Path | None = None,
) -> list[dict[str, float]]:
    """Meta-train on analytic games (see `sample_config` for `mildest`); see `Trainer.train`.

    One number is drawn from `generator`: the games of an iteration depend on it and the iteration.
    """
    root = int(generator.integers(2**63))

    def collect(policy_state: dict[str, Any], iteration: int) -> list[list[Trajectory]]:
        games = _games(root, iteration, config.groups, machines, mildest)
        return [
            collect_group(policy_state, actions, game, seed, action_seed, config)
            for game, seed, action_seed in games
        ]

    return MetaTrainer(policy, config, clone).train(collect, iterations, checkpoint)


def evolve_tier0(
    policy: ControllerPolicy,
    actions: Actions,
    config: EvolutionConfig,
    generator: np.random.Generator,
    generations: int,
    machines: Machines = (None,),
    *,
    games: int = 4,
    checkpoint: Path | None = None,
) -> list[dict[str, float]]:
    """Evolve on analytic games; see `Trainer.train`.

    A generation costs population x `games` inner runs.
    One number is drawn from `generator`: the games of a generation depend on it and the generation.
    """
    root = int(generator.integers(2**63))

    def evaluate(states: Sequence[dict[str, Any]], generation: int) -> np.ndarray:
        played = _games(root, generation, games, machines)
        return np.array(
            [
                [rollout(state, actions, game, seed, None).gain for game, seed, _ in played]
                for state in states
            ]
        )

    return Evolution(policy, config).train(evaluate, generations, checkpoint)
