"""Inner runs as jobs, each under a strategy."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from accerl.monitor.strategies import FirstThatFires, make_strategy
from accerl.monitor.strategy import Strategy
from accerl.own_code import own_errors
from accerl.runtime.latency.predict import fastest_first
from accerl.spec import CompressionSpec, Decision
from accerl.training.run import run_training
from analysis.comparison import curves
from controller.bundle.schedule import ReplayedSchedule, Schedule
from controller.comparators.by_name import COMPARATORS, make_comparator
from controller.comparators.ppo import PPOStrategy
from controller.env.instances import Instance
from controller.env.play import Played
from controller.indicator.trainable import INDICATORS, read_indicator
from controller.shield import Shielded
from studies.jobs.executor import Job, R, config_key


@dataclass(frozen=True, kw_only=True)
class InstanceJob(Job[R], ABC):
    """A job on one seed of an instance; its latency profile travels with it."""

    instance: Instance
    seed: int

    def to_json(self) -> dict[str, Any]:
        """Return all fields, the latency profile, and a hash of the run's settings."""
        assert self.instance.latency is not None
        names = [field.name for field in fields(self) if field.name != "out"]
        own = {name: _plain(getattr(self, name)) for name in names}
        config, latency = self.instance.config(self.seed), self.instance.latency.to_json()
        return {"kind": self.kind, **config_key(config), "latency": latency, **own}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.to_json() if hasattr(value, "to_json") else value


@dataclass(frozen=True, kw_only=True)
class StrategyResult(Played):
    """A run under a strategy, of K intervals."""

    compression_kl_nats: float | None = None
    """mean over the intervals in which it was sampled; None: in none"""

    def final_return(self, instance: Instance) -> float:
        """Return the mean J of the last tenth of the horizon."""
        times, returns = np.array(self.times), np.array(self.returns)
        return curves.final_return(times, returns, instance.horizon_seconds)

    def seconds_to_target(self, instance: Instance) -> curves.TimeToTarget:
        """Return when J reached the instance's target."""
        return _seconds_to_target(self, instance)

    def to_json(self) -> dict[str, Any]:
        """Return all fields."""
        return {**asdict(self), "decisions": [decision.to_json() for decision in self.decisions]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StrategyResult:
        """Read what `to_json` returned."""
        return cls(
            times=tuple(data["times"]),
            returns=tuple(data["returns"]),
            decisions=tuple(map(Decision.from_json, data["decisions"])),
            env_steps=tuple(data["env_steps"]),
            compression_kl_nats=data.get("compression_kl_nats"),
        )


def _seconds_to_target(played: Played, instance: Instance) -> curves.TimeToTarget:
    times, returns = np.array(played.times), np.array(played.returns)
    target, horizon = instance.target_return, instance.horizon_seconds
    return curves.seconds_to_target(times, returns, target, horizon)


def score(instance: Instance, played: Played) -> float:
    """Return the log of the horizon over the seconds to target; more is better.

    Contests judge by these seconds, so searches and checks choose by them: a mean of it is the log
    of a geometric mean, in which every instance counts alike. Whoever never arrives counts with
    more than the horizon, up to twice, by the share of the way to the target that its last J lacks.
    """
    time, horizon = _seconds_to_target(played, instance), instance.horizon_seconds
    seconds = max(time.seconds, 1e-6 * horizon)
    if time.censored:
        end = curves.final_return(np.array(played.times), np.array(played.returns), horizon)
        way = instance.target_return - instance.random_return
        seconds *= 1.0 + min(max((instance.target_return - end) / way, 0.0), 1.0)
    return math.log(horizon / seconds)


@dataclass(frozen=True, kw_only=True)
class StrategyJob(InstanceJob[StrategyResult]):
    """A run under a strategy, ``{"name": ..., "params": {...}}``, see `build_strategy`."""

    kind: ClassVar[str] = "strategy"
    strategy: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """See `InstanceJob`. Equal strategies are an equal run, whatever they are called.

        Records hold the label.
        """
        strategy = dict(self.strategy)
        if self.out is None:
            strategy.pop("label", None)
        return {**super().to_json(), "strategy": strategy}

    def run(self) -> StrategyResult:
        """Do the run, with records where `out` is given."""
        result = run_training(
            self.instance.config(self.seed),
            build_strategy(self.strategy, self.instance, self.seed),
            strategy_name=self.strategy.get("label", self.strategy["name"]),
            out=self.out,
            profile=self.instance.latency,
        )
        reports = result.reports
        returns = [self.instance.random_return]
        for report in reports:
            score = report.learner_return
            returns.append(returns[-1] if score is None else score)
        sampled = [report.compression_kl_nats.values() for report in reports]
        kls = [sum(own) / len(own) for own in sampled if own]
        return StrategyResult(
            times=(0.0, *(report.total_seconds for report in reports)),
            returns=tuple(returns),
            decisions=tuple(report.decision for report in reports),
            env_steps=(0, *(report.total_env_steps for report in reports)),
            compression_kl_nats=sum(kls) / len(kls) if kls else None,
        )

    @classmethod
    def read_result(cls, data: Mapping[str, Any]) -> StrategyResult:
        """Read a result."""
        return StrategyResult.from_json(data)


def build_strategy(
    description: Mapping[str, Any], instance: Instance, seed: int | None = None
) -> Strategy:
    """Return the strategy that a job describes, in the units of the game.

    Args:
        description: ``{"name": ..., "params": {...}, "shield": {"threshold_nats": 14.0}}``; the
            shield is optional.
        instance: that it decides in.
        seed: of the run; None: dice of the strategy's own stay as they are described.
    """
    strategy = _unshielded(description, instance)
    if seed is not None:
        strategy = with_dice(strategy, seed, description.get("params") or {})
    shield = description.get("shield")
    return strategy if shield is None else Shielded.from_json(strategy, shield)


def has_own_dice(strategy: Strategy, params: Mapping[str, Any]) -> bool:
    """Whether a strategy draws random numbers, by an int `seed` that its parameters do not give.

    A composition does where one of its rules does.
    """
    if type(strategy) is FirstThatFires:
        return any(has_own_dice(rule, own) for rule, own in _rules_of(strategy, params))
    return type(getattr(strategy, "seed", None)) is int and "seed" not in params


def with_dice(strategy: Strategy, seed: int, params: Mapping[str, Any]) -> Strategy:
    """Return a strategy with the dice of a run's seed: intervals over seeds hold its luck.

    One that has no dice of its own, see `has_own_dice`, is returned as it is.

    Raises:
        UserError: one of the user's own does not let its seed be set.
    """
    if not has_own_dice(strategy, params):
        return strategy
    if type(strategy) is FirstThatFires:
        rules = [with_dice(rule, seed, own) for rule, own in _rules_of(strategy, params)]
        return replace(strategy, rules=tuple(rules))
    given: Any = strategy
    with own_errors("seed of strategy", strategy):
        if "seed" in getattr(given, "__dataclass_fields__", {}):  # it may be frozen
            return replace(given, seed=seed)
        seeded = copy(given)
        seeded.seed = seed
    return seeded


def _rules_of(
    composed: FirstThatFires, params: Mapping[str, Any]
) -> list[tuple[Strategy, Mapping[str, Any]]]:
    """Return the rules of a composition, each with the parameters that it was given."""
    given: Sequence[Mapping[str, Any]] = params.get("rules", [{}] * len(composed.rules))
    return [
        (rule, own.get("params") or {}) for rule, own in zip(composed.rules, given, strict=True)
    ]


def _unshielded(description: Mapping[str, Any], instance: Instance) -> Strategy:
    if description["name"] == PPOStrategy.name:
        return PPOStrategy.from_json(description).where(instance.has)
    if description["name"] in INDICATORS:
        return read_indicator(description)
    if description["name"] == "schedule":
        return ReplayedSchedule(Schedule.from_json(description["points"]))
    make = make_comparator if description["name"] in COMPARATORS else make_strategy
    return make(description["name"], **_in_units(description, instance)["params"])


def _fastest_first(
    specs: Sequence[Mapping[str, Any]], instance: Instance
) -> tuple[CompressionSpec, ...]:
    """Return the specs that actors can act with here, as this machine's profile predicts them."""
    assert instance.latency is not None
    given = [CompressionSpec.from_json(spec) for spec in specs]
    possible = [spec for spec in given if instance.has(spec)]
    return fastest_first(instance.latency, instance.config(0), possible)


def _in_units(description: Mapping[str, Any], instance: Instance) -> dict[str, Any]:
    """Return a hand-set strategy, or a composition of some, as it is on this game and machine."""
    params = dict(description["params"])
    if description["name"] == "reward-gap":
        params["scale"] = instance.reference.span
    if description["name"] == "advise-kl-cap":
        params["specs"] = _fastest_first(params["specs"], instance)
    if description["name"] == "first-that-fires":
        params["rules"] = [_in_units(rule, instance) for rule in params["rules"]]
    return {"name": description["name"], "params": params}
