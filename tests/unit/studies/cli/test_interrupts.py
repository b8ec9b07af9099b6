"""What a command says on Ctrl-C is true."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from studies.cli import controller, recorded, study, train
from studies.jobs.cached import AGAIN
from tests.fixtures.command_line import accerl


def interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    done = accerl(capsys, *arguments)
    assert done.code == 130
    return done.err.splitlines()[-1]


def test_a_run_in_its_first_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(recorded, "run_training", interrupt)
    line = said(capsys, "train", "catch", "--out", tmp_path / "run")
    assert "it had not finished an interval, so there is nothing to go on with" in line


def test_what_writes_at_its_end_has_written_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(train, "evaluate_checkpoint", interrupt)
    line = said(capsys, "eval", tmp_path / "run", "--out", tmp_path / "out")
    assert line == "accerl: interrupted; it was not done yet: start it again"


def test_a_meta_training_goes_on_with_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(controller, "train_tier0", interrupt)
    line = said(capsys, "controller", "train", "--out", tmp_path / "bundle")
    assert line.endswith("finished iterations are saved: start the same command again to go on")


def test_a_study_goes_on_with_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(study.STUDIES, "room", (interrupt, ""))
    line = said(capsys, "study", "run", "room", "--out", tmp_path / "room")
    assert line == f"accerl: interrupted; {AGAIN}"
