"""Search spaces: what they propose, and that it makes a strategy."""

from __future__ import annotations

import json
import warnings

import optuna
import pytest

from accerl.monitor.compliance import made_up_features
from accerl.monitor.strategies import STRATEGIES, all_specs, make_from
from accerl.monitor.strategy import specs_of
from accerl.spec import IDENTITY, CompressionSpec
from controller.actions import ActionSpace
from controller.comparators.by_name import COMPARATORS
from studies.contest.tuning.guesses import SELDOM, guesses
from studies.contest.tuning.spaces import (
    KL_THRESHOLD,
    REWARD_GAP,
    SPACES_BY_NAME,
    STATIC,
    SearchSpace,
)

NAMED = {**STRATEGIES, **COMPARATORS}
ACTIONS = ActionSpace(bits=(32, 8), sparsities=(0.0, 0.5), students=("original", "net3"))
PAIR = ("student", "sparsity", "bits", "conservative_bits")


def ask(space: SearchSpace) -> optuna.Trial:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=2))
    trial = study.ask()
    space.suggest(trial, ACTIONS)
    return trial


@pytest.mark.parametrize(
    ("space", "names"),
    [
        (STATIC, ["spec"]),
        (KL_THRESHOLD, ["threshold_nats", "returns", *PAIR, "indicator"]),
        (REWARD_GAP, ["gap", "returns", *PAIR]),
    ],
    ids=["static", "kl_threshold", "reward_gap"],
)
def test_the_contest_proposes_what_it_always_did(space: SearchSpace, names: list[str]) -> None:
    """In this order: a sampler's proposals depend on it."""
    assert list(ask(space).params) == names


def test_every_strategy_has_a_space_by_its_own_name() -> None:
    names = [*STRATEGIES, *COMPARATORS]
    assert [SPACES_BY_NAME[name].name for name in names] == names
    keys = [space.key for space in SPACES_BY_NAME.values()]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("name", SPACES_BY_NAME)
def test_whatever_a_space_proposes_is_json_and_makes_a_strategy(name: str) -> None:
    """Also where there is little to choose from, and specs would easily be the same."""
    space, levels = SPACES_BY_NAME[name], [ACTIONS, ActionSpace((32,), (0.0,), ("original",))]
    for actions in [*levels, ActionSpace((8,), (0.0,), ("original",))]:
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
        for _ in range(8):
            params = space.suggest(study.ask(), actions)
            strategy = make_from(NAMED, space.name, json.loads(json.dumps(params)))
            assert strategy == make_from(NAMED, space.name, params)
            assert specs_of(strategy)


def test_any_static_spec_may_be_the_aggressive_one_of_a_pair() -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    proposed = [KL_THRESHOLD.suggest(study.ask(), ACTIONS) for _ in range(200)]
    specs = {CompressionSpec.from_json(each["aggressive"]) for each in proposed}
    assert specs == {*all_specs(ACTIONS)} - {IDENTITY}
    assert all(each["aggressive"] != each["conservative"] for each in proposed)


@pytest.mark.parametrize("name", COMPARATORS)
def test_who_learns_within_a_run_can_choose_every_spec_twice(name: str) -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    arms = set()
    for _ in range(60):
        params = SPACES_BY_NAME[name].suggest(study.ask(), ActionSpace())
        each, held = len(params["specs"]), params["hold_intervals"]
        assert held == 1 or 2 * each * held <= 40
        assert params.get("window", 2 * each * held) >= 2 * each * held
        arms.add(each)
    assert min(arms) <= 4
    assert max(arms) == len(all_specs(ActionSpace()))


@pytest.mark.parametrize("name", SPACES_BY_NAME)
def test_a_guess_is_tried_as_it_was_meant(name: str) -> None:
    """And a rule's holds the best static spec, whatever it is: it is that spec, if it stays."""
    for static in [None, *all_specs(ACTIONS)]:
        for guess in guesses(name, static):
            study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
            study.enqueue_trial(dict(guess))
            trial = study.ask()
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # of a value that the space does not hold
                params = SPACES_BY_NAME[name].suggest(trial, ACTIONS)
            assert trial.params == guess
            if static not in (None, IDENTITY) and name in (*SELDOM, "three-stage"):
                rule = make_from(NAMED, name, params)
                for share in (0.0, 0.5, 0.99):
                    raw = {"seconds": 100.0 * share, "horizon_seconds": 100.0}
                    assert rule.decide(made_up_features(**raw)).main == static


def test_a_composition_is_searched_with_one_pair_of_specs() -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    for _ in range(8):
        rules = SPACES_BY_NAME["first-that-fires"].suggest(study.ask(), ACTIONS)["rules"]
        first, second = (rule["params"] for rule in rules)
        assert first["aggressive"] == second["aggressive"]
        assert first["conservative"] == second["conservative"]


@pytest.mark.parametrize(
    "space",
    [
        ActionSpace(),
        ACTIONS,
        ActionSpace(bits=(32,), graph="eager"),
    ],
)
def test_the_statics_are_the_controllers_grid(space: ActionSpace) -> None:
    assert all_specs(space) == [space.spec(indices) for indices in space.all_indices()]
