"""AdvancedIndicator: the paper's Advanced Indicator (section 2.4), as a Strategy.

    profile, phase times -> SpeedBelief    -+
                                            +-> candidates -> SpecScorer -> a decision, and why
    KL, ESS, lag         -> FidelityBelief -+

It reads what `accerl.runtime.latency.predict` says of every spec, corrects that by what it sees,
and knows what it does not know. Its argmax acts; nothing is drawn at random.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch

from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.monitor.features import Features
from accerl.monitor.strategies.cap import SERVED, THROUGHOUT
from accerl.monitor.strategies.checks import require_flag, require_number
from accerl.runtime.latency.profile import LatencyProfile
from accerl.spec import IDENTITY, CompressionSpec, Decision, StudentKey
from controller.env.compatibility import incompatibility, possible
from controller.indicator.candidates import Candidate, Situation, make_candidates
from controller.indicator.fidelity import FidelityBelief
from controller.indicator.prior import Prior, drift_share
from controller.indicator.scorer import SpecScorer
from controller.indicator.speed import SpeedBelief

LARGEST_LOG = 700.0
"""whose power of e a float holds"""
DOUBT = 0.5
"""standard deviation of the log of a KL above which it is worth measuring"""
WORTH_KNOWING = 1.03
"""a spec is measured only if its optimistic worth is so many times the acting one's"""
FORGET_CHANGE = 2
"""intervals for which a change of conditions counts as new"""


@dataclass(frozen=True, kw_only=True)
class IndicatorSettings:
    """What the indicator is told and does not learn.

    Raises:
        UserError: a number lies outside what is allowed.
    """

    specs: tuple[CompressionSpec, ...]
    """that it may act with, as far as the run can; no compression is always among them"""
    mixes: tuple[Decision, ...] = ()
    """of specs that it may act with as well; while one acts, nothing is learned of its specs"""
    cap_nats: float = 0.35
    """KL from which on a spec's score falls; tuned KL caps come to lie here or above"""
    least_worth: float = 0.97
    """what is believed to be worth less, over no compression, does not act"""
    uses_predictions: bool = True
    """False: all specs are thought equally fast until they have acted (an ablation)"""
    uses_kl: bool = True
    """False: KL is never looked at, only what the prior says of it and entropy (an ablation)"""
    uses_shadows: bool = True
    """False: nothing is measured without acting"""
    uses_changes: bool = True
    """False: changes of conditions are not noticed (an ablation)"""

    def __post_init__(self) -> None:
        mixed = [spec for mix in self.mixes for spec in mix.specs]
        object.__setattr__(self, "specs", tuple(dict.fromkeys((IDENTITY, *self.specs, *mixed))))
        require_number("indicator", "cap_nats", self.cap_nats, above=0.0)
        require_number("indicator", "least_worth", self.least_worth, at_least=0.0, at_most=1.0)
        for name in ("uses_predictions", "uses_kl", "uses_shadows", "uses_changes"):
            require_flag("indicator", name, getattr(self, name))

    def to_json(self) -> dict[str, Any]:
        """Return all fields, but for mixes where there are none."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        given["specs"] = [spec.to_json() for spec in self.specs]
        given["mixes"] = [mix.to_json() for mix in self.mixes]
        return given if self.mixes else {k: v for k, v in given.items() if k != "mixes"}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> IndicatorSettings:
        """Read what `to_json` returned."""
        specs = tuple(CompressionSpec.from_json(spec) for spec in data["specs"])
        mixes = tuple(Decision.from_json(mix) for mix in data.get("mixes", ()))
        return cls(**{**data, "specs": specs, "mixes": mixes})


class AdvancedIndicator:
    """Believes something of every spec's speed and fidelity, scores them, and acts with the best.

    Args:
        scorer: its policy.
        prior: what it believes before it has seen anything.
        settings: what it is told.
    """

    name = "indicator"

    def __init__(self, scorer: SpecScorer, prior: Prior, settings: IndicatorSettings) -> None:
        self.scorer, self.prior, self.settings = scorer, prior, settings
        self.specs = settings.specs
        """what it may act with in this run"""
        self._bound = self.specs
        """what it began to choose from; some may have turned out not to be built"""
        self.explanation: dict[str, dict[str, float]] = {}
        """why the last decision was made: numbers by candidate's label"""
        self._config: RunConfig | None = None
        self._times: LatencyProfile | None = None
        self._speed: SpeedBelief | None = None

    def bind(self, config: RunConfig, times: LatencyProfile | None) -> None:
        """Learn what is known of the run: what can act in it, and how long its work takes.

        Raises:
            UserError: it cannot act without compression.
        """
        self.specs = possible(config, times, self.settings.specs)
        if IDENTITY not in self.specs:
            why = incompatibility(config.network, times, IDENTITY)
            raise UserError(
                f"indicator: it compares with no compression, which this run lacks: {why}"
            )
        self._config = config
        self._times = times if self.settings.uses_predictions else None
        if times is not None and times.has(IDENTITY):  # of the others nobody knows what they save
            self.specs = tuple(spec for spec in self.specs if times.has(spec))
        self._bound = self.specs

    def reset(self) -> None:
        """Believe what the prior says.

        Raises:
            UserError: it was not told which run it is to decide in.
        """
        if self._config is None:
            raise UserError("indicator: bind it to a run before it decides (`strategy.bind`)")
        self.specs = self._bound
        self._speed = SpeedBelief(
            self._config,
            self._times,
            self.specs,
            self.prior,
            notices_changes=self.settings.uses_changes,
            uses_kl=self.settings.uses_kl,
        )
        self._fidelity = FidelityBelief(
            self.specs,
            self.prior,
            drift_share(self._config),
            notices_changes=self.settings.uses_changes,
        )
        self._acting: Decision | None = None
        """what was decided last"""
        self._served = True
        """whether it acts, and does not wait to be admitted"""
        self._shadow: CompressionSpec | None = None
        self._acted: set[StudentKey | None] = set()
        """students that acted in this run"""
        self._held = 0.0
        """intervals for which it has been decided"""
        self._waiting_kl_nats = math.nan
        self._since_change = FORGET_CHANGE
        self._was_overruled = False
        self.explanation = {}

    def decide(self, features: Features) -> Decision:
        """Return what to act with during the next interval."""
        if self._speed is None:
            self.reset()
        assert self._speed is not None
        raw, speed = features.raw, self._speed
        if self._was_overruled:
            self._skip(raw, speed)
        elif self._acting is not None:
            self._observe(raw, speed)
        situation = Situation(
            acting=self._acting if self._served else None,
            seconds_left=raw["horizon_seconds"] - raw["seconds"],
            time_fraction=raw["time_fraction"],
            slope_t=raw["return_slope_t"],
            changed=self._since_change < FORGET_CHANGE,
        )
        mixes = [mix for mix in self.settings.mixes if {*mix.specs} <= {*self.specs}]
        rows = make_candidates(
            self.specs, speed, self._fidelity, situation, self._cap_nats(), mixes
        )
        scores = self._scores(rows)
        allowed = self._allowed(rows)
        chosen = self._choose(rows, scores, allowed)
        self.explanation = _explain(rows, scores, allowed, chosen)
        self._held = self._held + 1.0 if chosen == self._acting else 1.0
        self._acting = chosen
        self._shadow = self._to_measure(rows, chosen)
        return replace(chosen, shadow=self._shadow)

    def _cap_nats(self) -> float:
        """Return the KL above which scores fall steeply: what is not admitted would never act."""
        assert self._config is not None
        if not self.settings.uses_kl:
            return 1e9
        admitted = self._config.compression.admit_kl_nats or math.inf
        return min(self.settings.cap_nats, admitted)

    def overruled(self, decision: Decision) -> None:
        """Know that something else acts than was decided: that interval says nothing of it.

        Nobody chose it, so it need not be held.
        """
        self._acting, self._held = decision.without_shadow, math.inf
        self._was_overruled = True

    def rejected(self, spec: CompressionSpec) -> None:
        """Choose among the others from now on: it cannot be built in this run."""
        if spec != IDENTITY:
            self.specs = tuple(other for other in self.specs if other != spec)

    def _skip(self, raw: Mapping[str, float], speed: SpeedBelief) -> None:
        """Learn nothing from the interval that has ended."""
        self._was_overruled, self._served = False, True
        self._since_change += 1
        self._fidelity.drift()
        self._fidelity.observe_policy(raw)
        speed.skip(raw)

    def _observe(self, raw: Mapping[str, float], speed: SpeedBelief) -> None:
        """Learn from the interval that has ended."""
        assert self._acting is not None
        spec, share = self._acting.main, raw["served_share"]
        alone = len(self._acting.mix) == 1
        self._since_change += 1
        self._fidelity.drift()
        speed.changed = False
        # Where the learner used no rollout, the next interval says what acted in both.
        used = not math.isnan(share)
        if self._shadow is not None:  # measured early in the interval: by the policy before it
            self._fidelity.observe_kl(self._shadow, raw["shadow_kl_nats"])
        self._fidelity.observe_policy(raw)
        if used:
            self._served = share >= SERVED
        if share > 0.0:
            self._acted.update(each.student_key for each in self._acting.specs)
        throughout = alone and share >= THROUGHOUT
        if throughout:
            speed.observe(spec, raw)
            if speed.changed:
                self._since_change = 0
        elif used:
            speed.skip(raw)
        learns_kl = alone and self.settings.uses_kl  # a mix's is of all its specs together
        if throughout:
            self._fidelity.observe_lag(spec, raw, speed[spec].policy_lag)
        if learns_kl and self._served:
            if raw["compression_kl_is_new"] > 0.0:  # it keeps its value where nothing was sampled
                self._fidelity.observe_kl(spec, raw["compression_kl_nats"], acted=True)
            if throughout:
                self._fidelity.observe_acting(spec, raw, speed[spec].policy_lag)
        elif learns_kl and raw["waiting_kl_nats"] != self._waiting_kl_nats:
            self._fidelity.observe_kl(spec, raw["waiting_kl_nats"])
        self._waiting_kl_nats = raw["waiting_kl_nats"]  # it keeps its value until the next delivery

    def _scores(self, rows: Sequence[Candidate]) -> list[float]:
        vectors = torch.from_numpy(np.stack([row.vector for row in rows]))
        with torch.no_grad():
            scores = self.scorer(vectors)
        if not scores.isfinite().all():
            raise ValueError("indicator: its scores are not numbers; are its weights damaged?")
        return scores.tolist()

    def _allowed(self, rows: Sequence[Candidate]) -> list[int]:
        """Return the places of what is worth enough to act."""
        fp32 = next(row for row in rows if row.decision == Decision.of(IDENTITY))
        least = fp32.log_worth + math.log(max(self.settings.least_worth, 1e-9))
        return [place for place, row in enumerate(rows) if row is fp32 or row.log_worth >= least]

    def _choose(
        self, rows: Sequence[Candidate], scores: Sequence[float], allowed: Sequence[int]
    ) -> Decision:
        """Return the best of what is allowed; what is held, if it was not held long enough."""
        decisions = [rows[place].decision for place in allowed]
        held = self._acting is not None and self._held < self.scorer.dwell_intervals
        if held and self._since_change > 0 and self._acting in decisions:
            return self._acting
        return rows[max(allowed, key=lambda place: scores[place])].decision

    def _to_measure(self, rows: Sequence[Candidate], chosen: Decision) -> CompressionSpec | None:
        """Return the spec whose KL is to be measured without acting, as a shadow; None: no spec.

        Its KL is uncertain, and its optimistic worth above that of what acts; of several it is the
        one worth most. Students that acted and now rest are left out: their KL is mostly staleness.
        """
        if not (self.settings.uses_shadows and self.settings.uses_kl and self._fidelity.is_telling):
            return None
        own = next(row for row in rows if row.decision == chosen)
        best, found = own.log_worth + math.log(WORTH_KNOWING), None
        for row in rows:
            hoped = row.log_worth + row.log_efficiency.sd
            spec = row.decision.main
            student = spec.student_key
            used = {None, *(each.student_key for each in chosen.specs)}
            rests = student in self._acted and student not in used
            known = rests or spec in chosen.specs or len(row.decision.mix) > 1
            if not known and row.log_kl.sd > DOUBT and hoped > best:
                best, found = hoped, spec
        return found

    @property
    def policy(self) -> SpecScorer:
        """See `trainable.Trainable`."""
        return self.scorer

    def with_policy(self, state: Mapping[str, Any]) -> AdvancedIndicator:
        """See `trainable.Trainable`."""
        return AdvancedIndicator(SpecScorer.from_json(state), self.prior, self.settings)

    def to_json(self) -> dict[str, Any]:
        """Return its name, and as parameters all that it is made of."""
        return {"name": self.name, "params": self.params()}

    def params(self) -> dict[str, Any]:
        """Return policy, prior and settings, for `from_params`."""
        return {
            "scorer": self.scorer.to_json(),
            "prior": self.prior.to_json(),
            "settings": self.settings.to_json(),
        }

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> AdvancedIndicator:
        """Make an indicator of what `params` returned.

        Raises:
            UserError: a part is missing or does not fit.
        """
        try:
            return cls(
                SpecScorer.from_json(params["scorer"]),
                Prior.from_json(params["prior"]),
                IndicatorSettings.from_json(params["settings"]),
            )
        except KeyError as error:
            raise UserError(f"indicator: its parameters lack {error}") from error
        except (AttributeError, TypeError, ValueError) as error:
            raise UserError(f"indicator: its parameters are no indicator's ({error})") from error


def _explain(
    rows: Sequence[Candidate], scores: Sequence[float], allowed: Sequence[int], chosen: Decision
) -> dict[str, dict[str, float]]:
    """Return what is believed of every candidate, in plain units.

    `preference` is the softmax of the scores. Where the chosen one has not the highest score of
    those that are `allowed`, it is held for the dwell time, or a shield has stepped in.
    """
    highest = max(scores)
    total = sum(math.exp(score - highest) for score in scores)
    return {
        row.decision.label: {
            "env_steps_per_second": _exp(row.log_rate.mean),
            "rate_doubt": row.log_rate.sd,
            "efficiency": _exp(row.log_efficiency.mean),
            "efficiency_doubt": row.log_efficiency.sd,
            "kl_nats": _exp(row.log_kl.mean),
            "score": score,
            "preference": math.exp(score - highest) / total,
            "allowed": float(place in allowed),
            "chosen": float(row.decision == chosen),
        }
        for place, (row, score) in enumerate(zip(rows, scores, strict=True))
    }


def _exp(log: float) -> float:
    """Return e to the power of it, at most what a float holds."""
    return math.exp(min(log, LARGEST_LOG))
