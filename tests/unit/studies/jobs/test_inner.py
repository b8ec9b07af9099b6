"""Jobs of a study: their result depends on the job alone, and what was done is never done again."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accerl.errors import UserError
from accerl.presets import load_preset
from accerl.records import read_metrics
from accerl.spec import IDENTITY, CompressionSpec, Decision
from controller.env.play import play
from studies.contest.budget import (
    BUDGETS,
    REFERENCE_SEEDS,
    SHORT_TEST_SEEDS,
    TEST_SEEDS,
    TUNE_SEEDS,
    VALIDATE_SEEDS,
)
from studies.jobs.executor import Job
from studies.jobs.inner import StrategyJob, build_strategy, with_dice
from studies.jobs.local import LocalExecutor
from tests.fixtures.controllers.made_bundles import make_indicator
from tests.fixtures.own_strategies import Drawing
from tests.fixtures.studies.jobs import INSTANCE, catch_job

BASE = load_preset("catch")


def test_a_job_travels_and_its_result_depends_on_it_alone() -> None:
    job = catch_job(3)
    elsewhere = pickle.loads(pickle.dumps(job))
    assert elsewhere == job
    assert json.dumps(elsewhere.to_json()) == json.dumps(job.to_json())
    assert catch_job(4).to_json() != job.to_json()
    first = job.run()
    assert elsewhere.run() == first
    assert StrategyJob.read_result(json.loads(json.dumps(first.to_json()))) == first
    order = ["times", "returns", "decisions", "env_steps", "compression_kl_nats"]
    assert list(first.to_json()) == order, "saved results are as they were"
    assert first.times == pytest.approx([0.0, 0.02, 0.04, 0.06])
    assert first.returns[0] == -0.6
    assert len(first.returns) == 4
    assert first.decisions == (Decision.of(CompressionSpec(bits=8)),) * 3
    assert first.env_steps[0] == 0
    assert len(first.env_steps) == len(first.times)
    assert first.env_steps[-1] > 0


def test_a_run_is_the_episode_that_the_control_environment_would_play() -> None:
    job = catch_job(3)
    played = play(build_strategy(job.strategy, INSTANCE), INSTANCE, job.seed)
    made = job.run()
    for name in ("times", "returns", "env_steps"):
        assert getattr(made, name) == pytest.approx(getattr(played, name))
    assert made.decisions == played.decisions


def test_a_run_directory_is_written_where_the_job_says(tmp_path: Path) -> None:
    with_records = catch_job(3, tmp_path / "run").run()
    assert with_records == catch_job(3).run()
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["seed"], summary["strategy"]) == (3, "int8")


def test_what_a_strategy_is_called_matters_to_records_alone(tmp_path: Path) -> None:
    job = catch_job(3)
    called = replace(job, strategy={**job.strategy, "label": "another name"})
    assert called.to_json() == job.to_json()
    assert replace(called, out=tmp_path).to_json() != replace(job, out=tmp_path).to_json()
    other = replace(job, strategy={**job.strategy, "params": {"spec": {}}})
    assert other.to_json() != job.to_json()


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


def test_an_indicator_is_bound_to_the_job_s_run(tmp_path: Path) -> None:
    strategy = {**make_indicator().to_json(), "shield": {"threshold_nats": 14.0}}
    job = StrategyJob(instance=INSTANCE, seed=3, strategy=strategy, out=tmp_path)
    made = pickle.loads(pickle.dumps(job)).run()
    assert StrategyJob.read_result(json.loads(json.dumps(made.to_json()))) == made
    for report, decision in zip(read_metrics(tmp_path), made.decisions, strict=True):
        assert report.decision == decision
        assert report.explanation[decision.label]["chosen"] == 1.0


def test_seeds_for_tuning_validation_and_test_are_disjoint() -> None:
    assert (list(TUNE_SEEDS), list(VALIDATE_SEEDS), list(TEST_SEEDS)) == (
        list(range(10)), list(range(50, 60)), list(range(2_000, 2_040))
    )  # fmt: skip
    splits = TUNE_SEEDS, VALIDATE_SEEDS, REFERENCE_SEEDS, SHORT_TEST_SEEDS, TEST_SEEDS
    assert len(set().union(*splits)) == sum(map(len, splits))
    for budget in (budget for study in BUDGETS.values() for budget in study.values()):
        assert budget.tune_seeds <= len(TUNE_SEEDS)
        assert budget.validate_seeds <= len(VALIDATE_SEEDS)
        assert budget.reference_runs <= len(REFERENCE_SEEDS)
        assert budget.test_seeds <= len(TEST_SEEDS)


def test_learning_in_another_precision_is_another_job(monkeypatch: pytest.MonkeyPatch) -> None:
    job = replace(catch_job(3), instance=replace(INSTANCE, base=BASE.with_precision("auto")))
    keys = []
    for gains in (True, False):
        monkeypatch.setattr("accerl.precision.gains_by_bfloat16", lambda gains=gains: gains)
        keys.append(job.to_json())
    assert keys[0] != keys[1]
    assert [key["precision"] for key in keys] == [["bf16", "bf16"], ["fp32", "fp32"]]
    fixed = replace(job, instance=replace(INSTANCE, base=BASE.with_precision("fp32")))
    assert fixed.to_json() != keys[1]  # whose configuration leaves it to the machine
    assert fixed.to_json()["precision"] == ["fp32", "fp32"]


def test_a_worker_elsewhere_is_told_where_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Elsewhere(LocalExecutor):
        def start(self, name: str, job: Job[Any]) -> None:
            told.append((job.out, name))
            super().start(name, job)

    told: list[tuple[Path | None, str]] = []
    monkeypatch.chdir(tmp_path)
    job = catch_job(3, Path("study") / "runs" / "one")
    with Elsewhere(Path("study"), 1) as executor:
        executor.map([job])
        assert executor.is_saved(replace(job, out=tmp_path / "study" / "runs" / "one"))
    assert [out for out, _ in told] == [tmp_path / "study" / "runs" / "one"]


def test_dice_of_a_strategy_are_the_run_s_unless_they_are_given() -> None:
    def seed_of(run_seed: int | None, **params: Any) -> int:
        described = {"name": "thompson", "params": params, "shield": {"threshold_nats": 3.0}}
        shielded: Any = build_strategy(described, INSTANCE, run_seed)
        return shielded.strategy.seed

    assert seed_of(None) == 0
    assert seed_of(5) == 5
    assert seed_of(5, seed=7) == 7
    fixed: Any = build_strategy({"name": "fixed", "params": {}}, INSTANCE, 5)
    assert not hasattr(fixed, "seed")
    rules = [{"name": "random", "params": {"specs": [{}], **own}} for own in ({}, {"seed": 7})]
    inner = {"name": "first-that-fires", "params": {"rules": rules}}
    outer = {"name": "first-that-fires", "params": {"rules": [inner]}}
    composed: Any = build_strategy(outer, INSTANCE, 5)
    assert [rule.seed for rule in composed.rules[0].rules] == [5, 7]


class Sealed(Drawing):
    """Lets nobody set its seed."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "seed" and value:
            raise ValueError("sealed")
        super().__setattr__(name, value)


def test_dice_of_a_strategy_of_ones_own_are_set_on_a_copy() -> None:
    own = Drawing()
    seeded: Any = with_dice(own, 5, {})
    assert (own.seed, seeded.seed) == (0, 5)
    with pytest.raises(UserError, match=r"^seed of strategy Sealed: .* sealed .test_inner"):
        with_dice(Sealed(), 5, {})
