"""What each command does; the command line only names the arguments."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from accerl.errors import UserError, did_you_mean
from accerl.presets import load_preset
from studies.cli.run_commands import free_folder, holds_run, run_recorded
from studies.progress import console


def bench(measure: Callable[[], dict[str, Any]], quiet: bool) -> dict[str, Any]:
    """Run a benchmark and print its table."""
    from studies.benchmarks.bench import print_table

    result = measure()
    print_table(result)
    return result


STUDIES = {
    "quickstart": "train a controller, compare it with tuned hand-set strategies, export, replay",
    "contest": "the same in full, also on games and machines that it was not trained on",
    "oracle-gap": "for each game and machine, how much there is for a controller to win",
}


def study_list(storage: str) -> dict[str, Any]:
    """Print the studies, and how the jobs in a storage stand."""
    held = _held_jobs(storage) if storage else {}
    for name, text in STUDIES.items():
        console.print(f"{name}: {text}")
    for name, counts in held.items():
        told = ", ".join(f"{count} {state}" for state, count in counts.items())
        console.print(f"jobs of {name}: {told}", markup=False)
    return {"studies": STUDIES, **({"jobs": held} if storage else {})}


def _held_jobs(storage: str) -> dict[str, dict[str, int]]:
    from studies.jobs.storage import open_storage, storage_errors
    from studies.jobs.store import job_counts

    with storage_errors(storage):
        return job_counts(open_storage(storage, create=False))


def study_run(
    name: str, out: Path, *, budget: str, seed: int, workers: int, profile: str, storage: str
) -> dict[str, Any]:
    """Run a study by name; return its contest, or what it found."""
    from accerl.records import read_json
    from studies.contest.run import run_contest
    from studies.oracle_gap.run import run_oracle_gap

    if name not in STUDIES:
        raise UserError(f"study {name!r} does not exist; {did_you_mean(name, list(STUDIES))}")
    run = run_oracle_gap if name == "oracle-gap" else partial(run_contest, name=name)
    found = run(out, budget=budget, seed=seed, workers=workers, profile=profile, storage=storage)
    return found if isinstance(found, dict) else read_json(out / "contest.json")


def study_worker(study: str, storage: str, out: Path | None, *, once: bool) -> dict[str, Any]:
    """Do jobs of a study that another process has started."""
    from studies.jobs.storage import JOURNAL, open_storage, shown, storage_errors
    from studies.jobs.store import JobStore, job_counts
    from studies.jobs.workers import serve
    from studies.study_folder import find_folder

    if not storage and out is None:
        raise UserError("say where the jobs are: --storage URL, or --out with the study's folder")
    where = storage or str(Path(out or "") / JOURNAL)
    jobs: list[str] = []

    def on_done(told: str) -> None:
        jobs.append(told)
        console.print(told, markup=False, soft_wrap=True)

    with storage_errors(where):
        opened = open_storage(where, create=False)
        names = list(job_counts(opened))
        if study not in names:
            raise UserError(
                f"{shown(where)} has no jobs of a study {study!r}; "
                + (did_you_mean(study, names) if names else "start the study first")
            )
        folder = None if out is None else find_folder(out)
        serve(JobStore(opened, study), folder, once=once, on_done=on_done)
    return {"study": study, "jobs": jobs}


def schedule_export(study: Path, out: Path) -> dict[str, Any]:
    """Copy a study's bundle, verified before and after."""
    from controller.bundle.bundle import is_bundle, show_bundle, verify_bundle
    from studies.cli.bundles import say

    source = study / "bundle" if (study / "bundle").is_dir() else study
    if not is_bundle(source):
        raise UserError(f"{study} holds no schedule bundle; finish its study first")
    verify_bundle(source)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} already exists; give --out a new folder")
    try:
        shutil.copytree(source, out, dirs_exist_ok=True)
    except OSError as error:
        shutil.rmtree(out, ignore_errors=True)
        raise UserError(f"cannot write {out}: {error.strerror or error}") from error
    verify_bundle(out)
    say(f"exported {out}")
    return show_bundle(out)


def schedule_show(bundle: Path) -> dict[str, Any]:
    """Describe a bundle in words: where it comes from, what it chooses from, what it does when."""
    from controller.bundle.bundle import show_bundle
    from studies.cli.bundles import print_bundle

    shown = show_bundle(bundle)
    print_bundle(shown)
    return shown


def schedule_verify(bundle: Path) -> dict[str, Any]:
    """Check a bundle and say what was checked."""
    from controller.bundle.bundle import verify_bundle
    from studies.cli.bundles import say

    checked = verify_bundle(bundle)
    say(
        f"{bundle} is intact: {len(checked['files'])} files match their hashes; torch and ONNX "
        f"logits agree to {checked['max_logit_difference']:.1e}; {len(checked['schedules'])} "
        f"schedules stay within its {checked['actions']} actions"
    )
    return checked


def schedule_replay(
    bundle: str,
    preset: str,
    seconds: float,
    seed: int,
    out: Path | None,
    *,
    strict: bool,
    quiet: bool,
) -> dict[str, Any]:
    """Train under the open-loop schedule of a bundle; print what was chosen when."""
    from studies.cli.bundles import bundle_strategy, print_chosen

    # A schedule may choose any size, so the learner has the largest.
    config = replace(load_preset(preset), network="original", seed=seed, seconds=seconds)
    strategy = bundle_strategy(bundle, config, mode="schedule", strict=strict)
    out = out or free_folder(Path("runs") / f"{preset}-replay-seed{seed}", resume=False)
    if holds_run(out):
        raise UserError(f"{out} already holds a run; give another --out")
    summary = run_recorded(config, strategy, f"schedule {bundle}", out, quiet=quiet)
    print_chosen(summary)
    return summary


def controller_train(out: Path, iterations: int, seed: int) -> dict[str, Any]:
    """Meta-train on analytic games and export."""
    from studies.contest.tier0 import train_tier0

    if iterations < 1:
        raise UserError(f"--iterations must be at least 1, got {iterations}")
    result = train_tier0(out, iterations, seed)
    console.print(
        f"reaches {result['share_of_optimum']:.1%} of the dynamic-programming optimum on "
        f"{result['games']} held-out analytic games; bundle in {out}"
    )
    return result


def controller_eval(study: Path, quiet: bool) -> dict[str, Any]:
    """Compute the contest of a study and print it."""
    from accerl.records import read_json
    from analysis.comparison.contest import write_contest
    from analysis.render.terminal import print_summary

    path = write_contest(study)
    if not quiet:
        print_summary(study, console)
    return read_json(path)


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


def report(
    runs: list[Path],
    html: Path,
    wandb: Path | None,
    wandb_save: str | None,
    figures: Path | None,
    scores: tuple[float, ...],
) -> dict[str, Any]:
    """Write the HTML report, and W&B runs, the W&B report and pictures if wanted."""
    from analysis.comparison.scores import score_table
    from analysis.figures.export import write_figures, write_run_figures
    from analysis.records.load import is_study, load_run
    from analysis.render.html import label_runs, write_runs_report
    from analysis.render.terminal import rich_table

    if not runs:
        raise UserError("name a study folder or at least one run directory")
    if wandb == BESIDE_HTML:
        wandb = html.parent / "wandb"
    lone_study = len(runs) == 1 and is_study(runs[0])
    if wandb_save is not None and (wandb is None or not lone_study):
        raise UserError("--wandb-save needs a study folder and --wandb, the folder of its W&B runs")
    written = write_runs_report(runs, html, scores)
    console.print(f"wrote {written}")
    if figures is not None:
        paths = write_figures(runs[0], figures) if lone_study else write_run_figures(runs, figures)
        for path in paths:
            console.print(f"wrote {path}")
    if not lone_study:
        labelled = label_runs([load_run(path) for path in runs])
        console.print(rich_table(score_table(labelled, scores)))
    told: dict[str, Any] = {"html": str(written), "wandb": []}
    if wandb is not None and wandb_save is not None:
        return told | _save_at_wandb(runs[0], wandb, wandb_save)
    return told | (_write_wandb(runs, wandb, lone_study) if wandb is not None else {})


def _write_wandb(runs: list[Path], wandb: Path, lone_study: bool) -> dict[str, Any]:
    """Write offline W&B runs, and of a study the report's specification; say what to do next."""
    from analysis.render.wandb_document import write_report_spec
    from analysis.render.wandb_runs import write_offline_runs

    folders = write_offline_runs(runs[0] if lone_study else runs, wandb)
    for folder in folders:
        console.print(f"wrote {folder}")
    told: dict[str, Any] = {"wandb": [str(folder) for folder in folders]}
    console.print(f"upload: wandb sync -e ENTITY -p PROJECT {folders[0].parent}/offline-run-*")
    if lone_study:
        spec = write_report_spec(runs[0], wandb)
        console.print(f"wrote {spec}")
        console.print(
            f"then save the report: accerl report {runs[0]} --html FILE --wandb {wandb} "
            "--wandb-save ENTITY/PROJECT"
        )
        told["wandb_report"] = str(spec)
    return told


def _save_at_wandb(study: Path, wandb: Path, target: str) -> dict[str, Any]:
    """Save the W&B report of a study whose runs are there; say what W&B would not draw."""
    from analysis.render.wandb_document import save_report

    url, refused = save_report(study, wandb, target)
    for sentence in refused:
        console.print(f"W&B refused a chart, its table stands in: {sentence}", markup=False)
    console.print(f"saved {url}", markup=False)
    return {"wandb_url": url, "wandb_refused": refused}
