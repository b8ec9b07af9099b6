"""Where a run is recorded, which one is gone on with, and what is printed at its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from accerl.monitor.strategies import FixedStrategy
from accerl.records import METRICS, SUMMARY, read_json
from accerl.runtime.events import RunEvent
from accerl.settings import configure
from accerl.spec import IDENTITY, CompressionSpec, Decision
from accerl.training.run import RunResult
from accerl.training.run_folder import held, read_config
from accerl.training.summary import summarise
from studies.cli import recorded
from studies.cli.recorded import free_folder
from studies.study_folder import make_folder
from tests.fixtures.command_line import accerl
from tests.fixtures.reports.reports import interval_report

INT8 = CompressionSpec(bits=8)


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


def test_a_run_that_a_score_has_ended_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = ("train", "catch", "--seconds", "4", "--out", tmp_path / "run", "--until-score")
    done = accerl(capsys, *train, "-2")
    said = "a score of -2 was reached: it ended before its seconds were over\n"
    assert said in done.out
    resume = ("train", "catch", "--resume", "--out", tmp_path / "run")
    assert said in accerl(capsys, *resume).out
    # Longer than it was means past the score, as in Python, unless it is named again.
    assert said not in accerl(capsys, *resume, "--seconds", "5").out
    assert read_config(tmp_path / "run").until_score is None
    assert read_json(tmp_path / "run" / SUMMARY)["seconds"] == pytest.approx(5.0)


def said(
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *changes: dict[str, Any],
) -> str:
    """Return what is printed of a run under INT8, each of whose intervals is changed so."""
    decision = Decision.of(INT8)
    reports = [
        interval_report(decision=decision, index=index, total_seconds=2.0 * (index + 1), **change)
        for index, change in enumerate(changes)
    ]
    summary = {**summarise({}, reports), "profile": None, "strategy_events": []}
    monkeypatch.setattr(recorded, "run_training", lambda *_, **__: RunResult(summary, reports))
    recorded.run_recorded(configure("catch", {}), FixedStrategy(INT8), "fixed", out)
    return capsys.readouterr().err


def test_what_was_refused_and_what_acted_instead_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cause = "original INT8 puts out NaN or infinite values"
    refused = RunEvent(
        role="compressor", seconds=1.0, label=INT8.label, cause=cause, action="go on"
    ).to_json()
    asked, instead = {"spec_seconds": {INT8: 9.0}}, {"spec_seconds": {IDENTITY: 9.0}}
    told = said(tmp_path, monkeypatch, capsys, {**instead, "events": (refused,)}, instead, asked)
    assert f"compressor: {cause}\n" in told
    assert (
        "what was not decided for acted in 67% of the seconds: "
        "original fp32 instead of original INT8 in 67%\n" in told
    )


def test_nothing_is_said_of_the_first_publication(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    soon = {"spec_seconds": {INT8: 9.7, IDENTITY: 0.3}}
    told = said(tmp_path, monkeypatch, capsys, soon, {"spec_seconds": {}})
    assert "decided for" not in told
    assert "compressor:" not in told


def test_a_report_of_a_study_that_writes_its_own_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_folder(tmp_path / "bits")
    refused = accerl(capsys, "report", tmp_path / "bits", "--out", tmp_path / "page").complaint
    assert (
        "holds a study, of which `accerl report` takes one contest, room or comparison" in refused
    )
    assert not (tmp_path / "page").exists()
