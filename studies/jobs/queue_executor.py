"""An executor on a queue of jobs: its own processes, and workers elsewhere on the same storage."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from multiprocessing import connection
from pathlib import Path
from time import monotonic
from typing import Any

from accerl.errors import UserError
from accerl.records import SUMMARY
from accerl.runtime.process.messages import News
from accerl.runtime.process.supervise import Supervisor, Worker
from accerl.runtime.process.wire import PeerGoneError
from studies.jobs.executor import Job, Outcome, R, describe_job
from studies.jobs.serve import local_worker
from studies.jobs.storage import JOURNAL, open_storage, shown, storage_errors
from studies.jobs.store import JobStore
from studies.progress import console
from studies.study_folder import make_folder, unpack_records

LOST_SECONDS = 2.0
"""for the process that ended an attempt at a job to put it back, before it counts as lost"""


class QueueExecutor:
    """Implements `studies.jobs.executor.Executor`; arguments are those of `open_executor`."""

    def __init__(self, out: Path, workers: int, *, study: str, storage: str = "") -> None:
        self._folder = make_folder(out)
        self._where = storage or str(out / JOURNAL)
        with storage_errors(self._where):
            self._store = JobStore(open_storage(self._where), study)
        self._supervisor = Supervisor(advice="start the same command again to go on")
        arguments = (self._where, study, self._folder)
        self._workers = [
            Worker("worker", index, local_worker, lambda _: arguments) for index in range(workers)
        ]
        self._are_started = False
        self._lost: dict[str, float] = {}
        if storage or workers == 0:
            place = f"--storage '{shown(storage)}'" if storage else f"--out {out}"
            command = f"accerl study worker --study {study} {place}"
            console.print(f"More workers: {command}", markup=False, soft_wrap=True)

    def map(
        self, jobs: Sequence[Job[R]], on_done: Callable[[], object] = lambda: None
    ) -> list[Outcome[R]]:
        """Return the outcome of every job, in order; `on_done` is called for each.

        Raises:
            UserError: a job failed time and again, too many processes died, or the storage has
                stopped to answer. What was done is saved.
        """
        with storage_errors(self._where):
            stored = [self._stored(job) for job in jobs]
            keys = self._store.add(stored, is_whole=self._has_records)
            asked, left = dict(zip(keys, stored, strict=True)), Counter(keys)
            if any(self._store.state(key) != "done" for key in left):
                self._wake_workers()
            while True:
                for key in [key for key in left if self._store.state(key) == "done"]:
                    self._save_records(key, asked[key])
                    for _ in range(left.pop(key)):
                        on_done()
                if not left:
                    return [self._outcome(*pair) for pair in zip(keys, jobs, strict=True)]
                self._check_on({key: asked[key] for key in left})
                self._watch_workers()
                self._store.look()
                self._store.reclaim()

    def _outcome(self, key: str, job: Job[R]) -> Outcome[R]:
        result = job.read_result(self._store.result(key))
        return Outcome(key, result, self._store.seconds(key))

    def _stored(self, job: Job[Any]) -> dict[str, Any]:
        """Return a job as any worker can do it: its folder is relative to the study's."""
        data = job.to_json()
        if job.out is None:
            return data
        out = os.path.relpath(job.out, self._folder.path)
        return {**data, "out": out, "folder": self._folder.mark}

    def _run_folder(self, job: dict[str, Any]) -> Path | None:
        return None if job.get("out") is None else self._folder.path / job["out"]

    def _has_records(self, key: str, job: dict[str, Any]) -> bool:
        """Whether a job that is done has left its run directory, or can be given it now."""
        run = self._run_folder(job)
        return run is None or (run / SUMMARY).is_file() or self._store.records(key) is not None

    def _save_records(self, key: str, job: dict[str, Any]) -> None:
        """Write the run directory of a job that was done where the folder cannot be seen."""
        run, records = self._run_folder(job), self._store.records(key)
        if run is not None and records is not None and not (run / SUMMARY).is_file():
            unpack_records(records, run)

    def _wake_workers(self) -> None:
        """Tell the workers that there are jobs; start them if they are not."""
        self._store.is_finished = False
        for worker in self._workers:
            if self._are_started:
                worker.send(News())
            else:
                self._supervisor.start(worker)
        self._are_started = True

    def _check_on(self, left: dict[str, dict[str, Any]]) -> None:
        """See to it that all that is left to do can be done."""
        states = {key: self._store.state(key) for key in left}
        for key, state in states.items():
            if state == "failed":
                name = describe_job(left[key])
                raise UserError(
                    f"a job was given up ({name}): {self._store.error(key)}; all that was done is "
                    "saved: start the same command again to try it again"
                )
        now = monotonic()
        lost = [key for key, state in states.items() if state == "lost"]
        self._lost = {key: self._lost.get(key, now) for key in lost}
        late = [key for key, since in self._lost.items() if now - since > LOST_SECONDS]
        if late:
            self._store.add([left[key] for key in late])

    def _watch_workers(self) -> None:
        """Wait until a worker has something to say, or it is time to look at the storage."""
        pipes = [worker.channel.pipe for worker in self._workers]
        ready = connection.wait(pipes, self._store.patience_seconds)
        for worker, pipe in zip(self._workers, pipes, strict=True):
            if self._is_gone(worker, pipe in ready):
                self._supervisor.replace(
                    worker, seconds=monotonic(), recovered="what it was doing is done again"
                )

    def _is_gone(self, worker: Worker, has_news: bool) -> bool:
        try:
            if has_news:
                worker.receive()
        except PeerGoneError:
            return True
        return self._supervisor.hangs(worker)

    def close(self) -> None:
        """End the processes at once; what they were doing is done again next time."""
        for worker in self._workers:
            worker.end(patience_seconds=0.0)

    def __enter__(self) -> QueueExecutor:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()
        if kind is None:
            with storage_errors(self._where):
                self._store.is_finished = True
