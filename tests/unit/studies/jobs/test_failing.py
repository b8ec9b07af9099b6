"""Jobs whose game fails: the traceback is where the study is, and not where the job ran."""

from __future__ import annotations

from pathlib import Path

from accerl.errors import GameError
from accerl.training.run import TRACEBACK
from studies.jobs.work import _with_traceback


def test_a_traceback_outlives_the_folder_of_its_job(tmp_path: Path) -> None:
    first = GameError("environment 3 raised", "Traceback: ...")
    shown = GameError("environment 3 raised; it is in .scratch; --resume goes on", first.details)
    shown.__cause__ = first
    found = _with_traceback(shown, tmp_path)
    assert str(found) == f"environment 3 raised; its traceback is in {tmp_path / TRACEBACK}"
    assert (tmp_path / TRACEBACK).read_text() == first.details
    assert str(_with_traceback(shown, None)) == "environment 3 raised"  # on another machine
