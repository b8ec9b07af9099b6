"""The studies `students` and `correctors`: learning curves of compressed actors, compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from accerl.errors import UserError, did_you_mean
from accerl.records import fingerprint, make_out_dir, versions, write_json
from accerl.runtime.latency.profiles import load_profile
from studies.jobs.executor import check_workers, open_executor
from studies.progress import bar, console, numbers_table
from studies.students.job import LearningCurve, LearningJob
from studies.students.plan import CORRECTORS, STUDENTS, Case, Variant
from studies.students.table import compare, row_of

CURVES_POINTS = 25
"""of each curve that is kept beside the table"""
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
    if budget not in plans:
        raise UserError(f"--budget {budget!r} does not exist; {did_you_mean(budget, [*plans])}")
    check_workers(workers, cluster)
    if storage:
        raise UserError(f"{name} tunes nothing with Optuna: leave --storage out")
    if seed < 0:
        raise UserError(f"--seed must not be negative, got {seed}")
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
        size = max(executor.workers, 1)
        for start in range(0, len(jobs), size):
            outcomes = executor.map(jobs[start : start + size], advance)
            for (number, variant, each), outcome in zip(asked[start:], outcomes, strict=False):
                curves[number, variant.label, each] = outcome.result
            write(cases, curves)
    result = write(cases, curves)
    from analysis.figures.export import write_pngs
    from analysis.figures.students import learning_figures  # brings Altair, which no job needs

    figures = {figure.name: figure for figure in learning_figures(name, result["cases"])}
    for path in write_pngs(figures, out):
        console.print(f"wrote {path}")
    console.print(f"wrote {out / name}.json")
    for case in result["cases"]:
        console.print(_table(case))
    return result


def _job(case: Case, variant: Variant, seed: int, profile: str) -> LearningJob:
    return LearningJob(
        game=case.game,
        network=case.network,
        latency=load_profile(profile or case.profile),
        spec=variant.spec,
        settings={**case.settings, **variant.settings},
        env_steps=case.env_steps,
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
    options = f"--budget {budget} --seed {seed}" + (f" --profile {profile}" if profile else "")
    result = {
        "study": name,
        "budget": budget,
        "seed": seed,
        "cases": [_case(number, case, curves, profile) for number, case in enumerate(cases)],
        "fingerprint": fingerprint(),
        "versions": versions(),
        "command": f"accerl study run {name} {options} --out DIR",
    }
    write_json(out / f"{name}.json", result)
    return result


def _case(number: int, case: Case, curves: Curves, profile: str) -> dict[str, Any]:
    found = {
        variant.label: {
            each: curve
            for (place, label, each), curve in curves.items()
            if place == number and label == variant.label
        }
        for variant in case.variants
    }
    rows = {
        label: [row_of(curve, case.scores, each) for each, curve in own.items()]
        for label, own in found.items()
    }
    first = case.variants[0].label
    return {
        "game": case.game,
        "profile": profile or case.profile,
        "network": case.network,
        "scores": list(case.scores),
        "env_steps": case.env_steps,
        "baseline": first,
        "variants": [
            {
                "label": variant.label,
                "spec": variant.spec.to_json(),
                "settings": {**case.settings, **variant.settings},
                **compare(rows[variant.label], rows[first], case.scores),
                "runs": rows[variant.label],
                "curves": [_thinned(each, curve) for each, curve in found[variant.label].items()],
            }
            for variant in case.variants
            if rows[variant.label]
        ],
    }


def _thinned(seed: int, curve: LearningCurve) -> dict[str, Any]:
    every = max(len(curve.seconds) // CURVES_POINTS, 1)
    names = ("seconds", "env_steps", "scores", "compression_kl_nats", "kl_nats")
    return {"seed": seed} | {
        name: [_short(value) for value in list(getattr(curve, name))[every - 1 :: every]]
        for name in names
    }


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _table(case: Mapping[str, Any]) -> Any:
    title = f"{case['game']} on {case['profile']}, learner {case['network']}"
    columns = ["KL", "live KL"]
    for score in case["scores"]:
        columns += [f"to {score:g}", "env steps", "ratio", "seconds", "ratio"]
    table = numbers_table(title, "actors", *columns, "last", "distilling")
    for row in case["variants"]:
        cells = [_number(row[name], ".3f") for name in ("compression_kl_nats", "kl_nats")]
        for found in row["to_score"]:
            mark = ">" if found["is_bound"] else ""
            cells += [
                f"{found['reached']}/{row['seeds']}",
                f"{found['env_steps']:,.0f}",
                mark + _number(found["env_steps_ratio"], ".2f"),
                f"{found['seconds']:,.1f}",
                mark + _number(found["seconds_ratio"], ".2f"),
            ]
        last = _number(row["last_score"], ".1f")
        table.add_row(row["label"], *cells, last, f"{row['distill_cores']:.2f} cores")
    return table


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
