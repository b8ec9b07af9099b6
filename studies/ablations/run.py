"""`accerl study run ablations`: the indicator that ships, and the same without each part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from accerl.errors import UserError
from accerl.records import fingerprint, make_out_dir, versions, write_json
from accerl.runtime.latency.profiles import load_profile
from controller.env.instances import Instance, num_actions
from studies.ablations.plan import BUDGETS, Part, find_parts, make_plan
from studies.ablations.result import Runs, part_rows, run_rows
from studies.contest.budget import Budget
from studies.contest.costs import StepCosts
from studies.contest.hours import TYPICAL
from studies.contest.plan import check_specs, find_instances
from studies.contest.study import Study, add_references, strategy_job
from studies.core_seconds import CoreSeconds
from studies.jobs.inner import StrategyJob
from studies.options import StudyOptions
from studies.progress import console, duration, say
from studies.study_folder import PLAN, claim, write_plan

RESULT = "ablations.json"


def run_ablations(out: Path, options: StudyOptions) -> dict[str, Any]:
    """Run the study, or go on with one that was interrupted; return its result.

    Args:
        out: the study's folder; gets plan.json, ablations.json, ablations.html and a picture.
        options: what is asked; the seed is of what training starts from, and of bootstraps.

    Raises:
        UserError: the budget or the profile does not exist, a number is not allowed, a game is not
            installed, `out` holds another study, or no whole seed to end with.
    """
    options.check("ablations", BUDGETS, ends_early=True)
    spent, seed, profile = BUDGETS[options.budget], options.seed, options.profile
    if profile:
        spent = _on(spent, load_profile(profile).name)  # it may be given as a file
    for game in spent.env_steps:
        num_actions(game)  # says what to install
    machines = {name: load_profile(profile or name) for _, name in spent.pairs}
    if options.saved_only and not (out / PLAN).is_file():
        raise _incomplete(out)  # before anything is written
    make_out_dir(out)
    settings = options.settings("ablations")
    claim(out, settings)
    instances, parts = find_instances(spent, machines), find_parts(seed)
    check_specs(instances, spent.actions.all_specs)
    digest = write_plan(out, make_plan(spent, instances, parts, seed=seed))
    seconds = planned_seconds(spent, instances, len(parts), CoreSeconds(out))
    hours = duration(seconds / 2.0)
    console.print(
        f"  plan {digest[:12]}: {len(instances)} instances, {len(parts)} ways to decide, "
        f"{len(spent.test)} seeds; some {hours} on 2 cores"
    )
    with options.open_executor(out) as executor:
        study = Study(out, spent, seed, machines, instances, executor, StepCosts(out), digest)
        study.instances = add_references(study)
        asked = [_asked(study, parts, each) for each in spent.test]
        if options.saved_only:
            asked = _complete(study, asked)
        runs = _run(study, [*chain(*asked)])
        made_by = executor.runs_by
    rows = run_rows(study.instances, runs)
    result = {
        **settings,
        "plan_hash": digest,
        "seeds": sorted({seed for *_, seed in runs}),
        "planned_seeds": spent.test,
        "targets": {item.game: item.target_return for item in study.instances},
        "parts": part_rows(parts, study.instances, rows, seed),
        "runs": rows,
        "core_hours": study.core_seconds.spent / 3600.0,
        "fingerprint": fingerprint(),
        "versions": versions(),
        "runs_by": made_by,
        "command": options.command("ablations"),
    }
    return _show(out, result)


def _on(budget: Budget, machine: str) -> Budget:
    games = dict.fromkeys(game for game, _ in budget.held_out)
    return replace(budget, held_out=tuple((game, machine) for game in games))


def planned_seconds(
    budget: Budget, instances: Sequence[Instance], parts: int, costs: CoreSeconds
) -> float:
    """Return the core-seconds of all runs, those of the references included."""
    by_game: dict[str, list[float]] = {}
    for item in instances:
        by_game.setdefault(item.game, []).append(costs.of(item, TYPICAL) / len(TYPICAL))
    total = sum(sum(each) for each in by_game.values()) * parts * len(budget.test)
    return total + budget.reference_runs * sum(sum(each) / len(each) for each in by_game.values())


Asked = list[tuple[Part, Instance, int, StrategyJob]]
"""part, instance, seed, and what is run"""


def _asked(study: Study, parts: Sequence[Part], seed: int) -> Asked:
    return [
        (part, item, seed, strategy_job(item, seed, part.strategy))
        for item in study.instances
        for part in parts
    ]


def _complete(study: Study, by_seed: Sequence[Asked]) -> list[Asked]:
    """Return the first seeds of which all runs are saved.

    Raises:
        UserError: there are none.
    """
    saved = [all(study.executor.is_saved(job) for *_, job in each) for each in by_seed]
    count = [*saved, False].index(False)
    if not count:
        raise _incomplete(study.out)
    if count < len(by_seed):
        console.print(f"  ends early, with {count} of {len(by_seed)} planned seeds")
    return list(by_seed[:count])


def _incomplete(out: Path) -> UserError:
    return UserError(f"--saved-only: no seed of {out} is complete yet; leave it out")


def _run(study: Study, asked: Asked) -> Runs:
    """Make the runs seed by seed: what an interruption leaves are whole comparisons."""
    results = study.run_shown("runs", [job for *_, job in asked])
    return {
        (part.name, item.name, seed): result
        for (part, item, seed, _), result in zip(asked, results, strict=True)
    }


def _show(out: Path, result: dict[str, Any]) -> dict[str, Any]:
    from analysis.figures.export import write_pngs
    from analysis.figures.studies.ablations import ablation_figures  # brings Altair
    from analysis.render.html import write_page
    from analysis.render.terminal import rich_table
    from analysis.report.studies.ablations import ablation_sections, parts_table

    write_json(out / RESULT, result)
    console.print(rich_table(parts_table(result["parts"])))
    pictures = write_pngs(ablation_figures(result), out)
    page = write_page(ablation_sections(result), out / "ablations.html", "Ablations")
    for path in (out / RESULT, page, *pictures):
        say(f"wrote {path}")
    return result
