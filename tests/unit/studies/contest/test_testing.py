"""The test of a contest: seed by seed, and ended early with those that are complete."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from accerl.errors import UserError
from accerl.records import write_json
from accerl.runtime.latency.profiles import load_profile
from studies.cli.main import run
from studies.contest.budget import CONTEST
from studies.contest.entrants import ADVISE, ALL, Entrant, fp32
from studies.contest.plan import find_instances
from studies.contest.rivals import RIVAL, rival_notes, simulated_runs
from studies.contest.testing import all_entrants, ended_early
from studies.jobs.inner import StrategyJob
from studies.study_folder import OPENED, SETTINGS

BUDGET = replace(CONTEST["tiny"], test_seeds=3)


def a_study(out: Path, saved: set[int]) -> Any:
    """Return what `ended_early` reads of a study whose runs of some seeds are saved."""

    def is_saved(job: StrategyJob) -> bool:
        # Of the last seed all but one instance.
        return job.seed in saved or (job.seed == BUDGET.test[2] and job.instance.game == "catch")

    profiles = {name: load_profile(name) for _, name in BUDGET.pairs}
    return SimpleNamespace(
        out=out,
        budget=BUDGET,
        instances=find_instances(BUDGET, profiles),
        test_seeds=BUDGET.test,
        executor=SimpleNamespace(is_saved=is_saved),
    )


def entrants() -> list[Entrant]:
    return [replace(fp32(), test_seeds=BUDGET.test)]


def test_a_contest_that_ends_early_has_its_first_complete_seeds(tmp_path: Path) -> None:
    first, second, third = BUDGET.test
    assert ended_early(a_study(tmp_path, {first, second}), entrants()).test == [first, second]
    assert ended_early(a_study(tmp_path, {first, third}), entrants()).test == [first]


def test_the_closest_are_tested_on_all_seeds_and_the_others_on_the_first_few() -> None:
    budget = replace(BUDGET, test_seeds=3, other_seeds=2, exploratory_seeds=1, held_out=())
    study: Any = SimpleNamespace(budget=budget, test_seeds=budget.test)
    kinds = {"static": True, "advise": True, "bandit": True, "threshold": False, "rival": False}
    tuned = [
        Entrant(name=kind, label=kind, kind=kind, scope=ALL, primary=primary)
        for kind, primary in kinds.items()
    ]
    assert {ADVISE, RIVAL} <= set(kinds)
    found = {item.name: len(item.test_seeds) for item in all_entrants(study, tuned, [])}
    assert found == {"fp32": 2, "static": 3, "advise": 3, "bandit": 2, "threshold": 1, "rival": 2}


def test_the_report_says_what_rivals_are_given() -> None:
    ppo, bandits = rival_notes(CONTEST["medium"])
    runs = simulated_runs(CONTEST["medium"])
    assert runs == 120 * 8 * 8
    assert f"on {runs:,} drawn runs first" in ppo
    assert "learn from J" in bandits
    assert rival_notes(CONTEST["short"]) == []


def test_without_a_complete_seed_it_cannot_end(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no test seed of"):
        ended_early(a_study(tmp_path, set()), entrants())


def test_what_has_not_begun_cannot_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "new")
    assert run(["study", "run", "contest", "--out", out, "--saved-only"]) == 2
    assert "holds no test runs yet" in capsys.readouterr().err
    assert run(["study", "run", "room", "--out", out, "--saved-only"]) == 2
    assert "room cannot end early" in capsys.readouterr().err
    assert not Path(out).exists()


def test_what_comes_before_the_test_is_not_made_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"study": "contest", "budget": "tiny", "seed": 0, "profile": "two-core"}
    write_json(tmp_path / SETTINGS, settings)
    write_json(tmp_path / OPENED, [])
    given = ["--budget", "tiny", "--profile", "two-core", "--workers", "1"]
    assert run(["study", "run", "contest", *given, "--out", str(tmp_path), "--saved-only"]) == 2
    assert "has no result of a job that is needed" in capsys.readouterr().err
    assert not (tmp_path / "jobs").exists()
