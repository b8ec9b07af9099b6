"""Jobs of a study: their result depends on the job alone, and what was done is never done again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from accerl.spec import IDENTITY, CompressionSpec, Decision
from studies import inner
from studies.budget import BUDGETS, TEST_SEEDS, TUNE_SEEDS, VALIDATE_SEEDS
from studies.inner import GameSetup, InnerRuns, build_strategy, do_job, strategy_job
from tests.fixtures.inner_runs import fast_profile

PROFILE = fast_profile(num_actors=1)
SETUP = GameSetup(
    game="catch",
    profile="fast",
    horizon_seconds=0.06,
    interval_seconds=0.02,
    random_return=-0.6,
    reference_return=0.9,
)
INT8 = {"name": "fixed", "params": {"spec": CompressionSpec(bits=8).to_json()}, "label": "int8"}


def job(seed: int, out: Path | None = None) -> dict[str, Any]:
    return strategy_job(SETUP, seed, INT8, PROFILE, out)


class HereAndNow:
    """A pool that does jobs in this process and counts them."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.done = 0

    def submit(self, function: Any, argument: Any) -> Any:
        from concurrent.futures import Future

        future: Future[Any] = Future()
        future.set_result(function(argument))
        self.done += 1
        return future

    def shutdown(self, **_: Any) -> None:
        pass


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inner, "ProcessPoolExecutor", HereAndNow)


def count(runs: InnerRuns) -> int:
    pool: Any = runs._pool
    return pool.done


def test_a_job_is_plain_json_and_its_result_depends_on_it_alone() -> None:
    plain = json.loads(json.dumps(job(3)))
    first = do_job(plain)
    assert do_job(plain) == first
    assert json.loads(json.dumps(first)) == first
    assert do_job(job(4))["returns"] != first["returns"]
    assert first["times"] == pytest.approx([0.0, 0.02, 0.04, 0.06])
    assert first["returns"][0] == -0.6
    assert len(first["returns"]) == 4
    assert first["decisions"] == [Decision.of(CompressionSpec(bits=8)).to_json()] * 3
    assert first["env_steps"] > 0


def test_a_run_directory_is_written_where_the_job_says(tmp_path: Path) -> None:
    with_records = do_job(job(3, tmp_path / "run"))
    assert with_records == do_job(job(3))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["seed"], summary["strategy"]) == (3, "int8")


@pytest.mark.usefixtures("pool")
def test_finished_jobs_are_kept_and_a_line_cut_off_by_a_kill_is_done_again(tmp_path: Path) -> None:
    path = tmp_path / "inner_runs.jsonl"
    jobs = [job(seed) for seed in (5, 3, 4)]
    ticks: list[int] = []
    with InnerRuns(path, 1) as runs:
        results = runs.map(jobs, lambda: ticks.append(1))
        assert count(runs) == 3
        assert runs.map(jobs[1:], lambda: ticks.append(1)) == results[1:]
        assert count(runs) == 3
    assert len(ticks) == 5
    assert results == [do_job(item) for item in jobs]  # in the order that was asked for
    path.write_text(path.read_text()[:-30])
    with InnerRuns(path, 1) as runs:
        assert runs.map(jobs, lambda: None) == results
        assert count(runs) == 1
    with InnerRuns(path, 1) as runs:
        assert runs.map(jobs, lambda: None) == results
        assert count(runs) == 0


@pytest.mark.usefixtures("pool")
def test_a_job_whose_records_were_deleted_is_done_again(tmp_path: Path) -> None:
    item = job(3, tmp_path / "run")
    with InnerRuns(tmp_path / "inner_runs.jsonl", 1) as runs:
        runs.map([item], lambda: None)
        (tmp_path / "run" / "summary.json").unlink()
        runs.map([item], lambda: None)
        assert count(runs) == 2
    assert (tmp_path / "run" / "summary.json").is_file()


@pytest.mark.slow
def test_worker_processes_give_the_same_results(tmp_path: Path) -> None:
    jobs = [job(3), job(4)]
    with InnerRuns(tmp_path / "inner_runs.jsonl", 2) as runs:
        assert runs.map(jobs, lambda: None) == [do_job(item) for item in jobs]


def test_the_reward_gap_is_measured_in_units_of_the_game() -> None:
    strategy: Any = build_strategy({"name": "reward-gap", "params": {"gap": 0.2}}, SETUP)
    assert strategy.scale == pytest.approx(1.5)
    rules = [{"name": "fixed", "params": {}}, {"name": "reward-gap", "params": {"gap": 0.2}}]
    composed: Any = build_strategy({"name": "first-that-fires", "params": {"rules": rules}}, SETUP)
    assert composed.rules[1].scale == pytest.approx(1.5)
    fixed: Any = build_strategy({"name": "fixed", "params": {}}, SETUP)
    assert fixed.spec == IDENTITY


def test_seeds_for_tuning_validation_and_test_are_disjoint() -> None:
    assert (list(TUNE_SEEDS), list(VALIDATE_SEEDS), list(TEST_SEEDS)) == (
        list(range(10)), list(range(50, 60)), list(range(100, 120))
    )  # fmt: skip
    for budget in BUDGETS.values():
        assert budget.tune_seeds <= len(TUNE_SEEDS)
        assert budget.reference_runs <= len(VALIDATE_SEEDS)
        assert budget.test_seeds <= len(TEST_SEEDS)
