"""Whose folders studies begin in."""

from __future__ import annotations

from pathlib import Path

import pytest

from accerl.errors import UserError
from studies.cli.main import run
from studies.study_folder import PLAN, SETTINGS, claim, make_folder, write_plan


def test_a_study_begins_in_no_folder_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text("{}")
    with pytest.raises(UserError, match="is not empty and holds no study"):
        write_plan(tmp_path / "run", {"budget": "tiny"})
    for study in ("students", "paper-fig1", "oracle-gap", "room"):
        assert run(["study", "run", study, "--out", str(tmp_path / "run")]) == 2
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["metrics.jsonl"]
    make_folder(tmp_path / "study")
    write_plan(tmp_path / "study", {"study": "papers", "budget": "tiny", "games": ["catch"]})
    with pytest.raises(UserError, match=r"\(budget 'tiny' there, 'short' here; games\)"):
        write_plan(tmp_path / "study", {"study": "papers", "budget": "short", "games": ["pong"]})


def test_a_study_begins_in_no_folder_of_another_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `accerl compare` leaves it: claimed and marked, without a plan."""
    claim(tmp_path, {"study": "compare"})
    make_folder(tmp_path)
    for study in ("bits", "paper-fig1", "students"):
        given = ["--budget", "tiny", "--out", str(tmp_path)]
        assert run(["study", "run", study, *given]) == 2
        assert "holds another kind of study" in capsys.readouterr().err
    (tmp_path / SETTINGS).unlink()  # whatever it was
    with pytest.raises(UserError, match="holds another kind of study"):
        write_plan(tmp_path, {"study": "bits"}, alone=True)
    assert not (tmp_path / PLAN).exists()


def test_what_was_begun_and_has_made_nothing_yet_is_a_study(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_folder(tmp_path / "study")
    (tmp_path / "study" / "folder.id").unlink()
    claim(tmp_path / "study", {"study": "students and correctors"})
    assert run(["study", "list", str(tmp_path / "study")]) == 0
    assert run(["study", "list", str(tmp_path)]) == 2
    assert "holds no study" in capsys.readouterr().err
