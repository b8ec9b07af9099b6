"""What all executors share: results are saved as they come, lost jobs are done again."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from accerl.errors import UserError
from accerl.precision import auto_means
from accerl.records import json_hash, read_json, versions
from analysis.formats import made_by
from controller.bundle.meta import code_revision
from studies.jobs.cache import ResultCache
from studies.jobs.decided import decided_precision
from studies.jobs.executor import Job, Outcome, R, revisions
from studies.jobs.round import RESULTS, Pace, Round
from studies.jobs.work import SCRATCH, Done, End, has_run, job_key, sees_run
from studies.progress import Advance, say, silent
from studies.study_folder import (
    driven,
    find_folder,
    make_folder,
    unpack_records,
)


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
        self._pace = Pace(silent)

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
        Round(self, dict(zip(names, jobs, strict=True)), Counter(names), on_done).run()
        outcomes = [self._outcome(*pair) for pair in zip(names, jobs, strict=True)]
        self._tell_others(outcomes)
        return outcomes

    def pace_of(self, on_done: Advance) -> Pace:
        """Return how fast jobs of the step are made that shows its progress so."""
        if self._pace.on_done is not on_done:
            self._pace = Pace(on_done)
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
            known = {"git_revision": by, "versions": done.versions or self._versions}
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
