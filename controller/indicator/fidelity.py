"""FidelityBelief: what an env step is worth that a spec acts, relative to one without compression.

The KL of every spec is believed to be its typical one (`Prior.log_kl`) times an effect of the game,
which all specs share, and one of its own; what is measured of a spec that acts, or of one that is
measured without acting (`Decision.shadow`), moves all of them. All grow with the learner's
decisiveness, as policies that choose nearly evenly cannot differ by much:

    KL = relative KL (FLAT + (1 - FLAT) decided),    decided = 1 - entropy / log(actions).

(On Pong, Net2's KL as it acted grew from 0.07 nats in the first 15 seconds to 0.10 and 0.16 in the
last 25 of 110: `analysis/gallery/gpu.md`.) With a spec's divergence

    D = KL of its compression + KL of staleness, in proportion to its policy lag,

a step is worth

    log efficiency = -cost (D^power - D_fp32^power) - log((1 + lag / half) / (1 + lag_fp32 / half)).

Lags are predicted, and corrected by those that are seen: log(1 + lag) has an effect that all specs
share and one of each. `cost` is a game's own. The effective sample size of the importance weights
speaks of it: what is weighted down teaches less, so w log(ESS share) is taken as -cost D^power. It
follows from D more than from the game, so it is off by a game's own number, which no further
interval makes known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from accerl.spec import IDENTITY, CompressionSpec
from controller.indicator.effects import Effects, Estimate
from controller.indicator.prior import SMALLEST_KL_NATS, Prior

_COST, _FROM_ESS = 0, 1
"""places among the effects: a game's cost, and what its effective sample sizes tend to"""
FLAT = 0.1
"""share of KL that a policy shows which decides nothing"""
TYPICAL = 1.0 / 3.0
"""how decided a policy is at which `Prior.log_kl` is what it says"""
LEAST_DECIDED = 0.05
"""below it a small KL says nothing: copies of an untrained network are as even as it is"""
DIVERGED_NATS = 14.0
"""what a KL of what acted counts as that is not finite: far off, as the paper's threshold is"""
LAG_CHANGE = math.log(1.5)
"""smaller differences are noise; where slots are held back, lag falls at once and by more"""
_FP32_LOG_KL = Estimate(math.log(SMALLEST_KL_NATS), 0.0)


class FidelityBelief:
    """What is believed of every spec's fidelity.

    Args:
        specs: that may act.
        prior: means and spreads over games.
        drift_share: of the run's intervals, see `controller.indicator.prior.drift_share`.
        notices_changes: whether a lag that is far from what was expected counts as a change.
    """

    def __init__(
        self,
        specs: Sequence[CompressionSpec],
        prior: Prior,
        drift_share: float = 1.0,
        *,
        notices_changes: bool = True,
    ) -> None:
        self.prior = prior
        self._notices_changes = notices_changes
        self._drift_share = drift_share
        self.measured: set[CompressionSpec] = set()
        """specs whose KL was measured in this run"""
        self._places = {
            spec: place for place, spec in enumerate(s for s in specs if not is_exact(s))
        }
        self._lag_places = {spec: place for place, spec in enumerate(specs)}
        self._log_lag = Effects(
            [0.0] * len(self._lag_places),
            shared=prior.lag_shared,
            own=prior.lag_own,
            shared_drift=prior.lag_drift,
            own_drift=prior.lag_drift,
        )
        """log((1 + lag) / (1 + predicted lag))"""
        self._log_kl = Effects(
            [prior.log_kl(spec) - _log_scale(TYPICAL) for spec in self._places],
            shared=prior.kl_shared,
            own=prior.kl_own,
            shared_drift=prior.kl_drift,
            own_drift=prior.kl_drift,
        )
        self._log_cost = Effects(
            [math.log(prior.cost)] * 2, shared=prior.cost_spread, own=(1e-6, prior.cost_bias)
        )
        self._stale_nats, self._stale_lag = 0.0, 0.0
        """KL of staleness as it was last measured, and the lag that it is of"""
        self._decided = 0.0

    @property
    def is_telling(self) -> bool:
        """Whether a KL that is measured now says something of later ones."""
        return self._decided >= LEAST_DECIDED

    def log_kl(self, spec: CompressionSpec) -> Estimate:
        """Return what is believed of the log of a spec's KL of compression now, in nats."""
        if is_exact(spec):
            return _FP32_LOG_KL
        relative = self._log_kl[self._places[spec]]
        return Estimate(relative.mean + _log_scale(self._decided), relative.sd)

    @property
    def log_cost(self) -> Estimate:
        """What is believed of the log of the game's cost."""
        return self._log_cost[_COST]

    def drift(self) -> None:
        """Let an interval pass."""
        self._log_kl.drift(self._drift_share)
        self._log_lag.drift(self._drift_share)

    def observe_policy(self, raw: Mapping[str, float]) -> None:
        """Learn how decided the learner's policy was in an interval."""
        share = raw["entropy_fraction"]
        if share >= 0.0:  # not so where the learner used nothing
            self._decided = 1.0 - min(share, 1.0)

    def observe_kl(self, spec: CompressionSpec, kl_nats: float, *, acted: bool = False) -> None:
        """Learn from a measured KL of compression.

        A small one of a policy that decides nothing yet says nothing. An infinite one is that of a
        network that has diverged, and so is NaN where the spec acted; else nothing was measured.
        """
        if kl_nats == math.inf or (acted and math.isnan(kl_nats)):
            kl_nats = DIVERGED_NATS
        if is_exact(spec) or not kl_nats >= 0.0:
            return
        value = math.log(max(kl_nats, SMALLEST_KL_NATS))
        if not self.is_telling and value < self.log_kl(spec).mean:
            return
        self.measured.add(spec)
        value -= _log_scale(self._decided)
        self._log_kl.observe(self._places[spec], value, self.prior.kl_noise)

    def observe_lag(
        self, spec: CompressionSpec, raw: Mapping[str, float], policy_lag: float
    ) -> None:
        """Learn from the lag of an interval in which a spec acted.

        Args:
            spec: that acted.
            raw: the indicators.
            policy_lag: updates that were predicted of it; NaN: none were.
        """
        if policy_lag >= 0.0 and raw["policy_lag"] >= 0.0:
            seen = math.log((1.0 + raw["policy_lag"]) / (1.0 + policy_lag))
            least = LAG_CHANGE if self._notices_changes else math.inf
            self._log_lag.observe(self._lag_places[spec], seen, self.prior.lag_noise, least=least)

    def observe_acting(
        self, spec: CompressionSpec, raw: Mapping[str, float], policy_lag: float
    ) -> None:
        """Learn from an interval in which a spec acted: divergence, and effective samples.

        Where KL was not measured, it is what was known before, and nothing is learned again.

        Args:
            spec: that acted.
            raw: the indicators.
            policy_lag: updates that were predicted of it; NaN: none were.
        """
        total, share = raw["kl_mean_nats"], raw["ess_fraction"]
        if raw.get("kl_is_new") == 0.0 or total < 0.0:
            return
        if not math.isfinite(total):
            self.observe_kl(spec, total, acted=True)
            return
        own = 0.0 if is_exact(spec) else math.exp(self.log_kl(spec).mean)
        self._stale_nats = max(total - own, 0.0)
        self._stale_lag = self.policy_lag(spec, policy_lag)
        distance = total**self.prior.power
        if 0.0 < share < 1.0 and distance > 0.0:
            cost = -self.prior.ess_weight * math.log(share) / distance
            self._log_cost.observe(_FROM_ESS, math.log(cost), self.prior.cost_noise)

    def policy_lag(self, spec: CompressionSpec, predicted: float) -> float:
        """Return the policy lag of a spec that is believed, in updates; NaN: none is predicted."""
        off = self._log_lag[self._lag_places[spec]].mean
        return max((1.0 + predicted) * math.exp(off) - 1.0, 0.0)

    def divergence(self, spec: CompressionSpec, policy_lag: float) -> float:
        """Return D, in nats.

        Args:
            spec: that would act.
            policy_lag: updates of lag that are predicted of it; NaN: as now.
        """
        own = 0.0 if is_exact(spec) else math.exp(self.log_kl(spec).mean)
        lag = self.policy_lag(spec, policy_lag)
        known = lag >= 0.0 and self._stale_lag > 0.0
        return own + self._stale_nats * (min(lag / self._stale_lag, 4.0) if known else 1.0)

    def log_efficiency(
        self, spec: CompressionSpec, policy_lag: float, fp32_policy_lag: float
    ) -> Estimate:
        """Return what is believed of the log of a step's worth over one without compression.

        Its uncertainty is that of the spec's KL, of the game's cost and of both lags, to first
        order; the lags' share in D is left out.

        Args:
            spec: that would act.
            policy_lag: updates that are predicted of it; NaN: nothing is predicted.
            fp32_policy_lag: the same of no compression.
        """
        prior, cost = self.prior, self.log_cost
        distance = self.divergence(spec, policy_lag) ** prior.power
        least = self.divergence(IDENTITY, fp32_policy_lag) ** prior.power
        lost = math.exp(cost.mean) * (distance - least)
        late = 0.0
        if policy_lag >= 0.0 and fp32_policy_lag >= 0.0:
            half = prior.lag_half
            lag = self.policy_lag(spec, policy_lag)
            fp32_lag = self.policy_lag(IDENTITY, fp32_policy_lag)
            lost += math.log((half + lag) / (half + fp32_lag))
            # d log(half + lag) / d log(1 + lag), of both.
            slopes = (1.0 + lag) / (half + lag), (1.0 + fp32_lag) / (half + fp32_lag)
            places = self._lag_places[spec], self._lag_places[IDENTITY]
            late = self._log_lag.difference_sd(*places, slopes)
        if is_exact(spec):
            return Estimate(-lost, late)
        # d lost / d log cost, and d lost / d log KL: only the spec's own share of D is unsure.
        own = self.log_kl(spec)
        share = math.exp(own.mean) / max(self.divergence(spec, policy_lag), SMALLEST_KL_NATS)
        parts = (distance - least) * cost.sd, prior.power * distance * share * own.sd
        return Estimate(-lost, math.hypot(math.exp(cost.mean) * math.hypot(*parts), late))


def _log_scale(decided: float) -> float:
    """Return the log of what a relative KL is multiplied by."""
    return math.log(FLAT + (1.0 - FLAT) * decided)


def is_exact(spec: CompressionSpec) -> bool:
    """Whether a spec computes what the learner computes, whatever graph it runs in."""
    return spec.student_key is None and spec.bits == 32 and spec.rank == 1.0
