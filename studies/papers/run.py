"""`accerl study run paper-fig8` and its like: make a figure's runs, draw it, pass verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from accerl.errors import UserError
from accerl.records import fingerprint, make_out_dir, versions, write_json
from accerl.runtime.latency.profiles import load_profile
from controller.bundle.meta import git_revision
from studies.jobs.executor import Executor, Outcome, revisions
from studies.learning.curve import LearningCurve
from studies.options import StudyOptions, check_disk
from studies.papers.figure import PaperFigure
from studies.papers.figures.fig1 import time_split
from studies.papers.figures.table6 import InferJob, inference_table, inference_verdicts
from studies.papers.page import TINY, TITLE, check_page, write_page
from studies.papers.plan import BUDGETS, FIGURES, at_budget, core_seconds
from studies.papers.results import figure_result, figure_tables
from studies.progress import bar, console, say, silent
from studies.study_folder import is_study, write_plan

FREE_BYTES = 200_000_000
"""that results, pictures and the runs under way may need"""


def _times_of(options: StudyOptions) -> dict[str, str]:
    """Return what tells the times of the user's own profile: its name may stand for new ones."""
    return {"profile_hash": load_profile(options.profile).hash} if options.profile else {}


def run_papers(out: Path, options: StudyOptions, *, names: Sequence[str]) -> dict[str, Any]:
    """Run the figures, or go on with what was interrupted; return their results by name.

    A run that several figures need is made once, and what is done is saved after every run. One
    folder takes all figures of one budget, seed and profile.

    Args:
        out: the folder; gets FIGURE.json and pictures, and a page of all figures in it.
        options: what is asked; a profile stands in place of two-core's, beside the paper's machine.
            With saved runs only, figures without any are left out.
        names: of figures.

    Raises:
        UserError: the budget or the profile does not exist, the profile lacks times of what is to
            act, the folder holds another plan, no study was begun in it where only saved runs are
            asked for, or the disk is full.
    """
    name = f"paper-{names[0]}" if len(names) == 1 else "paper-all"
    options.check(name, BUDGETS, ends_early=True)
    figures = [at_budget(FIGURES[name], options.budget) for name in names]
    for figure in figures:  # before anything is written
        for (_, _, _, seed), job in figure.jobs(options.seed, options.profile).items():
            if seed == options.seed:  # the others differ in nothing else
                job.check()
    if options.saved_only and not is_study(out):
        raise UserError(f"--saved-only: no study was begun in {out}; give the folder of one")
    check_page(out, TITLE)
    check_disk(out, FREE_BYTES)
    make_out_dir(out)
    write_plan(out, options.settings("papers") | _times_of(options), alone=True)
    results = {}
    with options.open_executor(out) as executor:
        if options.saved_only:
            figures = [each for each in figures if _known(executor, each, options)]
        else:
            _announce(executor, figures, options)
        for figure in figures:
            results[figure.name] = _run(out, executor, figure, options)
    say(f"wrote {write_page(out)}")
    if options.budget == "tiny":
        say(TINY)
    return results


def _announce(executor: Executor, figures: Sequence[PaperFigure], options: StudyOptions) -> None:
    """Say how many runs there are and how long they will take."""
    jobs = {
        str(sorted(job.to_json().items())): job
        for figure in figures
        for job in figure.jobs(options.seed, options.profile).values()
    }
    if not jobs:
        return
    left = [job for job in jobs.values() if not executor.is_saved(job)]
    seconds = sum(map(core_seconds, left))
    hours = f", some {seconds / 3600.0:,.1f} core-hours" if seconds else ""
    say(f"{len(jobs)} runs, {len(left)} of them still to be made{hours}")


def _known(executor: Executor, figure: PaperFigure, options: StudyOptions) -> bool:
    """Whether a figure needs nothing that would have to be made first, or some of it is saved."""
    if figure.name == "fig1":
        return True
    if figure.name == "table6":
        return executor.is_saved(_infer_job(options.budget))
    jobs = figure.jobs(options.seed, options.profile)
    return any(executor.is_saved(job) for job in jobs.values())


def _infer_job(budget: str) -> InferJob:
    repeats, updates = (3, 10) if budget == "tiny" else (15, 150)
    return InferJob(repeats=repeats, distill_updates=updates)


def _run(
    out: Path, executor: Executor, figure: PaperFigure, options: StudyOptions
) -> dict[str, Any]:
    """Make a figure's runs that are not there yet, unless told not to, and write what they say."""
    if not figure.panels:
        say(f"  {figure.name} ...")
    jobs = figure.jobs(options.seed, options.profile)
    # In portions, so that what is known is written as it comes; what is saved is the first.
    saved = [key for key in jobs if executor.is_saved(jobs[key])]
    left, size = [key for key in jobs if key not in saved], 3 * max(executor.workers, 1)
    left = [] if options.saved_only else left
    portions = [saved, *(left[start : start + size] for start in range(0, len(left), size))]
    curves: list[dict[tuple[str, str, int], LearningCurve]] = [{} for _ in figure.panels]
    made: list[Outcome[LearningCurve]] = []
    more = _without_runs(executor, figure, options)
    more |= {"runs": len(jobs), "runs_by": {}}
    write = partial(_write, out, figure, curves, more, options)
    with bar(figure.name, len(jobs)) if jobs else nullcontext(silent) as advance:
        for portion in filter(None, portions):
            outcomes = executor.map([jobs[key] for key in portion], advance)
            for (panel, *rest), outcome in zip(portion, outcomes, strict=True):
                machine, label, each = rest
                curves[panel][str(machine), str(label), int(each)] = outcome.result
            made += outcomes
            more["runs_by"] = revisions(made)
            write()
    result = write()
    from analysis.figures.export import write_pngs
    from analysis.figures.studies.papers import paper_figures  # brings Altair, which no job needs

    for path in write_pngs(paper_figures(result), out):
        say(f"wrote {path}")
    for table in figure_tables(result):
        console.print(table)
    return result


def _without_runs(executor: Executor, figure: PaperFigure, options: StudyOptions) -> dict[str, Any]:
    """Return what a figure shows besides learning curves."""
    if figure.name == "fig1":
        return {"split": time_split(figure.machines(options.profile))}
    if figure.name == "table6":
        (outcome,) = executor.map([_infer_job(options.budget)])
        measured = outcome.result
        rows = inference_table(measured)
        return {
            "inference": rows,
            "verdicts": [each.to_json() for each in inference_verdicts(rows)],
            "fingerprint": measured.fingerprint,
        }
    return {}


def _write(
    out: Path,
    figure: PaperFigure,
    curves: Sequence[dict[tuple[str, str, int], LearningCurve]],
    more: dict[str, Any],
    options: StudyOptions,
) -> dict[str, Any]:
    result = {
        **figure_result(figure, curves),
        "runs_made": sum(map(len, curves)),
        "command": options.command(f"paper-{figure.name}"),
        "budget": options.budget,
        "git_revision": git_revision(),
        "fingerprint": fingerprint(),
        "versions": versions(),
        **more,  # what was measured elsewhere knows where
    }
    write_json(out / f"{figure.name}.json", result)
    return result
