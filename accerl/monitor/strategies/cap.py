"""A strategy that acts with the fastest spec that is still close enough to the learner."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from accerl.monitor.features import Features
from accerl.monitor.strategies.base import SECONDS_EPSILON, HandSetStrategy
from accerl.monitor.strategies.checks import require_number, require_specs
from accerl.monitor.strategies.search import Levels, all_specs
from accerl.spec import CompressionSpec, Decision

if TYPE_CHECKING:
    import optuna

SERVED = 0.5
"""share of an interval that a spec must have acted in for what is measured there to be its own"""
THROUGHOUT = 0.95
"""from this share on, pace, staleness and rollouts in which a network has diverged are its own"""


@dataclass
class _Measured:
    """What is known of each spec, by its place."""

    kl_nats: dict[int, float] = field(default_factory=dict)
    """the newest value"""
    exceeded_seconds: dict[int, float] = field(default_factory=dict)
    """the run's clock when it last exceeded the cap"""
    acting: int | None = None
    """what acted since the last decision; None: nothing of `specs`"""
    waiting_kl_nats: float = math.nan
    """the last value"""


@dataclass(frozen=True)
class AdviseKLCapStrategy(HandSetStrategy):
    """Acts with the first of `specs` whose KL of compression is at most a cap.

    `specs` are in order of speed, the fastest first: `predict.fastest_first` sorts them by what
    the machine's latency profile predicts, so the rule reads the machine. KL is
    KL(learner || what was published of the same weights), measured while a spec acts, or waits to
    be admitted at the end of an interval. What has never acted is tried; what exceeded the cap is
    tried again after a share of the horizon. If all have exceeded it, the closest one acts; of
    those that have diverged, the last.

    Raises:
        UserError: a parameter lies outside what is allowed.
    """

    name: ClassVar[str] = "advise-kl-cap"
    specs: tuple[CompressionSpec, ...] = field(
        metadata={"example": '[{"student": "net3", "bits": 8}, {"bits": 8}, {"bits": 32}]'}
    )
    cap_nats: float = 0.1
    retry_fraction: float = 0.25
    """share of the horizon after which a spec that exceeded the cap is tried again"""
    _measured: _Measured = field(default_factory=_Measured, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "specs", require_specs(self.name, self.specs))
        require_number(self.name, "cap_nats", self.cap_nats, above=0.0)
        require_number(self.name, "retry_fraction", self.retry_fraction, above=0.0)

    def reset(self) -> None:
        """Forget what was measured."""
        object.__setattr__(self, "_measured", _Measured())

    def decide(self, features: Features) -> Decision:
        """Return the fastest spec that is not known to exceed the cap."""
        raw, known = features.raw, self._measured
        self._note(raw)
        own = raw["served_share"] >= THROUGHOUT and raw.get("kl_is_new") != 0.0
        if own and not math.isfinite(raw["kl_mean_nats"]):  # a network has diverged
            self._credit(math.inf, raw["seconds"])
        wait = self.retry_fraction * raw["horizon_seconds"] - SECONDS_EPSILON
        allowed = (
            place
            for place in range(len(self.specs))
            if raw["seconds"] - known.exceeded_seconds.get(place, -math.inf) >= wait
        )
        known.acting = next(allowed, None)
        if known.acting is None:
            known.acting = self._closest()
        return Decision.of(self.specs[known.acting])

    def overruled(self, decision: Decision) -> None:
        """Know that something else acts than was decided: what is measured is of that."""
        acting = decision.main
        self._measured.acting = self.specs.index(acting) if acting in self.specs else None

    def rejected(self, spec: CompressionSpec) -> None:
        """Never try it again in this run: it cannot be built."""
        if spec in self.specs:
            place = self.specs.index(spec)
            self._measured.kl_nats[place] = math.inf
            self._measured.exceeded_seconds[place] = math.inf

    def _note(self, raw: Mapping[str, float]) -> None:
        """Credit the indicator to what acted, if it was sampled and is of that."""
        known, kl_nats = self._measured, raw["compression_kl_nats"]
        is_new = raw["compression_kl_is_new"] > 0.0
        share = raw["served_share"]
        # Where the learner used no rollout, what is new is of what was decided.
        if share >= SERVED or (is_new and math.isnan(share)):
            kl_nats = math.inf if math.isnan(kl_nats) else kl_nats  # a network has diverged
        else:
            kl_nats = raw["waiting_kl_nats"]
            # It keeps its value until the next delivery, and is NaN where nobody knows.
            is_new = kl_nats != known.waiting_kl_nats and not math.isnan(kl_nats)
        known.waiting_kl_nats = raw["waiting_kl_nats"]
        if is_new:
            self._credit(kl_nats, raw["seconds"])

    def _credit(self, kl_nats: float, seconds: float) -> None:
        """Remember a KL of what acts, if that is one of `specs`."""
        known = self._measured
        if known.acting is None:
            return
        known.kl_nats[known.acting] = kl_nats
        if kl_nats > self.cap_nats:
            known.exceeded_seconds[known.acting] = seconds
        else:
            known.exceeded_seconds.pop(known.acting, None)

    def _closest(self) -> int:
        """Return the place of the smallest KL; of what diverged the last, which can be built."""
        known, places = self._measured, range(len(self.specs))
        closest = min(places, key=lambda at: known.kl_nats.get(at, math.inf))
        if known.kl_nats.get(closest, math.inf) < math.inf:
            return closest
        built = [at for at in places if known.exceeded_seconds.get(at) != math.inf]
        return max(built or places)

    @classmethod
    def suggest(cls, trial: optuna.Trial, actions: Levels) -> dict[str, Any]:
        """Return a cap and when to try again; whoever runs the trial sorts the specs by speed."""
        return {
            "specs": [spec.to_json() for spec in reversed(all_specs(actions))],
            "cap_nats": trial.suggest_float("cap_nats", 0.003, 3.0, log=True),
            "retry_fraction": trial.suggest_float("retry_fraction", 0.05, 1.0, log=True),
        }
