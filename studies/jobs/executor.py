"""Executors run jobs; callers know this module, not the processes behind it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from accerl.errors import UserError
from accerl.precision import auto_means, choose_precision
from accerl.spec import CompressionSpec
from studies.progress import Advance, silent

if TYPE_CHECKING:
    from accerl.config import RunConfig  # brings torch, which jobs of other kinds need not import


class Result(Protocol):
    """What a job returns."""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        ...


R = TypeVar("R", bound=Result)


@dataclass(frozen=True, kw_only=True)
class Job(ABC, Generic[R]):
    """Something to do in any process; on the virtual clock its result depends on itself alone.

    It travels as a pickle, so its class lies in a module that can be imported.
    """

    kind: ClassVar[str]
    is_timed: ClassVar[bool] = False
    """whether it measures real seconds: then it has a whole machine to itself"""
    is_gone_on_from: ClassVar[bool] = False
    """whether other jobs need the checkpoint in its run directory"""
    out: Path | None = None
    """the run directory that it writes, in the study's folder"""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return as plain JSON all that the result depends on: equal jobs are done once."""

    @abstractmethod
    def run(self) -> R:
        """Do the job here."""

    @classmethod
    @abstractmethod
    def read_result(cls, data: Mapping[str, Any]) -> R:
        """Read what the result's `to_json` returned."""


def config_key(config: RunConfig) -> dict[str, Any]:
    """Return what a run's result depends on of its configuration, as part of a job's key.

    What is left to the machine is decided here: learning in bfloat16 is another run. On the virtual
    clock the study's folder may have decided it.
    """
    wanted = config.learner.precision, config.compression.distill_precision
    if config.runtime.clock == "virtual":
        chosen = [choose_precision(each) for each in wanted]
    else:
        with auto_means(None):
            chosen = [choose_precision(each) for each in wanted]
    return {"config": config.hash, "precision": chosen}


@dataclass(frozen=True)
class Outcome(Generic[R]):
    """The result of a job, and what it cost."""

    key: str
    """the same for equal jobs"""
    result: R
    cpu_seconds: float
    git_revision: str | None = None
    """of the code of the study that had it made; None: not known"""
    versions: Mapping[str, str] = field(default_factory=dict)
    """of the packages that it was made with, as far as they are known"""


def revisions(outcomes: Iterable[Outcome[Any]]) -> dict[str, int]:
    """Return how many results were made by which git revision, or by "unknown"; most first."""
    return dict(Counter(each.git_revision or "unknown" for each in outcomes).most_common())


class Executor(Protocol):
    """Runs jobs, somewhere; what was done is never done again."""

    workers: int
    """jobs that may run at once"""
    is_local: bool
    """whether what is timed is this machine"""

    def take_folder(self) -> None:
        """Keep the study's folder to this process, as `map` does once it makes something.

        Raises:
            UserError: another process makes runs in it.
        """
        ...

    def map(self, jobs: Sequence[Job[R]], on_done: Advance = silent) -> list[Outcome[R]]:
        """Return the outcome of every job, in order; `on_done` is called for each.

        Raises:
            UserError: a job raised an exception, or its process died time and again. What was done
                is saved.
        """
        ...

    def is_saved(self, job: Job[Any]) -> bool:
        """Whether a job's result is there already."""
        ...

    @property
    def runs_by(self) -> dict[str, int]:
        """See `revisions`: of all results in the study's folder, whatever asked for them."""
        ...

    def close(self) -> None:
        """End everything at once; what was under way is done again next time."""
        ...


def open_executor(
    out: Path, workers: int = 0, *, cluster: str = "", saved_only: bool = False
) -> AbstractContextManager[Executor]:
    """Return an executor that is closed at the end of a ``with`` block.

    Args:
        out: the study's folder; jobs write their run directories below it, and their results are
            saved there.
        workers: jobs at once; 0: as many as there are cores and memory for.
        cluster: address of a Ray cluster; by default jobs run in processes of this machine.
        saved_only: whether a job that is not saved is an error, in place of being done.

    Raises:
        UserError: there is no such cluster, or it cannot run the jobs.
    """
    if cluster:
        from studies.jobs.on_ray import RayExecutor

        return RayExecutor(out, workers, cluster, saved_only=saved_only)
    from studies.jobs.local import LocalExecutor

    return LocalExecutor(out, workers, saved_only=saved_only)


def check_workers(workers: int, cluster: str = "") -> None:
    """Refuse, before anything is done, what `open_executor` could not work with.

    Raises:
        UserError: a number of processes below zero, or no such cluster.
    """
    if workers < 0:
        raise UserError(f"--workers must be at least 0 (one for every core), got {workers}")
    if cluster:
        from accerl.runtime.ray.cluster import connect

        ray, is_own = connect(cluster)
        if is_own:
            ray.shutdown()


def describe_job(data: Mapping[str, Any]) -> str:
    """Return what people call a job, from its JSON."""
    described = data.get("strategy", {})
    spec = described.get("params", {}).get("spec")
    named = described.get("name") if spec is None else CompressionSpec.from_json(spec).label
    strategy = described.get("label", named)
    values = {**data, **data.get("instance", {}), "seed": data.get("seed"), "strategy": strategy}
    names = ("game", "profile", "strategy", "seed", "action_seed")
    found = [f"{name} {values[name]}" for name in names if values.get(name) is not None]
    return ", ".join([data["kind"], *found])
