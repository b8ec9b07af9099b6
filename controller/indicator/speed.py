"""SpeedBelief: how fast every spec would be on this machine, as it is now.

The latency profile predicts the pace of every spec (`accerl.runtime.latency.steady`). Three factors
correct its times by what is seen of the spec that acts, and the prediction is made again for all:

    acting      seconds per env step, of the actors
    learning    seconds per learner update
    publishing  seconds per publication; where links carry it, the excess is the link's

What remains between the rate that is seen and the one that is predicted so is an effect that all
specs share and one of each (`effects.Effects`). A factor that jumps, or a remainder, says that
conditions have changed: what was believed of it is forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from accerl.config import RunConfig
from accerl.runtime.latency.freshness import freshness
from accerl.runtime.latency.predict import Prediction, steady_state
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.steady import Steady, Work, settle
from accerl.spec import CompressionSpec
from controller.indicator.effects import Effects, Estimate
from controller.indicator.prior import Prior, drift_share

CHANGE = math.log(1.15)
"""smaller differences are none"""
FACTOR_SPREAD = 0.3
"""of the log of a factor: what a profile is off by before anything was seen"""
FACTOR_DRIFT = 0.02
ENOUGH_UPDATES = 4
"""that a rate is made of"""
COUNTING = 0.4
"""standard deviation of the number of updates that a stretch seems to hold"""
UNKNOWN_RATE_SPREAD = 0.7
"""of the log of a rate that no profile predicts"""


@dataclass
class _Stretch:
    """Env steps of one spec, gathered until there are enough updates to make a rate of them.

    Env steps are counted by whole updates. Intervals that hold one or two of them each would show
    rates that are off by half, and those that hold more would count for more.
    """

    spec: CompressionSpec | None = None
    steps: float = 0.0
    seconds: float = 0.0
    updates: float = 0.0
    _last: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def add(self, spec: CompressionSpec, raw: Mapping[str, float]) -> None:
        """Count the interval that has ended, unless it began before the learner's first update."""
        begins = self._last[2] > 0.0
        now = raw["env_steps"], raw["seconds"], raw["learner_updates"]
        steps, seconds, updates = (new - old for new, old in zip(now, self._last, strict=True))
        self._last = now
        if spec != self.spec:
            self.clear()
        self.spec = spec
        if not begins:
            return
        self.steps += steps
        self.seconds += seconds
        self.updates += updates

    def skip(self, raw: Mapping[str, float]) -> None:
        """Leave out the interval that has ended: nothing acted throughout."""
        self.clear()
        self._last = raw["env_steps"], raw["seconds"], raw["learner_updates"]

    def taken(self) -> tuple[float, float, float]:
        """Return steps, seconds and updates, and count anew; zeros while they are too few."""
        if self.updates < ENOUGH_UPDATES or self.seconds <= 0.0:
            return 0.0, 0.0, 0.0
        found = self.steps, self.seconds, self.updates
        self.clear()
        return found

    def clear(self) -> None:
        """Count anew."""
        self.steps = self.seconds = self.updates = 0.0


@dataclass(frozen=True)
class Pace:
    """What is believed of one spec's speed."""

    log_rate: Estimate
    """of env steps per second"""
    policy_lag: float
    """updates, predicted"""
    age_updates: float
    takeover_seconds: float
    """from deciding for it until it acts, where it does not act yet: compressing and sending"""


class SpeedBelief:
    """What is believed of every spec's speed.

    Args:
        config: of the run.
        times: of the machine, as the run sees it; None: not known, all specs are thought alike.
        specs: that may act; what has no times is thought as fast as the fastest that has.
        prior: spreads.
        notices_changes: False: what is off is always taken for noise.
        uses_kl: False: students are thought to be as far from the learner as is usual.
    """

    def __init__(
        self,
        config: RunConfig,
        times: LatencyProfile | None,
        specs: Sequence[CompressionSpec],
        prior: Prior,
        *,
        notices_changes: bool = True,
        uses_kl: bool = True,
    ) -> None:
        self.specs = tuple(specs)
        self.changed = False
        """whether the last observation was a change of conditions"""
        self._config, self._times, self._prior = config, times, prior
        self._notices, self._uses_kl = notices_changes, uses_kl
        self._drift_share = drift_share(config)
        self._stretch = _Stretch()
        self._first_log_rate: float | None = None
        """what was seen first where nothing is predicted; all specs are thought to be alike"""
        self._works: dict[CompressionSpec, Work] = {}
        self._warmups: dict[CompressionSpec, float] = {}
        for spec in self.specs:
            if times is not None and times.has(spec):
                self._works[spec] = Work.of(times, config, spec)
                self._warmups[spec] = _warmup_seconds(times, config, spec)
        self._factors = {
            name: Effects([0.0], shared=FACTOR_SPREAD, own=1e-6, shared_drift=FACTOR_DRIFT)
            for name in _FACTORS
        }
        shared = prior.rate_shared if self._works else UNKNOWN_RATE_SPREAD
        self._rest = Effects(
            [0.0] * len(self.specs),
            shared=shared,
            own=prior.rate_own if self._works else UNKNOWN_RATE_SPREAD,
            shared_drift=prior.rate_drift,
            own_drift=0.2 * prior.rate_drift,
        )
        self._predict()

    def _predict(self) -> None:
        """Work out the pace of every spec with the factors as they are believed now."""
        factor = self._factor_means()
        self._predicted: dict[CompressionSpec, Prediction] = {
            spec: steady_state(corrected(work, factor), self._config, spec)
            for spec, work in self._works.items()
        }

    def _log_predicted(self, spec: CompressionSpec) -> float:
        """Return the log of the rate that is predicted; of what has no times, the fastest's."""
        if not self._predicted:
            return self._first_log_rate or 0.0
        row = self._predicted.get(spec)
        fastest = max(each.env_steps_per_second for each in self._predicted.values())
        return math.log(fastest if row is None else row.env_steps_per_second)

    def __getitem__(self, spec: CompressionSpec) -> Pace:
        """Return what is believed of a spec."""
        rest = self._rest[self.specs.index(spec)]
        log_rate = Estimate(self._log_predicted(spec) + rest.mean, rest.sd)
        row = self._predicted.get(spec)
        if row is None:
            return Pace(log_rate, math.nan, math.nan, 0.0)
        takeover = row.age_seconds + self._warmups[spec]
        return Pace(log_rate, row.policy_lag, row.age_updates, takeover)

    def observe(self, spec: CompressionSpec, raw: Mapping[str, float]) -> None:
        """Learn from an interval in which a spec acted throughout.

        Args:
            spec: that acted.
            raw: the indicators after it.
        """
        self._drift()
        if spec in self._works:
            self._see_distilling(spec, raw)
            self._observe_factors(spec, raw)
            self._predict()
        self._stretch.add(spec, raw)
        steps, seconds, updates = self._stretch.taken()
        if steps > 0.0:
            if self._first_log_rate is None:
                self._first_log_rate = math.log(steps / seconds)
            noise = math.hypot(self._prior.rate_noise, COUNTING / updates)
            value = math.log(steps / seconds) - self._log_predicted(spec)
            place = self.specs.index(spec)
            least = CHANGE if self._notices else math.inf
            self.changed |= self._rest.observe(
                place, value, noise, least=least, waits=bool(self._works)
            )
        if self.changed:  # what was counted before is of another machine
            self._stretch.clear()

    def skip(self, raw: Mapping[str, float]) -> None:
        """Learn nothing from an interval in which no spec acted throughout."""
        self._drift()
        for belief in (self._rest, *self._factors.values()):
            belief.skip()
        self._stretch.skip(raw)

    def _drift(self) -> None:
        """Let an interval pass."""
        self.changed = False
        for belief in (self._rest, *self._factors.values()):
            belief.drift(self._drift_share)

    def _see_distilling(self, spec: CompressionSpec, raw: Mapping[str, float]) -> None:
        """Know how much a student that acts is distilled: the farther off it is, the more.

        On a GPU that distils too the learner would else be thought slow, and with it all specs.
        """
        kl_nats = raw["compression_kl_nats"]
        is_new = raw["compression_kl_is_new"] > 0.0 and math.isfinite(kl_nats)
        if self._times is not None and spec.student_key is not None and self._uses_kl and is_new:
            self._works[spec] = Work.of(self._times, self._config, spec, kl_nats)

    def _observe_factors(self, spec: CompressionSpec, raw: Mapping[str, float]) -> None:
        # Compared with what is believed already: how much all of them slow each other down where
        # they share cores, depends on it.
        work = corrected(self._works[spec], self._factor_means())
        every = self._config.runtime.publish_every
        _, state = settle(work, every)
        for name, seen, expected in _compare(work, state, raw, every):
            if seen > 0.0 and expected > 0.0:  # NaN is not
                noise, least = _FACTORS[name]
                least = least if self._notices else math.inf
                belief = self._factors[name]
                value = belief[0].mean + math.log(seen / expected)
                self.changed |= belief.observe(0, value, noise, least=least, waits=True)

    def _factor_means(self) -> dict[str, float]:
        return {name: math.exp(belief[0].mean) for name, belief in self._factors.items()}


_FACTORS = {
    "acting": (0.05, CHANGE),
    "learning": (0.05, CHANGE),
    # Some publications need not be sent, others warm a student up or compare it.
    "publishing": (0.3, math.log(2.0)),
}
"""by factor: standard deviation of the log of what one interval shows, and the least change"""


def _warmup_seconds(times: LatencyProfile, config: RunConfig, spec: CompressionSpec) -> float:
    """Return how long a student is distilled before it may act at all.

    Where it is admitted by its KL instead, nobody knows that beforehand.
    """
    if spec.student_key is None or config.compression.admit_kl_nats > 0.0:
        return 0.0
    states = config.compression.distill_batch * config.compression.distill_warmup_updates
    return times.distill_seconds(spec, states)


def _compare(
    work: Work, state: Steady, raw: Mapping[str, float], publish_every: int
) -> list[tuple[str, float, float]]:
    """Return, for each factor, the seconds that were seen and those that the profile expects.

    Those of publishing hold the copies that the learner makes of its weights meanwhile.
    """
    acting = sum(raw[f"{phase}_seconds_per_step"] for phase in ("env", "infer"))
    write = raw["write_seconds_per_step"]
    acting += 0.0 if math.isnan(write) else write
    _, between = freshness(work, state, publish_every)
    copies = state.copying * work.rollout * between
    publish = work.publish * state.slowdown
    sends = work.send > 0.0
    excess = raw["publish_seconds_each"] - copies - (publish if sends else 0.0)
    return [
        ("acting", acting, work.act * work.wiring.actors * state.actors_slower),
        ("learning", raw["learn_seconds_per_update"], state.learning),
        ("publishing", excess, work.send if sends else publish),
    ]


def corrected(work: Work, factor: Mapping[str, float]) -> Work:
    """Return work as it is believed to be: with the factors on its times."""
    acting, learning, publishing = (factor[name] for name in _FACTORS)
    sends = work.send > 0.0
    return replace(
        work,
        act=work.act * acting,
        infer=work.infer * acting,
        load=work.load * acting,
        learn=work.learn * learning,
        copy=work.copy * learning,
        distill=work.distill * learning,
        piece=work.piece * learning,
        publish=work.publish if sends else work.publish * publishing,
        send=work.send * publishing if sends else work.send,
        upload=work.upload * (publishing if sends else 1.0),
    )
