"""What training on tier 0 brings, on drawn instances of the validation split.

`python -m controller.indicator.compare [ITERATIONS] [DRAWS]` trains an indicator and prints a row
for every static spec, for the rule that training starts from and for what came of it: the mean log
of the gain over that of a run without compression on the same dice, and paired intervals.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import numpy as np
import torch

from accerl.monitor.strategies import FixedStrategy
from accerl.seeds import Role, torch_generator
from accerl.spec import IDENTITY
from controller.env.instances import Instance
from controller.env.machine_instances import SPECS, DrawnInstances
from controller.indicator.gradient import GradientConfig
from controller.indicator.play import LEAST_RATIO, gain_ratio, play
from controller.indicator.prior import Prior
from controller.indicator.scorer import SpecScorer
from controller.indicator.strategy import AdvancedIndicator, IndicatorSettings
from controller.indicator.training import train_on_tier0

ITERATIONS, DRAWS = 40, 100
RULE, TRAINED = "the rule that training starts from", "trained"
BEST = "best static of each instance, in hindsight"


def log_gains(
    scorers: Mapping[str, SpecScorer], settings: IndicatorSettings, instance: Instance, seed: int
) -> dict[str, float]:
    """Return the log of every strategy's gain over that of a run without compression.

    Args:
        scorers: of indicators, by name.
        settings: of all of them; every spec among them that the instance has is run as a static.
        instance: that they play.
        seed: of the inner run.
    """
    strategies = {
        spec.label: FixedStrategy(spec) for spec in settings.specs if instance.has(spec)
    } | {name: AdvancedIndicator(scorer, Prior(), settings) for name, scorer in scorers.items()}
    gains = {name: play(each, instance, seed).gain(instance) for name, each in strategies.items()}
    base = gains[IDENTITY.label]
    found = {
        name: float(np.log(max(gain_ratio(gain, base), LEAST_RATIO)))
        for name, gain in gains.items()
    }
    return {**found, BEST: max(found[name] for name in found if name not in scorers)}


def main(iterations: int, draws: int) -> None:
    """Train, compare, and print the table."""
    torch.set_num_threads(1)
    settings = IndicatorSettings(specs=SPECS)
    scorers = {
        name: SpecScorer(generator=torch_generator(0, Role.CONTROLLER)) for name in (RULE, TRAINED)
    }
    train_on_tier0(scorers[TRAINED], Prior(), settings, GradientConfig(), iterations)
    instances = DrawnInstances("validation")
    rows = [log_gains(scorers, settings, instances[number], number) for number in range(draws)]
    print(f"{iterations} iterations; {draws} instances of the validation split")
    for name in (*(spec.label for spec in SPECS), BEST, *scorers):
        own = np.array([row[name] for row in rows if name in row])
        rest = np.array([row[name] - row[RULE] for row in rows if name in row])
        spread = 1.96 * float(rest.std(ddof=1)) / len(rest) ** 0.5
        slower = float(np.mean(own < np.log(0.97)))
        print(
            f"{name:42s} {np.exp(own.mean()):5.2f} times fp32's gain; over the rule "
            f"{np.exp(rest.mean()) - 1:+6.1%} ({np.exp(rest.mean() - spread) - 1:+.1%} to "
            f"{np.exp(rest.mean() + spread) - 1:+.1%}); below 0.97 of fp32 on {slower:.0%}"
        )


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:3]]
    main(*[*given, *(ITERATIONS, DRAWS)[len(given) :]])
