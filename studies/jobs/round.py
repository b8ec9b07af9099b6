"""The jobs of one call: started, done again where they are lost, saved; and how they stand."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from accerl.errors import UserError
from accerl.records import write_json
from analysis.records.read import read_optional, shaped
from studies.jobs.executor import Job, describe_job
from studies.jobs.work import Done, Failed, Lost
from studies.progress import Advance, duration, say
from studies.study_folder import is_driven, is_study

if TYPE_CHECKING:
    from studies.jobs.cached import CachedExecutor

RESULTS = "jobs"
"""in a study's folder: a file for the result of every job"""
MAX_LOSSES = 3
"""deaths of its processes after which a job is given up: it may need more memory than there is"""
PROGRESS = "progress.json"
"""in a study's folder: how many jobs of the present step are done, running, failed and left"""
STEP = {
    **dict.fromkeys(("done", "running", "failed", "left"), int),
    **{"seconds_left": (float, None), "at": str},
}
"""what it holds"""
TELL_SECONDS = 1.0
"""between two times that it is written"""
LONG_SECONDS = 60.0
"""after which people see for how long a job has been under way"""
AGAIN = "finished jobs are saved: start the same command again to go on"


class Pace:
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


class Round:
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
        self._running: dict[str, float] = {}
        """by name of the job: when it was started"""
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
            self._running[name] = monotonic()
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
                self._running.pop(name, None)
        if unsaved is not None:
            raise unsaved
        for name, end in ends.items():
            self._running.pop(name, None)
            if isinstance(end, Done):
                self._finish(name)
            else:
                self._miss(name, end)

    def _tell(self, *, at_once: bool = False) -> None:
        """Show how many jobs are under way; now and then or `at_once`, also write it to a file."""
        running, failed = len(self._running), len(self._failed)
        counted = self._on_done(0.0, self._note())
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

    def _note(self) -> str:
        """Return what is under way: a job that hangs shows by how long it takes."""
        running, failed = len(self._running), len(self._failed)
        said = [f"{running} running"] if running else []
        longest = monotonic() - min(self._running.values(), default=monotonic())
        if longest >= LONG_SECONDS:
            said += [f"{'one ' if running > 1 else ''}for {duration(longest)} now"]
        return ", ".join([*said, f"{failed} failed"] if failed else said)

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
        UserError: the folder holds no study, or what it says of the step is damaged.
    """
    if not out.is_dir():
        raise UserError(f"{out} does not exist; give the --out of `accerl study run`")
    if not is_study(out):
        raise UserError(f"{out} holds no study; give the --out of `accerl study run`")
    saved = sum(1 for _ in (out / RESULTS).glob("*.json"))
    step = shaped(out / PROGRESS, read_optional, STEP) or None
    record = out / "study.json"
    if step and record.is_file() and record.stat().st_mtime >= (out / PROGRESS).stat().st_mtime:
        step = None  # a contest that has its result, perhaps ended early
    if step and step["running"] and not is_driven(out):  # whoever ran them was killed
        step = {**step, "running": 0, "left": step["left"] + step["running"]}
    return {"saved": saved, "step": step}
