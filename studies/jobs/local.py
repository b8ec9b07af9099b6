"""An executor on processes of this machine."""

from __future__ import annotations

import os
import signal
import threading
from concurrent import futures
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from pathlib import Path
from time import sleep
from typing import Any

from accerl.runtime.machine.cores import usable_cores
from accerl.runtime.machine.forks import call_in, for_torch, surroundings
from accerl.runtime.machine.memory import available_bytes
from accerl.runtime.process.supervise import (
    hiding_main_module,
    ignoring_interrupts,
    leave_interrupts,
    start_tracker,
)
from studies.jobs.cached import CachedExecutor
from studies.jobs.executor import Job
from studies.jobs.work import Done, End, Failed, Lost, do, packed

JOB_BYTES = 2**30
"""memory that a job may need; torch and ONNX Runtime alone take 0.4 GB"""

LOOK_SECONDS = 5.0
"""after which it is said how jobs stand, though none has ended"""

TIDY_SECONDS = 20.0
"""that a worker's job has to tidy up when its study has ended"""


def default_workers() -> int:
    """Return how many jobs this machine has cores and memory for, at least one."""
    fitting = available_bytes() // JOB_BYTES
    return max(1, min(usable_cores(), fitting))


class LocalExecutor(CachedExecutor):
    """Runs jobs in processes of their own; arguments are those of `open_executor`.

    Every process is a pool of its own: one that is killed takes no other job with it, and it is
    clear which job it had.
    """

    def __init__(self, out: Path, workers: int, *, saved_only: bool = False) -> None:
        super().__init__(out, saved_only=saved_only)
        self.workers = workers or default_workers()
        start_tracker()  # before the pools do, which know nothing of the end of a terminal
        self._idle: list[ProcessPoolExecutor] = []
        self._busy: dict[Future[Done | Failed], tuple[str, bool, ProcessPoolExecutor]] = {}
        # Workers end when this closes, as it also does when this process is killed.
        self._lifeline, self._hold = for_torch().Pipe(duplex=False)

    def has_room(self, job: Job[Any]) -> bool:
        """Whether a core is free; of timed work, whether all are."""
        if job.is_timed:
            return not self._busy
        is_timed = any(is_timed for _, is_timed, _ in self._busy.values())
        return len(self._busy) < self.workers and not is_timed

    def start(self, name: str, job: Job[Any]) -> None:
        """Start a job in a process that is idle, or in a new one."""
        data = packed(job, self.folder, self.precision)
        # What is timed gets a fresh process, which it leaves no memory behind in.
        pool = self._idle.pop() if self._idle and not job.is_timed else self._new_pool()
        with ignoring_interrupts(), hiding_main_module():
            try:
                future = pool.submit(_do, data)
            except BrokenProcessPool:  # it was killed while it had nothing to do
                pool.shutdown()
                pool = self._new_pool()
                future = pool.submit(_do, data)
            self._busy[future] = (name, job.is_timed, pool)

    def ended(self, *, wait: bool) -> list[tuple[str, End]]:
        """Return what came of the jobs that have ended; wait for one, but not for long."""
        timeout = LOOK_SECONDS if wait else 0.0
        found, _ = futures.wait(self._busy, timeout, return_when=futures.FIRST_COMPLETED)
        return [self._end(future) for future in found]

    def _end(self, future: Future[Done | Failed]) -> tuple[str, End]:
        name, is_timed, pool = self._busy.pop(future)
        try:
            end = future.result()
        except BrokenProcessPool:
            pool.shutdown()
            return name, Lost(cause="its process was killed")
        if is_timed:
            pool.shutdown()
        else:
            self._idle.append(pool)
        return name, end

    def _new_pool(self) -> ProcessPoolExecutor:
        context = for_torch()
        arguments = surroundings(context), _end_with, self._lifeline
        return ProcessPoolExecutor(1, context, call_in, arguments)

    def close(self) -> None:
        """End the processes at once; what they were doing is done again next time."""
        self._hold.close()
        self._lifeline.close()
        for pool in (*self._idle, *(pool for _, _, pool in self._busy.values())):
            pool.shutdown(cancel_futures=True)
        self._idle.clear()
        self._busy.clear()


class _StudyEndsError(SystemExit):
    """The study has ended in mid-job."""


_working = False
"""whether this process does a job"""


def _do(data: bytes) -> Done | Failed:
    """Do a job; end this process if the study ends meanwhile, once the job has tidied up."""
    global _working
    _working = True
    try:
        return do(data)
    except _StudyEndsError:
        os._exit(1)
    except SystemExit as error:
        return Failed(error=f"its own code ended the program: sys.exit({error.code!r})")
    finally:
        _working = False


def _end_with(lifeline: Connection) -> None:
    """Have this process end, in mid-job too, when nobody holds the other end of a pipe.

    A job is left as by an exception, so that it gives back its shared memory and its processes.
    """
    leave_interrupts()
    signal.signal(signal.SIGTERM, _leave)

    def watch() -> None:
        lifeline.poll(None)
        os.kill(os.getpid(), signal.SIGTERM)
        sleep(TIDY_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _leave(*_: object) -> None:
    if not _working:  # nothing is to be tidied up, and Python may be about to end itself
        os._exit(1)
    raise _StudyEndsError
