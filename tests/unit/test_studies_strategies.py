"""Searches: every strategy gets its trials; one that was cut short ends like the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import optuna
import pytest

from accerl.monitor.strategies import STRATEGIES, all_specs, make_strategy
from accerl.monitor.strategy import specs_of
from accerl.spec import CompressionSpec
from controller.actions import ActionSpace
from studies.strategies import (
    KL_THRESHOLD,
    REWARD_GAP,
    SEARCH_SPACES,
    SPACES_BY_NAME,
    STATIC,
    SearchSpace,
    Tuned,
    tune,
)

ACTIONS = ActionSpace(bits=(32, 8), sparsities=(0.0, 0.5), students=("original", "net3"))


def score(strategy: dict[str, Any]) -> float:
    """Something that depends on every parameter, and prefers net3 in INT8."""
    text = json.dumps(strategy["params"], sort_keys=True)
    return text.count("net3") + text.count('"bits": 8') + len(text) / 1e4


def search(space: SearchSpace, out: Path, *, trials: int = 6, stop_after: int = 99) -> Tuned:
    seen: list[dict[str, Any]] = []

    def evaluate(strategy: dict[str, Any]) -> tuple[float, int]:
        if len(seen) == stop_after:
            raise KeyboardInterrupt
        seen.append(strategy)
        make_strategy(strategy["name"], **strategy["params"])  # refuses what cannot act
        return score(strategy), 2

    out.mkdir(exist_ok=True)
    return tune(space, ACTIONS, evaluate, trials=trials, out=out, seed=1)


def rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "tuning.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("space", SPACES_BY_NAME.values(), ids=lambda space: space.key)
def test_a_search_makes_its_trials_and_returns_the_best(space: SearchSpace, tmp_path: Path) -> None:
    tuned = search(space, tmp_path)
    assert (tuned.trials, tuned.inner_runs) == (6, 12)
    tried = rows(tmp_path)
    assert len(tried) == 6
    assert {row["strategy"] for row in tried} == {space.key}
    assert tuned.score == max(row["score"] for row in tried)
    assert tuned.params in [row["params"] for row in tried]
    assert tuned.strategy == {"name": space.name, "params": tuned.params, "label": space.key}


def test_the_grid_tries_every_spec_once(tmp_path: Path) -> None:
    tuned = search(STATIC, tmp_path, trials=50)
    specs = [CompressionSpec.from_json(row["params"]["spec"]) for row in rows(tmp_path)]
    assert len(specs) == len(set(specs)) == len(all_specs(ACTIONS)) == 8
    assert tuned.trials == 8
    assert CompressionSpec.from_json(tuned.params["spec"]) == CompressionSpec(
        student="net3", bits=8, sparsity=0.5
    ) or CompressionSpec.from_json(tuned.params["spec"]) == CompressionSpec(student="net3", bits=8)


@pytest.mark.parametrize("space", SEARCH_SPACES, ids=lambda space: space.key)
def test_a_search_that_was_cut_short_ends_like_one_that_was_not(
    space: SearchSpace, tmp_path: Path
) -> None:
    whole = search(space, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        search(space, tmp_path / "parts", stop_after=3)
    assert search(space, tmp_path / "parts") == whole
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")
    # A finished search is not searched again.
    assert search(space, tmp_path / "parts", stop_after=0) == whole


def test_searches_share_a_folder(tmp_path: Path) -> None:
    found = [search(space, tmp_path) for space in SEARCH_SPACES]
    assert [tuned.space for tuned in found] == list(SEARCH_SPACES)
    counts = [
        sum(row["strategy"] == space.key for row in rows(tmp_path)) for space in SEARCH_SPACES
    ]
    assert counts == [6, 6, 6]


def ask(space: SearchSpace) -> optuna.Trial:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=2))
    trial = study.ask()
    space.suggest(trial, ACTIONS)
    return trial


@pytest.mark.parametrize(
    ("space", "names"),
    [
        (STATIC, ["spec"]),
        (KL_THRESHOLD, ["threshold_nats", "returns", "student", "sparsity", "conservative_bits"]),
        (REWARD_GAP, ["student", "sparsity", "conservative_bits", "gap"]),
    ],
    ids=["static", "kl_threshold", "reward_gap"],
)
def test_the_contest_proposes_what_it_always_did(space: SearchSpace, names: list[str]) -> None:
    """In this order: a sampler's proposals depend on it."""
    assert list(ask(space).params) == names


def test_every_strategy_has_a_space_by_its_own_name() -> None:
    assert {name: SPACES_BY_NAME[name].name for name in STRATEGIES} == {
        name: name for name in STRATEGIES
    }
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
            strategy = make_strategy(space.name, **json.loads(json.dumps(params)))
            assert strategy == make_strategy(space.name, **params)
            assert specs_of(strategy)


def test_the_richer_spaces_add_a_dwell() -> None:
    for name in ("kl-threshold", "reward-gap"):
        richer = ask(SPACES_BY_NAME[f"{name}-dwell"]).params
        assert richer.keys() - ask(SPACES_BY_NAME[name]).params.keys() == {"dwell_seconds"}


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
