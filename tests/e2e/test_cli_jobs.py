"""`accerl study worker` and `accerl study list` on a storage, as a shell sees them."""

from __future__ import annotations

from pathlib import Path

import pytest

from studies.jobs.inner import StrategyJob
from studies.jobs.storage import open_storage
from studies.jobs.store import JobStore
from tests.fixtures.command_line import accerl
from tests.fixtures.studies.jobs import STUDY, catch_job


def test_a_worker_does_what_waits_and_the_list_counts_it(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = JobStore(open_storage(where), STUDY)
    jobs = [catch_job(seed) for seed in range(2)]
    odd = {"kind": "unheard-of", "seed": 1}
    keys = store.add([*(job.to_json() for job in jobs), odd])
    worker = ["study", "worker", "--study", STUDY, "--storage", where, "--once", "--json"]
    done = accerl(capsys, *worker).json
    assert done["study"] == STUDY
    assert [line.split()[0] for line in done["jobs"]] == ["did", "did", *["failed:"] * 3]
    assert "'unheard-of' jobs are unknown here; start workers with" in done["jobs"][-1]
    store.look()
    results = [StrategyJob.read_result(store.result(key)) for key in keys[:2]]
    assert results == [job.run() for job in jobs]
    listed = accerl(capsys, "study", "list", "--storage", where, "--json").json
    assert listed["jobs"] == {STUDY: {"done": 2, "running": 0, "waiting": 0, "failed": 1}}
    other = ["study", "worker", "--study", "inner-rums", "--storage", where]
    assert "has no jobs of a study 'inner-rums'; did you mean" in accerl(capsys, *other).complaint


def test_a_worker_in_the_folder_of_the_study_ends_with_the_study(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = JobStore(open_storage(str(tmp_path / "jobs.journal")), STUDY)
    store.is_finished = True
    worker = ["study", "worker", "--study", STUDY, "--out", tmp_path, "--json"]
    assert accerl(capsys, *worker).json == {"study": STUDY, "jobs": []}
