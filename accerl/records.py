"""The run directory: config.json, metrics.jsonl, summary.json. The source of truth of every run.

W&B and the HTML report are views of these files; nothing is logged beside them that is not here.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import metadata
from itertools import islice
from pathlib import Path
from time import sleep
from typing import IO, Any

import numpy as np

from accerl.errors import UserError, first_line
from accerl.runtime.run import IntervalReport

METRICS = "metrics.jsonl"
CONFIG = "config.json"
SUMMARY = "summary.json"
CPU_INFO = Path("/proc/cpuinfo")
LOOK_SECONDS = 0.1
"""for which at most a lock is held to see whether somebody holds it"""
_LIBRARIES = ("torch", "onnxruntime", "onnx", "gymnasium", "ale-py", "numpy", "optuna")


def versions() -> dict[str, str]:
    """Return the versions of what a figure depends on, where it is installed."""
    found = {"python": platform.python_version()}
    for name in ("accerl-control", *_LIBRARIES):
        with suppress(metadata.PackageNotFoundError):  # a run needs no Optuna
            found[name.removesuffix("-control")] = metadata.version(name)
    return found


def fingerprint() -> dict[str, Any]:
    """Return what seconds depend on: two machines with equal fingerprints may be compared."""
    model, flags = _processor()
    wanted = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8")
    wanted += ("asimddp", "i8mm", "bf16", "sve", "sve2")  # Arm's
    data = {
        "cpu": model,
        "cores": os.cpu_count() or 1,
        "features": [name for name in wanted if name in flags],
        "system": platform.system(),
    }
    return {**data, "id": json_hash(data)[:12]}


def _processor() -> tuple[str, list[str]]:
    """Return what the processor is, and what it can do; Arm's have numbers instead of a name."""
    model, info = platform.processor() or platform.machine(), dict[str, str]()
    if sys.platform == "linux":
        first = CPU_INFO.read_text().partition("\n\n")[0]  # the others are as it is
        pairs = (line.partition(":") for line in first.splitlines())
        info = {name.strip(): value.strip() for name, _, value in pairs}
    numbers = [info[name] for name in ("CPU implementer", "CPU part") if name in info]
    model = info.get("model name", " ".join([model, *numbers]))
    return model, info.get("flags", info.get("Features", "")).split()


def json_hash(data: Any) -> str:
    """Return the SHA-256 of `data` as canonical JSON."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def write_json(path: Path, data: Any, *, indent: int | None = 2) -> None:
    """Write `data` atomically, see `write_bytes`; numbers of NumPy are taken as Python's.

    Without an indent nothing stands between its parts.
    """
    separators = (",", ":") if indent is None else None
    text = json.dumps(
        data, indent=indent, separators=separators, sort_keys=True, default=_as_python
    )
    write_bytes(path, f"{text}\n".encode())


def plain(data: Any) -> Any:
    """Return `data` as it is read from JSON: tuples are lists, numbers of NumPy are Python's."""
    return json.loads(json.dumps(data, default=_as_python))


def _as_python(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be recorded as JSON: {value!r}")


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically: readers see the old file or the new one, never a part.

    A link stays one: what it leads to is written.

    Raises:
        UserError: there is a device, or a pipe.
        OSError: the disk refuses, or there is a folder.
    """
    path = path.resolve()
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise UserError(f"{path} is no file that can be replaced; give another name")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.errno is not None and error.filename is None:  # as of a full disk
            raise type(error)(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def is_draft(path: Path) -> bool:
    """Return whether a file is what `write_bytes` left whose process was killed meanwhile."""
    return path.name.startswith(".") and path.suffix == ".tmp"


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        UserError: the file is missing or is not JSON.
    """
    try:
        return json.loads(path.read_text())
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist; is its name spelled right?") from error
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(
            f"{path} is not valid JSON: {first_line(error)}; was it cut off or edited?"
        ) from error


def make_out_dir(path: Path) -> Path:
    """Create an output folder and prove that it can be written.

    Raises:
        UserError: it cannot be created or written.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".write-test-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        for folder in missing:  # innermost first; leave nothing half-made behind
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        reason = error.strerror or error
        raise UserError(
            f"cannot write to {path}: {reason}; choose a folder that can be written"
        ) from error
    return path


def check_new_dir(path: Path) -> None:
    """Refuse a place that holds anything already, so that nothing there is lost.

    Raises:
        UserError: it is a file, or a folder that is not empty.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{path} already exists; give --out a new folder")


@contextmanager
def disk_errors(file: Path) -> Iterator[None]:
    """Say in one line that the disk refuses a file of a run.

    Raises:
        UserError: it does.
    """
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write {file}: {error.strerror or error}; free some space, then --resume goes "
            "on from the last checkpoint, if there is one"
        ) from error


class RunWriter:
    """Writes one run directory; every line has left this process before `append` returns.

    A run that is resumed is left as it is until `go_on`.

    Raises:
        UserError: the folder cannot be written, or the disk refuses later what is to be added.
    """

    def __init__(self, path: Path, config: Mapping[str, Any], *, resume: bool = False) -> None:
        self.path = make_out_dir(path)
        self._config = dict(config)
        if not resume:
            (self.path / METRICS).unlink(missing_ok=True)
            (self.path / SUMMARY).unlink(missing_ok=True)
            with disk_errors(self.path / CONFIG):
                write_json(self.path / CONFIG, self._config)
        self._file = (self.path / METRICS).open("a")

    def append(self, report: IntervalReport) -> None:
        """Add one interval to metrics.jsonl."""
        line = json.dumps(report.to_json(), sort_keys=True, default=_as_python)
        if not _is_at(self.path / METRICS, self._file):
            raise UserError(f"{self.path} was moved or deleted meanwhile; the run ends")
        with disk_errors(self.path / METRICS):
            self._file.write(f"{line}\n")
            self._file.flush()

    def sync(self) -> None:
        """Have all that was added survive a power cut, as a checkpoint that knows of it does."""
        with disk_errors(self.path / METRICS):
            os.fsync(self._file.fileno())

    def recorded(self, intervals: int) -> list[IntervalReport]:
        """Return the first `intervals` of a run: what a checkpoint had seen when it was taken.

        Raises:
            UserError: there are fewer.
        """
        whole = len(self._whole_lines(intervals))
        if whole < intervals:
            raise UserError(
                f"{self.path / METRICS} has lost intervals that the checkpoint has seen "
                f"({whole} of {intervals}); start the run anew with another --out"
            )
        return list(islice(read_metrics(self.path), intervals))

    def go_on(self, intervals: int, *, finished: bool = False) -> None:
        """Go on behind the first `intervals`, with a configuration that may have become longer.

        A summary of what the run had reached stays only if nothing is left to do.
        """
        self.close()
        if not finished:
            (self.path / SUMMARY).unlink(missing_ok=True)
        kept = "".join(self._whole_lines(intervals))
        with disk_errors(self.path / METRICS):
            write_bytes(self.path / METRICS, kept.encode())
        with disk_errors(self.path / CONFIG):
            write_json(self.path / CONFIG, self._config)
        self._file = (self.path / METRICS).open("a")

    def _whole_lines(self, count: int) -> list[str]:
        lines = (self.path / METRICS).read_text(errors="replace").splitlines(keepends=True)[:count]
        return [line for line in lines if line.endswith("\n")]

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write summary.json and close metrics.jsonl."""
        with disk_errors(self.path / SUMMARY):
            write_json(self.path / SUMMARY, dict(summary))
        self.close()

    def close(self) -> None:
        """Close metrics.jsonl; safe to call twice."""
        with disk_errors(self.path / METRICS):
            self._file.close()


def not_a_run(path: Path, lacking: str) -> str:
    """Return what to say of a folder that should be a run directory and lacks a file."""
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        return f"{path} {what}; give the folder of a run"
    return (
        f"{path} is not a run directory (no {lacking}); give the --out of `accerl train`, or of a "
        "study that has finished"
    )


def read_metrics(path: Path) -> Iterator[IntervalReport]:
    """Yield the intervals of a run directory; a last line cut off by a crash is dropped.

    Raises:
        UserError: there is no metrics.jsonl, or a line inside it is damaged.
    """
    file = path / METRICS
    if not file.is_file():
        raise UserError(not_a_run(path, METRICS))
    lines = file.read_text(errors="replace").splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        try:
            yield IntervalReport.from_json(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if not line.endswith("\n"):
                return
            raise UserError(f"{file}, line {number} is damaged: {first_line(error)}") from error


def try_lock(file: IO[str], *, shared: bool = False) -> bool:
    """Take the lock that an open file stands for; return whether nobody else holds it.

    Raises:
        UserError: the file system has no locks.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise UserError(
            f"cannot lock {file.name}: {error.strerror or error}; choose a folder on a file system "
            "that has locks, such as a local disk"
        ) from error
    return True


@contextmanager
def locked(path: Path, taken: str) -> Iterator[None]:
    """Hold the lock that a file stands for; the kernel lets go of it when this process dies.

    Raises:
        UserError: another one holds it; says `taken`. Or the file system has no locks.
    """
    while True:
        with path.open("w") as file:
            if not try_lock(file):
                sleep(LOOK_SECONDS)  # somebody may just have looked whether it is held
                if not try_lock(file):
                    raise UserError(taken)
            if not _is_at(path, file):  # who held it removed it after it was opened here
                continue
            yield
            return


def _is_at(path: Path, file: IO[str]) -> bool:
    """Whether an open file is still what a path leads to."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
