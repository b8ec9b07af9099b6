"""The test of a contest: seed by seed, and ended early with those that are complete."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from accerl.errors import UserError
from accerl.runtime.latency.profiles import load_profile
from studies.cli.main import run
from studies.contest.budget import CONTEST
from studies.contest.entrants import Entrant, fp32
from studies.contest.plan import find_instances
from studies.contest.testing import ended_early
from studies.jobs.inner import StrategyJob

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
