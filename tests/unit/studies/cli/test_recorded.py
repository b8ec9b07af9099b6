"""Where a run is recorded if nobody says so, and which one is gone on with."""

from __future__ import annotations

from pathlib import Path

from accerl.records import METRICS, SUMMARY
from accerl.training.run_folder import held
from studies.cli.recorded import free_folder


def a_run(path: Path, *, finished: bool) -> Path:
    path.mkdir()
    (path / METRICS).write_text("{}\n")
    if finished:
        (path / SUMMARY).touch()
    return path


def test_a_new_run_gets_the_first_folder_that_is_free(tmp_path: Path) -> None:
    first = tmp_path / "catch-seed0"
    assert free_folder(first, resume=False) == first
    a_run(first, finished=True)
    assert free_folder(first, resume=False) == tmp_path / "catch-seed0-2"
    with held(tmp_path / "catch-seed0-2"):  # another run has just begun
        assert free_folder(first, resume=False) == tmp_path / "catch-seed0-3"


def test_to_resume_is_to_go_on_with_what_was_not_finished(tmp_path: Path) -> None:
    first = tmp_path / "catch-seed0"
    assert free_folder(first, resume=True) == first  # which is refused: it holds no run
    a_run(first, finished=True)
    assert free_folder(first, resume=True) == first
    second = a_run(tmp_path / "catch-seed0-2", finished=False)
    a_run(tmp_path / "catch-seed0-3", finished=True)
    assert free_folder(first, resume=True) == second
    (second / SUMMARY).touch()
    assert free_folder(first, resume=True) == tmp_path / "catch-seed0-3"
