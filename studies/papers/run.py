"""`accerl study run paper-fig8` and its like: make a figure's runs, draw it, pass verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from accerl.records import fingerprint, make_out_dir, versions, write_json
from controller.bundle.meta import git_revision
from studies.jobs.executor import Executor, Outcome, open_executor, revisions
from studies.learning.curve import LearningCurve
from studies.options import check_disk, check_options, study_command
from studies.papers.figure import PaperFigure
from studies.papers.figures.fig1 import time_split
from studies.papers.figures.table6 import InferJob, inference_table
from studies.papers.page import TINY, TITLE, check_page, write_page
from studies.papers.plan import BUDGETS, FIGURES, at_budget, core_seconds
from studies.papers.results import figure_result, figure_tables
from studies.progress import bar, console, say, silent
from studies.study_folder import write_plan

FREE_BYTES = 200_000_000
"""that results, pictures and the runs under way may need"""


def run_papers(
    out: Path,
    *,
    names: Sequence[str],
    budget: str = "default",
    seed: int = 0,
    workers: int = 0,
    profile: str = "",
    cluster: str = "",
    storage: str = "",
    saved_only: bool = False,
) -> dict[str, Any]:
    """Run the figures, or go on with what was interrupted; return their results by name.

    A run that several figures need is made once, and what is done is saved after every run. One
    folder takes all figures of one budget, seed and profile.

    Args:
        out: the folder; gets FIGURE.json and pictures, and a page of all figures in it.
        names: of figures.
        budget: tiny, short or default.
        seed: the first seed.
        workers: runs at once; 0: as many as there are cores and memory for.
        profile: a latency profile in place of two-core's, which stands beside the paper's machine.
        cluster: address of a Ray cluster; by default runs are made on this machine.
        storage: refused: nothing is tuned.
        saved_only: whether runs that are not saved are left out; figures without any are, too.

    Raises:
        UserError: the budget or the profile does not exist, the folder holds another plan, or the
            disk is full.
    """
    name = f"paper-{names[0]}" if len(names) == 1 else "paper-all"
    check_options(
        name,
        BUDGETS,
        budget=budget,
        seed=seed,
        workers=workers,
        cluster=cluster,
        storage=storage,
    )
    figures = [at_budget(FIGURES[name], budget) for name in names]
    for figure in figures:
        figure.machines(profile)  # before anything is written
    check_page(out, TITLE)
    check_disk(out, FREE_BYTES)
    make_out_dir(out)
    plan = {"study": "papers", "budget": budget, "seed": seed, "profile": profile}
    write_plan(out, plan, alone=True)
    results = {}
    with open_executor(out, workers, cluster=cluster) as executor:
        if saved_only:
            figures = [each for each in figures if _known(executor, each, budget, seed, profile)]
        else:
            _announce(executor, figures, seed, profile)
        for figure in figures:
            results[figure.name] = _run(
                out, executor, figure, budget, seed, profile, saved_only=saved_only
            )
    say(f"wrote {write_page(out)}")
    if budget == "tiny":
        say(TINY)
    return results


def _announce(executor: Executor, figures: Sequence[PaperFigure], seed: int, profile: str) -> None:
    """Say how many runs there are and how long they will take."""
    jobs = {
        str(sorted(job.to_json().items())): job
        for figure in figures
        for job in figure.jobs(seed, profile).values()
    }
    if not jobs:
        return
    left = [job for job in jobs.values() if not executor.is_saved(job)]
    seconds = sum(map(core_seconds, left))
    hours = f", some {seconds / 3600.0:,.1f} core-hours" if seconds else ""
    say(f"{len(jobs)} runs, {len(left)} of them still to be made{hours}")


def _known(executor: Executor, figure: PaperFigure, budget: str, seed: int, profile: str) -> bool:
    """Whether a figure needs nothing that would have to be made first, or some of it is saved."""
    if figure.name == "fig1":
        return True
    if figure.name == "table6":
        return executor.is_saved(_infer_job(budget))
    return any(executor.is_saved(job) for job in figure.jobs(seed, profile).values())


def _infer_job(budget: str) -> InferJob:
    repeats, updates = (3, 10) if budget == "tiny" else (15, 150)
    return InferJob(repeats=repeats, distill_updates=updates)


def _run(
    out: Path,
    executor: Executor,
    figure: PaperFigure,
    budget: str,
    seed: int,
    profile: str,
    *,
    saved_only: bool = False,
) -> dict[str, Any]:
    """Make a figure's runs that are not there yet, unless told not to, and write what they say."""
    if not figure.panels:
        say(f"  {figure.name} ...")
    jobs = figure.jobs(seed, profile)
    # In portions, so that what is known is written as it comes; what is saved is the first.
    saved = [key for key in jobs if executor.is_saved(jobs[key])]
    left, size = [key for key in jobs if key not in saved], 3 * max(executor.workers, 1)
    left = [] if saved_only else left
    portions = [saved, *(left[start : start + size] for start in range(0, len(left), size))]
    curves: list[dict[tuple[str, str, int], LearningCurve]] = [{} for _ in figure.panels]
    made: list[Outcome[LearningCurve]] = []
    more = _without_runs(executor, figure, budget, profile)
    more |= {"runs": len(jobs), "runs_by": {}}
    write = partial(_write, out, figure, curves, more, budget, seed, profile)
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


def _without_runs(
    executor: Executor, figure: PaperFigure, budget: str, profile: str
) -> dict[str, Any]:
    """Return what a figure shows besides learning curves."""
    if figure.name == "fig1":
        return {"split": time_split(figure.machines(profile))}
    if figure.name == "table6":
        (outcome,) = executor.map([_infer_job(budget)])
        measured = outcome.result
        return {"inference": inference_table(measured), "fingerprint": measured.fingerprint}
    return {}


def _write(
    out: Path,
    figure: PaperFigure,
    curves: Sequence[dict[tuple[str, str, int], LearningCurve]],
    more: dict[str, Any],
    budget: str,
    seed: int,
    profile: str,
) -> dict[str, Any]:
    result = {
        **figure_result(figure, curves),
        "runs_made": sum(map(len, curves)),
        "command": study_command(f"paper-{figure.name}", budget, seed, profile),
        "budget": budget,
        "git_revision": git_revision(),
        "fingerprint": fingerprint(),
        "versions": versions(),
        **more,  # what was measured elsewhere knows where
    }
    write_json(out / f"{figure.name}.json", result)
    return result
