"""`accerl study`: run a study, list the studies, show how one stands."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import tyro

from accerl.errors import UserError, did_you_mean
from studies.ablations.run import run_ablations
from studies.bits.run import run_bits
from studies.cli.command import Command, check_writable, save_result
from studies.contest.run import run_contest
from studies.jobs.carry import merge_results, pack_results
from studies.jobs.round import AGAIN, job_counts
from studies.options import StudyOptions
from studies.oracle_gap.run import run_oracle_gap
from studies.papers.gallery import write_gallery
from studies.papers.page import PAGE
from studies.papers.plan import FIGURES
from studies.papers.run import run_papers
from studies.progress import duration, say
from studies.room.run import run_room
from studies.students.run import run_learning_study
from studies.study_folder import check_folder

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
    "room": (
        run_room,
        "how much a spec that suits its game and machine gains over one spec for all",
    ),
    "ablations": (run_ablations, "what each part of the indicator that ships is worth"),
    "students": (
        partial(run_learning_study, name="students"),
        "what small actors cost in env steps and save in seconds on real games",
    ),
    "correctors": (
        partial(run_learning_study, name="correctors"),
        "which off-policy correction suits small actors",
    ),
    "bits": (run_bits, "how many bits a trained policy needs, rounded afterwards or tuned for it"),
    **{
        f"paper-{name}": (partial(run_papers, names=(name,)), f"the paper: {figure.title.lower()}")
        for name, figure in FIGURES.items()
    },
    "paper-all": (partial(run_papers, names=tuple(FIGURES)), "all figures of the paper, one page"),
}
"""by name: what runs it, and what it does"""
LISTED = "study-list.json"


@dataclass(frozen=True, kw_only=True)
class Run(StudyOptions, Command):
    """Run a study, or go on with an interrupted one.

    For example `accerl study run quickstart --out DIR`.
    """

    name: tyro.conf.Positional[str]
    """quickstart, contest, oracle-gap, room, ablations, students, correctors, bits, or a figure
    such as paper-fig8; `accerl study list` says what each does"""
    out: Path
    """the study's folder"""

    def execute(self) -> dict[str, Any]:
        """Run the study; return its contest, or what it found."""
        if self.name not in STUDIES:
            hint = did_you_mean(self.name, list(STUDIES))
            raise UserError(f"study {self.name!r} does not exist; {hint}")
        check_folder(self.out)
        run, _ = STUDIES[self.name]
        try:
            return run(self.out, self)
        except KeyboardInterrupt as interrupt:
            raise KeyboardInterrupt(AGAIN) from interrupt


@dataclass(frozen=True, kw_only=True)
class List(Command):
    """List the studies, or show how one stands."""

    study: tyro.conf.Positional[Path | None] = None
    """a study's folder: how many of its jobs are done, running, failed and left"""
    out: Path | None = None
    """folder to write study-list.json to, which holds what is printed"""

    def execute(self) -> dict[str, Any]:
        """Print a line for each study, or for the jobs of one."""
        if self.study is not None:
            jobs = job_counts(self.study)
            say(f"{self.study}: {jobs['saved']} results saved" + _step(jobs["step"]))
            return save_result({"study": str(self.study), "jobs": jobs}, self.out, LISTED)
        listed = {name: text for name, (_, text) in STUDIES.items()}
        for name, text in listed.items():
            say(f"{name}: {text}")
        return save_result({"studies": listed}, self.out, LISTED)


@dataclass(frozen=True, kw_only=True)
class Page(Command):
    """Write the page of the papers' claims from what ran at size.

    For example `accerl study page out/papers out/bits --out analysis/gallery/papers`.
    """

    sources: tyro.conf.Positional[tuple[Path, ...]]
    """folders of paper-all, of single figures, and of bits"""
    out: Path
    """folder of the page; results that it holds already stay"""

    def execute(self) -> dict[str, Any]:
        """Write it; return which figures it shows."""
        if not self.sources and not (self.out / PAGE).is_file():
            raise UserError("study page: name the folders of results, or an --out that has a page")
        shown = write_gallery(self.sources, self.out)
        say(f"wrote {self.out / PAGE}: {', '.join(shown) or 'no figure'} run at size")
        return {"page": str(self.out / PAGE), "shown": shown}


@dataclass(frozen=True, kw_only=True)
class Pack(Command):
    """Write a study's finished runs into one file, to go on from it elsewhere.

    For example `accerl study pack out/papers --file papers.json.xz`.
    """

    study: tyro.conf.Positional[Path]
    """the study's folder"""
    file: Path
    """to write; what was timed, and policies that others play, are not in it"""

    def execute(self) -> dict[str, Any]:
        """Write the file; return how many runs it holds."""
        check_writable(self.file.parent, "--file")
        count = pack_results(self.study, self.file)
        size = self.file.stat().st_size / 1000.0
        say(f"wrote {self.file}: {count} finished runs, {size:,.0f} kB")
        return {"file": str(self.file), "jobs": count}


@dataclass(frozen=True, kw_only=True)
class Merge(Command):
    """Add finished runs of files and of other folders to a study's folder.

    For example `accerl study merge papers.json.xz --out out/papers`; `accerl study run` then makes
    what is left.
    """

    sources: tyro.conf.Positional[tuple[Path, ...]]
    """files of `accerl study pack`, and folders of the same study"""
    out: Path
    """the study's folder, made if it is not there; what it has stays"""

    def execute(self) -> dict[str, Any]:
        """Add them; return how many were new."""
        if not self.sources:
            raise UserError("study merge: name files of `accerl study pack`, or studies' folders")
        found = merge_results(self.sources, self.out)
        notes = [f"{found.known} were there already"] if found.known else []
        if found.left:
            notes.append(f"{found.left} left out, which each machine makes itself")
        say(f"{self.out}: {found.added} finished runs added" + "".join(f"; {n}" for n in notes))
        return {"study": str(self.out), **asdict(found)}


def _step(step: dict[str, Any] | None) -> str:
    if step is None:
        return ""
    seconds = step["seconds_left"]
    time = f", {duration(seconds)} left" if seconds else ""
    counts = ", ".join(f"{step[name]} {name}" for name in ("done", "running", "failed", "left"))
    name = "step in progress" if step["running"] or step["left"] else "last step"
    return f"; {name}: {counts}{time} (as of {step['at']})"
