"""Which code made a result is what its worker says, and what is of others is said once of each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from controller.bundle.meta import code_revision
from studies.jobs.local import LocalExecutor
from studies.jobs.work import Done
from tests.fixtures.studies.diary import DiaryJob

ELSEWHERE = "0123abc"


def test_a_result_is_stamped_by_who_made_it(tmp_path: Path) -> None:
    """A node of a cluster, or a worker that was started later, may have other code."""
    with LocalExecutor(tmp_path / "study", 1) as executor:
        executor.map([DiaryJob(number=1, diary=tmp_path)])
        made = Done(result={"number": 2}, cpu_seconds=1.0, revision=ELSEWHERE)
        executor.save("2", DiaryJob(number=2, diary=tmp_path), made)
        assert executor.runs_by == {code_revision(): 1, ELSEWHERE: 1}


def test_what_is_of_others_is_said_once_of_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [DiaryJob(number=number, diary=tmp_path) for number in (1, 2, 3)]
    study = tmp_path / "study"
    with LocalExecutor(study, 1) as executor:
        for job in jobs:
            executor.map([job])
        files = sorted((study / "jobs").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    older, other, _ = files
    for file, changes in (
        (older, {"versions": {"torch": "2.8.0"}}),
        (other, {"git_revision": ELSEWHERE}),
    ):
        saved = json.loads(file.read_text())
        saved["result"] |= changes
        file.write_text(json.dumps(saved))
    with LocalExecutor(study, 1) as executor:
        for job in (*jobs, *jobs):
            executor.map([job])
    printed = capsys.readouterr()
    told = " ".join((printed.out + printed.err).split())
    assert told.count("other packages than these (torch 2.8.0)") == 1
    assert told.count(f"other code than this (1 by {ELSEWHERE})") == 1
    assert told.count("saved results are of") == 2
