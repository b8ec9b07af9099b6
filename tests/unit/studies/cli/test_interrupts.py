"""What a command says on Ctrl-C is true."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from accerl.records import METRICS
from studies.cli import controller, recorded, study, train
from studies.jobs.round import AGAIN
from tests.fixtures.command_line import accerl
from tests.fixtures.controllers.made_bundles import make_bundle


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


def stop_after_an_interval(*_: Any, out: Path, **__: Any) -> None:
    (out / METRICS).write_text("{}\n")
    raise KeyboardInterrupt


def test_a_run_that_has_intervals_goes_on_and_a_replay_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(recorded, "run_training", stop_after_an_interval)
    run = tmp_path / "run"
    line = said(capsys, "train", "catch", "--out", run)
    assert line.endswith(f"are kept: add --out {run} --resume to go on from there")
    monkeypatch.chdir(tmp_path)
    bundle = make_bundle(tmp_path / "bundle")
    line = said(capsys, "schedule", "replay", bundle, "--preset", "ALE/Pong-v5")
    out = "runs/ALE-Pong-v5-replay-seed0"
    assert line.endswith(f"cannot go on; start it again in another folder than {out}")


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
