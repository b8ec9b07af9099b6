"""What a worker does: claim a job, do it, keep its result, until there is nothing more to do."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import torch
from optuna.exceptions import StorageInternalError

from accerl.errors import UserError
from accerl.runtime.process.messages import News, Ready
from accerl.runtime.process.wire import Channel
from studies.jobs.executor import describe_job, read_job
from studies.jobs.storage import open_storage, storage_errors
from studies.jobs.store import Claim, JobStore
from studies.study_folder import StudyFolder, pack_records

BEAT_SECONDS = 15.0


class Stop:
    """A wish to stop, by Ctrl-C or SIGTERM: it interrupts jobs, and nothing between them."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self._in_job = False

    def ask(self, *_: object) -> None:
        """Handle a signal."""
        self.asked.set()
        if self._in_job:
            # Libraries may swallow it, as in mid-import: ask again until the job has ended.
            signal.setitimer(signal.ITIMER_REAL, 1.0)
            raise KeyboardInterrupt

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Let what is done meanwhile be interrupted."""
        self._in_job = True
        try:
            if self.asked.is_set():
                raise KeyboardInterrupt
            yield
        finally:
            self._in_job = False

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Be asked by signals meanwhile."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
        handlers = {number: signal.signal(number, self.ask) for number in numbers}
        try:
            yield
        finally:
            if self.asked.is_set():
                signal.setitimer(signal.ITIMER_REAL, 0.0)
            for number, handler in handlers.items():
                signal.signal(number, handler)


def do_one(store: JobStore, folder: StudyFolder | None, stop: Stop) -> str | None:
    """Do one job that is waiting; return what came of it, in words, or None if there was none.

    An exception of the job is noted in the storage. If it is interrupted the job is given back.

    Args:
        store: the jobs.
        folder: the study's, if this machine sees it: run directories are written there. Otherwise
            their records travel through the storage.
        stop: what may interrupt it.
    """
    claim = store.claim()
    if claim is None:
        return None
    name, started, busy = describe_job(claim.job), perf_counter(), process_time()
    try:
        with _beating(store, claim), stop.interrupting():
            result, records = _do(claim.job, folder)
    except (KeyboardInterrupt, Exception) as error:  # any: the other jobs are to be done
        if stop.asked.is_set():  # whatever a library has made of the interruption
            store.give_back(claim)
            return f"gave back {name}"
        store.fail(claim, _in_one_line(error), traceback.format_exc())
        return f"failed: {name}: {_in_one_line(error)}"
    # What a job costs must not depend on who else uses the machine meanwhile.
    store.finish(claim, result, process_time() - busy, records)
    return f"did {name} in {perf_counter() - started:.1f} s"


def serve(
    store: JobStore, folder: StudyFolder | None, *, once: bool, on_done: Callable[[str], None]
) -> None:
    """Do jobs until the study is finished, or Ctrl-C or SIGTERM; with `once`, until none waits."""
    torch.set_num_threads(1)  # as results depend on the number
    stop = Stop()
    with stop.on_signals():
        while not stop.asked.is_set():
            told = do_one(store, folder, stop)
            if told is not None:
                on_done(told)
            elif once or store.is_finished:
                return
            else:
                store.reclaim()
                stop.asked.wait(store.patience_seconds)


def local_worker(channel: Channel, where: str, study: str, folder: StudyFolder) -> None:
    """Do jobs for the process that started this one: a message says that there are new ones.

    It says so after each, and ends with its parent.
    """
    torch.set_num_threads(1)  # as results depend on the number
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with storage_errors(where):
        store = JobStore(open_storage(where), study)
        channel.send(Ready())
        while True:
            if do_one(store, folder, Stop()) is not None:
                channel.send(News())
            else:
                channel.pipe.poll(store.patience_seconds)
            while channel.pipe.poll():
                channel.receive()  # it only wakes


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)  # in mid-job too: it is put back when the study goes on


def _do(job: dict[str, Any], folder: StudyFolder | None) -> tuple[Any, dict[str, str] | None]:
    """Return a job's result, and the records that have to travel."""
    typed = read_job(job)
    if typed.out is None:
        return typed.run().to_json(), None
    if folder is not None and folder.mark == job["folder"]:
        return replace(typed, out=folder.path / typed.out).run().to_json(), None
    with tempfile.TemporaryDirectory(prefix="accerl-") as scratch:
        run = Path(scratch) / "run"
        return replace(typed, out=run).run().to_json(), pack_records(run)


@contextmanager
def _beating(store: JobStore, claim: Claim) -> Iterator[None]:
    """Tell other machines meanwhile, from a thread, that this process lives."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(BEAT_SECONDS):
            # A storage that does not answer now may do so at the next beat.
            with suppress(StorageInternalError):
                if not store.beat(claim):
                    return

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _in_one_line(error: BaseException) -> str:
    message = " ".join(str(error).split())
    if isinstance(error, UserError):
        return message
    place = traceback.extract_tb(sys.exc_info()[2])[-1]
    return f"{type(error).__name__}: {message} ({Path(place.filename).name}, line {place.lineno})"
