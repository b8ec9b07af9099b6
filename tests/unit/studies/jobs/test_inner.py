"""Jobs of a study: their result depends on the job alone, and what was done is never done again."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accerl.errors import UserError
from accerl.records import read_json
from accerl.spec import IDENTITY, CompressionSpec, Decision
from controller.actions import ActionSpace
from controller.env.control_env import CompressionControlEnv
from controller.training.cloning import record
from studies.contest.budget import (
    ACTIONS,
    BUDGETS,
    REFERENCE_SEEDS,
    TEST_SEEDS,
    TUNE_SEEDS,
    VALIDATE_SEEDS,
)
from studies.jobs.executor import open_executor, read_job
from studies.jobs.inner import RolloutJob, StrategyJob, build_strategy
from studies.study_folder import find_folder
from tests.fixtures.controllers.made_bundles import make_policy
from tests.fixtures.studies.jobs import (
    INSTANCE,
    STUDY,
    catch_job,
    results_of,
    trials,
    worker_thread,
)


def test_a_job_is_plain_json_and_its_result_depends_on_it_alone() -> None:
    job = catch_job(3)
    elsewhere = read_job(json.loads(json.dumps(job.to_json())))
    assert elsewhere == job
    first = job.run()
    assert elsewhere.run() == first
    assert StrategyJob.read_result(json.loads(json.dumps(first.to_json()))) == first
    assert catch_job(4).run().features != first.features
    assert first.times == pytest.approx([0.0, 0.02, 0.04, 0.06])
    assert first.returns[0] == -0.6
    assert len(first.returns) == 4
    assert first.decisions == (Decision.of(CompressionSpec(bits=8)),) * 3
    assert first.env_steps > 0


def test_a_run_is_the_episode_that_the_control_environment_would_record() -> None:
    job, actions = catch_job(3), ActionSpace()
    env = CompressionControlEnv([INSTANCE], actions=actions)
    (recorded,) = record(env, build_strategy(job.strategy, INSTANCE), [job.seed])
    env.close()
    made = job.run().episode(INSTANCE, actions)
    for name in ("observations", "actions", "mask"):
        assert np.array_equal(getattr(made, name), getattr(recorded, name))
    assert made.seconds == pytest.approx(recorded.seconds)
    assert made.rewards == pytest.approx(recorded.rewards)


def test_a_rollout_is_plain_json() -> None:
    job = RolloutJob(
        instance=INSTANCE,
        seed=3,
        policy=make_policy(actions=ACTIONS).to_json(),
        actions=ACTIONS,
        action_seed=5,
    )
    elsewhere = read_job(json.loads(json.dumps(job.to_json())))
    assert elsewhere == job
    played = job.run()
    again = RolloutJob.read_result(json.loads(json.dumps(elsewhere.run().to_json())))
    assert again.to_json() == played.to_json()


def test_a_run_directory_is_written_where_the_job_says(tmp_path: Path) -> None:
    with_records = catch_job(3, tmp_path / "run").run()
    assert with_records == catch_job(3).run()
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["seed"], summary["strategy"]) == (3, "int8")


def test_finished_jobs_are_kept_and_given_in_the_order_that_was_asked_for(tmp_path: Path) -> None:
    journal = str(tmp_path / "jobs.journal")
    jobs = [catch_job(seed) for seed in (5, 3, 4, 3)]
    ticks: list[int] = []
    with open_executor(tmp_path, 0, study=STUDY) as executor, worker_thread(journal):
        results = results_of(executor.map(jobs, lambda: ticks.append(1)))
        assert results == [job.run() for job in jobs]
        assert len(ticks) == 4
        assert len(trials(journal)) == 3  # one was asked for twice
    with open_executor(tmp_path, 0, study=STUDY) as executor:  # nobody is there to do anything
        assert results_of(executor.map(jobs[1:], lambda: ticks.append(1))) == results[1:]
    assert len(ticks) == 7
    assert len(trials(journal)) == 3


def test_a_job_whose_records_were_deleted_is_done_again(tmp_path: Path) -> None:
    journal, summary = str(tmp_path / "jobs.journal"), tmp_path / "runs" / "a" / "summary.json"
    job = catch_job(3, summary.parent)
    with (
        open_executor(tmp_path, 0, study=STUDY) as executor,
        worker_thread(journal, find_folder(tmp_path)),
    ):
        (result,) = results_of(executor.map([job]))
        summary.unlink()
        assert results_of(executor.map([job])) == [result]
    assert summary.is_file()
    assert (summary.parent / "checkpoint").is_dir()
    assert len(trials(journal)) == 2


def test_records_made_where_the_folder_cannot_be_seen_arrive(tmp_path: Path) -> None:
    out = tmp_path / "study"
    job = catch_job(3, out / "runs" / "a")
    with open_executor(out, 0, study=STUDY) as executor, worker_thread(str(out / "jobs.journal")):
        (result,) = results_of(executor.map([job]))
    replace(job, out=tmp_path / "here").run()
    metrics = "metrics.jsonl"
    assert (out / "runs" / "a" / metrics).read_text() == (tmp_path / "here" / metrics).read_text()
    shutil.rmtree(out / "runs")
    moved = out.rename(tmp_path / "moved")  # a study may be given another place
    job = catch_job(3, moved / "runs" / "a")
    with open_executor(moved, 0, study=STUDY) as executor:
        assert results_of(executor.map([job])) == [result]
    assert read_json(moved / "runs" / "a" / "summary.json")["seed"] == 3


def test_a_job_that_fails_thrice_ends_the_study_and_the_others_are_kept(tmp_path: Path) -> None:
    journal = str(tmp_path / "jobs.journal")
    odd = {"name": "fixed", "params": {"spec": {"bits": 7}}, "label": "odd"}
    broken = replace(catch_job(1), strategy=odd)
    with worker_thread(journal):
        message = "given up .*strategy odd, seed 1.*: .*bits must be one of .* got 7; all that was"
        with (
            pytest.raises(UserError, match=message) as error,
            open_executor(tmp_path, 0, study=STUDY) as executor,
        ):
            executor.map([catch_job(0), broken])
    assert "\n" not in str(error.value)
    assert sum("error" in trial.user_attrs for trial in trials(journal)) == 3
    with open_executor(tmp_path, 0, study=STUDY) as executor:
        assert results_of(executor.map([catch_job(0)])) == [catch_job(0).run()]


def test_a_worker_of_another_version_refuses(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="start workers with the AcceRL that the study"):
        read_job({**catch_job(0).to_json(), "config": "another"})


def test_the_reward_gap_is_measured_in_units_of_the_game() -> None:
    strategy: Any = build_strategy({"name": "reward-gap", "params": {"gap": 0.2}}, INSTANCE)
    assert strategy.scale == pytest.approx(1.5)
    rules = [{"name": "fixed", "params": {}}, {"name": "reward-gap", "params": {"gap": 0.2}}]
    composed: Any = build_strategy(
        {"name": "first-that-fires", "params": {"rules": rules}}, INSTANCE
    )
    assert composed.rules[1].scale == pytest.approx(1.5)
    fixed: Any = build_strategy({"name": "fixed", "params": {}}, INSTANCE)
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
