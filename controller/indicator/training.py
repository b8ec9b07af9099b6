"""Meta-training of the Advanced Indicator on tier 0: machines and games drawn anew every time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from accerl.monitor.strategies import FixedStrategy
from accerl.seeds import Role, generator
from accerl.spec import IDENTITY
from controller.env.instances import Instance
from controller.env.machine_instances import DrawnInstances
from controller.indicator.gradient import GradientConfig, ParameterGradient
from controller.indicator.play import gain_ratio, play, reward
from controller.indicator.prior import Prior
from controller.indicator.scorer import SpecScorer
from controller.indicator.strategy import AdvancedIndicator, IndicatorSettings
from controller.training.evolution import Evolution, EvolutionConfig

Draw = Callable[[int], Instance]
"""number -> an instance; the same for the same number"""


def ratios_on(
    instance: Instance,
    seed: int,
    policies: Sequence[Mapping[str, Any]],
    prior: Prior,
    settings: IndicatorSettings,
) -> np.ndarray:
    """Return how much better every policy is than no compression on the same dice, [P].

    Args:
        instance: that they play.
        seed: of the inner run.
        policies: `SpecScorer.to_json` of each.
        prior: of all.
        settings: of all.
    """
    base = play(FixedStrategy(IDENTITY), instance, seed).gain(instance)
    played = [
        play(AdvancedIndicator(SpecScorer.from_json(state), prior, settings), instance, seed)
        for state in policies
    ]
    return np.array([gain_ratio(each.gain(instance), base) for each in played])


def train_on_tier0(
    scorer: SpecScorer,
    prior: Prior,
    settings: IndicatorSettings,
    config: GradientConfig,
    iterations: int,
    *,
    evolution: bool = False,
    checkpoint: Path | None = None,
    draw: Draw | None = None,
) -> list[dict[str, float]]:
    """Train a scorer in place; return one row of statistics per iteration.

    Every iteration draws its instances anew: the same ones for the policy gradient and for
    evolution strategies, which play the same number of episodes.

    Args:
        scorer: its policy.
        prior: what it believes at first.
        settings: what it is told.
        config: of the policy gradient.
        iterations: how many.
        evolution: evolution strategies in place of the policy gradient.
        checkpoint: folder to save in and to resume from.
        draw: instances; None: those of the training split.
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
            ratios = ratios_on(instance, seed, own, prior, settings)
            found.append([reward(ratio) for ratio in ratios])
        return np.array(found).T if evolution else np.array(found)

    if evolution:
        given = EvolutionConfig(pairs=pairs, sigma=config.sigma, seed=config.seed)
        return Evolution(scorer, given).train(play_all, iterations, checkpoint)
    return ParameterGradient(scorer, config).train(play_all, iterations, checkpoint)
