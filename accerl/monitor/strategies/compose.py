"""FirstThatFires: strategies of which the first that wants something else gets its way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from accerl.errors import UserError
from accerl.monitor.features import Features
from accerl.monitor.strategies.base import HandSetStrategy
from accerl.monitor.strategies.search import Levels
from accerl.monitor.strategies.threshold import KLThresholdStrategy, RewardGapStrategy
from accerl.monitor.strategy import (
    Strategy,
    bind_rule,
    decide,
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
from accerl.spec import CompressionSpec, Decision

if TYPE_CHECKING:
    import optuna

    from accerl.config import RunConfig
    from accerl.runtime.latency.profile import LatencyProfile


@dataclass(frozen=True)
class FirstThatFires(HandSetStrategy):
    """Asks every rule and takes the decision of the first that fires, else of the last one.

    A rule fires while it is away from its state of rest: a threshold strategy while conservative,
    the linear mix while it acts with any of the large network. Rules without such a state (fixed,
    random, three-stage), and those of your own without a property `fires`, always fire: put them
    last. All rules see every interval, so that hysteresis and dwell go on while another one rules.
    A composition fires while one of its rules does, and may be part of another.

    Raises:
        UserError: there are no rules, or one is not a strategy.
    """

    name: ClassVar[str] = "first-that-fires"
    rules: tuple[Strategy, ...] = field(
        metadata={"example": '[{"name": "kl-threshold"}, {"name": "linear-kl"}]'}
    )
    _heard: list[tuple[int, dict[str, Any]]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )
    """what happened in this run, and to which rule, by its place"""

    def __post_init__(self) -> None:
        if not isinstance(self.rules, tuple | list) or not self.rules:
            raise UserError(
                f"strategy {self.name}: rules must be a list of at least one strategy, "
                f"got {self.rules!r}"
            )
        object.__setattr__(self, "rules", tuple(self.rules))
        for index, rule in enumerate(self.rules):
            if not (hasattr(rule, "decide") and hasattr(rule, "reset")):
                raise UserError(
                    f"strategy {self.name}: rules[{index}] must be a strategy, which has reset "
                    f"and decide, got {rule!r}"
                )

    @property
    def needs(self) -> frozenset[str]:
        """Whatever one of the rules needs."""
        return frozenset().union(*map(needs_of, self.rules))

    @property
    def specs(self) -> tuple[CompressionSpec, ...]:
        """The specs that the rules declare, each once.

        Raises:
            AttributeError: one of them declares none, so the whole may act with anything.
        """
        if not all(declares(rule, "specs") for rule in self.rules):
            raise AttributeError("specs: one of the rules does not say what it may act with")
        return tuple(dict.fromkeys(spec for rule in self.rules for spec in specs_of(rule)))

    @property
    def fires(self) -> bool:
        """Whether one of the rules fired."""
        return any(map(fires, self.rules))

    @property
    def events(self) -> list[dict[str, Any]]:
        """What happened to the rules that say so, in the order in which it became known.

        Raises:
            AttributeError: none of them says.
        """
        if not any(declares(rule, "events") for rule in self.rules):
            raise AttributeError("events: none of the rules says what happens to it")
        for place, rule in enumerate(self.rules):
            known = sum(at == place for at, _ in self._heard)
            self._heard.extend((place, event) for event in events_of(rule)[known:])
        return [event for _, event in self._heard]

    @property
    def explanation(self) -> dict[str, dict[str, float]]:
        """The explanation of the rule in effect."""
        return explanation_of(next((rule for rule in self.rules if fires(rule)), self.rules[-1]))

    def bind(self, config: RunConfig, times: LatencyProfile | None) -> None:
        """Tell every rule what is known of the run."""
        for rule in self.rules:
            bind_rule(rule, config, times)

    def reset(self) -> None:
        """Reset every rule."""
        self._heard.clear()
        for rule in self.rules:
            reset(rule)

    def decide(self, features: Features) -> Decision:
        """Return the decision of the first rule that fires; the others learn what acts instead."""
        decisions = [decide(rule, features) for rule in self.rules]
        pairs = zip(self.rules, decisions, strict=True)
        acts = next((decision for rule, decision in pairs if fires(rule)), decisions[-1])
        for rule, decision in zip(self.rules, decisions, strict=True):
            if decision != acts:
                overrule(rule, acts)
        return acts

    def overruled(self, decision: Decision) -> None:
        """Let every rule know what acts instead."""
        for rule in self.rules:
            overrule(rule, decision)

    def rejected(self, spec: CompressionSpec) -> None:
        """Let every rule know what cannot be built."""
        for rule in self.rules:
            reject(rule, spec)

    @classmethod
    def suggest(cls, trial: optuna.Trial, actions: Levels) -> dict[str, Any]:
        """Return the KL and the reward gap as two alarms that relax the same aggressive spec.

        Both spaces name their specs alike, and a trial proposes a value once a name.
        """
        alarms = (KLThresholdStrategy, RewardGapStrategy)
        return {
            "rules": [
                {"name": rule.name, "params": rule.suggest(trial, actions)} for rule in alarms
            ]
        }
