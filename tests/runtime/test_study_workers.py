"""Workers of a study as real processes: killed, interrupted, several at once, far away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from optuna.trial import FrozenTrial, TrialState

from accerl.errors import UserError
from studies.jobs.executor import open_executor
from studies.jobs.inner import StrategyJob, StrategyResult
from studies.jobs.storage import open_storage
from tests.fixtures.runs.processes import alive, children, wait_for
from tests.fixtures.studies.jobs import STUDY, catch_job, results_of, trials, worker_thread

WORKER = [sys.executable, "-m", "studies.cli", "study", "worker", "--study", STUDY]


class Asked(threading.Thread):
    """A study that asks for jobs, in a thread."""

    def __init__(self, out: Path, workers: int, jobs: list[StrategyJob], where: str) -> None:
        super().__init__()
        self.arguments = (out, workers, jobs, where)
        self.results: list[StrategyResult] = []
        self.start()

    def run(self) -> None:
        out, workers, jobs, where = self.arguments
        with open_executor(out, workers, study=STUDY, storage=where) as executor:
            self.results = results_of(executor.map(jobs))

    def given(self) -> list[StrategyResult]:
        """Wait for the results."""
        self.join(100.0)
        assert not self.is_alive()
        return self.results


@contextmanager
def distant_worker(where: str, stderr: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a worker that knows the storage alone, as on another machine."""
    with stderr.open("w") as errors:
        process = subprocess.Popen(
            [*WORKER, "--storage", where],
            stderr=errors,
            start_new_session=True,
            # A suite started in the background ignores SIGINT, and its children would too.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def running(where: str) -> list[FrozenTrial]:
    """Return the attempts that some process is in the middle of."""
    states = [TrialState.RUNNING]
    return [t for t in trials(where) if t.state in states and "process" in t.user_attrs]


def local_workers() -> list[int]:
    """Return the worker processes of this one; Python's resource tracker is none."""
    pids = children(os.getpid())
    return [pid for pid in pids if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_only_the_run_of_a_killed_worker_is_done_again(where: str, tmp_path: Path) -> None:
    jobs = [catch_job(seed, seconds=0.2) for seed in range(5)]
    asked = Asked(tmp_path, 2, jobs, where)
    wait_for(lambda: len(running(where)) == 2, "two jobs to be in the works")
    shot = running(where)[0].user_attrs["process"]["pid"]
    os.kill(shot, signal.SIGKILL)
    assert asked.given() == [job.run() for job in jobs]
    attempts = trials(where)
    (lost,) = [trial for trial in attempts if trial.state is TrialState.FAIL]
    assert lost.user_attrs["lost"]
    assert lost.user_attrs["process"]["pid"] == shot
    assert len(attempts) == len(jobs) + 1
    assert not alive(shot)
    assert not local_workers()


def test_two_studies_on_one_storage_do_no_job_twice(where: str, tmp_path: Path) -> None:
    jobs = [catch_job(seed, seconds=0.02) for seed in range(12)]
    first = Asked(tmp_path / "first", 1, jobs, where)
    second = Asked(tmp_path / "second", 1, jobs[::-1], where)
    assert first.given() == second.given()[::-1]
    assert first.results == [job.run() for job in jobs]
    done = [trial for trial in trials(where) if trial.state is TrialState.COMPLETE]
    assert len(done) == len(jobs)
    assert len({trial.user_attrs["process"]["pid"] for trial in done}) == 2  # both took part


def test_a_distant_worker_stops_when_told_and_another_ends_the_study(
    where: str, tmp_path: Path
) -> None:
    folder = tmp_path / "study" / "runs" / "a"
    asked = Asked(tmp_path / "study", 0, [catch_job(0, folder, seconds=0.5)], where)
    with distant_worker(where, tmp_path / "stderr") as worker:
        wait_for(lambda: len(running(where)) == 1, "the job to be in the works")
        worker.send_signal(signal.SIGTERM if "://" in where else signal.SIGINT)
        assert worker.wait(60) == 0
    told = (tmp_path / "stderr").read_text()
    assert "gave back strategy, game catch" in told
    assert "Traceback" not in told
    assert trials(where)[-1].state is TrialState.WAITING  # at once: nobody had to die
    with distant_worker(where, tmp_path / "stderr") as worker:
        assert asked.given() == [catch_job(0, seconds=0.5).run()]
        assert worker.wait(60) == 0  # the study is finished
    assert "did strategy, game catch" in (tmp_path / "stderr").read_text()
    assert (folder / "summary.json").is_file()  # it came through the storage
    assert [trial.state.name for trial in trials(where)] == ["FAIL", "COMPLETE"]


def test_a_job_that_nobody_put_back_is_not_forgotten(tmp_path: Path) -> None:
    journal = str(tmp_path / "jobs.journal")
    asked = Asked(tmp_path, 0, [catch_job(0)], journal)
    wait_for(lambda: len(trials(journal)) == 1, "the job to wait")
    storage = open_storage(journal)
    (trial,) = trials(journal)
    storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)  # and dies
    with worker_thread(journal):
        assert asked.given() == [catch_job(0).run()]


def test_an_interrupted_study_goes_on_and_leaves_no_process(tmp_path: Path) -> None:
    journal = str(tmp_path / "jobs.journal")
    jobs = [catch_job(seed, seconds=0.1) for seed in range(4)]

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), open_executor(tmp_path, 1, study=STUDY) as executor:
        executor.map(jobs, interrupt)
    assert not local_workers()
    done = [trial for trial in trials(journal) if trial.state is TrialState.COMPLETE]
    assert 1 <= len(done) < 4
    with open_executor(tmp_path, 2, study=STUDY) as executor:
        assert results_of(executor.map(jobs)) == [job.run() for job in jobs]
    attempts = trials(journal)
    assert sum(trial.state is TrialState.COMPLETE for trial in attempts) == 4
    assert set(trial.number for trial in done) < {trial.number for trial in attempts}


def test_workers_end_when_their_study_is_killed(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from studies.jobs.executor import open_executor
from tests.fixtures.studies.jobs import STUDY, catch_job
if __name__ == "__main__":
    with open_executor(Path({str(tmp_path)!r}), 1, study=STUDY) as executor:
        executor.map([catch_job(0, seconds=30.0)])
"""
    journal = str(tmp_path / "jobs.journal")
    study = subprocess.Popen([sys.executable, "-c", code])
    try:
        wait_for(Path(journal).exists, "the study to begin")
        wait_for(lambda: len(running(journal)) == 1, "a job to be in the works")
        worker = running(journal)[0].user_attrs["process"]["pid"]
    finally:
        study.kill()
        study.wait()
    wait_for(lambda: not alive(worker), "the worker to end, in mid-job")
    assert study.returncode == -signal.SIGKILL  # it did not end by itself before


def test_five_deaths_in_a_minute_end_the_study(tmp_path: Path) -> None:
    over = threading.Event()

    def shoot() -> None:
        while not over.wait(0.02):
            for pid in local_workers():
                os.kill(pid, signal.SIGKILL)

    shooter = threading.Thread(target=shoot)
    shooter.start()
    try:
        with (
            pytest.raises(UserError, match=r"5 processes died .*start the same command") as error,
            open_executor(tmp_path, 1, study=STUDY) as executor,
        ):
            executor.map([catch_job(0)])
    finally:
        over.set()
        shooter.join()
    assert "\n" not in str(error.value)
