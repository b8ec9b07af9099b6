"""The oracle gap: real runs of a few rollouts of Catch, and the arithmetic around them."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accerl.errors import UserError
from accerl.runtime.latency.profiles import load_profile
from accerl.spec import IDENTITY, CompressionSpec
from analysis.figures.bench import oracle_gap as gap_figure
from controller.env.instances import INTERVALS, Instance, make_instance
from controller.env.references import load_reference
from studies.jobs.executor import Job, Outcome
from studies.options import StudyOptions
from studies.oracle_gap import run as oracle_gap
from studies.oracle_gap.branching import (
    SWITCHES,
    OracleJob,
    ScheduleResult,
    StaticJob,
    TwoPhaseJob,
    base_config,
    clearly_best,
)
from studies.oracle_gap.run import GapBudget, run_oracle_gap
from studies.study_folder import make_folder, write_plan

NET3 = CompressionSpec(bits=8, student="net3")


def instance(env_steps: int = 12 * 576) -> Instance:
    made = make_instance("catch", load_profile("paper-1080ti"), env_steps)
    scale = load_reference("catch").to_json()
    return replace(made, base=base_config("catch"), **scale)


@contextmanager
def inline(options: StudyOptions, out: Path) -> Iterator[Inline]:
    yield Inline()


class Inline:
    """An executor without processes and files; every job travels."""

    def __init__(self) -> None:
        self.runs_by = {"this revision": 1}

    def map(self, jobs: Sequence[Job[Any]], on_done: Callable[[], object]) -> list[Outcome[Any]]:
        found = []
        for job in jobs:
            result = json.loads(json.dumps(pickle.loads(pickle.dumps(job)).run().to_json()))
            found.append(Outcome("", job.read_result(result), 0.0))
        return found

    def close(self) -> None:
        pass


def static(spec: CompressionSpec) -> ScheduleResult:
    return StaticJob(instance=instance(), seed=0, spec=spec).run()


@pytest.mark.slow
def test_a_second_phase_equal_to_the_first_is_the_static_run_to_the_bit() -> None:
    """Every branch begins with a snapshot: going on as before must change nothing."""
    job = TwoPhaseJob(instance=instance(), seed=0, first=NET3, seconds=(NET3,))
    switches = job.run().switches
    assert [switch.at for switch in switches] == list(SWITCHES)
    assert {switch.value for switch in switches} == {static(NET3).value}


def test_two_phases_differ_by_when_they_switch() -> None:
    job = TwoPhaseJob(instance=instance(), seed=0, first=NET3, seconds=(IDENTITY,))
    assert len({switch.value for switch in job.run().switches}) == 3


def test_an_oracle_that_may_only_stay_is_the_static_run() -> None:
    job = OracleJob(instance=instance(), seed=0, base=NET3, specs=(NET3,), placebo=False)
    result = job.run()
    assert result.scores == static(NET3).scores
    assert result.chosen == (NET3.label,) * INTERVALS
    assert result.standard_error > 0.0


@pytest.mark.slow
def test_a_placebo_keeps_its_spec_and_rolls_other_dice() -> None:
    specs, longer = (IDENTITY, NET3, CompressionSpec(bits=8)), instance(36 * 576)
    job = OracleJob(instance=longer, seed=0, base=IDENTITY, specs=specs, placebo=True)
    result = job.run()
    assert set(result.chosen) == {IDENTITY.label}
    assert result.value != StaticJob(instance=longer, seed=0, spec=IDENTITY).run().value


def test_only_what_is_clearly_better_is_taken() -> None:
    rng = np.random.default_rng(0)
    stay = rng.normal(size=100)
    noise = 0.1 * rng.normal(size=100)
    assert clearly_best([stay, stay + noise - noise.mean()]) == 0
    assert clearly_best([stay, stay + 0.5 + noise, stay + 1.0 + noise]) == 2
    assert clearly_best([stay, stay - 1.0]) == 0


@pytest.mark.slow
def test_the_study_tells_of_every_pair_and_draws_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = GapBudget(
        pairs=(("catch", "paper-1080ti"),), env_steps={"catch": 12 * 576}, seeds={"catch": 2}
    )
    monkeypatch.setattr(oracle_gap, "SPECS", (IDENTITY, NET3))
    monkeypatch.setattr(StudyOptions, "open_executor", inline)
    monkeypatch.setitem(oracle_gap.BUDGETS, "tiny", budget)
    result = run_oracle_gap(tmp_path, StudyOptions(budget="tiny"))
    (row,) = result["rows"]
    assert row["split"] == "train"
    assert row["seeds"] == [0, 1]
    means = {label: np.mean(values) for label, values in row["statics"].items()}
    assert means[row["best_static"]] == max(means.values())
    assert row["fp32"]["ratio"] <= 1.0
    assert row["two_phase"]["ratio"] == pytest.approx(
        np.mean(row["two_phase"]["values"]) / max(means.values())
    )
    assert len(row["oracle"]["chosen"]) == 2
    assert (tmp_path / "oracle-gap.json").is_file()
    with pytest.raises(UserError, match=r"other settings \(seed 0 there, 1 here\)"):
        run_oracle_gap(tmp_path, StudyOptions(budget="tiny", seed=1))
    with pytest.raises(UserError, match=r"other settings \(profile '' there"):
        run_oracle_gap(tmp_path, StudyOptions(budget="tiny", profile="edge"))
    assert (tmp_path / "oracle-gap.png").read_bytes()[:4] == b"\x89PNG"
    assert {mark["schedule"] for mark in gap_figure(result["rows"]).table} == {
        "no compression",
        "best of two phases",
        "greedy-branch oracle",
        "placebo: other random numbers",
    }


def test_the_interval_is_student_s_t_of_paired_differences() -> None:
    static, values = np.array([1.0, 2.0, 3.0]), np.array([1.2, 2.2, 3.5])
    found = oracle_gap._ratio(values, static)
    assert found["ratio"] == pytest.approx(values.mean() / static.mean())
    assert found["high"] - found["ratio"] == pytest.approx(
        4.3027 * np.std([0.1, 0.1, 0.25], ddof=1) / np.sqrt(3), rel=1e-4
    )
    assert oracle_gap._ratio(values, -static)["ratio"] is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"budget": "tinny"}, "--budget 'tinny' does not exist"),
        ({"workers": -1}, "--workers must be at least 0"),
        ({"seed": 9}, "take 0 to 5"),
        ({"storage": "postgresql://me@host/db"}, "tunes nothing with Optuna"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        run_oracle_gap(tmp_path, StudyOptions(**fields))


def test_a_folder_is_claimed_before_anything_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").write_text("no study's")
    with pytest.raises(UserError, match="is not empty and holds no study"):
        run_oracle_gap(tmp_path, StudyOptions(budget="tiny"))
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    (tmp_path / "contest").mkdir()
    make_folder(tmp_path / "contest")
    write_plan(tmp_path / "contest", {"budget": "tiny"})
    with pytest.raises(UserError, match="holds another kind of study"):
        run_oracle_gap(tmp_path / "contest", StudyOptions(budget="tiny"))

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(oracle_gap, "_gap", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_oracle_gap(tmp_path / "study", StudyOptions(budget="tiny"))
    with pytest.raises(UserError, match=r"other settings \(seed"):
        run_oracle_gap(tmp_path / "study", StudyOptions(budget="tiny", seed=1))
