"""Strategies that switch to a conservative spec when an indicator exceeds a threshold."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from accerl.errors import require_choice
from accerl.monitor.features import Features
from accerl.monitor.strategies.base import HandSetStrategy
from accerl.monitor.strategies.checks import (
    require_number,
    require_pair,
    require_return_level,
    require_whole,
)
from accerl.monitor.strategies.search import Levels, suggest_pair
from accerl.spec import CompressionSpec, Decision

if TYPE_CHECKING:
    import optuna

SAMPLED = "compression_kl_nats"
"""measured now and then, where the others are of every state"""
KL_INDICATORS = ("kl_max_nats", "kl_mean_nats", SAMPLED)
KL_SEARCHED = ("kl_mean_nats", SAMPLED)


@dataclass
class _Switch:
    """Which of two specs acts, and for how long."""

    conservative: bool = False
    rested_intervals: float = math.inf
    """since it last turned; it is free to turn for the first time"""
    seconds: float = -math.inf
    """the run's clock when it was last looked at"""

    def rest(self, now_seconds: float) -> None:
        """Count an interval if one has ended since the last call."""
        self.rested_intervals += now_seconds > self.seconds
        self.seconds = now_seconds

    def turn(self, conservative: bool, dwell_intervals: int) -> None:
        """Turn to one side, unless it is there or turned less than that many intervals ago."""
        if conservative != self.conservative and self.rested_intervals >= dwell_intervals:
            self.conservative, self.rested_intervals = conservative, 0.0


@dataclass(frozen=True)
class _ThresholdStrategy(HandSetStrategy):
    """A switch between two specs with hysteresis and a minimum dwell.

    Subclasses say what is compared with what. A level that is not a number changes nothing.
    """

    aggressive: CompressionSpec
    conservative: CompressionSpec
    dwell_intervals: int = field(default=1, kw_only=True)
    """intervals that it stays at least after a switch; the first is never delayed"""
    _switch: _Switch = field(default_factory=_Switch, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_pair(self.name, "aggressive", self.aggressive, "conservative", self.conservative)
        require_whole(self.name, "dwell_intervals", self.dwell_intervals, at_least=1)

    def _level(self, features: Features) -> float:
        """Return what is compared with the thresholds."""
        raise NotImplementedError

    @property
    def _thresholds(self) -> tuple[float, float]:
        """The level above which it turns conservative, and the one below which it returns."""
        raise NotImplementedError

    @property
    def specs(self) -> tuple[CompressionSpec, ...]:
        """The two sides of the switch."""
        return (self.aggressive, self.conservative)

    @property
    def fires(self) -> bool:
        """Whether it is conservative; at rest it is aggressive."""
        return self._switch.conservative

    def reset(self) -> None:
        """Start aggressive again, free to switch."""
        self._switch.conservative = False
        self._switch.rested_intervals, self._switch.seconds = math.inf, -math.inf

    def decide(self, features: Features) -> Decision:
        """Return the conservative spec from the first excess on, until the level is low enough."""
        level, (threshold, return_level) = self._level(features), self._thresholds
        self._switch.rest(features.raw["seconds"])
        if level > threshold or level < return_level:
            self._switch.turn(level > threshold, self.dwell_intervals)
        return Decision.of(self.conservative if self._switch.conservative else self.aggressive)


@dataclass(frozen=True)
class KLThresholdStrategy(_ThresholdStrategy):
    """Switches to the conservative spec when the KL indicator exceeds a threshold (Fig. 6).

    The paper's Road Runner run goes from 8 to 16 bits when the largest KL exceeds 14.0 nats. A KL
    that was measured and is not a number (a network has diverged) counts as exceeding it.

    Raises:
        UserError: a parameter lies outside what is allowed.
    """

    name: ClassVar[str] = "kl-threshold"
    aggressive: CompressionSpec = CompressionSpec(bits=8)
    conservative: CompressionSpec = CompressionSpec(bits=16)
    threshold_nats: float = 14.0
    indicator: str = "kl_max_nats"
    """kl_max_nats or kl_mean_nats, which hold the weights' staleness too, or compression_kl_nats,
    the mean KL of equal weights"""
    return_below_nats: float | None = None
    """the KL below which it becomes aggressive again; None: never, as in the paper"""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number(self.name, "threshold_nats", self.threshold_nats, at_least=0.0)
        require_choice(f"strategy {self.name}: indicator", self.indicator, KL_INDICATORS)
        if self.return_below_nats is not None:  # no KL is below 0
            require_number(self.name, "return_below_nats", self.return_below_nats, above=0.0)
        require_return_level(
            self.name,
            "return_below_nats",
            self.return_below_nats,
            "threshold_nats",
            self.threshold_nats,
        )

    def _level(self, features: Features) -> float:
        raw = features.raw
        if self.indicator == SAMPLED and not raw["compression_kl_is_new"] > 0.0:
            return math.nan  # what was known before, perhaps of long ago, changes nothing
        kl_nats = raw[self.indicator]
        return math.inf if math.isnan(kl_nats) else kl_nats

    @property
    def _thresholds(self) -> tuple[float, float]:
        returns = -math.inf if self.return_below_nats is None else self.return_below_nats
        return self.threshold_nats, returns

    @classmethod
    def suggest(cls, trial: optuna.Trial, actions: Levels) -> dict[str, Any]:
        """Return two specs, a threshold on a KL, which of two, and whether it ever returns.

        The live KL is what the paper's rule goes by; that of compression alone leaves staleness
        out, which larger networks make worse.
        """
        threshold = trial.suggest_float("threshold_nats", 0.01, 3.0, log=True)
        # The paper's rule never goes back; a ratio below 1 lets it, with hysteresis.
        returns = trial.suggest_categorical("returns", [False, True])
        return {
            **suggest_pair(trial, actions),
            "indicator": trial.suggest_categorical("indicator", list(KL_SEARCHED)),
            "threshold_nats": threshold,
            "return_below_nats": threshold / 2.0 if returns else None,
        }


@dataclass(frozen=True)
class RewardGapStrategy(_ThresholdStrategy):
    """Switches when the compressed policy scores too far below the original (Fig. 7).

    The gap is (learner_return - actor_return) / scale, compared with `gap` in the same units. With
    scale 1 these are points of the game: the paper's Pong run goes from sparsity 0.5 to 0.2 at 10.0
    points. With scale = (reference return - random return) they are a share of what can be learned,
    and one number fits every game. While either return is unknown (NaN), nothing changes.

    Raises:
        UserError: a parameter lies outside what is allowed.
    """

    name: ClassVar[str] = "reward-gap"
    aggressive: CompressionSpec = CompressionSpec(sparsity=0.5)
    conservative: CompressionSpec = CompressionSpec(sparsity=0.2)
    gap: float = 10.0
    scale: float = 1.0
    """points of the game per unit of `gap`"""
    return_below: float | None = None
    """the gap below which it becomes aggressive again; None: never, as in the paper"""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number(self.name, "gap", self.gap, at_least=0.0)
        require_number(self.name, "scale", self.scale, above=0.0)
        require_return_level(self.name, "return_below", self.return_below, "gap", self.gap)

    @property
    def needs(self) -> frozenset[str]:
        """Both returns: the learner's is J, which not every run measures."""
        return frozenset({"learner_return", "actor_return"})

    def _level(self, features: Features) -> float:
        return (features.raw["learner_return"] - features.raw["actor_return"]) / self.scale

    @property
    def _thresholds(self) -> tuple[float, float]:
        return self.gap, -math.inf if self.return_below is None else self.return_below

    @classmethod
    def suggest(cls, trial: optuna.Trial, actions: Levels) -> dict[str, Any]:
        """Return two specs, a gap, and whether it ever returns.

        The gap is a share of what can be learned in the game: whoever runs the trial adds the
        game's `scale`.
        """
        gap = trial.suggest_float("gap", 0.02, 2.0, log=True)
        returns = trial.suggest_categorical("returns", [False, True])
        return {
            **suggest_pair(trial, actions),
            "gap": gap,
            "return_below": gap / 2.0 if returns else None,
        }
