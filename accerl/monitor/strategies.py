"""The paper's hand-set strategies: when to compress how hard (section 2.4 and figures 6, 7, 9)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from accerl.errors import UserError, did_you_mean
from accerl.monitor.features import Features
from accerl.monitor.strategy import Strategy
from accerl.spec import IDENTITY, CompressionSpec, Decision

KL_INDICATORS = ("kl_max_nats", "kl_mean_nats")


@dataclass
class _Switch:
    """The one thing a switching strategy remembers."""

    conservative: bool = False


@dataclass(frozen=True)
class FixedStrategy:
    """Acts with one spec from start to end: the paper's INT8 and pruning experiments."""

    spec: CompressionSpec = IDENTITY

    def __post_init__(self) -> None:
        _require_spec("fixed", "spec", self.spec)

    def reset(self) -> None:
        """Nothing to forget."""

    def decide(self, features: Features) -> Decision:
        """Return the same decision whatever the features."""
        return Decision.of(self.spec)


@dataclass(frozen=True)
class KLThresholdStrategy:
    """Switches to the conservative spec when the KL indicator exceeds a threshold (Fig. 6).

    The paper's Road Runner run goes from 8 to 16 bits when the largest KL exceeds 14.0 nats. A KL
    that is not a number (a network has diverged) counts as exceeding it.

    Raises:
        UserError: a parameter lies outside what is allowed.
    """

    aggressive: CompressionSpec = CompressionSpec(bits=8)
    conservative: CompressionSpec = CompressionSpec(bits=16)
    threshold_nats: float = 14.0
    indicator: str = "kl_max_nats"
    """kl_max_nats or kl_mean_nats"""
    return_below_nats: float | None = None
    """the KL below which it becomes aggressive again; None: never, as in the paper"""
    _switch: _Switch = field(default_factory=_Switch, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        name = "kl-threshold"
        _require_pair(name, "aggressive", self.aggressive, "conservative", self.conservative)
        _require_number(name, "threshold_nats", self.threshold_nats, at_least=0.0)
        if self.indicator not in KL_INDICATORS:
            hint = did_you_mean(str(self.indicator), list(KL_INDICATORS))
            raise UserError(f"strategy {name}: indicator {self.indicator!r} does not exist; {hint}")
        _require_return_level(name, "return_below_nats", self.return_below_nats)
        if self.return_below_nats is not None and self.return_below_nats > self.threshold_nats:
            raise UserError(
                f"strategy {name}: return_below_nats {self.return_below_nats} must not exceed "
                f"threshold_nats {self.threshold_nats}"
            )

    def reset(self) -> None:
        """Start aggressive again."""
        self._switch.conservative = False

    def decide(self, features: Features) -> Decision:
        """Return the conservative spec from the first excess on, until the KL falls low enough."""
        kl_nats = features.raw[self.indicator]
        if math.isnan(kl_nats) or kl_nats > self.threshold_nats:
            self._switch.conservative = True
        elif self.return_below_nats is not None and kl_nats < self.return_below_nats:
            self._switch.conservative = False
        return Decision.of(self.conservative if self._switch.conservative else self.aggressive)


@dataclass(frozen=True)
class RewardGapStrategy:
    """Switches when the compressed policy scores too far below the original (Fig. 7).

    The gap is (learner_return - actor_return) / scale, compared with `gap` in the same units. With
    scale 1 these are points of the game: the paper's Pong run goes from sparsity 0.5 to 0.2 at 10.0
    points. With scale = (reference return - random return) they are a share of what can be learned,
    and one number fits every game. While either return is unknown (NaN), nothing changes.

    Raises:
        UserError: a parameter lies outside what is allowed.
    """

    aggressive: CompressionSpec = CompressionSpec(sparsity=0.5)
    conservative: CompressionSpec = CompressionSpec(sparsity=0.2)
    gap: float = 10.0
    scale: float = 1.0
    """points of the game per unit of `gap`"""
    return_below: float | None = None
    """the gap below which it becomes aggressive again; None: never, as in the paper"""
    _switch: _Switch = field(default_factory=_Switch, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        name = "reward-gap"
        _require_pair(name, "aggressive", self.aggressive, "conservative", self.conservative)
        _require_number(name, "gap", self.gap, at_least=0.0)
        _require_number(name, "scale", self.scale, above=0.0)
        _require_return_level(name, "return_below", self.return_below)
        if self.return_below is not None and self.return_below > self.gap:
            raise UserError(
                f"strategy {name}: return_below {self.return_below} must not exceed gap {self.gap}"
            )

    def reset(self) -> None:
        """Start aggressive again."""
        self._switch.conservative = False

    def decide(self, features: Features) -> Decision:
        """Return the conservative spec from the first excess on, until the gap closes enough."""
        gap = (features.raw["learner_return"] - features.raw["actor_return"]) / self.scale
        if gap > self.gap:
            self._switch.conservative = True
        elif self.return_below is not None and gap < self.return_below:
            self._switch.conservative = False
        return Decision.of(self.conservative if self._switch.conservative else self.aggressive)


@dataclass(frozen=True)
class LinearKLMixStrategy:
    """Mixes a small and a large network; the small one's share falls with the mean KL (Fig. 9).

    alpha, the probability of acting with `small`, is 1 up to `kl_low_nats`, 0 from `kl_high_nats`
    on, and linear between. The paper mixes Net3 and Original on Pong and does not print its bounds.
    A KL that is not a number counts as high.

    Raises:
        UserError: a parameter lies outside what is allowed.
    """

    small: CompressionSpec = CompressionSpec(student="net3")
    large: CompressionSpec = CompressionSpec(student="original")
    kl_low_nats: float = 0.05
    kl_high_nats: float = 0.5

    def __post_init__(self) -> None:
        name = "linear-kl"
        _require_pair(name, "small", self.small, "large", self.large)
        _require_number(name, "kl_low_nats", self.kl_low_nats, at_least=0.0)
        _require_number(name, "kl_high_nats", self.kl_high_nats, above=self.kl_low_nats)

    def reset(self) -> None:
        """Nothing to forget."""

    def alpha(self, kl_mean_nats: float) -> float:
        """Return the share of the small network, in [0, 1], at a mean KL in nats."""
        if math.isnan(kl_mean_nats):
            return 0.0
        span = self.kl_high_nats - self.kl_low_nats
        return min(1.0, max(0.0, (self.kl_high_nats - kl_mean_nats) / span))

    def decide(self, features: Features) -> Decision:
        """Return the mix at the present mean KL."""
        alpha = self.alpha(features.raw["kl_mean_nats"])
        shares = ((self.small, alpha), (self.large, 1.0 - alpha))
        return Decision(tuple((spec, share) for spec, share in shares if share > 0.0))


STRATEGIES = {
    "fixed": FixedStrategy,
    "kl-threshold": KLThresholdStrategy,
    "reward-gap": RewardGapStrategy,
    "linear-kl": LinearKLMixStrategy,
}


def make_strategy(name: str, **params: Any) -> Strategy:
    """Return a hand-set strategy by name; a spec may be given as an object or as its JSON.

    Raises:
        UserError: there is no such strategy or parameter, or a value is not allowed.
    """
    if name not in STRATEGIES:
        raise UserError(f"strategy {name!r} does not exist; {did_you_mean(name, list(STRATEGIES))}")
    factory = STRATEGIES[name]
    known = [item.name for item in fields(factory) if item.init]
    values: dict[str, Any] = {}
    for key, value in params.items():
        if key not in known:
            raise UserError(
                f"strategy {name}: unknown parameter {key!r}; {did_you_mean(key, known)}"
            )
        is_spec = isinstance(_default(factory, key), CompressionSpec)
        as_json = is_spec and isinstance(value, str | Mapping)
        values[key] = CompressionSpec.from_json(value) if as_json else value
    return factory(**values)


def _default(factory: type, key: str) -> Any:
    return next(item.default for item in fields(factory) if item.name == key)


def _require_spec(strategy: str, name: str, value: object) -> None:
    if not isinstance(value, CompressionSpec):
        raise UserError(f"strategy {strategy}: {name} must be a spec, got {value!r}")


def _require_pair(strategy: str, one: str, first: object, other: str, second: object) -> None:
    _require_spec(strategy, one, first)
    _require_spec(strategy, other, second)
    if first == second:
        raise UserError(f"strategy {strategy}: {one} and {other} are the same spec")


def _require_number(
    strategy: str,
    name: str,
    value: object,
    *,
    at_least: float = -math.inf,
    above: float = -math.inf,
) -> None:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or value < at_least
        or value <= above
    ):
        bounds = [f"at least {at_least}"] * (at_least > -math.inf)
        bounds += [f"above {above}"] * (above > -math.inf)
        raise UserError(
            f"strategy {strategy}: {name} must be a number {' and '.join(bounds)}".rstrip()
            + f", got {value!r}"
        )


def _require_return_level(strategy: str, name: str, value: float | None) -> None:
    if value is not None:
        _require_number(strategy, name, value)
