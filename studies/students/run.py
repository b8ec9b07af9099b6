"""The studies `students` and `correctors`: learning curves of compressed actors, compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accerl.records import SUMMARY, fingerprint, make_out_dir, versions, write_json
from accerl.runtime.latency.profiles import load_profile
from studies.jobs.executor import revisions
from studies.learning.curve import LearningCurve
from studies.learning.job import LearningJob
from studies.options import StudyOptions, check_disk
from studies.progress import bar, console, say
from studies.students.fleet import fleet_worth
from studies.students.plan import COMPARED, CORRECTORS, STUDENTS, Case, Variant, on_machine
from studies.students.show import case_tables
from studies.students.table import case_result
from studies.study_folder import claim

Curves = Mapping[tuple[int, str, int], LearningCurve]
"""by number of the case, label of the variant, and seed"""
STARTS = "starts"
"""in the study's folder: the runs that others go on from"""
START_BYTES = 300_000_000
"""of a checkpoint: mostly the states that students learn from"""


def run_learning_study(out: Path, options: StudyOptions, *, name: str) -> dict[str, Any]:
    """Run the study, or go on with one that was interrupted; return its result.

    What is done is saved after every run: a budget that holds another's runs goes on from there.

    Args:
        out: the study's folder; gets NAME.json and pictures.
        options: what is asked; a profile stands in place of the plan's machines, of starts too, and
            the nodes of a cluster have to see the folder, where runs go on from others.
        name: students or correctors.

    Raises:
        UserError: the budget or the profile does not exist, a number is not allowed, the folder
            holds another study or other machines, or the disk is full.
    """
    plans = {"students": STUDENTS, "correctors": CORRECTORS}[name]
    options.check(name, plans)
    seed, profile = options.seed, options.profile
    cases = on_machine(plans[options.budget], profile)
    # Seed by seed: what is interrupted has compared everything on the first ones.
    asked = [
        (number, variant, seed + index)
        for index in range(max(case.seeds for case in cases))
        for number, case in enumerate(cases)
        for variant in case.variants
        if index < case.seeds
    ]
    jobs = [_job(cases[number], variant, each, profile, out) for number, variant, each in asked]
    # Several cases may go on from the same run.
    starts = {job.start.out: job.start for job in jobs if job.start}
    for job in (*starts.values(), *jobs):
        job.check()
    unmade = sum(not (path / SUMMARY).is_file() for path in starts if path)
    check_disk(out, START_BYTES * unmade)
    make_out_dir(out)
    claim(out, {"study": "students and correctors", "profile": profile})
    runs_by: dict[str, int] = {}
    curves: dict[tuple[int, str, int], LearningCurve] = {}
    begun: dict[tuple[int, int], LearningCurve] = {}
    total = len(starts) + len(jobs)
    with options.open_executor(out) as executor, bar(name, total) as advance:
        done = executor.map([*starts.values()], advance)
        started = {path: outcome.result for path, outcome in zip(starts, done, strict=True)}
        made = {outcome.key: outcome for outcome in done}  # cases may have runs in common
        size = 3 * max(executor.workers, 1)  # portions: what is known is written as it comes
        for first in range(0, len(jobs), size):
            portion = jobs[first : first + size]
            outcomes = executor.map(portion, advance)
            played = zip(asked[first:], portion, outcomes, strict=False)
            for (number, variant, each), job, outcome in played:
                curves[number, variant.label, each] = outcome.result
                if job.start:
                    begun[number, each] = started[job.start.out]
            made |= {outcome.key: outcome for outcome in outcomes}
            runs_by = revisions(made.values())
            _write(out, name, options, cases, curves, begun, runs_by)
    result = _write(out, name, options, cases, curves, begun, runs_by)
    if name == "students":
        for case, found in zip(cases, result["cases"], strict=True):
            found["fleet"] = _fleet(case, found, out)
        write_json(out / f"{name}.json", result)
    _show(out, name, result["cases"])
    return result


def _show(out: Path, name: str, cases: Sequence[Mapping[str, Any]]) -> None:
    """Draw the figures, and print what was written and the tables."""
    from analysis.figures.export import write_pngs
    from analysis.figures.studies.students import (
        learning_figures,  # brings Altair, which no job needs
    )

    for path in write_pngs(learning_figures(name, cases), out):
        say(f"wrote {path}")
    say(f"wrote {out / name}.json")
    for case in cases:
        for table in case_tables(case):
            console.print(table)


def _job(case: Case, variant: Variant, seed: int, profile: str, out: Path) -> LearningJob:
    return LearningJob.with_spec(
        variant.spec,
        game=case.game,
        network=case.network,
        latency=load_profile(profile or case.profile),
        settings={**case.settings, **variant.settings},
        env_steps=case.env_steps,
        until_score=case.scores[-1] if case.ends_at_score else None,
        seed=seed,
        start=_start(case, seed, profile, out),
    )


def _start(case: Case, seed: int, profile: str, out: Path) -> LearningJob | None:
    start = case.start
    if start is None:
        return None
    machine = profile or start.profile
    latency = load_profile(machine)
    made_on = f"{Path(latency.name).name}-{latency.hash[:6]}"
    name = f"{case.game}-{case.network}-{made_on}-to-{start.score:g}-seed-{seed}"
    return LearningJob.with_spec(
        start.spec,
        game=case.game,
        network=case.network,
        latency=latency,
        settings=case.settings,
        env_steps=start.env_steps,
        until_score=start.score,
        seed=seed,
        out=out.absolute() / STARTS / name,  # workers may have other working directories
    )


def _write(
    out: Path,
    name: str,
    options: StudyOptions,
    cases: Sequence[Case],
    curves: Curves,
    begun: Mapping[tuple[int, int], LearningCurve],
    runs_by: Mapping[str, int],
) -> dict[str, Any]:
    result = {
        **options.settings(name),
        "cases": [
            case_result(
                case,
                _of_case(number, curves),
                options.profile,
                starts={each: curve for (place, each), curve in begun.items() if place == number},
                paces=_paces(case, out),
            )
            for number, case in enumerate(cases)
        ],
        "fingerprint": fingerprint(),
        "versions": versions(),
        "runs_by": runs_by,
        "command": options.command(name),
    }
    write_json(out / f"{name}.json", result)
    return result


def _paces(case: Case, out: Path) -> dict[str, dict[str, float]]:
    """Return predicted env steps a second, by variant and machine."""
    return {
        variant.label: {
            machine: _job(case, variant, 0, machine, out).predicted_pace for machine in COMPARED
        }
        for variant in case.variants
    }


FLIPPED = {"": "", ">": "<", "<": ">", "~": "~"}
"""marks of a bound (see `Ratios`), and of that of its inverse"""


def _fleet(case: Case, found: Mapping[str, Any], out: Path) -> dict[str, Any]:
    """Return what the measured env steps to a case's last score are worth on drawn machines."""
    jobs = {variant.label: _job(case, variant, 0, "", out) for variant in case.variants}
    last = {row["label"]: row["to_score"][-1] for row in found["variants"]}
    ratios = {label: row["env_steps_ratio"] for label, row in last.items()}
    if ratios[found["baseline"]] is None:
        return {}
    worth = fleet_worth(jobs, {label: each for label, each in ratios.items() if each is not None})
    # Where env steps are at least so many, what they are worth is at most so much.
    bounds = [FLIPPED[last[label]["bound"]] if label in last else "" for label in worth["labels"]]
    return worth | {"bounds": bounds}


def _of_case(number: int, curves: Curves) -> dict[tuple[str, int], LearningCurve]:
    return {
        (label, seed): curve for (place, label, seed), curve in curves.items() if place == number
    }
