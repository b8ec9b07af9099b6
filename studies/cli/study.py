"""`accerl study`: run a study, list the studies, work for one that runs elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import tyro

from accerl.errors import UserError, did_you_mean
from accerl.records import read_json
from studies.cli.command import Command
from studies.contest.run import run_contest
from studies.jobs.serve import serve
from studies.jobs.storage import JOURNAL, open_storage, shown, storage_errors
from studies.jobs.store import JobStore, job_counts
from studies.oracle_gap.run import run_oracle_gap
from studies.progress import say
from studies.study_folder import find_folder

STUDIES = {
    "quickstart": (
        partial(run_contest, name="quickstart"),
        "train a controller, compare it with tuned hand-set strategies, export, replay",
    ),
    "contest": (
        partial(run_contest, name="contest"),
        "the same in full, also on games and machines that it was not trained on",
    ),
    "oracle-gap": (
        run_oracle_gap,
        "for each game and machine, how much there is for a controller to win",
    ),
}
"""by name: what runs it, and what it does"""


@dataclass(frozen=True, kw_only=True)
class Run(Command):
    """Run a study, or go on with an interrupted one.

    For example `accerl study run quickstart --out DIR`.
    """

    name: tyro.conf.Positional[str]
    """quickstart, contest or oracle-gap"""
    out: Path
    """the study's folder"""
    budget: str = "default"
    """tiny (minutes; shows that everything works) or default"""
    seed: int = 0
    """of samplers and controller; of oracle-gap, the first of each split's inner seeds"""
    workers: int = 2
    """processes for inner runs; 0: all is done by `accerl study worker` elsewhere"""
    profile: str = ""
    """latency profile to use in place of measuring this machine; of oracle-gap, in place of the
    splits'"""
    storage: str = ""
    """where jobs are kept (default: jobs.journal in --out), for workers on several machines:
    postgresql+psycopg://user:password@host/database"""

    def execute(self) -> dict[str, Any]:
        """Run the study; return its contest, or what it found."""
        if self.name not in STUDIES:
            hint = did_you_mean(self.name, list(STUDIES))
            raise UserError(f"study {self.name!r} does not exist; {hint}")
        run, _ = STUDIES[self.name]
        found = run(
            self.out,
            budget=self.budget,
            seed=self.seed,
            workers=self.workers,
            profile=self.profile,
            storage=self.storage,
        )
        return found if isinstance(found, dict) else read_json(self.out / "contest.json")


@dataclass(frozen=True, kw_only=True)
class List(Command):
    """List the studies, and the jobs in a storage."""

    storage: str = ""
    """as given to `accerl study run`"""

    def execute(self) -> dict[str, Any]:
        """Print a line for each study; of a storage, how many jobs are done, running, waiting."""
        listed: dict[str, Any] = {"studies": {name: text for name, (_, text) in STUDIES.items()}}
        if self.storage:
            with storage_errors(self.storage):
                listed["jobs"] = job_counts(open_storage(self.storage, create=False))
        for name, text in listed["studies"].items():
            say(f"{name}: {text}")
        for name, counts in listed.get("jobs", {}).items():
            say(
                f"jobs of {name}: " + ", ".join(f"{many} {state}" for state, many in counts.items())
            )
        return listed


@dataclass(frozen=True, kw_only=True)
class Worker(Command):
    """Do jobs of a study that runs elsewhere.

    For example `accerl study worker --study quickstart --out DIR`.
    """

    study: str
    """name of the study"""
    storage: str = ""
    """as given to `accerl study run` (default: jobs.journal in --out)"""
    out: Path | None = None
    """the study's folder, if this machine sees it; else records travel through the storage"""
    once: bool = False
    """end when no job is waiting (default: when the study is finished)"""

    def execute(self) -> dict[str, Any]:
        """Do jobs until none is left; return a line for each."""
        if not self.storage and self.out is None:
            raise UserError(
                "say where the jobs are: --storage URL, or --out with the study's folder"
            )
        where = self.storage or str(Path(self.out or "") / JOURNAL)
        jobs: list[str] = []

        def on_done(line: str) -> None:
            jobs.append(line)
            say(line)

        with storage_errors(where):
            opened = open_storage(where, create=False)
            names = list(job_counts(opened))
            if self.study not in names:
                raise UserError(
                    f"{shown(where)} has no jobs of a study {self.study!r}; "
                    + (did_you_mean(self.study, names) if names else "start the study first")
                )
            folder = None if self.out is None else find_folder(self.out)
            serve(JobStore(opened, self.study), folder, once=self.once, on_done=on_done)
        return {"study": self.study, "jobs": jobs}
