"""Prior: what is believed of a game and of a machine before anything was seen of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from accerl.errors import UserError, did_you_mean, is_number
from accerl.spec import CompressionSpec

if TYPE_CHECKING:
    from accerl.config import RunConfig

SMALLEST_KL_NATS = 1e-5
SET_ON = ("catch", "cartpole", "minatar-breakout", "minatar-space-invaders", "pong", "breakout")
"""games that the numbers below, and those of tier 0's games, were set on: contests hold out others
"""
DRIFT_INTERVALS = 40
"""of the runs whose drifts the numbers below are, those of meta-training; see `drift_share`"""


@dataclass(frozen=True, kw_only=True)
class Prior:
    """Means and spreads over games and machines.

    Those that are given here are what was seen of Catch, CartPole and Atari games: INT8 at 1e-5 to
    1e-2 nats, Net3 at 1e-3 to 0.2. What KL and lag cost is set by eye, to what MinAtar's games took
    on sixteen machines within 100,000 env steps: what is distilled took 0.8 to 1.1 times the env
    steps of INT8. Late in longer runs it may cost more.

    The typical KL of a spec, in natural logarithms of nats, is a sum over what it does (of a policy
    as decided as `fidelity.TYPICAL` says):

        log KL = kl_base + kl_int8 [bits = 8] + kl_bf16 [bits = 16] + kl_rank (1 - rank)
                 + kl_sparsity sparsity + kl_student size_rank + kl_distilled [distilled]

    An env step that is acted with divergence D nats is worth exp(-cost D^power) of one that is not,
    and halves for every so many updates of policy lag (hyperbolically).

    Raises:
        UserError: a spread is not positive.
    """

    kl_base: float = -8.5
    kl_int8: float = 1.0
    kl_bf16: float = 0.5
    kl_rank: float = 4.0
    kl_sparsity: float = 1.0
    kl_student: float = 0.35
    kl_distilled: float = 4.0
    kl_shared: float = 1.5
    """standard deviation of a game's own, over games"""
    kl_own: float = 0.7
    """of a spec's own in a game"""
    kl_drift: float = 0.2
    """from interval to interval, see `drift_share`"""
    kl_noise: float = 0.5
    """of one measurement"""
    cost: float = 0.15
    power: float = 0.5
    cost_spread: float = 1.0
    """standard deviation of the log of a game's cost, over games"""
    cost_bias: float = 1.0
    """standard deviation of the log of a game's cost, as its effective sample sizes show it, about
    the true one, however many there are"""
    cost_noise: float = 1.0
    """likewise as one interval's effective sample size shows it, on top of `cost_bias`"""
    ess_weight: float = 0.25
    """of the log of the effective sample size in the log of what a step is worth: samples that are
    weighted down still teach"""
    lag_half: float = 17.0
    """updates of lag at which a step teaches half as much"""
    lag_shared: float = 0.4
    """standard deviation over runs of log((1 + real lag) / (1 + predicted lag))"""
    lag_own: float = 0.05
    """the same of one spec in it; larger, and what a run's start leaves is taken for the spec's"""
    lag_drift: float = 0.05
    """from interval to interval, see `drift_share`"""
    lag_noise: float = 0.2
    """of one interval's lag"""
    rate_shared: float = 0.15
    """standard deviation over machines of log(real rate / predicted rate)"""
    rate_own: float = 0.05
    """the same of one spec on it"""
    rate_drift: float = 0.01
    rate_noise: float = 0.04
    """of one interval's rate"""

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            if not getattr(self, name) > 0.0:
                raise UserError(f"prior: {name} must be positive, got {getattr(self, name)!r}")

    def log_kl(self, spec: CompressionSpec) -> float:
        """Return the typical log KL of a spec, in nats."""
        found = self.kl_base
        found += self.kl_int8 * (spec.bits == 8) + self.kl_bf16 * (spec.bits == 16)
        found += self.kl_rank * (1.0 - spec.rank) + self.kl_sparsity * spec.sparsity
        if spec.student_key is not None:
            found += self.kl_distilled + self.kl_student * spec.size_rank
        return max(found, math.log(SMALLEST_KL_NATS))

    def to_json(self) -> dict[str, float]:
        """Return all fields."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Prior:
        """Read a prior.

        Raises:
            UserError: a field is unknown or no finite number.
        """
        known = [item.name for item in fields(cls)]
        for name, value in data.items():
            if name not in known:
                raise UserError(f"prior: there is no {name!r}; {did_you_mean(name, known)}")
            if not is_number(value):
                raise UserError(f"prior: {name} must be a number, got {value!r}")
        return cls(**{name: float(value) for name, value in data.items()})


def drift_share(config: RunConfig) -> float:
    """Return the share of a drift's variance that an interval of a run adds.

        min(1, 40 interval / horizon)

    So a run that is cut into more intervals drifts no further in all. A short first interval counts
    as much as the others.

    Args:
        config: of the run.
    """
    # To six digits: a horizon of 40 intervals may be off that by a rounding error.
    intervals = round(config.seconds / config.runtime.interval_seconds, 6)
    return DRIFT_INTERVALS / max(intervals, DRIFT_INTERVALS)


_POSITIVE = ("kl_shared", "kl_own", "kl_noise", "cost", "power", "cost_spread", "cost_bias")
_POSITIVE += ("cost_noise", "ess_weight", "lag_half", "lag_shared", "lag_own", "lag_noise")
_POSITIVE += ("rate_shared", "rate_own", "rate_noise")
