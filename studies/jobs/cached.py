"""What all executors share: results are saved as they come, lost jobs are done again."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any, Self

from accerl.errors import UserError
from accerl.precision import auto_means
from accerl.records import json_hash, read_json, versions, write_json
from analysis.formats import made_by
from analysis.records.read import read_record
from controller.bundle.meta import code_revision
from studies.jobs.cache import ResultCache
from studies.jobs.decided import decided_precision
from studies.jobs.executor import Job, Outcome, R, describe_job, revisions
from studies.jobs.work import SCRATCH, Done, End, Failed, Lost, has_run, job_key, sees_run
from studies.progress import Advance, say, silent
from studies.study_folder import (
    driven,
    find_folder,
    is_driven,
    is_study,
    make_folder,
    unpack_records,
)

RESULTS = "jobs"
"""in a study's folder: a file for the result of every job"""
MAX_LOSSES = 3
"""deaths of its processes after which a job is given up: it may need more memory than there is"""
PROGRESS = "progress.json"
"""in a study's folder: how many jobs of the present step are done, running, failed and left"""
TELL_SECONDS = 1.0
"""between two times that it is written"""
AGAIN = "finished jobs are saved: start the same command again to go on"


class CachedExecutor(ABC):
    """Implements `studies.jobs.executor.Executor` on the four methods that follow it.

    Args:
        out: the study's folder.
        saved_only: whether a job that is not saved is an error, in place of being done.
    """

    workers: int
    is_local: bool = True

    def __init__(self, out: Path, *, saved_only: bool = False) -> None:
        self.saved_only = saved_only
        made = make_folder(out)
        self.folder = replace(made, path=made.path.absolute())
        self.precision = decided_precision(self.folder.path, RESULTS)
        """what auto means in this folder"""
        self._held = ExitStack()
        """what this precision means, and the folder once runs are made in it"""
        self._is_driven = False
        self._cache = ResultCache(self.folder.path / RESULTS)
        self._revision, self._versions = code_revision(), versions()
        self._made_by: dict[str, str] = {}
        """by name of the job: the revision of the code that made its result"""
        self._told: set[str] = set()
        """revisions and packages that were not this process's, and were named"""
        self._pace = _Pace(silent)

    @abstractmethod
    def has_room(self, job: Job[Any]) -> bool:
        """Whether a job can be started beside those that are under way."""

    @abstractmethod
    def start(self, name: str, job: Job[Any]) -> None:
        """Start a job. Its result depends on it alone, so it does not matter where."""

    @abstractmethod
    def ended(self, *, wait: bool) -> list[tuple[str, End]]:
        """Return what came of the jobs that have ended; if `wait`, wait for one, or for a while.

        Names are those given to `start`. A name may come twice, or late: that changes nothing.
        """

    @abstractmethod
    def close(self) -> None:
        """End everything at once; what was under way is done again next time."""

    def map(self, jobs: Sequence[Job[R]], on_done: Advance = silent) -> list[Outcome[R]]:
        """Return the outcome of every job, in order; `on_done` is called for each.

        Raises:
            UserError: a job raised an exception, its process died `MAX_LOSSES` times, a result
                cannot be saved, or a job is to be done though `saved_only`. What was done before is
                saved.
        """
        # A worker may have another working directory.
        jobs = [job if job.out is None else replace(job, out=job.out.absolute()) for job in jobs]
        names = [json_hash(job_key(job, self.folder.path)) for job in jobs]
        _Asked(self, dict(zip(names, jobs, strict=True)), Counter(names), on_done).run()
        outcomes = [self._outcome(*pair) for pair in zip(names, jobs, strict=True)]
        self._tell_others(outcomes)
        return outcomes

    def pace_of(self, on_done: Advance) -> _Pace:
        """Return how fast jobs of the step are made that shows its progress so."""
        if self._pace.on_done is not on_done:
            self._pace = _Pace(on_done)
        return self._pace

    @property
    def runs_by(self) -> dict[str, int]:
        """See `Executor.runs_by`: of all results in the folder, the most frequent first.

        A step that is over, such as tuning, does not ask for its jobs again.
        """
        for path in (self.folder.path / RESULTS).glob("*.json"):
            if path.stem not in self._made_by:
                # A damaged file is as good as none.
                with suppress(UserError, KeyError, TypeError, AttributeError):
                    found = read_json(path)["result"].get("git_revision")
                    self._made_by[path.stem] = found or "unknown"
        return dict(Counter(self._made_by.values()).most_common())

    def _tell_others(self, outcomes: Sequence[Outcome[Any]]) -> None:
        """Say once of each that some results are of other code or packages: nothing else would."""
        own = self._revision
        by = revisions({each.key: each for each in outcomes}.values())  # a job may be asked twice
        others = {name: count for name, count in by.items() if name != own}
        packages = {
            f"{name} {version}"
            for each in outcomes
            for name, version in each.versions.items()
            if self._versions.get(name) != version
        }
        found = [f"code than this ({made_by(others)})"] if others else []
        found += [f"packages than these ({', '.join(sorted(packages))})"] if packages else []
        if not self._told.issuperset(others.keys() | packages):
            self._told |= others.keys() | packages
            say(
                f"  saved results are of other {' and '.join(found)}: if that changed how runs go, "
                "give --out a new folder to make all of them with this"
            )

    def take_folder(self) -> None:
        """Keep the folder to this process: two would make the same runs, and time each other's.

        Raises:
            UserError: another process makes runs in it.
        """
        if not self._is_driven:
            self._held.enter_context(driven(self.folder))
            self._is_driven = True

    def is_saved(self, job: Job[Any]) -> bool:
        """Whether a job's result is there and can be read, and its run directory too."""
        name = json_hash(job_key(job, self.folder.path))
        return self._has_result(name, job) and has_run(job, name)

    def _has_result(self, name: str, job: Job[Any]) -> bool:
        try:
            self._outcome(name, job)
        except (KeyError, TypeError, ValueError, AttributeError, UserError):
            return False  # there is none, or one of another version, or edited
        return True

    def check_place(self) -> None:
        """Refuse to go on where the study's folder is no more.

        Raises:
            UserError: it was moved or deleted.
        """
        if find_folder(self.folder.path) != self.folder:
            raise UserError(
                f"{self.folder.path} was moved or deleted meanwhile, and a result cannot be saved "
                "there; give the same command its new place as --out"
            )

    def save(self, name: str, job: Job[Any], done: Done) -> None:
        """Save a result, and the records that came with it.

        Raises:
            UserError: the folder was moved, its disk is full, or the run directory went elsewhere.
        """
        self.check_place()
        if job.out is not None and done.records is not None:
            if not has_run(job, name):
                shutil.rmtree(job.out, ignore_errors=True)
            unpack_records(done.records, job.out)
        if not sees_run(job, name):
            raise UserError(
                f"{job.out} is not there, though its run was made: another machine has a copy of "
                f"{self.folder.path} of its own; share one folder, or give --out a new one"
            )
        key = job_key(job, self.folder.path)
        # Where a run directory was lost, what comes with the new one is its result.
        if job.out is not None or not self._has_result(name, job):
            by = done.revision or self._revision  # a worker elsewhere, or later, may have others
            known = {"git_revision": by, "versions": self._versions}
            result = {"value": done.result, "cpu_seconds": done.cpu_seconds, **known}
            self._cache.save(key, result)
        for abandoned in (self.folder.path / SCRATCH).glob(f"{name}-*"):  # of a killed worker
            shutil.rmtree(abandoned, ignore_errors=True)

    def _outcome(self, name: str, job: Job[R]) -> Outcome[R]:
        found = self._cache[job_key(job, self.folder.path)]
        by, packages = found.get("git_revision"), found.get("versions", {})
        return Outcome(name, job.read_result(found["value"]), found["cpu_seconds"], by, packages)

    def __enter__(self) -> Self:
        self._held.enter_context(auto_means(self.precision))
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._held.close()
        self._is_driven = False


class _Pace:
    """How fast the jobs of a step are made.

    Args:
        on_done: of the step.
    """

    def __init__(self, on_done: Advance) -> None:
        self.on_done = on_done
        self.made = 0
        self._began = monotonic()

    def seconds(self, jobs: int) -> float | None:
        """Return about how long so many jobs take; None: not known yet."""
        return (monotonic() - self._began) / self.made * jobs if self.made else None


class _Asked:
    """The jobs of one call of `map`, from waiting to saved."""

    def __init__(
        self,
        executor: CachedExecutor,
        jobs: dict[str, Job[Any]],
        times: Counter[str],
        on_done: Advance,
    ) -> None:
        self._executor = executor
        self._jobs = jobs
        self._times = times
        self._on_done = on_done
        self._running: set[str] = set()
        self._failed: list[str] = []
        self._losses: Counter[str] = Counter()
        self._told = 0.0
        self._pace = executor.pace_of(on_done)
        # Those that need a machine to themselves come first: others would keep it from them.
        self._waiting = sorted(jobs, key=lambda name: not jobs[name].is_timed)

    def run(self) -> None:
        """Do all that is not saved; after a failure, no more than what is under way."""
        asked, self._waiting = self._waiting, []
        for name in asked:
            if self._executor.is_saved(self._jobs[name]):
                self._finish(name, replayed=True)
            else:
                self._waiting.append(name)
        if self._waiting and self._executor.saved_only:
            told = describe_job(self._jobs[self._waiting[0]].to_json())
            raise UserError(
                f"--saved-only: {self._executor.folder.path} has no result of a job that is needed "
                f"({told}); leave --saved-only out to make it"
            )
        if self._waiting:
            self._executor.take_folder()
        try:
            while (self._waiting and not self._failed) or self._running:
                self._start()
                self._tell()
                self._take(wait=True)
            if asked:  # all may be saved, and the progress that is there be another process's
                self._tell()
        except BaseException:
            try:
                self._take(wait=False)  # what has been done until now is not to be lost
            finally:
                self._waiting += self._running
                self._running.clear()
                self._tell(at_once=True)
            raise
        if self._failed:
            others = f"; so did {len(self._failed) - 1} more" if self._failed[1:] else ""
            raise UserError(f"{self._failed[0]}{others}; {AGAIN}")

    def _start(self) -> None:
        while self._waiting and not self._failed:
            job = self._jobs[self._waiting[0]]
            if not self._executor.has_room(job):
                return
            name = self._waiting.pop(0)
            self._running.add(name)
            self._executor.start(name, job)

    def _take(self, *, wait: bool) -> None:
        ends = {n: end for n, end in self._executor.ended(wait=wait) if n in self._running}
        done = {name: end for name, end in ends.items() if isinstance(end, Done)}
        self._pace.made += len(done)
        unsaved: UserError | None = None
        for name, end in done.items():  # before anything that may be interrupted
            try:
                self._executor.save(name, self._jobs[name], end)
            except UserError as error:  # which need not befall the others
                unsaved = error
            else:
                self._running.discard(name)
        if unsaved is not None:
            raise unsaved
        self._running -= ends.keys()
        for name, end in ends.items():
            if isinstance(end, Done):
                self._finish(name)
            else:
                self._miss(name, end)

    def _tell(self, *, at_once: bool = False) -> None:
        """Show how many jobs are under way; now and then or `at_once`, also write it to a file."""
        running, failed = len(self._running), len(self._failed)
        note = f"{running} running" if running else ""
        counted = self._on_done(0.0, f"{note}, {failed} failed".lstrip(", ") if failed else note)
        now, left = monotonic(), len(self._waiting) + running
        done = len(self._jobs) - left - failed
        if counted is not None:  # of a step that asks for its jobs in portions
            done = round(counted[0])
            left = max(round(counted[1]) - done - failed, left)
        is_over = not running and (not self._waiting or failed > 0)
        if now - self._told < TELL_SECONDS and not (is_over or at_once):
            return
        self._told = now
        counts = {
            "done": done,
            "running": running,
            "failed": failed,
            "left": left - running,
            "seconds_left": self._pace.seconds(left),
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        with suppress(OSError):  # a full disk ends what needs it, not a study for how far it is
            write_json(self._executor.folder.path / PROGRESS, counts)

    def _finish(self, name: str, *, replayed: bool = False) -> None:
        for _ in range(self._times[name]):
            self._on_done(replayed=replayed)

    def _miss(self, name: str, end: Failed | Lost) -> None:
        """Have a lost job done again, within a bound; the error of a job would only come again."""
        told = describe_job(self._jobs[name].to_json())
        if isinstance(end, Failed):
            self._executor.check_place()  # otherwise that is why
            self._failed.append(f"a job failed ({told}): {end.error}")
            return
        self._losses[name] += 1
        if self._losses[name] == MAX_LOSSES:
            self._failed.append(
                f"a job was given up ({told}): its process died {MAX_LOSSES} times, the last time "
                f"because {end.cause}; is there too little memory?"
            )
            return
        say(f"  {told}: {end.cause}; it is done again")
        self._waiting.insert(0, name)


def job_counts(out: Path) -> dict[str, Any]:
    """Return how the jobs of a study stand.

    Returns:
        `saved`: results in its folder; `step`: of the step that was last under way, how many jobs
        are done, running, failed and left, about how many seconds are left, and when that was.

    Raises:
        UserError: the folder holds no study.
    """
    if not is_study(out):
        raise UserError(f"{out} holds no study; give the --out of `accerl study run`")
    saved = sum(1 for _ in (out / RESULTS).glob("*.json"))
    named = ("done", "running", "failed", "left", "seconds_left", "at")
    step = read_record(out / PROGRESS, named) if (out / PROGRESS).is_file() else None
    record = out / "study.json"
    if step and record.is_file() and record.stat().st_mtime >= (out / PROGRESS).stat().st_mtime:
        step = None  # a contest that has its result, perhaps ended early
    if step and step["running"] and not is_driven(out):  # whoever ran them was killed
        step = {**step, "running": 0, "left": step["left"] + step["running"]}
    return {"saved": saved, "step": step}
