"""Searches: every strategy gets its trials; one that was cut short ends like the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from accerl.monitor.strategies import make_strategy
from accerl.spec import CompressionSpec
from controller.actions import ActionSpace
from studies.strategies import SEARCH_SPACES, STATIC, SearchSpace, Tuned, all_specs, tune

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


@pytest.mark.parametrize("space", SEARCH_SPACES, ids=lambda space: space.key)
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
