"""What a worker does with a job, in whatever process and on whatever machine."""

from __future__ import annotations

import json
import os
import pickle
import platform
import shutil
import tempfile
import traceback
from dataclasses import dataclass, replace
from functools import cache
from io import BytesIO
from pathlib import Path
from time import monotonic, process_time, sleep
from types import FunctionType
from typing import Any

from accerl.checkpoint import has_checkpoint
from accerl.errors import GameError, UserError
from accerl.precision import auto_means
from accerl.records import METRICS, SUMMARY, json_hash, versions
from accerl.runtime.machine.memory import release_memory
from accerl.training.run_folder import CHECKPOINT
from controller.bundle.meta import code_revision
from studies.jobs.executor import Job
from studies.study_folder import StudyFolder, find_folder, pack_records

SCRATCH = ".scratch"
"""in a study's folder: run directories in the making"""
JOB = "job.id"
"""in a run directory: the name of the job that made it"""
SEEN_SECONDS = 60.0
"""after which a folder that machines share shows what another has made: NFS keeps what it knew"""


@dataclass(frozen=True, kw_only=True)
class Done:
    """A job that was done."""

    result: dict[str, Any]
    """plain JSON"""
    cpu_seconds: float
    revision: str | None = None
    """of the code that did it, see `code_revision`; None: that of whoever asked for it"""
    versions: dict[str, str] | None = None
    """of the packages that did it; None: those of whoever asked for it"""
    records: dict[str, str] | None = None
    """of its run directory, where the worker does not see the study's folder"""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A job that raised an exception."""

    error: str
    """one line"""


@dataclass(frozen=True, kw_only=True)
class Lost:
    """A job whose process died."""

    cause: str


End = Done | Failed | Lost


def job_key(job: Job[Any], folder: Path) -> dict[str, Any]:
    """Return what tells a job from all others of a study, wherever its folder lies."""
    out = None if job.out is None else os.path.relpath(job.out, folder)
    return {**job.to_json(), "out": out}


class _JobPickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type | FunctionType) and obj.__module__ == "__main__":
            raise UserError(
                f"{obj.__qualname__} lies in the script that was started (__main__), which workers "
                "cannot import; move it into a module of its own"
            )
        return NotImplemented


def packed(job: Job[Any], folder: StudyFolder, precision: str) -> bytes:
    """Return a job as `do` takes it.

    Args:
        job: what is to be done.
        folder: of the study.
        precision: what auto means there, see `studies.jobs.decided`.

    Raises:
        UserError: it holds a class that other processes cannot find.
    """
    data = BytesIO()
    digest = json_hash(job_key(job, folder.path))
    _JobPickler(data, protocol=5).dump((job, digest, folder, precision))
    return data.getvalue()


def do(data: bytes) -> Done | Failed:
    """Do a job that was `packed`, on one thread: results depend on their number."""
    import torch

    torch.set_num_threads(1)
    revision, packages = _revision(), _versions()
    # What a job costs must not depend on who else uses the machine meanwhile.
    busy = process_time()
    try:
        job, digest, folder, precision = pickle.loads(data)
        # What is timed is this machine's own.
        with auto_means(None if job.is_timed else precision):
            result, records = _do(job, digest, folder)
    except Exception as error:  # any: it is the study that ends, not this process
        return Failed(error=_in_one_line(error))
    finally:
        busy = process_time() - busy
        release_memory()
    return Done(
        result=result, cpu_seconds=busy, revision=revision, versions=packages, records=records
    )


@cache
def _revision() -> str:
    """Return what this process says of its code: as it was when it did its first job."""
    return code_revision()


_versions = cache(versions)


def _do(
    job: Job[Any], digest: str, folder: StudyFolder
) -> tuple[dict[str, Any], dict[str, str] | None]:
    """Return a job's result, and the records that have to travel."""
    if json_hash(job_key(job, folder.path)) != digest:
        raise UserError("it would be another job here; give all machines the same AcceRL")
    if job.out is None:
        return job.run().to_json(), None
    is_seen = find_folder(folder.path) == folder
    if job.is_gone_on_from and not is_seen:
        raise UserError(
            f"{platform.node()} does not see {folder.path}, and other jobs go on from this run's "
            "checkpoint; give --out a folder that all machines share"
        )
    if is_seen:
        (folder.path / SCRATCH).mkdir(exist_ok=True)
    # A run directory is there once it is whole: a late duplicate must not write into it.
    place = folder.path / SCRATCH if is_seen else None
    with tempfile.TemporaryDirectory(prefix=f"{digest}-", dir=place) as scratch:
        run = Path(scratch) / "run"
        try:
            result = replace(job, out=run).run().to_json()
        except GameError as error:
            raise _with_traceback(error, folder.path if is_seen else None) from error
        (run / JOB).write_text(digest)
        if not is_seen:
            return result, pack_records(run)
        _settle(run, job, digest)
    return result, None


def _with_traceback(error: GameError, place: Path | None) -> GameError:
    """Return an error whose traceback, which lies in a folder that goes now, is in the study's."""
    from accerl.training.run import TRACEBACK

    said = error.__cause__ if isinstance(error.__cause__, GameError) else error
    if place is None or not error.details:
        return GameError(str(said), error.details)
    (place / TRACEBACK).write_text(error.details)
    return GameError(f"{said}; its traceback is in {place / TRACEBACK}", error.details, saved=True)


def is_run_of(out: Path, digest: str) -> bool:
    """Whether a run directory is whole, and of the job of that name: not of an older one's."""
    try:
        if (out / JOB).read_text() != digest:
            return False
        last = (out / METRICS).read_text().rstrip().rpartition("\n")[2]
        seconds = json.loads((out / SUMMARY).read_text())["seconds"]
        return json.loads(last)["total_seconds"] >= seconds * (1.0 - 1e-6)
    except (OSError, ValueError, KeyError, TypeError):
        return False  # a damaged one is as good as none


def has_run(job: Job[Any], digest: str) -> bool:
    """Whether a job's run directory is there with all that is asked of it, or it writes none."""
    if job.out is None:
        return True
    if not is_run_of(job.out, digest):
        return False
    return not job.is_gone_on_from or has_checkpoint(job.out / CHECKPOINT)


def sees_run(job: Job[Any], digest: str) -> bool:
    """Whether `has_run`, perhaps only when the folder shows what another machine has made there."""
    until = monotonic() + SEEN_SECONDS
    while not has_run(job, digest):
        if job.out is None or monotonic() > until:
            return False
        if job.out.parent.is_dir():
            os.listdir(job.out.parent)  # has the file system look again
        sleep(0.5)
    return True


def _settle(run: Path, job: Job[Any], digest: str) -> None:
    """Give a run directory its place, unless a duplicate was faster."""
    if job.out is None or has_run(job, digest):
        return
    shutil.rmtree(job.out, ignore_errors=True)
    job.out.parent.mkdir(parents=True, exist_ok=True)
    try:
        run.rename(job.out)
    except OSError:
        if not has_run(job, digest):
            raise


def _in_one_line(error: Exception) -> str:
    message = " ".join(str(error).split())
    if isinstance(error, UserError):
        return message
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {message}{place}"
