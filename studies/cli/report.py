"""`accerl report`: the HTML report, W&B runs and the W&B report, and figures."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import tyro

from accerl.errors import UserError
from accerl.records import METRICS, not_a_run
from analysis.figures.export import (
    write_comparison_figures,
    write_figures,
    write_room_figures,
    write_run_figures,
)
from analysis.records.load import is_room, is_study, load_run
from analysis.render.html import (
    is_comparison,
    label_runs,
    write_runs_report,
    write_study_report,
)
from analysis.render.terminal import rich_table
from analysis.report.runs import score_tables
from analysis.report.study import StudyReport
from studies.cli.command import Command, check_writable
from studies.progress import console, say
from studies.study_folder import is_study as is_begun

BESIDE_HTML = Path("<beside the HTML file>")
"""stands for `--wandb` without a folder"""


def wandb_folder(given: list[str]) -> Path:
    """Return the folder that --wandb names, or BESIDE_HTML if it names none.

    Raises:
        ValueError: it names several.
    """
    if len(given) > 1:
        raise ValueError("--wandb takes one folder at most; name runs before the options")
    return Path(given[0]) if given else BESIDE_HTML


OptionalFolder = Annotated[
    Path | None,
    tyro.constructors.PrimitiveConstructorSpec(
        nargs="*",
        metavar="[DIR]",
        instance_from_str=wandb_folder,
        is_instance=lambda value: value is None or isinstance(value, Path),
        str_from_instance=lambda value: [str(value)],
    ),
]


@dataclass(frozen=True, kw_only=True)
class Report(Command):
    """Write the HTML report of a study or of runs."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """one folder of a study (a contest or room) or of `accerl compare`, or run directories"""
    html: Path | None = None
    """file to write (default: report.html in --out, or in the first of RUNS)"""
    out: Path | None = None
    """folder for report.html, in place of --html"""
    wandb: OptionalFolder = None
    """also write offline W&B runs, and of a study the W&B report, to this folder; without one, to
    the folder "wandb" beside the HTML file. A folder must not stand before RUNS"""
    wandb_save: str | None = None
    """ENTITY/PROJECT to save the W&B report to; needs a key, and the runs that an earlier call
    wrote to --wandb must have been synced there"""
    figures: Path | None = None
    """folder to write every figure to as PNG with its data as CSV; of runs, their curves and
    what explains their decisions"""
    scores: tuple[float, ...] = ()
    """show when runs first reached each of these scores"""

    def execute(self) -> dict[str, Any]:
        """Write what was asked for; return the paths."""
        if not all(map(math.isfinite, self.scores)):
            raise UserError(f"--scores must be finite, got {' '.join(map(str, self.scores))}")
        if not self.runs:
            raise UserError(
                "name a study folder or at least one run directory, before the options: "
                "`accerl report runs/a --html FILE`"
            )
        for path in self.runs:
            if not path.is_dir():
                raise UserError(not_a_run(path, METRICS))
        page = self._file()
        _check_page(page)
        wandb = page.parent / "wandb" if self.wandb == BESIDE_HTML else self.wandb
        for option, folder in (("--figures", self.figures), ("--wandb", wandb)):
            if folder is not None:
                check_writable(folder, option)
        lone_study = self.runs[0] if len(self.runs) == 1 and is_study(self.runs[0]) else None
        if self.wandb_save is not None and (wandb is None or lone_study is None):
            raise UserError(
                "--wandb-save needs a study folder and --wandb, the folder of its W&B runs"
            )
        if len(self.runs) == 1:
            if is_room(self.runs[0]):
                return self._page(self.runs[0], "a study of room", write_room_figures)
            if is_comparison(self.runs[0]):
                return self._page(self.runs[0], "a comparison", write_comparison_figures)
        for path in self.runs:
            if path != lone_study and is_begun(path):
                raise UserError(
                    f"{path} holds a study, of which `accerl report` takes one contest, room or "
                    "comparison that has finished; other studies write their page as they run"
                )
        if lone_study is not None and self.scores:
            raise UserError(
                f"{lone_study} is a contest, whose targets are fixed: --scores is for runs"
            )
        if lone_study is not None:
            return self._study(StudyReport.of(lone_study), page, wandb)
        runs = list(self.runs)
        html = write_runs_report(runs, page, self.scores)
        say(f"wrote {html}")
        for path in [] if self.figures is None else write_run_figures(runs, self.figures):
            say(f"wrote {path}")
        labelled = label_runs([load_run(path) for path in runs])
        for table in score_tables(labelled, self.scores):
            console.print(rich_table(table))
        written: dict[str, Any] = {"html": str(html), "wandb": []}
        return written if wandb is None else written | _write_wandb(runs, wandb)

    def _study(self, report: StudyReport, page: Path, wandb: Path | None) -> dict[str, Any]:
        """Write the page of a contest, its figures, and its runs and report for W&B."""
        html = write_study_report(report, page)
        say(f"wrote {html}")
        for path in [] if self.figures is None else write_figures(report, self.figures):
            say(f"wrote {path}")
        written: dict[str, Any] = {"html": str(html), "wandb": []}
        if wandb is None:
            return written
        if self.wandb_save is not None:
            return written | _save_at_wandb(report, wandb, self.wandb_save)
        return written | _write_wandb(report, wandb)

    def _file(self) -> Path:
        if self.html is not None and self.out is not None:
            raise UserError("give --html, a file, or --out, a folder for report.html, and not both")
        return self.html or (self.out or self.runs[0]) / "report.html"

    def _page(
        self, folder: Path, kind: str, write_its_figures: Callable[[Path, Path], list[Path]]
    ) -> dict[str, Any]:
        """Write the page of what is neither a contest nor single runs, and its figures."""
        if self.wandb is not None or self.scores:
            raise UserError(f"{folder} is {kind}: it has no --wandb and no --scores here")
        html = write_runs_report([folder], self._file())
        pictures = [] if self.figures is None else write_its_figures(folder, self.figures)
        for path in (html, *pictures):
            say(f"wrote {path}")
        return {"html": str(html), "wandb": []}


def _check_page(path: Path) -> None:
    """Refuse to write a page over what is none, such as a run's records."""
    begins = path.read_bytes()[:1000] if path.is_file() else b""
    if begins and b"<html" not in begins.lower():  # an empty file is nothing to lose
        raise UserError(f"{path} is there and no HTML page; give another --html")


def _write_wandb(source: StudyReport | list[Path], wandb: Path) -> dict[str, Any]:
    """Write offline W&B runs, and of a study the report's specification; say what to do next."""
    from analysis.render.wandb_document import write_report_spec
    from analysis.render.wandb_runs import write_offline_runs

    folders = write_offline_runs(source, wandb)
    for folder in folders:
        say(f"wrote {folder}")
    written: dict[str, Any] = {"wandb": [str(folder) for folder in folders]}
    say(f"upload: wandb sync -e ENTITY -p PROJECT {quote(str(folders[0].parent))}/offline-run-*")
    if isinstance(source, StudyReport):
        spec = write_report_spec(source, wandb)
        say(f"wrote {spec}")
        say(
            f"then save the report: accerl report {quote(str(source.study.path))} --html FILE "
            f"--wandb {quote(str(wandb))} --wandb-save ENTITY/PROJECT"
        )
        written["wandb_report"] = str(spec)
    return written


def _save_at_wandb(report: StudyReport, wandb: Path, target: str) -> dict[str, Any]:
    """Save the W&B report of a study whose runs are there; say what W&B would not draw."""
    from analysis.render.wandb_document import save_report

    url, refused = save_report(report, wandb, target)
    for sentence in refused:
        say(f"W&B refused a chart, its table stands in: {sentence}")
    say(f"saved {url}")
    return {"wandb_url": url, "wandb_refused": refused}
