"""What every study refuses beforehand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from accerl.errors import UserError
from studies.options import StudyOptions, check_disk


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"budget": "tny"}, "--budget 'tny' does not exist; did you mean 'tiny'"),
        ({"seed": -1}, "--seed must lie between 0 and 4294967295, got -1"),
        ({"seed": 2**32}, "--seed must lie between"),
        ({"workers": -1}, "--workers must be at least 0"),
        ({"storage": "x.journal"}, "students tunes nothing with Optuna: leave --storage out"),
        ({"saved_only": True}, "students cannot end early: leave --saved-only out"),
    ],
)
def test_mistakes_cost_a_line(options: dict[str, Any], words: str) -> None:
    StudyOptions().check("students", ("tiny", "default"))
    with pytest.raises(UserError, match=words) as caught:
        StudyOptions(**options).check("students", ("tiny", "default"))
    assert "\n" not in str(caught.value)


def test_a_study_may_tune_and_end_early() -> None:
    StudyOptions(saved_only=True).check("contest", ("default",), ends_early=True)
    with pytest.raises(UserError, match="nonsense"):
        StudyOptions(storage="nonsense").check("contest", ("default",), tunes=True)


def test_a_disk_that_would_be_full_is_refused_before_there_is_a_folder(tmp_path: Path) -> None:
    out = tmp_path / "a" / "b"
    check_disk(out, 1)
    with pytest.raises(UserError, match="MB are free and the study needs some") as caught:
        check_disk(out, 10**18)
    assert "\n" not in str(caught.value)
    assert not out.parent.exists()


def test_a_study_is_named_as_a_command() -> None:
    tiny = StudyOptions(budget="tiny", seed=3)
    assert tiny.command("bits") == "accerl study run bits --budget tiny --seed 3 --out DIR"
    assert "--profile two-core --out" in StudyOptions(profile="two-core").command("room")


def test_what_changes_no_run_is_no_setting_of_a_folder() -> None:
    here, there = StudyOptions(workers=1), StudyOptions(workers=2, cluster="auto", saved_only=True)
    assert here.settings("room") == there.settings("room")
    assert here.settings("room") != StudyOptions(seed=1).settings("room")
