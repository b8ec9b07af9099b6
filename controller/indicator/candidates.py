"""Candidates: what may act next, and the features by which the policy scores each of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from accerl.spec import IDENTITY, CompressionSpec, Decision
from controller.indicator.effects import Estimate
from controller.indicator.fidelity import FidelityBelief, is_exact
from controller.indicator.speed import Pace, SpeedBelief

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
    "uncompressed": "1 for none; of a mix, its share",
    "rising": "tanh(t of the slope of returns / 3)",
    "changed": "1 after conditions changed",
}
"""what the policy reads of every candidate, by name: entry by entry, [F]; texts are for people"""
IN_TENTHS = ("speed", "speed_doubt", "worth", "worth_doubt", "above_cap")
"""of these; the others are between -1 and some 2"""
SCORED_VERSION = 3
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
    mixes: Sequence[Decision] = (),
) -> list[Candidate]:
    """Return what is believed of acting with every spec alone, and of some mixes of them.

    Rollouts of a mix follow one another, so its seconds per env step and its KL are means of its
    specs', by their shares, and so is what a step is worth. Its doubts are as large as if those of
    its specs were one.

    Args:
        specs: of the beliefs; one must be no compression.
        speed: of every spec.
        fidelity: of every spec.
        situation: of the run.
        cap_nats: of the KL, see `SCORED`.
        mixes: of these specs.
    """
    paces = {spec: speed[spec] for spec in specs}
    fp32_lag = paces[IDENTITY].policy_lag
    worth = {
        spec: fidelity.log_efficiency(spec, pace.policy_lag, fp32_lag)
        for spec, pace in paces.items()
    }
    fastest = max(pace.log_rate.mean for pace in paces.values())
    found: list[Candidate] = []
    for decision in (*map(Decision.of, specs), *mixes):
        seconds = _mean(decision, lambda spec: _inverse(paces[spec].log_rate))
        log_rate, efficiency = _inverse(seconds), _mean(decision, worth.__getitem__)
        log_kl = _mean(decision, fidelity.log_kl)
        unmeasured = any(not is_exact(s) and s not in fidelity.measured for s in decision.specs)
        own = {
            "speed": TENTH * (log_rate.mean - fastest),
            "speed_doubt": TENTH * log_rate.sd,
            "worth": TENTH * efficiency.mean,
            "worth_doubt": TENTH * efficiency.sd,
            "above_cap": TENTH * max(log_kl.mean - math.log(cap_nats), 0.0),
            "kl": math.log10(math.exp(log_kl.mean)) + 2.0,
            "unmeasured": float(unmeasured),
            **_of_run(decision, [paces[spec] for spec in decision.specs], situation),
        }
        vector = np.clip([own[name] for name in SCORED], *LIMITS).astype(np.float32)
        found.append(Candidate(decision, log_rate, efficiency, log_kl, vector))
    return found


def _mean(decision: Decision, log_of: Callable[[CompressionSpec], Estimate]) -> Estimate:
    """Return the log of a mean over a mix's shares, of what is believed in logs."""
    parts = [(share, log_of(spec)) for spec, share in decision.mix]
    if len(parts) == 1:
        return parts[0][1]
    weights = [share * math.exp(part.mean) for share, part in parts]
    total = sum(weights)
    doubt = sum(w * part.sd for w, (_, part) in zip(weights, parts, strict=True)) / total
    return Estimate(math.log(total), doubt)


def _inverse(log: Estimate) -> Estimate:
    return Estimate(-log.mean, log.sd)


def _of_run(decision: Decision, paces: Sequence[Pace], situation: Situation) -> dict[str, float]:
    """Return what `SCORED` has of where the run stands, and of what changing to a spec takes."""
    acts = decision == situation.acting
    left = max(situation.seconds_left, 1e-9)
    age = max(pace.age_updates if pace.age_updates >= 0.0 else 0.0 for pace in paces)
    takeover = max(pace.takeover_seconds for pace in paces)
    slope = situation.slope_t
    return {
        "acts": float(acts),
        "takeover": 0.0 if acts else min(takeover / left, 1.0),
        "time": situation.time_fraction,
        "age": math.log10(1.0 + age),
        "uncompressed": dict(decision.mix).get(IDENTITY, 0.0),
        "rising": 0.0 if math.isnan(slope) else math.tanh(slope / 3.0),
        "changed": float(situation.changed),
    }
