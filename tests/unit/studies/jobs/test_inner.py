"""Jobs of a study: their result depends on the job alone, and what was done is never done again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from accerl.errors import UserError
from accerl.records import read_json
from accerl.spec import IDENTITY, CompressionSpec, Decision
from studies.contest.budget import BUDGETS, REFERENCE_SEEDS, TEST_SEEDS, TUNE_SEEDS, VALIDATE_SEEDS
from studies.jobs.inner import InnerRuns, build_strategy, do_job
from studies.study_folder import find_folder
from tests.fixtures.jobs import SETUP, STUDY, catch_job, trials, worker_thread


def test_a_job_is_plain_json_and_its_result_depends_on_it_alone() -> None:
    plain = json.loads(json.dumps(catch_job(3)))
    first = do_job(plain)
    assert do_job(plain) == first
    assert json.loads(json.dumps(first)) == first
    assert do_job(catch_job(4))["returns"] != first["returns"]
    assert first["times"] == pytest.approx([0.0, 0.02, 0.04, 0.06])
    assert first["returns"][0] == -0.6
    assert len(first["returns"]) == 4
    assert first["decisions"] == [Decision.of(CompressionSpec(bits=8)).to_json()] * 3
    assert first["env_steps"] > 0


def test_a_run_directory_is_written_where_the_job_says(tmp_path: Path) -> None:
    with_records = do_job(catch_job(3, tmp_path / "run"))
    assert with_records == do_job(catch_job(3))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["seed"], summary["strategy"]) == (3, "int8")


def test_finished_jobs_are_kept_and_given_in_the_order_that_was_asked_for(tmp_path: Path) -> None:
    journal = str(tmp_path / "jobs.journal")
    jobs = [catch_job(seed) for seed in (5, 3, 4, 3)]
    ticks: list[int] = []
    with InnerRuns(tmp_path, 0, study=STUDY) as runs, worker_thread(journal):
        results = runs.map(jobs, lambda: ticks.append(1))
        assert results == [do_job(job) for job in jobs]
        assert len(ticks) == 4
        assert len(trials(journal)) == 3  # one was asked for twice
    with InnerRuns(tmp_path, 0, study=STUDY) as runs:  # nobody is there to do anything
        assert runs.map(jobs[1:], lambda: ticks.append(1)) == results[1:]
    assert len(ticks) == 7
    assert len(trials(journal)) == 3


def test_a_job_whose_records_were_deleted_is_done_again(tmp_path: Path) -> None:
    journal, summary = str(tmp_path / "jobs.journal"), tmp_path / "runs" / "a" / "summary.json"
    job = catch_job(3, summary.parent)
    with InnerRuns(tmp_path, 0, study=STUDY) as runs, worker_thread(journal, find_folder(tmp_path)):
        (result,) = runs.map([job], lambda: None)
        summary.unlink()
        assert runs.map([job], lambda: None) == [result]
    assert summary.is_file()
    assert (summary.parent / "checkpoint").is_dir()
    assert len(trials(journal)) == 2


def test_records_made_where_the_folder_cannot_be_seen_arrive(tmp_path: Path) -> None:
    out = tmp_path / "study"
    job = catch_job(3, out / "runs" / "a")
    with InnerRuns(out, 0, study=STUDY) as runs, worker_thread(str(out / "jobs.journal")):
        (result,) = runs.map([job], lambda: None)
    do_job({**job, "out": str(tmp_path / "here")})
    metrics = "metrics.jsonl"
    assert (out / "runs" / "a" / metrics).read_text() == (tmp_path / "here" / metrics).read_text()
    shutil.rmtree(out / "runs")
    moved = out.rename(tmp_path / "moved")  # a study may be given another place
    job = catch_job(3, moved / "runs" / "a")
    with InnerRuns(moved, 0, study=STUDY) as runs:
        assert runs.map([job], lambda: None) == [result]
    assert read_json(moved / "runs" / "a" / "summary.json")["seed"] == 3


def test_a_job_that_fails_thrice_ends_the_study_and_the_others_are_kept(tmp_path: Path) -> None:
    journal = str(tmp_path / "jobs.journal")
    broken = catch_job(1)
    broken["strategy"] = {"name": "fixed", "params": {"spec": {"bits": 7}}, "label": "odd"}
    with worker_thread(journal):
        message = "given up .*strategy odd, seed 1.*: .*bits must be one of .* got 7; all that was"
        with (
            pytest.raises(UserError, match=message) as error,
            InnerRuns(tmp_path, 0, study=STUDY) as runs,
        ):
            runs.map([catch_job(0), broken], lambda: None)
    assert "\n" not in str(error.value)
    assert sum("error" in trial.user_attrs for trial in trials(journal)) == 3
    with InnerRuns(tmp_path, 0, study=STUDY) as runs:
        assert runs.map([catch_job(0)], lambda: None) == [do_job(catch_job(0))]


def test_a_worker_of_another_version_refuses(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="start workers with the AcceRL that the study"):
        do_job({**catch_job(0), "config": "another"})


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
        list(range(10)), list(range(50, 60)), list(range(120, 140))
    )  # fmt: skip
    for budget in (budget for study in BUDGETS.values() for budget in study.values()):
        assert budget.tune_seeds <= len(TUNE_SEEDS)
        assert budget.validate_seeds <= len(VALIDATE_SEEDS)
        assert budget.reference_runs <= len(REFERENCE_SEEDS)
        assert budget.test_seeds <= len(TEST_SEEDS)
