"""Meta-training of an indicator on tier 0: machines and games drawn anew every time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from accerl.monitor.strategies import FixedStrategy
from accerl.monitor.strategy import Strategy
from accerl.seeds import Role, generator
from accerl.spec import IDENTITY
from controller.env.instances import Instance
from controller.env.machine_instances import DrawnInstances
from controller.env.play import play
from controller.indicator.trainable import Trainable
from controller.objective import gain_ratio, reward
from controller.training.evolution import Evolution, EvolutionConfig
from controller.training.gradient import GradientConfig, ParameterGradient

Draw = Callable[[int], Instance]
"""number -> an instance; the same for the same number"""


def ratios_on(instance: Instance, seed: int, strategies: Sequence[Strategy]) -> np.ndarray:
    """Return how much better each is than no compression on the same dice, [strategies].

    Args:
        instance: that they play.
        seed: of the inner run.
        strategies: that are compared.
    """
    base = play(FixedStrategy(IDENTITY), instance, seed).gain(instance)
    gains = [play(strategy, instance, seed).gain(instance) for strategy in strategies]
    return np.array([gain_ratio(gain, base) for gain in gains])


def train_on_tier0(
    indicator: Trainable,
    config: GradientConfig,
    iterations: int,
    *,
    evolution: bool = False,
    checkpoint: Path | None = None,
    draw: Draw | None = None,
    on_iteration: Callable[[], object] = lambda: None,
) -> list[dict[str, float]]:
    """Train an indicator's policy in place; return one row of statistics per iteration.

    Every iteration draws its instances anew: the same ones for the policy gradient and for
    evolution strategies, which play the same number of episodes.

    Args:
        indicator: what acts.
        config: of the policy gradient.
        iterations: how many.
        evolution: evolution strategies in place of the policy gradient.
        checkpoint: folder to save in and to resume from.
        draw: instances; None: those of the training split.
        on_iteration: called when an iteration's episodes have been played.
    """
    make = draw or DrawnInstances("train").__getitem__
    pairs = config.pairs

    def drawn(iteration: int) -> list[tuple[Instance, int]]:
        rng = generator(config.seed, Role.PRETRAINING, iteration)
        numbers = rng.integers(2**31, size=(config.instances, 2)).tolist()
        return [(make(number), seed) for number, seed in numbers]

    def play_all(states: Sequence[Mapping[str, Any]], iteration: int) -> np.ndarray:
        found = []
        for place, (instance, seed) in enumerate(drawn(iteration)):
            own = states if evolution else states[2 * pairs * place : 2 * pairs * (place + 1)]
            ratios = ratios_on(instance, seed, [indicator.with_policy(state) for state in own])
            found.append([reward(ratio) for ratio in ratios])
        on_iteration()
        return np.array(found).T if evolution else np.array(found)

    if evolution:
        given = EvolutionConfig(
            pairs=pairs,
            sigma=config.sigma,
            learning_rate=config.learning_rate,
            seed=config.seed,
        )
        trainer: Evolution | ParameterGradient = Evolution(indicator.policy, given)
    else:
        trainer = ParameterGradient(indicator.policy, config)
    trainer.settings |= {"indicator": _description(indicator)}
    return trainer.train(play_all, iterations, checkpoint)


def _description(indicator: Trainable) -> dict[str, Any]:
    """Return an indicator's description without the weights that are trained."""
    whole, weights = indicator.to_json(), indicator.policy.to_json()
    kept = {name: value for name, value in whole["params"].items() if value != weights}
    return {"name": whole["name"], **kept}
