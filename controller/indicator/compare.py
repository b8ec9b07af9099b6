"""What training on tier 0 brings: the trained indicator beside others, on the same drawn runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from accerl.monitor.strategies import FixedStrategy
from accerl.monitor.strategy import Strategy
from accerl.spec import IDENTITY, CompressionSpec
from controller.env.instances import Instance
from controller.env.play import play
from controller.objective import LEAST_RATIO, SLOWER, gain_ratio

RULE, TRAINED = "the rule that training starts from", "trained"
BEST = "best static of each run, in hindsight"


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A strategy on drawn runs; gains are discounted, and compared by `objective.gain_ratio`."""

    strategy: str
    runs: int
    """that it can act in"""
    gain: float
    """over that of an uncompressed run on the same dice, geometric mean"""
    ratio: float
    """the trained indicator's gain over this one's, geometric mean"""
    low: float | None
    """bounds of its 95% interval, paired by run; None: of one run alone"""
    high: float | None
    slower: float
    """share of the runs in which it gains less than `objective.SLOWER` of no compression"""


def log_gains(
    strategies: Mapping[str, Strategy],
    specs: Sequence[CompressionSpec],
    instance: Instance,
    seed: int,
) -> dict[str, float]:
    """Return the log of every strategy's gain over that of a run without compression, by name.

    Args:
        strategies: by name.
        specs: that are run as statics, where the instance has them; no compression is among them.
        instance: that they play.
        seed: of the inner run.
    """
    statics = {spec.label: FixedStrategy(spec) for spec in specs if instance.has(spec)}
    gains = {
        name: play(each, instance, seed).gain(instance)
        for name, each in {**statics, **strategies}.items()
    }
    base = gains[IDENTITY.label]
    found = {name: math.log(max(gain_ratio(g, base), LEAST_RATIO)) for name, g in gains.items()}
    return {**found, BEST: max(found[name] for name in statics)}


def compare(
    rule: Strategy,
    trained: Strategy,
    specs: Sequence[CompressionSpec],
    instances: Sequence[Instance],
    on_run: Callable[[], object] = lambda: None,
) -> list[Compared]:
    """Return a row for every static spec, for the best of each run, and for both indicators.

    Args:
        rule: what training started from.
        trained: what came of it.
        specs: statics, see `log_gains`.
        instances: what is played, each once, with its place as seed.
        on_run: called when an instance has been played by all.
    """
    played = []
    for seed, instance in enumerate(instances):
        played.append(log_gains({RULE: rule, TRAINED: trained}, specs, instance, seed))
        on_run()
    names = [*(spec.label for spec in specs), BEST, RULE, TRAINED]
    return [
        _row(name, [row for row in played if name in row])
        for name in names
        if any(name in row for row in played)
    ]


def _row(name: str, played: Sequence[Mapping[str, float]]) -> Compared:
    own = np.array([row[name] for row in played])
    ahead = np.array([row[TRAINED] for row in played]) - own
    count, middle = len(own), float(ahead.mean())
    low = high = None
    if count > 1:
        half = float(stdtrit(count - 1, 0.975) * ahead.std(ddof=1)) / math.sqrt(count)
        low, high = math.exp(middle - half), math.exp(middle + half)
    return Compared(
        strategy=name,
        runs=count,
        gain=math.exp(float(own.mean())),
        ratio=math.exp(middle),
        low=low,
        high=high,
        slower=float(np.mean(own < math.log(SLOWER))),
    )
