"""Jobs on a Ray cluster: nodes that die and join, the same numbers as here, and refusals."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import accerl
from accerl.errors import UserError
from accerl.records import read_json
from studies.jobs import on_ray
from studies.jobs.executor import check_workers, open_executor
from tests.fixtures.runs.processes import alive, free_port, wait_for
from tests.fixtures.studies.clusters import add_node, cluster
from tests.fixtures.studies.diary import DiaryJob, TimedJob, notes
from tests.fixtures.studies.jobs import catch_job, results_of


@pytest.fixture
def diary(tmp_path: Path) -> Path:
    folder = tmp_path / "diary"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def ray_nodes() -> Iterator[Any]:
    with cluster(1, resources={on_ray.WHOLE_NODE: 1}, num_cpus=2) as made:
        yield made


def worker_of(noted: Path) -> int:
    return int(noted.name.rpartition("-")[2])


def job_of(number: int, diary: Path) -> DiaryJob:
    """Return a job; the first two end at once."""
    return DiaryJob(number=number, diary=diary, does="wait" if number > 1 else "nothing")


def span(diary: Path, number: int) -> tuple[int, int]:
    """Return when a job began and ended."""
    (begun,), (ended,) = (notes(diary, what, number) for what in ("begun", "ended"))
    return int(begun.name.split("-")[2]), int(ended.name.split("-")[2])


@pytest.mark.slow
def test_a_cluster_finds_what_processes_here_find(ray_nodes: Any, tmp_path: Path) -> None:
    def jobs(out: Path) -> list[Any]:
        return [catch_job(3, out / "runs" / "a"), catch_job(4), catch_job(5)]

    with open_executor(tmp_path / "here", 1) as executor:
        here = executor.map(jobs(tmp_path / "here"))
    with open_executor(tmp_path / "there", cluster=ray_nodes.address) as executor:
        assert executor.workers == 2
        there = executor.map(jobs(tmp_path / "there"))
    assert results_of(there) == results_of(here)
    assert [outcome.key for outcome in there] == [outcome.key for outcome in here]
    metrics = [tmp_path / name / "runs" / "a" / "metrics.jsonl" for name in ("here", "there")]
    assert metrics[0].read_text() == metrics[1].read_text()
    # A study that was begun on a cluster goes on here.
    with open_executor(tmp_path / "there", 1) as executor:
        assert executor.map(jobs(tmp_path / "there")) == there


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_driver_outside_the_cluster_finds_the_same(tmp_path: Path, diary: Path) -> None:
    """By ``ray://`` the driver is no node: all that it says and hears goes through the head."""
    import ray

    port = free_port()
    with cluster(2, ray_client_server_port=port):
        address = f"ray://127.0.0.1:{port}"
        check_workers(0, address)  # as a study does before it writes anything
        with open_executor(tmp_path / "there", cluster=address) as executor:
            assert executor.workers == 2
            dying = DiaryJob(number=3, diary=diary, does="die", deaths=1)
            (found,) = results_of(executor.map([dying]))
            assert (found.number, len(notes(diary, "begun", 3))) == (3, 2)
            there = executor.map([catch_job(3, tmp_path / "there" / "run"), catch_job(4)])
            odd = DiaryJob(number=9, diary=diary, does="raise")
            with pytest.raises(UserError, match=r"failed \(diary, seed 9\): ValueError: no such"):
                executor.map([odd])
            with pytest.raises(UserError, match="none of the cluster's 2 nodes has room"):
                executor.map([TimedJob(number=7, diary=diary)])
        assert not ray.is_initialized()
    assert results_of(there) == [catch_job(seed).run() for seed in (3, 4)]
    assert (tmp_path / "there" / "run" / "summary.json").is_file()


@pytest.mark.slow
def test_records_come_from_where_the_folder_cannot_be_seen(
    ray_nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "study"
    with open_executor(out, cluster=ray_nodes.address) as executor:
        (out / "folder.id").unlink()  # what another machine would find there
        (result,) = results_of(executor.map([catch_job(3, out / "runs" / "a")]))
    assert result == catch_job(3).run()
    assert read_json(out / "runs" / "a" / "summary.json")["seed"] == 3
    assert not (out / "runs" / "a" / "checkpoint").exists()


@pytest.mark.slow
def test_killed_workers_errors_and_timed_work(ray_nodes: Any, tmp_path: Path, diary: Path) -> None:
    jobs = [DiaryJob(number=n, diary=diary, seconds=0.05) for n in range(3)]
    jobs += [DiaryJob(number=3, diary=diary, does="die", deaths=1)]
    jobs += [TimedJob(number=n, diary=diary, seconds=0.2) for n in (7, 8)]
    with open_executor(tmp_path, cluster=ray_nodes.address) as executor:
        found = [result.number for result in results_of(executor.map(jobs))]
        assert found == [0, 1, 2, 3, 7, 8]
        assert len(notes(diary, "begun", 3)) == 2
        spans = {n: span(diary, n) for n in (0, 1, 2, 7, 8)}
        for timed in (7, 8):
            begun, ended = spans.pop(timed)
            assert all(last < begun or ended < first for first, last in spans.values())
        odd = DiaryJob(number=9, diary=diary, does="raise")
        with pytest.raises(UserError, match=r"failed \(diary, seed 9\): ValueError: no such numb"):
            executor.map([*jobs, odd])
    assert sum(len(notes(diary, "begun", n)) for n in (0, 1, 2, 7, 8)) == 5


@pytest.mark.slow
def test_a_cluster_of_others_is_refused_in_one_line(
    ray_nodes: Any, tmp_path: Path, diary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    job = DiaryJob(number=1, diary=diary)
    monkeypatch.setattr(accerl, "__version__", "0.0.7")
    with (
        pytest.raises(UserError, match=r"has AcceRL .*, this is AcceRL 0.0.7; install the same"),
        open_executor(tmp_path, cluster=ray_nodes.address) as executor,
    ):
        executor.map([job])
    monkeypatch.setattr(ray, "__version__", "2.0.0")
    with pytest.raises(UserError, match=r"has another Ray or Python: .*2\.0\.0") as error:
        open_executor(tmp_path, cluster=ray_nodes.address)
    assert "\n" not in str(error.value)
    assert not ray.is_initialized()
    assert notes(diary, "begun") == []


def test_a_cluster_without_room_is_refused(
    ray_nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.setitem(on_ray.NEEDS, "CPU", 64.0)
    message = r"none of the cluster's 1 nodes has room for a job \(CPU 64, .*start nodes with more"
    with pytest.raises(UserError, match=message):
        open_executor(tmp_path, cluster=ray_nodes.address)
    assert not ray.is_initialized()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", r"no Ray cluster answers at 127.0.0.1:1 \(.*refused.*ray start --head"),
        ("ray://127.0.0.1:1", "no Ray cluster answers at ray://127.0.0.1:1"),
        ("somewhere", "'somewhere' is none of auto, HOST:PORT and ray://HOST:10001"),
    ],
)
def test_an_address_without_a_cluster_is_refused(
    address: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        open_executor(tmp_path / "out", cluster=address)
    assert not (tmp_path / "out").exists()


def test_without_ray_the_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    with pytest.raises(UserError, match=r"pip install 'ray\[client\]'"):
        open_executor(tmp_path, cluster="auto")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_study_goes_on_when_a_node_dies_another_joins_and_its_driver_is_killed(
    tmp_path: Path, diary: Path
) -> None:
    with cluster(3) as made:
        code = f"""
from pathlib import Path
from studies.jobs import on_ray
from studies.jobs.executor import check_workers, open_executor
from tests.runtime.jobs.test_ray_executor import job_of
jobs = [job_of(number, Path({str(diary)!r})) for number in range(6)]
with open_executor(Path({str(tmp_path)!r}), cluster={made.address!r}) as executor:
    executor.map(jobs)
"""
        driver = subprocess.Popen([sys.executable, "-c", code])
        try:
            wait_for(lambda: len(notes(diary, "begun")) == 5, "three jobs to be under way")
            wait_for(lambda: len(list((tmp_path / "jobs").glob("*.json"))) == 2, "two results")
        finally:
            driver.kill()
            driver.wait()
        for worker in map(worker_of, notes(diary, "begun")[2:]):
            wait_for(lambda worker=worker: not alive(worker), "the tasks to end with their driver")

        jobs = [job_of(number, diary) for number in range(6)]
        found: list[int] = []
        with open_executor(tmp_path, cluster=made.address) as executor:
            asked = threading.Thread(
                target=lambda: found.extend(r.number for r in results_of(executor.map(jobs)))
            )
            asked.start()
            try:
                wait_for(lambda: len(notes(diary, "begun")) == 8, "three jobs to be under way")
                made.remove_node(made.list_all_nodes()[-1], allow_graceful=False)
                add_node(made)
                wait_for(lambda: len(notes(diary, "begun")) == 9, "the lost job to begin again")
            finally:
                (diary / "go").touch()
                asked.join(60.0)
        assert found == [*range(6)]
    assert [len(notes(diary, "begun", number)) for number in range(2)] == [1, 1]
    assert [len(notes(diary, "ended", number)) for number in range(6)] == [1] * 6


def test_timed_work_does_not_change_machines_unnoticed(
    ray_nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_executor(tmp_path, cluster=ray_nodes.address) as executor:
        assert isinstance(executor, on_ray.RayExecutor)
        executor._alone()
        executor._alone()
        monkeypatch.setattr(on_ray, "alive_nodes", lambda _: [])
        with pytest.raises(UserError, match="on which is timed, has left the cluster"):
            executor._alone()
