"""The study `room`: a plan, references, the matrix, what is tuned, and what all that says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from accerl.monitor.strategies.search import all_specs
from accerl.records import fingerprint, make_out_dir, versions, write_json
from accerl.runtime.latency.profiles import load_profile
from accerl.spec import CompressionSpec
from analysis.comparison.room.matrix import room_of
from controller.env.instances import Instance
from studies.contest.plan import check_specs
from studies.contest.study import strategy_job
from studies.core_seconds import CoreSeconds
from studies.options import StudyOptions
from studies.progress import bar, console, duration, say
from studies.room.cells import (
    find_references,
    find_specs,
    make_cells,
    reference_cells,
    reference_jobs,
    reference_seeds,
    scales_of,
    with_references,
)
from studies.room.plan import (
    BUDGETS,
    CONFIRMED,
    CONFIRMED_SEEDS,
    CONTROL,
    COPY_SEEDS,
    DRAWN,
    EASY,
    RoomBudget,
    make_plan,
)
from studies.room.result import by_target, decomposition, dice, drawn_room, means_of
from studies.room.runs import make_matrix, rows_of
from studies.room.show import RESULT, show
from studies.room.study import RoomStudy, static
from studies.room.tested import RuleRuns, compared
from studies.room.tuned import (
    SCHEDULE,
    Rule,
    find_schedules,
    levels_of,
    shipped_rule,
    tune_rule,
)
from studies.storage import JOURNAL, open_storage, storage_errors
from studies.students.plan import INT8
from studies.study_folder import claim, write_plan

COPIED = INT8
"""the spec whose copies are compared"""


def run_room(out: Path, options: StudyOptions) -> dict[str, Any]:
    """Run the study, or go on with one that was interrupted; return its result.

    Args:
        out: the study's folder; gets plan.json, room.json, room.html and pictures.
        options: what is asked; the seed is that of samplers and bootstraps.

    Raises:
        UserError: the budget or the profile does not exist, a number is not allowed, or `out`
            holds another study.
    """
    options.check("room", BUDGETS, tunes=True)
    spent, seed = BUDGETS[options.budget], options.seed
    if options.profile:
        spent = replace(spent, machines=(options.profile,), control_machine="")
    names = dict.fromkeys([*spent.machines, spent.control_machine])
    machines = {name: load_profile(name) for name in names if name}
    # Where a control's machine or a confirmation's learner lacks a spec, that stays in the others.
    drawn = {name: machines[name] for name in spent.machines}
    specs, missing = find_specs(spent, [*spent.games, *spent.easy], drawn)
    make_out_dir(out)
    settings = options.settings("room")
    claim(out, settings)
    instances = make_cells(spent, machines, specs)
    if set(spent.rules) - {"advise-kl-cap"}:  # they choose from all combinations of levels
        drawn_cells = [item for item in instances if item.group in DRAWN]
        check_specs(drawn_cells, all_specs(levels_of(specs)))
    digest = write_plan(out, make_plan(spent, instances, missing, seed=seed))
    for label, lacking in missing.items():
        console.print(f"  left out: {label}, without times on {', '.join(lacking)}")
    costs = CoreSeconds(out, unlike=["minatar-freeway"])  # its J takes a tenth there
    console.print(
        f"  plan {digest[:12]}: {len(instances)} instances, {len(specs)} specs; "
        f"{duration(planned_seconds(spent, instances, specs, costs) / 2.0)} on 2 cores, those "
        "that are done already included"
    )
    with options.open_executor(out) as executor:
        study = RoomStudy(out, spent, specs, seed, executor, costs, digest)
        study.instances = _referenced(study, instances)
        info = {
            **settings,
            "plan_hash": digest,
            "specs_left_out": missing,
            "fingerprint": fingerprint(),
            "versions": versions(),
            "command": options.command("room"),
        }
        where = options.storage or str(out / JOURNAL)
        with storage_errors(where):
            result = _measure(study, where, info)
    return show(out, result)


def planned_seconds(
    budget: RoomBudget,
    instances: Sequence[Instance],
    specs: Sequence[CompressionSpec],
    costs: CoreSeconds,
) -> float:
    """Return the core-seconds of a budget; none of the specs counts as stopped."""
    by_cell = {item.name: costs.of(item, filter(item.has, specs)) for item in instances}
    means = {name: total / len(specs) for name, total in by_cell.items()}
    total = 0.0
    for item in instances:
        seeds = CONFIRMED_SEEDS if item.group == CONFIRMED else budget.seeds
        total += seeds * by_cell[item.name]
        if item.game in budget.copied and item.group not in (CONFIRMED, CONTROL):
            total += budget.copies * budget.seeds * costs.of(item, [COPIED])
    drawn = [item for item in instances if item.group in DRAWN]
    mean = sum(means[item.name] for item in drawn) / max(len(drawn), 1)
    tuned = budget.rule_runs + 2 * budget.rule_instances + budget.rule_seeds * len(drawn)
    total += mean * len(budget.rules) * tuned
    total += mean * budget.indicator * budget.rule_seeds * len(drawn)
    total += mean * budget.scheduled * (40 + len(specs) + budget.seeds)
    for game, item in reference_cells(budget).items():
        total += len(reference_seeds(budget, game)) * costs.of(item, specs[:1])
    return total


def _referenced(study: RoomStudy, instances: Sequence[Instance]) -> list[Instance]:
    """Make the long runs without compression; return the instances with scale and targets."""
    jobs = reference_jobs(study.budget)
    with bar("fp32 references", len(jobs)) as advance:
        results = study.results(jobs, advance)
    found = find_references(jobs, results)
    study.scales = scales_of(jobs, results, found)
    for row in study.scales:
        known, runs = row["noise_share"], len(found[row["game"]]["fp32_returns"])
        noise = "" if known is None else f"; chance moves J by {known:.0%} of that way"
        say(
            f"  {row['game']}: random {row['random_return']:.2f}, long fp32 runs "
            f"{row['reference_return']:.2f} (median of {runs}){noise}"
        )
    return with_references(instances, found)


def _measure(study: RoomStudy, storage: str, info: Mapping[str, Any]) -> dict[str, Any]:
    """Make all other runs; return what they say, which is written part by part.

    Args:
        study: whose instances have their targets.
        storage: Optuna's.
        info: what else the result says.
    """
    budget, seeds = study.budget, study.budget.matrix_seeds
    drawn = study.group(*DRAWN)
    study.run_matrix("matrix", drawn, seeds)
    matrix = study.run_missing(drawn, seeds)
    result = {"games": study.scales, **drawn_room(matrix, drawn, study.runs, study.seed)}
    result["targets"] = by_target(matrix, drawn, study.runs, study.seed)
    result["strategies"] = []
    result["decomposition"] = decomposition(result["room"], [])
    _keep(study, result, info)
    apart = []
    for place, name in enumerate((EASY, CONTROL, CONFIRMED)):
        if found := _apart(study, name, 10 + place):
            apart.append(found)
            result["means"] += found.pop("means")
    if budget.copied:
        apart.append(_placebo(study))
    result["groups"] += apart
    _keep(study, result, info)
    tested: list[RuleRuns] = []
    for rule in _rules(study, drawn, storage):
        tested.append(_test(study, rule, drawn))
        result["strategies"] = compared(matrix, drawn, tested, study.seed)
        result["decomposition"] = decomposition(result["room"], result["strategies"])
        _keep(study, result, info)
    own = [row for each in tested for rows in each.rows(drawn).values() for row in rows]
    return {**result, **_made(study), **info, "strategy_rows": own, "finished": True}


def _rules(study: RoomStudy, drawn: Sequence[Instance], storage: str) -> Iterator[Rule]:
    """Yield what is compared with the statics: each is tuned once the one before was tested."""
    if study.budget.indicator:
        yield shipped_rule(drawn)
    for name in study.budget.rules:
        yield tune_rule(study, name, drawn, open_storage(storage))
    if schedules := find_schedules(study, drawn):
        yield schedules


def _keep(study: RoomStudy, result: Mapping[str, Any], info: Mapping[str, Any]) -> None:
    """Write what is known so far: rules and schedules take hours more."""
    write_json(study.out / RESULT, {**result, **_made(study), **info, "finished": False})


def _made(study: RoomStudy) -> dict[str, Any]:
    """Return the rows of the matrix, what it saved to stop some of its specs, and core-hours."""
    return {
        "matrix": [
            {**row, "spec": CompressionSpec.from_label(label).to_json()}
            for (_, label, _), rows in study.runs.items()
            for row in rows
        ],
        "stopped": [
            {"instance": instance, "label": label, "seeds_saved": count}
            for (instance, label), count in study.stopped.items()
        ],
        "core_hours": study.costs.spent / 3600.0,
        "runs_by": study.executor.runs_by,
    }


def _apart(study: RoomStudy, group: str, comparison: int) -> dict[str, Any] | None:
    """Return the room within a group that is none of the drawn ones; None: it is empty."""
    instances = study.group(group)
    if not instances:
        return None
    budget = study.budget
    seeds = budget.matrix_seeds
    if group == CONFIRMED:
        seeds = seeds[:CONFIRMED_SEEDS]
    study.run_matrix(group, instances, seeds)
    matrix = study.run_missing(instances, seeds)
    room = room_of(matrix, dice(study.seed, comparison))
    return {"name": group, **room, "means": means_of(matrix, instances, study.runs)}


def _placebo(study: RoomStudy) -> dict[str, Any]:
    """Return the room among copies of one spec that differ in nothing but their seeds: none."""
    budget = study.budget
    instances = [item for item in study.group(*DRAWN, EASY) if item.game in budget.copied]
    names = [f"copy {copy + 1}" for copy in range(budget.copies)]
    asked = [
        (item, name, seed, COPY_SEEDS[copy * budget.seeds + place])
        for place, seed in enumerate(budget.matrix_seeds)
        for copy, name in enumerate(names)
        for item in instances
    ]
    jobs = [strategy_job(item, own, static(COPIED)) for item, _, _, own in asked]
    with bar("placebo: copies of one spec", len(jobs)) as advance:
        results = study.results(jobs, advance)
    runs = {
        (item.name, name, seed): rows_of(item, name, seed, result)
        for (item, name, seed, _), result in zip(asked, results, strict=True)
    }
    matrix = make_matrix(instances, names, budget.matrix_seeds, runs)
    return {
        "name": f"placebo: {budget.copies} copies of one spec",
        **room_of(matrix, dice(study.seed, 20)),
    }


def _test(study: RoomStudy, rule: Rule, instances: Sequence[Instance]) -> RuleRuns:
    """Run a rule on seeds of the matrix."""
    asked = [
        (item, seed)
        for seed in study.budget.matrix_seeds[: _test_seeds(study.budget, rule)]
        for item in instances
        if item.name in rule.by_instance
    ]
    jobs = [strategy_job(item, seed, rule.by_instance[item.name]) for item, seed in asked]
    with bar(f"testing: {rule.label}", len(jobs)) as advance:
        results = study.results(jobs, advance)
    runs = {(item.name, each): found for (item, each), found in zip(asked, results, strict=True)}
    return RuleRuns(rule, runs)


def _test_seeds(budget: RoomBudget, rule: Rule) -> int:
    return budget.seeds if rule.name == SCHEDULE else budget.rule_seeds
