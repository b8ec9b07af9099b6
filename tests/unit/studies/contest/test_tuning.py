"""Tuning: equal budgets of inner runs, early goodbyes to bad parameters, and honest winners."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import optuna
import pytest
from optuna.storages import BaseStorage

from accerl.errors import UserError
from accerl.monitor.strategies import STRATEGIES, Levels, all_specs, make_from
from accerl.spec import CompressionSpec
from controller.actions import ActionSpace
from controller.comparators.by_name import COMPARATORS
from studies.contest.costs import StepCosts
from studies.contest.entrants import describe
from studies.contest.tuning.search import Tuned, choose_on_validation, tune
from studies.contest.tuning.spaces import (
    KL_THRESHOLD,
    REWARD_GAP,
    SPACES_BY_NAME,
    STATIC,
    SearchSpace,
)
from studies.progress import Advance, silent
from studies.storage import open_storage
from tests.fixtures.studies.postgres import Server

ACTIONS = ActionSpace(bits=(32, 8), sparsities=(0.0, 0.5), students=("original", "net3"))
Score = Callable[[dict[str, Any], int], float]


def score(strategy: dict[str, Any], number: int) -> float:
    """Something that depends on every parameter and prefers net3 in INT8; no instance is alike."""
    text = json.dumps(strategy["params"], sort_keys=True)
    noise = np.random.default_rng([number, crc32(text.encode())]).normal(0.0, 0.05)
    return text.count("net3") + text.count('"bits": 8') + len(text) / 1e4 + 3.0 * number + noise


def search(
    space: SearchSpace,
    out: Path,
    *,
    runs: int = 12,
    instances: int = 2,
    stop_after: int = 999,
    value: Score = score,
    seed: int = 1,
    plan: str = "",
    storage: BaseStorage | None = None,
    costs: StepCosts | None = None,
    on_replayed: Advance = silent,
) -> tuple[Tuned, list[tuple[str, int]]]:
    """Tune; return what was found and the inner runs that were asked for."""
    asked: list[tuple[str, int]] = []

    def evaluate(strategy: dict[str, Any], numbers: Sequence[int]) -> list[float]:
        make_from({**STRATEGIES, **COMPARATORS}, strategy["name"], strategy["params"])
        for number in numbers:
            if len(asked) == stop_after:
                raise KeyboardInterrupt
            asked.append((json.dumps(strategy["params"], sort_keys=True), number))
            if costs is not None:
                costs.note(f"{strategy} {number}", 1.0)
        return [value(strategy, number) for number in numbers]

    out.mkdir(exist_ok=True)
    tuned = tune(
        space,
        ACTIONS,
        evaluate,
        instances=instances,
        runs=runs,
        out=out,
        seed=seed,
        plan=plan,
        storage=storage,
        costs=costs,
        on_replayed=on_replayed,
    )
    return tuned, asked


def rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "tuning.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("space", SPACES_BY_NAME.values(), ids=lambda space: space.key)
def test_a_search_makes_its_runs_and_returns_the_best(space: SearchSpace, tmp_path: Path) -> None:
    tuned, asked = search(space, tmp_path)
    trials = 8 if space.grid else 6  # a grid is tried as a whole
    assert (tuned.trials, tuned.inner_runs, len(asked)) == (trials, 2 * trials, 2 * trials)
    tried = rows(tmp_path)
    assert len(tried) == trials
    assert {row["strategy"] for row in tried} == {space.key}
    assert tuned.score == max(row["score"] for row in tried)
    assert tuned.params in [row["params"] for row in tried]
    assert tuned.strategy == {"name": space.name, "params": tuned.params, "label": space.key}
    means = [np.mean([score(tuned.strategy, number) for number in range(2)])]
    assert means == pytest.approx([tuned.score])


def test_the_grid_tries_every_spec_once_and_prunes_none(tmp_path: Path) -> None:
    tuned, _ = search(STATIC, tmp_path, runs=1000, instances=12)
    specs = [CompressionSpec.from_json(row["params"]["spec"]) for row in rows(tmp_path)]
    assert len(specs) == len(set(specs)) == len(all_specs(ACTIONS)) == 8
    assert (tuned.trials, tuned.inner_runs) == (8, 96)
    best = CompressionSpec.from_json(tuned.params["spec"])
    assert (best.student, best.bits) == ("net3", 8)


def test_bad_parameters_are_given_up_and_leave_their_runs_to_others(tmp_path: Path) -> None:
    """Twelve instances; whoever is worse on all of the first six is not tried on the rest."""
    tuned, asked = search(KL_THRESHOLD, tmp_path, runs=96, instances=12)
    assert tuned.inner_runs == len(asked) == 96
    assert tuned.trials > 8
    tried = rows(tmp_path)
    assert sum(row["inner_runs"] for row in tried) == 96
    given_up = [row for row in tried[:-1] if not row["complete"]]
    assert {row["inner_runs"] for row in given_up} >= {6}
    assert all(row["inner_runs"] % 2 == 0 and row["score"] is None for row in given_up)
    # The sampler was told the mean of what they had, which was worse than the best one's.
    for row in given_up:
        seen = asked[sum(r["inner_runs"] for r in tried[: row["trial"]]) :][: row["inner_runs"]]
        own = [score({"params": row["params"]}, number) for _, number in seen]
        assert row["mean"] == pytest.approx(np.mean(own))
        earlier = [r["score"] for r in tried[: row["trial"]] if r["complete"]]
        assert row["mean"] < max(earlier)


def test_how_hard_instances_are_decides_neither_what_is_tried_nor_what_is_given_up(
    tmp_path: Path,
) -> None:
    tried = []
    for scale in (0.0, 100.0, -100.0):  # also where those that come first are the easiest

        def value(strategy: dict[str, Any], number: int, scale: float = scale) -> float:
            return score(strategy, number) + scale * number

        out = tmp_path / f"{scale}"
        search(KL_THRESHOLD, out, runs=96, instances=12, value=value)
        tried.append([(row["params"], row["inner_runs"]) for row in rows(out)])
    assert tried[0] == tried[1] == tried[2]


def test_instances_come_in_one_order_that_is_shuffled(tmp_path: Path) -> None:
    _, asked = search(KL_THRESHOLD, tmp_path / "a", runs=40, instances=10)
    first = [number for _, number in asked[:10]]
    assert sorted(first) == list(range(10)) != first
    _, other = search(KL_THRESHOLD, tmp_path / "b", runs=40, instances=10, seed=2)
    assert [number for _, number in other[:10]] != first
    place = 0
    for row in rows(tmp_path / "a"):
        seen = [number for _, number in asked[place : place + row["inner_runs"]]]
        assert seen == first[: len(seen)]
        place += row["inner_runs"]


def test_only_what_was_run_on_every_instance_can_win(tmp_path: Path) -> None:
    """The last trial has runs for one instance left, where it scores best of all."""
    calls = 0

    def value(strategy: dict[str, Any], number: int) -> float:
        nonlocal calls
        calls += 1
        return 100.0 if calls == 13 else float(number)

    tuned, _ = search(KL_THRESHOLD, tmp_path, runs=13, instances=4, value=value)
    assert (tuned.trials, tuned.inner_runs) == (4, 13)
    last = rows(tmp_path)[-1]
    assert (last["complete"], last["score"], last["mean"]) == (False, None, 100.0)
    assert tuned.score == 1.5
    assert last["params"] not in tuned.top(9)


def test_the_top_are_the_best_complete_sets_each_once(tmp_path: Path) -> None:
    tuned, _ = search(STATIC, tmp_path, runs=16)
    ranked = sorted((-row["score"], row["trial"]) for row in rows(tmp_path))
    by_trial = {row["trial"]: row["params"] for row in rows(tmp_path)}
    assert tuned.top(3) == [by_trial[trial] for _, trial in ranked[:3]]
    assert tuned.top(1) == [tuned.params]
    assert len(tuned.top(99)) == 8


def test_parameters_that_were_tried_twice_are_one_candidate(tmp_path: Path) -> None:
    def suggest(trial: optuna.Trial, _: Levels) -> dict[str, Any]:
        return {"spec": {"bits": trial.suggest_categorical("bits", [8, 16])}}

    space = SearchSpace("fixed", "two", "one of two", suggest)
    tuned, _ = search(space, tmp_path, runs=20)
    assert (tuned.trials, len(tuned.candidates)) == (10, 2)


def test_validation_may_change_the_order(tmp_path: Path) -> None:
    tuned, _ = search(STATIC, tmp_path, runs=16)
    asked: list[int] = []

    def evaluate(strategy: dict[str, Any], numbers: Sequence[int]) -> list[float]:
        asked.append(len(numbers))
        unlucky = strategy["params"] == tuned.params
        return [-5.0 if unlucky else float(number) for number in numbers]

    chosen = choose_on_validation(tuned, evaluate, instances=4, count=3)
    assert asked == [4, 4, 4]
    assert chosen.top(9) == [*tuned.top(3)[1:], tuned.params]
    assert (chosen.score, chosen.candidates[-1][0]) == (1.5, -5.0)
    assert (chosen.trials, chosen.inner_runs) == (tuned.trials, tuned.inner_runs)
    assert chosen.strategy["params"] == tuned.top(2)[1]


@pytest.mark.parametrize(
    "space", [STATIC, KL_THRESHOLD, SPACES_BY_NAME["sw-ucb"]], ids=lambda space: space.key
)
def test_a_search_that_was_cut_short_ends_like_one_that_was_not(
    space: SearchSpace, tmp_path: Path
) -> None:
    whole, asked = search(space, tmp_path / "whole", runs=40, instances=7)
    with pytest.raises(KeyboardInterrupt):
        search(space, tmp_path / "parts", runs=40, instances=7, stop_after=23)
    ended = sum(row["inner_runs"] for row in rows(tmp_path / "parts"))
    again, made = search(space, tmp_path / "parts", runs=40, instances=7)
    assert again == whole
    assert 7 <= ended <= 23
    assert made == asked[ended:]  # trials that had ended are not made again
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")
    # A finished search is not searched again, but one with another budget is another search.
    assert search(space, tmp_path / "parts", runs=40, instances=7, stop_after=0)[0] == whole
    more, _ = search(space, tmp_path / "parts", runs=63, instances=7)
    assert more.inner_runs == (56 if space.grid else 63)


def test_searches_share_a_folder(tmp_path: Path) -> None:
    spaces = [STATIC, KL_THRESHOLD, REWARD_GAP]
    found = [search(space, tmp_path)[0] for space in spaces]
    assert [tuned.space for tuned in found] == spaces
    counts = [sum(row["strategy"] == space.key for row in rows(tmp_path)) for space in spaces]
    assert counts == [8, 6, 6]


def test_half_a_line_of_a_full_disk_is_forgotten(tmp_path: Path) -> None:
    search(STATIC, tmp_path)
    whole = rows(tmp_path)
    text = (tmp_path / "tuning.jsonl").read_text()
    (tmp_path / "tuning.jsonl").write_text(text + '{"strategy": "static", "par')
    search(KL_THRESHOLD, tmp_path)
    assert rows(tmp_path)[: len(whole)] == whole


def test_a_budget_below_one_trial_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"7 inner runs are too few .* give it at least 8"):
        search(KL_THRESHOLD, tmp_path, runs=7, instances=8)
    assert list(tmp_path.iterdir()) == []


def test_parameters_are_told_in_one_line() -> None:
    specs = [CompressionSpec(student="net3", bits=8).to_json(), CompressionSpec().to_json()]
    params = {"specs": specs, "aggressive": specs[0], "window": 8, "gap": 0.12345, "below": None}
    assert describe(params) == (
        "specs=(net3 INT8, original fp32), aggressive=net3 INT8, window=8, gap=0.123, below=None"
    )


@pytest.mark.postgres
def test_drivers_go_on_with_each_other_s_trials_in_a_database(
    postgres: Server, tmp_path: Path
) -> None:
    whole, asked = search(KL_THRESHOLD, tmp_path / "whole", runs=40, instances=7)
    storage = open_storage(postgres.new_database())
    with pytest.raises(KeyboardInterrupt):
        search(KL_THRESHOLD, tmp_path / "one", runs=40, instances=7, stop_after=23, storage=storage)
    ended = sum(row["inner_runs"] for row in rows(tmp_path / "one"))
    found: list[tuple[Tuned, list[tuple[str, int]]]] = []

    def drive(name: str) -> None:
        found.append(search(KL_THRESHOLD, tmp_path / name, runs=40, instances=7, storage=storage))

    drivers = [threading.Thread(target=drive, args=(name,)) for name in ("two", "three")]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    assert [tuned for tuned, _ in found] == [whole, whole]
    # What one has ended, the other need not make.
    assert {run for _, made in found for run in made} == set(asked[ended:])
    assert rows(tmp_path / "two") == rows(tmp_path / "three") == rows(tmp_path / "whole")
    other, made = search(KL_THRESHOLD, tmp_path / "four", runs=40, instances=7, storage=storage)
    assert (other, made) == (whole, [])
    search(KL_THRESHOLD, tmp_path / "five", runs=40, instances=7, storage=storage, plan="another")


def test_progress_counts_what_an_earlier_call_has_made(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path / "optuna.journal"))
    counted: list[tuple[float, bool]] = []

    def count(amount: float = 1.0, note: str = "", *, replayed: bool = False) -> None:
        counted.append((amount, replayed))

    _, asked = search(KL_THRESHOLD, tmp_path, runs=12, storage=storage, on_replayed=count)
    assert counted == []
    search(KL_THRESHOLD, tmp_path, runs=12, storage=storage, on_replayed=count)
    assert sum(amount for amount, _ in counted) == len(asked) == 12
    assert all(replayed for _, replayed in counted)


def test_a_driver_takes_over_what_another_ends_beside_it(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path / "optuna.journal"))
    whole, asked = search(KL_THRESHOLD, tmp_path / "whole", runs=40, instances=7)
    other: list[tuple[Tuned, list[tuple[str, int]]]] = []

    def beside(strategy: dict[str, Any], number: int) -> float:
        if not other:
            out = tmp_path / "one"
            other.append(search(KL_THRESHOLD, out, runs=40, instances=7, storage=storage))
        return score(strategy, number)

    out = tmp_path / "two"
    found, made = search(KL_THRESHOLD, out, runs=40, instances=7, storage=storage, value=beside)
    assert (found, other) == (whole, [(whole, asked)])
    first = rows(out)[0]["inner_runs"]
    assert made == asked[:first]  # the trial that was under way when the other one began
    assert rows(out) == rows(tmp_path / "whole")


def test_what_trials_had_cost_counts_though_they_are_not_made_again(tmp_path: Path) -> None:
    storage, spent = open_storage(str(tmp_path / "optuna.journal")), []
    for name in ("one", "two"):
        costs = StepCosts(tmp_path)
        with costs.step(name):
            search(STATIC, tmp_path / name, runs=16, storage=storage, costs=costs)
        spent.append(costs[name])
    assert spent == [16.0, 16.0]


def test_scores_of_other_code_or_another_precision_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage(str(tmp_path / "optuna.journal"))
    _, first = search(KL_THRESHOLD, tmp_path, runs=12, storage=storage)
    assert first
    assert search(KL_THRESHOLD, tmp_path, runs=12, storage=storage)[1] == []
    for name, value in (("code_revision", "0123abc"), ("choose_precision", "neither")):
        monkeypatch.setattr(f"studies.contest.tuning.search.{name}", lambda *_, value=value: value)
        assert search(KL_THRESHOLD, tmp_path, runs=12, storage=storage)[1] == first
