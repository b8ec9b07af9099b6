"""make_strategy(): the shipped strategies by name, their parameters as objects or as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, get_type_hints

from accerl.errors import UserError, did_you_mean, require_choice
from accerl.monitor.strategies.base import HandSetStrategy
from accerl.monitor.strategies.cap import AdviseKLCapStrategy
from accerl.monitor.strategies.compose import FirstThatFires
from accerl.monitor.strategies.fixed import FixedStrategy, RandomStrategy
from accerl.monitor.strategies.mix import LinearKLMixStrategy
from accerl.monitor.strategies.stages import ThreeStageStrategy
from accerl.monitor.strategies.threshold import KLThresholdStrategy, RewardGapStrategy
from accerl.monitor.strategy import Strategy
from accerl.spec import CompressionSpec

STRATEGIES: dict[str, type[HandSetStrategy]] = {
    "fixed": FixedStrategy,
    "kl-threshold": KLThresholdStrategy,
    "reward-gap": RewardGapStrategy,
    "linear-kl": LinearKLMixStrategy,
    "three-stage": ThreeStageStrategy,
    "advise-kl-cap": AdviseKLCapStrategy,
    "random": RandomStrategy,
    "first-that-fires": FirstThatFires,
}


def make_strategy(name: str, /, **params: Any) -> HandSetStrategy:
    """Return a hand-set strategy by name: `make_from` the shipped `STRATEGIES`."""
    return make_from(STRATEGIES, name, params)


def make_from(
    factories: Mapping[str, type[HandSetStrategy]], name: str, params: Mapping[str, Any]
) -> HandSetStrategy:
    """Return one of some strategies, by name.

    Args:
        factories: the strategies to choose from, by name.
        name: the one to make.
        params: its parameters. Specs and rules may be given as objects or as JSON, a rule as
            ``{"name": ..., "params": ...}``.

    Raises:
        UserError: there is no such strategy or parameter, or a value is missing or not allowed.
    """
    require_choice("strategy", name, factories)
    factory = factories[name]
    known = {item.name: item for item in fields(factory) if item.init}
    for key in params:
        if key not in known:
            hint = did_you_mean(key, list(known))
            raise UserError(f"strategy {name}: unknown parameter {key!r}; {hint}")
    for key, item in known.items():
        if item.default is MISSING and key not in params:
            example = item.metadata["example"]
            raise UserError(f'strategy {name}: give it {key}, such as {{"{key}": {example}}}')
    hints = get_type_hints(factory)
    return factory(**{key: _read(hints[key], value) for key, value in params.items()})


def _read(kind: Any, value: Any) -> Any:
    """Return a parameter of that kind; what is not its JSON is left for the strategy to judge."""
    if kind is CompressionSpec and isinstance(value, str | Mapping):
        return CompressionSpec.from_json(value)
    if kind == tuple[CompressionSpec, ...] and isinstance(value, tuple | list):
        return tuple(_read(CompressionSpec, item) for item in value)
    if kind == tuple[Strategy, ...] and isinstance(value, tuple | list):
        return tuple(_rule(item) if isinstance(item, Mapping) else item for item in value)
    return value


def _rule(data: Mapping[str, Any]) -> HandSetStrategy:
    """Return the strategy that an object in the list of rules describes."""
    for key in data:
        if key not in ("name", "params"):
            hint = did_you_mean(str(key), ["name", "params"])
            raise UserError(f"strategy first-that-fires: a rule has no {key!r}; {hint}")
    name, params = data.get("name"), data.get("params", {})
    if not isinstance(name, str) or not isinstance(params, Mapping):
        raise UserError(
            "strategy first-that-fires: a rule is an object such as "
            f'{{"name": "kl-threshold", "params": {{}}}}, got {dict(data)!r}'
        )
    return make_strategy(name, **params)
