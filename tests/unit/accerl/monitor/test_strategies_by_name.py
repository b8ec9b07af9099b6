"""make_strategy: parameters as objects or JSON, there and back, and every mistake in one line."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from accerl.errors import UserError
from accerl.monitor.compliance import made_up_features
from accerl.monitor.strategies import (
    STRATEGIES,
    FirstThatFires,
    FixedStrategy,
    KLThresholdStrategy,
    RandomStrategy,
    make_strategy,
)
from accerl.spec import IDENTITY, CompressionSpec, Decision

INT8 = CompressionSpec(bits=8)
REQUIRED: dict[str, dict[str, Any]] = {
    "advise-kl-cap": {"specs": [{"bits": 8}, {"bits": 32}]},
    "random": {"specs": [{"bits": 8}, {"bits": 32}]},
    "first-that-fires": {"rules": [{"name": "kl-threshold"}, {"name": "linear-kl"}]},
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_name_makes_a_strategy_that_tells_its_parameters(name: str) -> None:
    """What it tells is JSON, of which an equal strategy is made."""
    strategy = make_strategy(name, **REQUIRED.get(name, {}))
    assert strategy.name == name
    assert isinstance(strategy.decide(made_up_features()), Decision)
    told = json.loads(json.dumps(strategy.to_json()))
    assert make_strategy(told["name"], **told["params"]) == strategy


def test_a_nested_composition_survives_json() -> None:
    inner = {"name": "random", "params": {"specs": [{"bits": 8}], "seed": 3}}
    outer = {"name": "first-that-fires", "params": {"rules": [{"name": "fixed"}, inner]}}
    strategy = make_strategy("first-that-fires", rules=[{"name": "reward-gap"}, outer])
    told = strategy.to_json()["params"]
    assert json.loads(json.dumps(told)) == told
    assert make_strategy("first-that-fires", **told) == strategy
    nested = told["rules"][1]["params"]["rules"][1]["params"]
    assert nested == {"specs": [INT8.to_json()], "seed": 3, "hold_intervals": 1}


def test_specs_may_be_given_as_json() -> None:
    strategy = make_strategy("kl-threshold", aggressive='{"student": "net2", "bits": 8}')
    assert strategy.decide(made_up_features()).main == CompressionSpec(student="net2", bits=8)
    strategy = make_strategy("fixed", spec={"sparsity": 0.5})
    assert strategy.decide(made_up_features()).main.sparsity == 0.5
    strategy = make_strategy("random", specs=('{"bits": 8}', IDENTITY))
    assert strategy == RandomStrategy((INT8, IDENTITY))


def test_rules_may_be_given_as_objects() -> None:
    rules = [KLThresholdStrategy(), {"name": "fixed", "params": {"spec": {"bits": 8}}}]
    strategy = make_strategy("first-that-fires", rules=rules)
    assert strategy == FirstThatFires((KLThresholdStrategy(), FixedStrategy(INT8)))


@pytest.mark.parametrize(
    ("name", "params", "label"),
    [
        ("fixed", {"spec": {"bits": 8}}, "fixed original INT8"),
        ("kl-threshold", {}, "kl-threshold"),
        ("kl-threshold", {"threshold_nats": 14.0, "dwell_intervals": 1}, "kl-threshold"),
        ("kl-threshold", {"threshold_nats": 3}, "kl-threshold(threshold_nats=3)"),
        ("kl-threshold", {"threshold_nats": 3.0}, "kl-threshold(threshold_nats=3)"),
        (
            "linear-kl",
            {"small": {"student": "net2"}, "kl_low_nats": 0.1},
            "linear-kl(small=net2 fp32, kl_low_nats=0.1)",
        ),
        ("random", {"specs": [IDENTITY, INT8]}, "random(specs=(original fp32, original INT8))"),
        (
            "first-that-fires",
            {"rules": [KLThresholdStrategy(return_below_nats=1.0), FixedStrategy()]},
            "first-that-fires(rules=(kl-threshold(return_below_nats=1), fixed original fp32))",
        ),
    ],
)
def test_a_label_tells_what_is_not_the_default(
    name: str, params: dict[str, Any], label: str
) -> None:
    assert make_strategy(name, **params).label == label


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("kl-treshold", {}, "'kl-treshold' does not exist; did you mean 'kl-threshold'"),
        ("kl-threshold", {"threshold": 1}, "unknown parameter 'threshold'; did you mean 'thresh"),
        ("kl-threshold", {"_switch": 1}, "unknown parameter '_switch'"),
        ("kl-threshold", {"threshold_nats": -1.0}, r"threshold_nats must be .* at least 0.0, got"),
        ("kl-threshold", {"threshold_nats": math.nan}, "threshold_nats must be a number"),
        ("kl-threshold", {"threshold_nats": 10**400}, "threshold_nats must be a number"),
        ("kl-threshold", {"threshold_nats": True}, "threshold_nats must be a number"),
        ("kl-threshold", {"threshold_nats": "14"}, "threshold_nats must be a number"),
        ("kl-threshold", {"indicator": "kl_max"}, "did you mean 'kl_max_nats'"),
        ("kl-threshold", {"return_below_nats": 15.0}, "must not exceed threshold_nats 14.0"),
        ("kl-threshold", {"return_below_nats": -1.0}, "return_below_nats must be a number above 0"),
        ("kl-threshold", {"conservative": INT8}, "aggressive and conservative are the same"),
        ("kl-threshold", {"conservative": 16}, "conservative must be a spec, got 16"),
        ("kl-threshold", {"conservative": '{"bits": 7}'}, "bits must be one of"),
        ("reward-gap", {"gap": -1.0}, "gap must be a number at least 0.0"),
        ("reward-gap", {"scale": 0.0}, "scale must be a number above 0.0"),
        ("reward-gap", {"return_below": 11.0}, "must not exceed gap 10.0"),
        ("reward-gap", {"return_below": math.inf}, "return_below must be a number, got inf"),
        ("linear-kl", {"kl_high_nats": 0.05}, "kl_high_nats must be a number above 0.05"),
        ("linear-kl", {"small": IDENTITY}, "small and large are the same spec"),
        ("fixed", {"spec": None}, "spec must be a spec, got None"),
        ("fixed", {"name": "kl-threshold"}, "unknown parameter 'name'; allowed: spec"),
        ("kl-threshold", {"dwell_intervals": 0}, "dwell_intervals must be a whole number at least"),
        ("reward-gap", {"dwell_interval": 1}, "'dwell_interval'; did you mean 'dwell_intervals'"),
        ("three-stage", {"by": "stages"}, "by 'stages' does not exist; did you mean 'stage'"),
        ("three-stage", {"by": ["time"]}, "allowed: time, stage"),
        ("three-stage", {"converged_from": 0.2}, "above 0.2 and at most 1.0, got 0.2"),
        ("three-stage", {"improving_from": 1.5}, "at least 0.0 and at most 1.0, got 1.5"),
        ("three-stage", {"exploring": {"bits": 8}, "improving": INT8}, "are the same spec; use"),
        ("random", {}, r'give it specs, such as \{"specs": \[\{"bits": 32\}, \{"bits": 8\}\]\}'),
        ("random", {"specs": []}, "specs must be a list of at least one spec"),
        ("random", {"specs": {"bits": 8}}, "specs must be a list of at least one spec"),
        ("random", {"specs": [{"bits": 8}, 16]}, r"specs\[1\] must be a spec, got 16"),
        ("random", {"specs": [{"bits": 8}, INT8]}, "specs holds 'original INT8' twice"),
        ("random", {"specs": [INT8], "seed": 0.5}, "seed must be a whole number at least 0"),
        ("random", {"specs": [INT8], "seed": -1}, "seed must be a whole number at least 0"),
        ("random", {"specs": [INT8], "hold_intervals": 0}, "hold_intervals must be a whole number"),
        ("first-that-fires", {}, r'give it rules, such as \{"rules": \[\{"name": "kl-thr'),
        ("first-that-fires", {"rules": []}, "rules must be a list of at least one strategy"),
        ("first-that-fires", {"rules": {"name": "fixed"}}, "rules must be a list of at least"),
        ("first-that-fires", {"rules": ["fixed"]}, r"rules\[0\] must be a strategy, which has"),
        ("first-that-fires", {"rules": [{"name": 3}]}, "a rule is an object such as"),
        ("first-that-fires", {"rules": [{"params": {}}]}, "a rule is an object such as"),
        ("first-that-fires", {"rules": [{"name": "fixed", "param": {}}]}, "did you mean 'params'"),
        ("first-that-fires", {"rules": [{"name": "fixd"}]}, "did you mean 'fixed'"),
        (
            "first-that-fires",
            {"rules": [{"name": "fixed", "params": {"spce": {}}}]},
            "strategy fixed: unknown parameter 'spce'; did you mean 'spec'",
        ),
    ],
)
def test_mistakes_are_named(name: str, params: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        make_strategy(name, **params)
    assert "\n" not in str(caught.value)
