"""The studies `students` and `correctors`: learning curves of compressed actors, compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from accerl.records import fingerprint, make_out_dir, versions, write_json
from accerl.runtime.latency.profiles import load_profile
from studies.jobs.executor import open_executor
from studies.learning.curve import LearningCurve
from studies.learning.job import LearningJob
from studies.options import check_options, study_command
from studies.progress import bar, console
from studies.students.plan import CORRECTORS, STUDENTS, Case, Variant
from studies.students.table import case_result, case_table

Curves = Mapping[tuple[int, str, int], LearningCurve]
"""by number of the case, label of the variant, and seed"""


def run_learning_study(
    out: Path,
    *,
    name: str,
    budget: str = "default",
    seed: int = 0,
    workers: int = 0,
    profile: str = "",
    cluster: str = "",
    storage: str = "",
) -> dict[str, Any]:
    """Run the study, or go on with one that was interrupted; return its result.

    What is done is saved after every run: a budget that holds another's runs goes on from there.

    Args:
        out: the study's folder; gets NAME.json and pictures.
        name: students or correctors.
        budget: a key of its plan.
        seed: the first seed.
        workers: runs at once; 0: as many as there are cores and memory for.
        profile: a latency profile in place of the plan's machines.
        cluster: address of a Ray cluster; by default runs are made on this machine.
        storage: refused: nothing is tuned.

    Raises:
        UserError: the budget or the profile does not exist, or a number is not allowed.
    """
    plans = {"students": STUDENTS, "correctors": CORRECTORS}[name]
    check_options(
        name,
        plans,
        budget=budget,
        seed=seed,
        workers=workers,
        cluster=cluster,
        storage=storage,
    )
    cases = plans[budget]
    make_out_dir(out)
    # Seed by seed: what is interrupted has compared everything on the first ones.
    asked = [
        (number, variant, seed + index)
        for index in range(max(case.seeds for case in cases))
        for number, case in enumerate(cases)
        for variant in case.variants
        if index < case.seeds
    ]
    jobs = [_job(cases[number], variant, each, profile) for number, variant, each in asked]
    write = partial(_write, out, name=name, budget=budget, seed=seed, profile=profile)
    curves: dict[tuple[int, str, int], LearningCurve] = {}
    with open_executor(out, workers, cluster=cluster) as executor, bar(name, len(jobs)) as advance:
        # In portions, so that what is known is written as it comes.
        size = 3 * max(executor.workers, 1)
        for start in range(0, len(jobs), size):
            outcomes = executor.map(jobs[start : start + size], advance)
            for (number, variant, each), outcome in zip(asked[start:], outcomes, strict=False):
                curves[number, variant.label, each] = outcome.result
            write(cases, curves)
    result = write(cases, curves)
    from analysis.figures.export import write_pngs
    from analysis.figures.studies.students import (
        learning_figures,  # brings Altair, which no job needs
    )

    figures = {figure.name: figure for figure in learning_figures(name, result["cases"])}
    for path in write_pngs(figures, out):
        console.print(f"wrote {path}")
    console.print(f"wrote {out / name}.json")
    for case in result["cases"]:
        console.print(case_table(case))
    return result


def _job(case: Case, variant: Variant, seed: int, profile: str) -> LearningJob:
    return LearningJob.with_spec(
        variant.spec,
        game=case.game,
        network=case.network,
        latency=load_profile(profile or case.profile),
        settings={**case.settings, **variant.settings},
        env_steps=case.env_steps,
        until_score=case.scores[-1] if case.ends_at_score else None,
        seed=seed,
    )


def _write(
    out: Path,
    cases: Sequence[Case],
    curves: Curves,
    *,
    name: str,
    budget: str,
    seed: int,
    profile: str,
) -> dict[str, Any]:
    result = {
        "study": name,
        "budget": budget,
        "seed": seed,
        "cases": [
            case_result(case, _of_case(number, curves), profile)
            for number, case in enumerate(cases)
        ],
        "fingerprint": fingerprint(),
        "versions": versions(),
        "command": study_command(name, budget, seed, profile),
    }
    write_json(out / f"{name}.json", result)
    return result


def _of_case(number: int, curves: Curves) -> dict[tuple[str, int], LearningCurve]:
    return {
        (label, seed): curve for (place, label, seed), curve in curves.items() if place == number
    }
