"""What every study is asked: budget, seed, machine, workers; and what all refuse beforehand."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accerl.errors import UserError, did_you_mean
from studies.jobs.executor import Executor, check_workers, open_executor
from studies.storage import open_storage

LAST_SEED = 2**32 - 1
"""that samplers can begin with"""


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """The options of `accerl study run`; studies that do without some refuse them."""

    budget: str = "default"
    """tiny (minutes; shows that everything works) or default; contest, students, correctors, room,
    ablations, bits and the figures also have short, contest and room medium, students and
    correctors minatar, and students rest and onwards"""
    seed: int = 0
    """seed of samplers and controller; for students, correctors, bits and figures the first seed of
    their runs; for oracle-gap the first inner seed of each split"""
    workers: int = 0
    """inner runs at once; 0 makes one for every core that there is memory for"""
    profile: str = ""
    """latency profile to play on in place of the study's machines (a contest then holds nothing
    out); of figures, in place of two-core"""
    cluster: str = ""
    """Ray cluster to make the inner runs on: auto, HOST:PORT or ray://HOST:10001"""
    storage: str = ""
    """where Optuna keeps its trials (default: optuna.journal in --out), for several drivers:
    postgresql+psycopg://user:password@host/database"""
    saved_only: bool = False
    """make no more runs: figures show those that are saved, and a contest, quickstart or ablations
    ends early, with the test seeds that are complete"""

    def check(
        self,
        study: str,
        budgets: Collection[str],
        *,
        tunes: bool = False,
        ends_early: bool = False,
    ) -> None:
        """Refuse what no run of a study could begin with.

        Args:
            study: its name.
            budgets: names of those that it has.
            tunes: whether the study does, with Optuna.
            ends_early: whether it can, with the runs that are saved.

        Raises:
            UserError: the budget or the cluster does not exist, a number is not allowed, or the
                storage is not needed or cannot be opened.
        """
        if self.budget not in budgets:
            hint = did_you_mean(self.budget, [*budgets])
            raise UserError(f"--budget {self.budget!r} does not exist; {hint}")
        if self.saved_only and not ends_early:
            raise UserError(f"{study} cannot end early: leave --saved-only out")
        check_workers(self.workers, self.cluster)
        if self.storage and not tunes:
            raise UserError(f"{study} tunes nothing with Optuna: leave --storage out")
        if self.storage:
            open_storage(self.storage)
        check_seed(self.seed)

    def settings(self, study: str) -> dict[str, Any]:
        """Return what a folder of the study holds runs of; other options change no run."""
        names = ("budget", "seed", "profile")
        return {"study": study, **{name: getattr(self, name) for name in names}}

    def open_executor(self, out: Path) -> AbstractContextManager[Executor]:
        """Return what makes the runs, see `studies.jobs.executor.open_executor`."""
        return open_executor(out, self.workers, cluster=self.cluster, saved_only=self.saved_only)

    def command(self, study: str) -> str:
        """Return the command line that makes the study again."""
        given = f"--budget {self.budget} --seed {self.seed}"
        given += f" --profile {self.profile}" if self.profile else ""
        return f"accerl study run {study} {given} --out DIR"


def check_seed(seed: int) -> None:
    """Refuse what samplers cannot begin with.

    Raises:
        UserError: the seed does not fit into 32 bits.
    """
    if not 0 <= seed <= LAST_SEED:
        raise UserError(f"--seed must lie between 0 and {LAST_SEED}, got {seed}")


def check_disk(out: Path, needed: int) -> None:
    """Refuse a folder on a disk that would be full before the study is over.

    Args:
        out: the folder; it need not exist yet.
        needed: bytes.

    Raises:
        UserError: fewer are free.
    """
    path = out.absolute()
    free = shutil.disk_usage(next(place for place in (path, *path.parents) if place.exists())).free
    if free < needed:
        raise UserError(
            f"{out}: {free / 1e6:,.0f} MB are free and the study needs some {needed / 1e6:,.0f}; "
            "make room or give another --out"
        )
