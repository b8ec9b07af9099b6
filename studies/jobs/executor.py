"""Executors have jobs done; callers know this module, not the processes behind it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from accerl.errors import UserError

SAME_VERSION = "start workers with the AcceRL that the study was started with"
JOB_TYPES = {
    "strategy": ("studies.jobs.inner", "StrategyJob"),
    "rollout": ("studies.jobs.inner", "RolloutJob"),
    "static": ("studies.oracle_gap.branching", "StaticJob"),
    "two-phase": ("studies.oracle_gap.branching", "TwoPhaseJob"),
    "oracle": ("studies.oracle_gap.branching", "OracleJob"),
}
"""kind -> module and class: a storage names no code"""


class Result(Protocol):
    """What a job returns."""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        ...


R = TypeVar("R", bound=Result)


@dataclass(frozen=True, kw_only=True)
class Job(ABC, Generic[R]):
    """Something to do in any process; on the virtual clock its result depends on itself alone."""

    kind: ClassVar[str]
    out: Path | None = None
    """the run directory that it writes"""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return the job as plain JSON, `kind` and `out` included."""

    @classmethod
    @abstractmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` returned.

        Raises:
            UserError: a preset is another one here.
        """

    @abstractmethod
    def run(self) -> R:
        """Do the job here."""

    @classmethod
    @abstractmethod
    def read_result(cls, data: Mapping[str, Any]) -> R:
        """Read what the result's `to_json` returned."""


@dataclass(frozen=True)
class Outcome(Generic[R]):
    """The result of a job, and what it cost."""

    key: str
    """the same for equal jobs"""
    result: R
    cpu_seconds: float


class Executor(Protocol):
    """Has jobs done, somewhere; what was done is never done again."""

    def map(self, jobs: Sequence[Job[R]], on_done: Callable[[], object] = ...) -> list[Outcome[R]]:
        """Return the outcome of every job, in order; `on_done` is called for each.

        Raises:
            UserError: a job failed time and again. What was done is saved.
        """
        ...

    def close(self) -> None:
        """End everything at once; what was under way is done again next time."""
        ...


def open_executor(
    out: Path, workers: int, *, study: str, storage: str = ""
) -> AbstractContextManager[Executor]:
    """Return an executor that is closed at the end of a ``with`` block.

    Args:
        out: the study's folder; jobs write their run directories below it.
        workers: processes of its own; they start with the first job that is not done yet.
        study: name under which workers elsewhere find the jobs.
        storage: see `studies.jobs.storage`; by default a journal in the folder.
    """
    from studies.jobs.queue_executor import QueueExecutor

    return QueueExecutor(out, workers, study=study, storage=storage)


def check_workers(workers: int, storage: str) -> None:
    """Refuse, before anything is done, what `open_executor` could not work with.

    Raises:
        UserError: a number of processes below zero, or a storage that cannot be opened.
    """
    from studies.jobs.storage import open_storage

    if workers < 0:
        raise UserError(
            f"--workers must be at least 0 (all is left to workers elsewhere), got {workers}"
        )
    if storage:
        open_storage(storage)


def read_job(data: Mapping[str, Any]) -> Job[Any]:
    """Return the job that `to_json` wrote.

    Raises:
        UserError: this version does not know it, or would do it otherwise.
    """
    if data["kind"] not in JOB_TYPES:
        raise UserError(f"{data['kind']!r} jobs are unknown here; {SAME_VERSION}")
    module, name = JOB_TYPES[data["kind"]]
    return getattr(import_module(module), name).from_json(data)


def describe_job(data: Mapping[str, Any]) -> str:
    """Return what people call a job."""
    strategy = data.get("strategy", {}).get("label")
    values = {**data, **data.get("instance", {}), "seed": data.get("seed"), "strategy": strategy}
    names = ("game", "profile", "strategy", "seed", "action_seed")
    found = [f"{name} {values[name]}" for name in names if values.get(name) is not None]
    return ", ".join([data["kind"], *found])
