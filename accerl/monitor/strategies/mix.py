"""Strategies that act with two specs side by side, in shares that an indicator sets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from accerl.monitor.features import Features
from accerl.monitor.strategies.base import HandSetStrategy
from accerl.monitor.strategies.checks import require_number, require_pair
from accerl.monitor.strategies.search import Levels, suggest_pair
from accerl.spec import CompressionSpec, Decision

if TYPE_CHECKING:
    import optuna


@dataclass
class _Last:
    """What a mix remembers of its last decision."""

    alpha: float = 1.0
    """the small network's share"""
    acted: float = 1.0
    """the share that it acted with: another one where the decision was not followed"""
    is_shadow: bool = False
    """whether the shadow is the small network"""
    small_nats: float = 0.0
    """its KL, as far as it was known"""


@dataclass(frozen=True)
class LinearKLMixStrategy(HandSetStrategy):
    """Mixes a small and a large network; the small one's share falls with its mean KL (Fig. 9).

    alpha, the probability of acting with `small`, is 1 up to `kl_low_nats`, 0 from `kl_high_nats`
    on, and linear between. The KL is the small network's own, that of the rollouts that it acted;
    where alpha is 0, what its shadow shows. Where neither was measured, what was known before
    stays: of a few rollouts chance may give it none. The paper mixes Net3 and Original on Pong and
    does not print its bounds. A KL that is not a number counts as high. Its state of rest is to act
    with `small` alone.

    Raises:
        UserError: a parameter lies outside what is allowed.
    """

    name: ClassVar[str] = "linear-kl"
    small: CompressionSpec = CompressionSpec(student="net3")
    large: CompressionSpec = CompressionSpec(student="original")
    kl_low_nats: float = 0.05
    kl_high_nats: float = 0.5
    _last: _Last = field(default_factory=_Last, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_pair(self.name, "small", self.small, "large", self.large)
        require_number(self.name, "kl_low_nats", self.kl_low_nats, at_least=0.0)
        require_number(self.name, "kl_high_nats", self.kl_high_nats, above=self.kl_low_nats)

    @property
    def specs(self) -> tuple[CompressionSpec, ...]:
        """Both specs of the mix."""
        return (self.small, self.large)

    @property
    def fires(self) -> bool:
        """Whether the last mix held any of the large network."""
        return self._last.alpha < 1.0

    def reset(self) -> None:
        """Forget the last decision."""
        object.__setattr__(self, "_last", _Last())

    def alpha(self, kl_mean_nats: float) -> float:
        """Return the share of the small network, in [0, 1], at a mean KL in nats."""
        if math.isnan(kl_mean_nats):
            return 0.0
        span = self.kl_high_nats - self.kl_low_nats
        return min(1.0, max(0.0, (self.kl_high_nats - kl_mean_nats) / span))

    def decide(self, features: Features) -> Decision:
        """Return the mix at the small network's present KL."""
        last = self._last
        last.small_nats = self._small_kl_nats(features.raw)
        alpha = last.alpha = last.acted = self.alpha(last.small_nats)
        shares = ((self.small, alpha), (self.large, 1.0 - alpha))
        mix = tuple((spec, share) for spec, share in shares if share > 0.0)
        last.is_shadow = alpha <= 0.0
        return Decision(mix, shadow=self.small if last.is_shadow else None)

    def overruled(self, decision: Decision) -> None:
        """Know that something else acts than was decided."""
        is_first = decision.specs[0] == self.small  # whose KL the indicators say
        self._last.acted = decision.mix[0][1] if is_first else 0.0
        self._last.is_shadow = decision.shadow == self.small

    def _small_kl_nats(self, raw: Mapping[str, float]) -> float:
        """Return the KL of the small network in the last interval, or what was known before."""
        last, staleness = self._last, raw["staleness_kl_nats"]
        staleness = 0.0 if math.isnan(staleness) else staleness
        waiting = raw["waiting_kl_nats"]
        if last.acted >= 0.5 and not math.isnan(waiting):  # something else acts in its place
            return waiting + staleness
        if last.acted > 0.0:
            own = raw["mix_kl_nats"]
            # A network that has diverged makes both of them no number.
            unknown = math.isnan(own) and not math.isnan(raw["kl_mean_nats"])
            return last.small_nats if unknown else own
        shown = raw["shadow_kl_nats"] if last.is_shadow else math.nan
        return last.small_nats if math.isnan(shown) else shown + staleness

    @classmethod
    def suggest(cls, trial: optuna.Trial, actions: Levels) -> dict[str, Any]:
        """Return two specs and the KL at which the share begins and ceases to fall."""
        pair = suggest_pair(trial, actions)
        kl_low_nats = trial.suggest_float("kl_low_nats", 0.001, 1.0, log=True)
        return {
            "small": pair["aggressive"],
            "large": pair["conservative"],
            "kl_low_nats": kl_low_nats,
            "kl_high_nats": kl_low_nats * trial.suggest_float("kl_ratio", 2.0, 100.0, log=True),
        }
