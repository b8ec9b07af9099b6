"""Candidates: what may act next, and the features by which the policy scores each of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from accerl.spec import IDENTITY, CompressionSpec, Decision
from controller.indicator.effects import Estimate
from controller.indicator.fidelity import FidelityBelief, is_free
from controller.indicator.speed import SpeedBelief

TENTH = 10.0
"""features of logarithms are in tenths: 1 is some 10% of speed or worth"""
SCORED: Mapping[str, str] = {
    "speed": "log of the rate over the fastest candidate's, in tenths",
    "speed_doubt": "its standard deviation, in tenths",
    "worth": "log of what an env step is worth over one without compression, in tenths",
    "worth_doubt": "its standard deviation, in tenths",
    "above_cap": "log of its KL over the cap, in tenths; 0 below it",
    "kl": "log10 of its KL + 2: 1 at 0.1 nats",
    # While a choice waits to be admitted, what does act reads 0 as well, and pays a takeover.
    "acts": "1 for what acts now",
    "takeover": "share of the time left until it acts",
    "time": "share of the run that is over",
    "unmeasured": "1 where its KL was not measured in this run",
    "age": "log10(1 + learner updates that its weights are old when they arrive)",
    "uncompressed": "1 for none",
    "rising": "tanh(t of the slope of returns / 3)",
    "changed": "1 after conditions changed",
}
"""what the policy reads of every candidate, by name: entry by entry, [F]; texts are for people"""
SCORED_VERSION = 1
"""of what these are computed as: a bundle's weights fit one version, however it is worded"""
LIMITS = (-30.0, 30.0)


@dataclass(frozen=True)
class Candidate:
    """What is believed of a decision that could be made now."""

    decision: Decision
    log_rate: Estimate
    """of env steps per second"""
    log_efficiency: Estimate
    log_kl: Estimate
    policy_lag: float
    vector: np.ndarray
    """what the policy reads, float32 [F]"""

    @property
    def log_worth(self) -> float:
        """Return the log of rate x efficiency, which is what progress per second goes by."""
        return self.log_rate.mean + self.log_efficiency.mean


@dataclass(frozen=True)
class Situation:
    """What is the same for all candidates."""

    acting: Decision | None
    seconds_left: float
    time_fraction: float
    slope_t: float
    """of the actors' returns, in standard errors; NaN: not known"""
    changed: bool


def make_candidates(
    specs: Sequence[CompressionSpec],
    speed: SpeedBelief,
    fidelity: FidelityBelief,
    situation: Situation,
    cap_nats: float,
) -> list[Candidate]:
    """Return what is believed of every spec, as a decision to act with it alone.

    Args:
        specs: of the beliefs; one must be no compression.
        speed: of every spec.
        fidelity: of every spec.
        situation: of the run.
        cap_nats: of the KL, see `SCORED`.
    """
    fp32_lag = speed[IDENTITY].policy_lag
    known = [_of_spec(spec, speed, fidelity, fp32_lag) for spec in specs]
    fastest = max(row.log_rate.mean for row in known)
    return [
        Candidate(
            Decision.of(spec),
            row.log_rate,
            row.log_efficiency,
            row.log_kl,
            row.policy_lag,
            _vector(spec, row, fidelity, situation, fastest, cap_nats),
        )
        for spec, row in zip(specs, known, strict=True)
    ]


@dataclass(frozen=True)
class _Known:
    log_rate: Estimate
    log_efficiency: Estimate
    log_kl: Estimate
    policy_lag: float
    age_updates: float
    takeover_seconds: float


def _of_spec(
    spec: CompressionSpec, speed: SpeedBelief, fidelity: FidelityBelief, fp32_lag: float
) -> _Known:
    pace = speed[spec]
    return _Known(
        pace.log_rate,
        fidelity.log_efficiency(spec, pace.policy_lag, fp32_lag),
        fidelity.log_kl(spec),
        pace.policy_lag,
        pace.age_updates,
        pace.takeover_seconds,
    )


def _vector(
    spec: CompressionSpec,
    row: _Known,
    fidelity: FidelityBelief,
    situation: Situation,
    fastest: float,
    cap_nats: float,
) -> np.ndarray:
    acts = Decision.of(spec) == situation.acting
    left = max(situation.seconds_left, 1e-9)
    rising = 0.0 if math.isnan(situation.slope_t) else math.tanh(situation.slope_t / 3.0)
    age = row.age_updates if row.age_updates >= 0.0 else 0.0
    kl_nats = math.exp(row.log_kl.mean)
    values = {
        "speed": TENTH * (row.log_rate.mean - fastest),
        "speed_doubt": TENTH * row.log_rate.sd,
        "worth": TENTH * row.log_efficiency.mean,
        "worth_doubt": TENTH * row.log_efficiency.sd,
        "above_cap": TENTH * max(row.log_kl.mean - math.log(cap_nats), 0.0),
        "kl": math.log10(kl_nats) + 2.0,
        "acts": float(acts),
        "takeover": 0.0 if acts else min(row.takeover_seconds / left, 1.0),
        "time": situation.time_fraction,
        "unmeasured": float(not is_free(spec) and spec not in fidelity.measured),
        "age": math.log10(1.0 + age),
        "uncompressed": float(spec == IDENTITY),
        "rising": rising,
        "changed": float(situation.changed),
    }
    return np.clip([values[name] for name in SCORED], *LIMITS).astype(np.float32)
