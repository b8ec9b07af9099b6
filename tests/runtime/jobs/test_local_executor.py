"""Jobs in local processes: killed, interrupted, failing, timed; what was done is never repeated."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accerl.errors import UserError
from accerl.records import json_hash, read_json
from controller.bundle.meta import code_revision
from studies.jobs import round as rounds
from studies.jobs.cached import CachedExecutor
from studies.jobs.executor import Executor, Job, Outcome, open_executor, revisions
from studies.jobs.local import LocalExecutor
from studies.jobs.round import job_counts
from studies.jobs.work import SCRATCH, Done, End, job_key
from studies.progress import bar
from tests.fixtures.runs.processes import alive, children, wait_for
from tests.fixtures.studies.diary import DiaryJob, TimedJob, notes
from tests.fixtures.studies.jobs import catch_job, results_of


@pytest.fixture
def diary(tmp_path: Path) -> Path:
    folder = tmp_path / "diary"
    folder.mkdir()
    return folder


def workers_of(pid: int) -> list[int]:
    """Return a process's workers; what forks them is none, nor is Python's resource tracker."""
    commands = {p: Path(f"/proc/{p}/cmdline").read_bytes() for p in children(pid)}
    forked = [
        p for server in commands if b"forkserver" in commands[server] for p in children(server)
    ]
    return [*forked, *(p for p in commands if b"spawn_main" in commands[p])]


def numbers(executor: Executor, jobs: list[DiaryJob]) -> list[int]:
    return [result.number for result in results_of(executor.map(jobs))]


def test_results_come_in_order_and_nothing_is_done_twice(tmp_path: Path, diary: Path) -> None:
    jobs = [catch_job(seed) for seed in (5, 3, 4, 3)]
    ticks: list[float] = []

    def on_done(amount: float = 1.0, note: str = "", *, replayed: bool = False) -> None:
        ticks.append(amount)

    with open_executor(tmp_path, 2) as executor:
        results = results_of(executor.map(jobs, on_done))
        assert results == [job.run() for job in jobs]
        assert sum(ticks) == 4
        step = job_counts(tmp_path)["step"]
        assert (step["done"], step["running"], step["failed"], step["left"]) == (3, 0, 0, 0)
        again = [DiaryJob(number=1, diary=diary)] * 3
        assert numbers(executor, again) == [1, 1, 1]
    with open_executor(tmp_path, 2) as executor:
        assert results_of(executor.map(jobs[1:], on_done)) == results[1:]
        assert numbers(executor, again) == [1, 1, 1]
        assert workers_of(os.getpid()) == []  # there was nothing to do
    assert sum(ticks) == 7
    assert len(notes(diary, "begun")) == 1


def test_a_folder_belongs_to_one_driver_that_makes_runs(tmp_path: Path, diary: Path) -> None:
    made, other = (DiaryJob(number=number, diary=diary) for number in (1, 2))
    with open_executor(tmp_path, 1) as first, open_executor(tmp_path, 1) as second:
        assert numbers(first, [made]) == [1]
        assert numbers(second, [made]) == [1]  # whoever only reads what is saved makes no runs
        with pytest.raises(UserError, match=r"a study is under way in .*; wait until it ends"):
            second.map([other])
    with open_executor(tmp_path, 1) as third:
        assert numbers(third, [other]) == [2]


def test_jobs_do_not_end_for_want_of_a_file_that_says_how_far_they_are(
    tmp_path: Path, diary: Path
) -> None:
    (tmp_path / rounds.PROGRESS).mkdir()  # nothing can be written there, as on a full disk
    with open_executor(tmp_path, 1) as executor:
        assert numbers(executor, [DiaryJob(number=1, diary=diary)]) == [1]


def test_only_the_job_of_a_killed_worker_is_done_again(tmp_path: Path, diary: Path) -> None:
    jobs = [DiaryJob(number=number, diary=diary, does="wait") for number in range(3)]

    def shoot() -> None:
        wait_for(lambda: len(notes(diary, "begun")) == 2, "two jobs to begin")
        os.kill(int(notes(diary, "begun", 0)[0].name.rpartition("-")[2]), signal.SIGKILL)
        wait_for(lambda: len(notes(diary, "begun", 0)) == 2, "the job to begin again")
        (diary / "go").touch()

    shooter = threading.Thread(target=shoot)
    shooter.start()
    with open_executor(tmp_path, 2) as executor:
        assert numbers(executor, jobs) == [0, 1, 2]
    shooter.join()
    assert [len(notes(diary, "begun", number)) for number in range(3)] == [2, 1, 1]
    assert workers_of(os.getpid()) == []


@pytest.mark.slow
def test_a_job_whose_process_dies_thrice_is_named_and_the_others_are_saved(
    tmp_path: Path, diary: Path
) -> None:
    jobs = [
        DiaryJob(number=0, diary=diary, does="die", deaths=2),
        DiaryJob(number=1, diary=diary),
        DiaryJob(number=2, diary=diary, does="die"),
    ]
    with open_executor(tmp_path, 1) as executor:
        with pytest.raises(UserError, match=r"given up \(diary, seed 2\).*died 3 times") as error:
            executor.map(jobs)
        assert "\n" not in str(error.value)
        assert numbers(executor, jobs[:2]) == [0, 1]
    assert [len(notes(diary, "begun", number)) for number in range(3)] == [3, 1, 3]


def test_progress_is_that_of_a_step_that_asks_in_portions(tmp_path: Path, diary: Path) -> None:
    jobs = [DiaryJob(number=number, diary=diary) for number in range(6)]
    with open_executor(tmp_path, 1) as executor:
        executor.map(jobs[:1])
    with open_executor(tmp_path, 1) as executor, bar("portions", 6) as advance:
        for start in (0, 2):
            executor.map(jobs[start : start + 2], advance)
            step = job_counts(tmp_path)["step"]
            counts = (step["done"], step["running"], step["left"])
            assert counts == (start + 2, 0, 6 - start - 2)
            assert step["seconds_left"] > 0.0
        assert executor.runs_by == {code_revision(): 4}


class Slow(CachedExecutor):
    """Runs two jobs at once, on a clock of its own; notes what progress says while one is on."""

    def __init__(self, out: Path) -> None:
        super().__init__(out)
        self.workers = 2
        self.seconds = 60.0
        self.said: list[int] = []
        self._names: list[str] = []

    def has_room(self, job: Job[Any]) -> bool:
        return len(self._names) < self.workers

    def start(self, name: str, job: Job[Any]) -> None:
        self._names.append(name)

    def ended(self, *, wait: bool) -> list[tuple[str, End]]:
        self.said.append(job_counts(self.folder.path)["step"]["running"])
        self.seconds += 60.0
        return [(self._names.pop(0), Done(result={"number": 0}, cpu_seconds=0.0))]

    def close(self) -> None:
        pass


def test_progress_says_of_all_that_run_while_they_do(
    tmp_path: Path, diary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [DiaryJob(number=number, diary=diary) for number in range(4)]
    with Slow(tmp_path) as executor:
        monkeypatch.setattr(rounds, "monotonic", lambda: executor.seconds)
        shown: list[str] = []
        executor.map(jobs, lambda amount=1.0, note="", *, replayed=False: shown.append(note))
        assert executor.said == [2, 2, 2, 1]
    assert list(dict.fromkeys(shown)) == [
        "2 running",
        "",  # one was done
        "2 running, one for 1 min 00 s now",
        "1 running, for 1 min 00 s now",
    ]
    step = job_counts(tmp_path)["step"]
    assert (step["done"], step["running"], step["left"]) == (4, 0, 0)


def test_revisions_are_those_of_the_results_that_are_given() -> None:
    result: Any = None
    given = [
        Outcome(key=str(place), result=result, cpu_seconds=0.0, git_revision=by)
        for place, by in enumerate(("0123abc", None, "4567def", "4567def"))
    ]
    found = revisions(given)
    assert found == {"4567def": 2, "0123abc": 1, "unknown": 1}
    assert next(iter(found)) == "4567def"


OTHER = "0123456".ljust(40, "0")


def test_saved_results_of_other_code_or_packages_are_told(
    tmp_path: Path, diary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = DiaryJob(number=1, diary=diary)
    with open_executor(tmp_path, 1) as executor:
        executor.map([job, DiaryJob(number=3, diary=diary)])  # that is not asked for again
    for file in (tmp_path / "jobs").iterdir():
        saved = json.loads(file.read_text())
        saved["result"]["git_revision"] = OTHER
        saved["result"]["versions"]["torch"] = "2.8.0"
        file.write_text(json.dumps(saved))
    with open_executor(tmp_path, 1) as executor:
        for _ in range(2):
            executor.map([job, DiaryJob(number=2, diary=diary)])
        assert executor.runs_by[OTHER] == 2
    printed = capsys.readouterr()
    told = " ".join((printed.out + printed.err).split())
    others = "other code than this (1 by 0123456) and packages than these (torch 2.8.0)"
    assert told.count(f"saved results are of {others}: if that changed") == told.count("saved") == 1


def test_a_job_whose_code_ends_the_program_is_named_at_once(tmp_path: Path, diary: Path) -> None:
    message = r"a job failed \(diary, seed 0\): its own code .* sys.exit\('enough'\); finished"
    with open_executor(tmp_path, 1) as executor, pytest.raises(UserError, match=message):
        executor.map([DiaryJob(number=0, diary=diary, does="leave")])
    assert len(notes(diary, "begun", 0)) == 1


def test_a_job_that_raises_is_named_once_the_others_under_way_are_saved(
    tmp_path: Path, diary: Path
) -> None:
    jobs = [DiaryJob(number=0, diary=diary, does="raise")]
    jobs += [DiaryJob(number=number, diary=diary, does="wait") for number in range(1, 4)]

    def on_done(amount: float = 1.0, note: str = "", *, replayed: bool = False) -> None:
        if "failed" in note:  # the other that is under way ends after that
            (diary / "go").touch()

    message = (
        r"a job failed \(diary, seed 0\): ValueError: no such number \(diary.py, line \d+\); "
        "finished jobs are saved"
    )
    with open_executor(tmp_path, 2) as executor:
        with pytest.raises(UserError, match=message) as error:
            executor.map(jobs, on_done)
        assert "\n" not in str(error.value)
        begun = [len(notes(diary, "begun", number)) for number in range(4)]
        assert begun == [1, 1, 0, 0]  # nothing more was begun
        assert len(notes(diary, "ended", 1)) == 1
        step = job_counts(tmp_path)["step"]
        counts = {"done": 1, "running": 0, "failed": 1, "left": 2}
        assert {name: step[name] for name in counts} == counts
        assert numbers(executor, jobs[1:]) == [1, 2, 3]
        assert job_counts(tmp_path)["saved"] == 3
    assert len(notes(diary, "begun")) == 4


def test_an_interrupted_study_goes_on_and_leaves_no_process(tmp_path: Path) -> None:
    jobs = [catch_job(seed, seconds=0.1) for seed in range(4)]

    def interrupt(amount: float = 1.0, note: str = "", *, replayed: bool = False) -> None:
        if amount:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), open_executor(tmp_path, 1) as executor:
        executor.map(jobs, interrupt)
    assert workers_of(os.getpid()) == []
    saved = len(list((tmp_path / "jobs").iterdir()))
    assert 1 <= saved < 4
    with open_executor(tmp_path, 2) as executor:
        assert results_of(executor.map(jobs)) == [job.run() for job in jobs]


@pytest.mark.parametrize(
    "sign", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_driver_that_dies_takes_its_workers_along_and_another_goes_on(
    sign: signal.Signals, tmp_path: Path, diary: Path
) -> None:
    jobs = [DiaryJob(number=0, diary=diary), DiaryJob(number=1, diary=diary, does="wait")]
    code = f"""
from pathlib import Path
from studies.jobs.executor import open_executor
from tests.fixtures.studies.diary import DiaryJob
diary = Path({str(diary)!r})
jobs = [DiaryJob(number=0, diary=diary), DiaryJob(number=1, diary=diary, does="wait")]
with open_executor(Path({str(tmp_path)!r}), 1) as executor:
    executor.map(jobs)
"""
    driver = subprocess.Popen(
        [sys.executable, "-c", code],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        # A suite started in the background ignores SIGINT, and its children would too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        wait_for(lambda: len(notes(diary, "begun", 1)) == 1, "the second job to begin")
        (worker,) = workers_of(driver.pid)
        os.killpg(driver.pid, sign) if sign == signal.SIGINT else driver.kill()
        driver.wait(30)
    finally:
        driver.kill()
    wait_for(lambda: not alive(worker), "the worker to end, in mid-job")
    assert len(notes(diary, "tidied", 1)) == 1  # what it held, such as shared memory, it gave back
    if sign == signal.SIGINT:
        step = job_counts(tmp_path)["step"]
        assert (step["done"], step["running"], step["left"]) == (1, 0, 1)
    (diary / "go").touch()
    with open_executor(tmp_path, 1) as executor:
        assert numbers(executor, jobs) == [0, 1]
    assert [len(notes(diary, "begun", number)) for number in range(2)] == [1, 2]


@pytest.mark.slow
def test_a_run_directory_is_there_once_it_is_whole(tmp_path: Path, diary: Path) -> None:
    job, out = catch_job(3, tmp_path / "study" / "runs" / "a"), tmp_path / "study"
    with open_executor(out, 1) as executor:
        (result,) = results_of(executor.map([job]))
        assert read_json(out / "runs" / "a" / "summary.json")["seed"] == 3
        assert (out / "runs" / "a" / "checkpoint").is_dir()
        assert list((out / SCRATCH).iterdir()) == []
        (out / "runs" / "a" / "summary.json").unlink()
        assert results_of(executor.map([job])) == [result]  # it is made again
        assert (out / "runs" / "a" / "summary.json").is_file()
    moved = out.rename(tmp_path / "moved")  # a study may be given another place
    (moved / "folder.id").write_text("seen as another folder")
    with open_executor(moved, 1) as executor:
        assert results_of(executor.map([replace(job, out=moved / "runs" / "a")])) == [result]
        assert workers_of(os.getpid()) == []


def test_a_result_that_is_damaged_is_made_again(tmp_path: Path, diary: Path) -> None:
    job = DiaryJob(number=1, diary=diary)
    with open_executor(tmp_path, 1) as executor:
        numbers(executor, [job])
    (saved,) = (tmp_path / "jobs").iterdir()
    saved.write_text(saved.read_text()[:-3])
    with open_executor(tmp_path, 1) as executor:
        assert numbers(executor, [job]) == [1]
    assert len(notes(diary, "begun")) == 2
    assert numbers(LocalExecutor(tmp_path, 1), [job]) == [1]  # it is whole again
    assert len(notes(diary, "begun")) == 2


def test_what_is_not_saved_is_not_done_if_only_the_saved_is_wanted(
    tmp_path: Path, diary: Path
) -> None:
    jobs = [DiaryJob(number=number, diary=diary) for number in range(3)]
    with open_executor(tmp_path, 1) as executor:
        numbers(executor, jobs[:1])
    with open_executor(tmp_path, 1, saved_only=True) as executor:
        assert numbers(executor, jobs[:1]) == [0]
        with pytest.raises(UserError, match=r"--saved-only: .* \(diary, seed 1\); leave"):
            executor.map(jobs)
    assert len(notes(diary, "begun")) == 1


@pytest.mark.slow
def test_timed_work_is_alone(tmp_path: Path, diary: Path) -> None:
    jobs = [DiaryJob(number=n, diary=diary, seconds=0.05) for n in range(4)]
    jobs[2:2] = [TimedJob(number=n, diary=diary, seconds=0.1) for n in (7, 8)]
    with open_executor(tmp_path, 3) as executor:
        assert numbers(executor, jobs) == [0, 1, 7, 8, 2, 3]
    spans = {
        n: [int(notes(diary, what, n)[0].name.split("-")[2]) for what in ("begun", "ended")]
        for n in (0, 1, 2, 3, 7, 8)
    }
    for timed in (7, 8):
        begun, ended = spans.pop(timed)
        assert all(last < begun or ended < first for first, last in spans.values())


def test_what_workers_cannot_import_is_refused(tmp_path: Path, diary: Path) -> None:
    own = type("Own", (DiaryJob,), {"__module__": "__main__"})
    with (
        open_executor(tmp_path, 1) as executor,
        pytest.raises(UserError, match=r"Own lies in the script that was started \(__main__\)"),
    ):
        executor.map([own(number=1, diary=diary)])


def test_a_full_disk_is_one_line_and_nothing_is_lost(tmp_path: Path, diary: Path) -> None:
    jobs = [DiaryJob(number=number, diary=diary) for number in range(2)]
    with open_executor(tmp_path, 1) as executor:
        numbers(executor, jobs[:1])
        full = (
            tmp_path / "jobs" / f".{json_hash(job_key(jobs[1], tmp_path))}.json.{os.getpid()}.tmp"
        )
        full.symlink_to("/dev/full")
        with pytest.raises(UserError, match=r"cannot save .*No space left.*same command") as error:
            executor.map(jobs)
        assert "\n" not in str(error.value)
    with open_executor(tmp_path, 1) as executor:
        assert numbers(executor, jobs) == [0, 1]
    assert [len(notes(diary, "begun", number)) for number in range(2)] == [1, 2]
