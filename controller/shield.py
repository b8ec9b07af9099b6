"""Shielded: the paper's rule on the largest KL, and a fallback for every other failure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from accerl.config import RunConfig
from accerl.errors import UserError, did_you_mean
from accerl.monitor.features import FEATURE_NAMES, FEATURES, LIMIT, Features
from accerl.monitor.strategies.checks import require_number, require_spec
from accerl.monitor.strategy import (
    Strategy,
    bind_rule,
    declares,
    events_of,
    explanation_of,
    fires,
    needs_of,
    overrule,
    reject,
    reset,
    specs_of,
)
from accerl.runtime.latency.profile import LatencyProfile
from accerl.spec import IDENTITY, CompressionSpec, Decision
from controller.actions import hardness

INFINITE = ("kl_max_nats", "return_slope_t")
"""indicators that may be infinite without being damaged: a KL, and the t of returns on a line"""
KL_NATS = 14.0
"""the paper's threshold on the largest KL (section 2.4, Fig. 6)"""
OWN_SHARE = 0.5
"""least share of the mean KL that compression causes where a large KL is blamed on it"""


class Shielded:
    """A strategy whose decision is replaced by a fallback in intervals that begin badly.

    Badly is: the largest KL exceeds the threshold ("kl"); it, or an entry of the feature vector, is
    not a number ("nan"); an entry lies outside of what features can be, an indicator that one is
    made of is infinite, or there are too few or too many ("range"); or the strategy raises an
    exception, whatever it is asked or told in the run, or decides what the run would refuse
    ("error"). After a bad KL the strategy still decides, so that it learns what happened; it never
    gets damaged features, which would stay in its memory. A large KL counts once: not in intervals
    that measured none, which show the last one. It counts for nothing where it is taken for that of
    stale weights, which acting milder does not mend: if compression, measured alone in that
    interval, makes less than half of the mean KL, and after an interval for which the fallback was
    decided.

    The paper goes one step milder when its rule fires, from 8 to 16 bits, and never returns. Here
    the fallback lasts for one interval at a time, and it is by default the mildest spec that the
    strategy declares, once bound for its run: one that the run is known to be able to build. Of
    fewer than two declared specs none is milder, and the fallback is no compression. For the
    paper's step, name it:
    ``Shielded(FixedStrategy(CompressionSpec(bits=8)), fallback=CompressionSpec(bits=16))``.

    Args:
        strategy: whatever decides otherwise. A shield round it is replaced by this one; the shield
            inside a bundle that a run serves belongs to the bundle, and stays.
        threshold_nats: the largest KL that is let pass.
        fallback: what acts instead; None: see above.

    Raises:
        UserError: the threshold is not a number at least 0, or the fallback not a spec.
    """

    def __init__(
        self,
        strategy: Strategy,
        threshold_nats: float = KL_NATS,
        fallback: CompressionSpec | None = None,
    ) -> None:
        require_number("shield", "threshold_nats", threshold_nats, at_least=0.0)
        if isinstance(strategy, Shielded):  # both would act, and records would name one of them
            strategy = strategy.strategy
        if fallback is not None:
            require_spec("shield", "fallback", fallback)
        self.strategy = strategy
        self.threshold_nats = float(threshold_nats)
        self._given = fallback
        """None: the mildest that the strategy declares"""
        self._network: str | None = None
        """the learner's, once it is known"""
        self._declare()
        self._clear()

    def _clear(self) -> None:
        self.events: list[dict[str, Any]] = []
        """``{"interval", "seconds", "cause", "value", "spec"}`` of each time that it stepped in, or
        that a shield of the strategy's own did"""
        self.fires = False
        """whether it stepped in, or the strategy fired, when it decided last"""
        self.explanation: dict[str, dict[str, float]] = {}
        """why the strategy decided so; "chosen" is what acts, also after the shield stepped in"""
        self._interval = 0
        self._seconds = 0.0
        """when it decided last"""
        self._steps_in = False
        """whether something has happened since"""
        self._known_events = 0
        """of the strategy's own"""
        self._acting: Decision | None = None
        """what was decided last, by either"""

    def _declare(self) -> None:
        """Work out the fallback, and what may act, of what the strategy declares by now."""
        given = self._given
        self.fallback = _mildest(specs_of(self.strategy)) if given is None else given
        if declares(self.strategy, "specs"):  # one that does not say may act with anything
            self.specs = tuple(dict.fromkeys((*specs_of(self.strategy), self.fallback)))

    @property
    def name(self) -> str:
        """The strategy's, as in `accerl train --strategy`."""
        return getattr(self.strategy, "name", type(self.strategy).__name__)

    @property
    def shield_label(self) -> str:
        """The shield in a few words, for people and run records."""
        return f"shield({self.threshold_nats:g} nats, {self.fallback.label})"

    @property
    def needs(self) -> frozenset[str]:
        """What the strategy needs; the largest KL is always there."""
        return needs_of(self.strategy)

    def bind(self, config: RunConfig, times: LatencyProfile | None) -> None:
        """Tell the strategy what is known of the run.

        Raises:
            UserError: the run cannot act with the strategy's specs, or with the fallback.
        """
        bind_rule(self.strategy, config, times)
        self._network = config.network
        self._declare()
        Decision.of(self.fallback).check_students(config.network)

    def reset(self) -> None:
        """Forget the events, and let the strategy forget its run."""
        self._clear()
        reset(self.strategy)

    def decide(self, features: Features) -> Decision:
        """Return the strategy's decision, or the fallback, with an event for each reason."""
        self._seconds = features.raw["seconds"]
        decision, self.explanation, self.fires = Decision.of(self.fallback), {}, True
        damage = _damage(features)
        if damage is not None:
            self._note(*damage)
        else:
            if self._is_exceeded(features.raw):
                self._note("kl", _plain(features.raw["kl_max_nats"]))
            with self._noting_errors():
                decision = self._checked(self.strategy.decide(features))
                self.explanation = explanation_of(self.strategy)
                self.fires = fires(self.strategy)
        news: list[dict[str, Any]] = []
        with self._noting_errors():
            # A bundle may have brought a shield: it counts only the intervals it was asked in.
            news = events_of(self.strategy)[self._known_events :]
        if self._steps_in:
            decision = self._step_in()
        self.events += ({**event, "interval": self._interval} for event in news)
        self._known_events += len(news)
        self._interval += 1
        self._acting = decision
        return decision

    def _step_in(self) -> Decision:
        """Return the fallback, and let the strategy know."""
        decision, acts = Decision.of(self.fallback), self.fallback.label
        with self._noting_errors():
            overrule(self.strategy, decision)
        rows = self.explanation.items()
        self.explanation = {name: {**row, "chosen": float(name == acts)} for name, row in rows}
        self.fires, self._steps_in = True, False
        return decision

    @contextmanager
    def _noting_errors(self) -> Iterator[None]:
        """Have the fallback act after an exception, in this decision or the next."""
        try:
            yield
        except Exception as error:
            # Broad on purpose: a run of hours outlives any bug in its strategy. Nothing is hidden:
            # the text is in the events, and interrupts are no Exception.
            self._note("error", f"{type(error).__name__}: {error}")

    def _is_exceeded(self, raw: Mapping[str, float]) -> bool:
        """Return whether the interval's largest KL is too large, and compression's doing."""
        is_old = raw.get("kl_is_new") == 0.0  # who does not say so, as a test may, measured it
        exceeds = raw["kl_max_nats"] > self.threshold_nats and not is_old
        return exceeds and not (self._holds_fallback() or self._is_stale(raw))

    def _holds_fallback(self) -> bool:
        """Return whether nothing but the fallback was decided last."""
        return self._acting is not None and self._acting.specs == (self.fallback,)

    def _is_stale(self, raw: Mapping[str, float]) -> bool:
        """Return whether the interval's KL is mostly that of stale weights, as far as is known.

        Of a mix it is not: one part may have been measured alone, and another be the cause.
        """
        is_mix = self._acting is not None and len(self._acting.specs) > 1
        mean, own = raw["kl_mean_nats"], raw["compression_kl_nats"]
        is_known = raw["compression_kl_is_new"] > 0.0 and math.isfinite(mean) and not is_mix
        return is_known and own < OWN_SHARE * mean

    def _checked(self, decision: object) -> Decision:
        """Return what was decided; refuse what the run would refuse outside the shield."""
        if not isinstance(decision, Decision):
            raise TypeError(f"decide() must return a Decision, got {type(decision).__name__}")
        if self._network is not None:
            decision.check_students(self._network)
        return decision

    def overruled(self, decision: Decision) -> None:
        """Let the strategy know what acts instead."""
        self._acting = decision
        with self._noting_errors():
            overrule(self.strategy, decision)

    def rejected(self, spec: CompressionSpec) -> None:
        """Let the strategy know what cannot be built."""
        with self._noting_errors():
            reject(self.strategy, spec)

    def _note(self, cause: str, value: float | str) -> None:
        self._steps_in = True
        self.events.append(
            {
                "interval": self._interval,
                "seconds": self._seconds,
                "cause": cause,
                "value": value,
                "spec": self.fallback.to_json(),
            }
        )

    def to_json(self) -> dict[str, Any]:
        """Return the strategy's description and ``"shield"``, for `from_json`."""
        describe = getattr(self.strategy, "to_json", None)
        inner = {"name": self.name, "params": None} if describe is None else describe()
        shield = {"threshold_nats": self.threshold_nats, "fallback": self.fallback.to_json()}
        return {**inner, "shield": shield}

    @classmethod
    def from_json(cls, strategy: Strategy, shield: Mapping[str, Any]) -> Shielded:
        """Put a shield round a strategy, as ``"shield"`` in its description says.

        Args:
            strategy: what is to be shielded.
            shield: ``{"threshold_nats": 14.0, "fallback": {...}}``, either of which may be left
                out.

        Raises:
            UserError: there is no such parameter, or a value is not allowed.
        """
        known = ["threshold_nats", "fallback"]
        if not isinstance(shield, Mapping):
            raise UserError(
                f'shield: expected an object such as {{"threshold_nats": 14.0}}, got {shield!r}'
            )
        for key in shield:
            if key not in known:
                raise UserError(f"shield: unknown parameter {key!r}; {did_you_mean(key, known)}")
        fallback = shield.get("fallback")
        spec = None if fallback is None else CompressionSpec.from_json(fallback)
        return cls(strategy, shield.get("threshold_nats", KL_NATS), spec)


def _mildest(specs: tuple[CompressionSpec, ...]) -> CompressionSpec:
    """Return the spec with the fewest levels above none; of equals the first."""
    return IDENTITY if len(specs) < 2 else min(specs, key=lambda spec: sum(hardness(spec)))


def _damage(features: Features) -> tuple[str, float | str] | None:
    """Return cause and value of what no strategy should see; None: nothing is wrong."""
    vector = features.vector
    if vector.shape != (len(FEATURE_NAMES),):
        return "range", f"{vector.shape} is not {len(FEATURE_NAMES)} features"
    if not np.isfinite(vector).all():
        return "nan", FEATURE_NAMES[int(np.argmin(np.isfinite(vector)))]
    if math.isnan(features.raw["kl_max_nats"]):
        return "nan", "kl_max_nats"
    for feature in FEATURES:  # the vector is clipped and cannot show it
        value = features.raw.get(feature.source, 0.0)
        if math.isinf(value) and feature.source not in INFINITE:
            return "range", f"{feature.source} {value}"
    farthest = int(np.argmax(np.abs(vector)))
    if abs(vector[farthest]) > LIMIT:
        return "range", f"{FEATURE_NAMES[farthest]} {vector[farthest]:g}"
    return None


def _plain(value: float) -> float | str:
    """Return a number that JSON can hold; infinity as a word."""
    return value if math.isfinite(value) else str(value)
