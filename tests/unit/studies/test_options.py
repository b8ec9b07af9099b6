"""What every study refuses beforehand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from accerl.errors import UserError
from studies.options import check_disk, check_options, study_command


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"budget": "tny"}, "--budget 'tny' does not exist; did you mean 'tiny'"),
        ({"seed": -1}, "--seed must lie between 0 and 4294967295, got -1"),
        ({"seed": 2**32}, "--seed must lie between"),
        ({"workers": -1}, "--workers must be at least 0"),
        ({"storage": "x.journal"}, "students tunes nothing with Optuna: leave --storage out"),
        ({"storage": "nonsense", "tunes": True}, "nonsense"),
    ],
)
def test_mistakes_cost_a_line(options: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"budget": "tiny", "seed": 0, "workers": 0}
    check_options("students", ("tiny", "default"), **given)
    with pytest.raises(UserError, match=words) as caught:
        check_options("students", ("tiny", "default"), **{**given, **options})
    assert "\n" not in str(caught.value)


def test_a_disk_that_would_be_full_is_refused_before_there_is_a_folder(tmp_path: Path) -> None:
    out = tmp_path / "a" / "b"
    check_disk(out, 1)
    with pytest.raises(UserError, match="MB are free and the study needs some") as caught:
        check_disk(out, 10**18)
    assert "\n" not in str(caught.value)
    assert not out.parent.exists()


def test_a_study_is_named_as_a_command() -> None:
    assert study_command("bits", "tiny", 3) == (
        "accerl study run bits --budget tiny --seed 3 --out DIR"
    )
    assert "--profile two-core --out" in study_command("room", "tiny", 0, "two-core")
