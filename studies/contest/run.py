"""The contest: a plan, references, tuning, meta-training, a test on seeds opened once, a report.

1 write and hash the plan -> 2 reference runs without compression set scale and target -> 3 tune the
hand-set strategies and bandits -> 4 meta-train the controller and its variants, every one with the
same number of inner runs -> 5 test all of them on seeds and instances that nothing was chosen on ->
6 export the controller, and drive runs on the real clock -> 7 report.

Every step keeps what it has done: the same command goes on where an earlier one was interrupted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from accerl.errors import UserError
from accerl.records import fingerprint, make_out_dir, read_json, versions, write_bytes, write_json
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.profiles import load_profile
from analysis.records.read import read_list
from controller.bundle.bundle import check_place
from controller.env.instances import Instance, num_actions
from controller.indicator.strategy import AdvancedIndicator
from studies.contest import deliver
from studies.contest.budget import BUDGETS, MEASURED, Budget
from studies.contest.costs import StepCosts
from studies.contest.deliver import Results
from studies.contest.entrants import EACH, Entrant, primary_names, tuned_entrants
from studies.contest.hours import CORES, planned_seconds
from studies.contest.plan import (
    TRAINED,
    check_rule,
    check_specs,
    find_instances,
    make_plan,
    open_test,
)
from studies.contest.real_clock import SCORE_RANGES, real_contest
from studies.contest.rivals import check_rivals, rival_notes, trained_rivals
from studies.contest.study import Study, add_references, find_profiles, save_profiles
from studies.contest.testing import all_entrants, ended_early, is_tested, run_test
from studies.contest.training import SHIELD, Trained, train_all, write_training
from studies.contest.variants import CONTROLLER, VARIANTS
from studies.core_seconds import CoreSeconds
from studies.options import StudyOptions
from studies.profile_tables import print_profile, print_profiles, profile_row
from studies.progress import Steps, console, duration
from studies.storage import JOURNAL, open_storage, storage_errors
from studies.study_folder import OPENED, claim, write_plan


def run_contest(out: Path, options: StudyOptions, *, name: str = "contest") -> dict[str, Any]:
    """Run a contest, or go on with one that was interrupted; return its result.

    Args:
        out: the study's folder.
        options: what is asked; the seed is that of samplers, controller initialisation and action
            noise, and a profile holds for all games, in place of the budget's machines.
        name: contest, or quickstart: the same with less of everything.

    Raises:
        UserError: the budget or profile does not exist, the seed is not allowed, a package that
            the budget needs is not installed, or `out` holds another study, or none to end: no
            test seed is complete, or what comes before the test is not.
    """
    budgets = BUDGETS[name]
    options.check(name, budgets, tunes=True, ends_early=True)
    spent, seed, profile = budgets[options.budget], options.seed, options.profile
    if profile:
        spent = spent.on(load_profile(profile).name)  # it may be given as a file
    _check_installed(spent)
    settings = options.settings(name)
    _check_opened(out, options.saved_only)
    make_out_dir(out)
    check_place(out / "bundle")  # in the end it would be too late
    claim(out, settings)
    started = perf_counter()
    steps = Steps(7, out / "wall.json")
    with options.open_executor(out) as executor:
        with steps.step("plan", "Writing the plan"):
            profiles = find_profiles(out, spent, profile, executor)
            instances, plan, digest = _plan(out, spent, seed, profiles)
            save_profiles(out, profiles)  # not before: a plan that is refused changes nothing
        study = Study(out, spent, seed, profiles, instances, executor, StepCosts(out), digest)
        with steps.step("reference", "Reference runs without compression"):
            study.instances = add_references(study)
        others, trained = _learn(study, options.storage or str(out / JOURNAL), steps)
        entrants = all_entrants(study, others, trained)
        if options.saved_only:
            study.budget = ended_early(study, entrants)
            entrants = all_entrants(study, others, trained)
        # Who makes no runs opens no seeds either.
        made = options.saved_only or is_tested(study, entrants)
        opened = [*read_list(out / OPENED)] if made else open_test(out, digest)
        with steps.step("test", "Testing on held-out seeds and instances, paired by seed"):
            results = run_test(study, entrants)
        with steps.step("replay", _export_title(spent)):
            _export(study, trained[0], entrants, results, digest)
            _write_variants(study, entrants, trained, results)
            _real(study, [] if options.saved_only else entrants)
    info = _study_json(study, settings, entrants, trained, plan, digest, steps)
    info["commands"] = [options.command(name)]
    _report(out, {**info, "test_opened": opened}, steps)
    console.print(f"  all of it took {(perf_counter() - started) / 60.0:.1f} minutes this time")
    return read_json(out / "contest.json")


def _learn(study: Study, storage: str, steps: Steps) -> tuple[list[Entrant], list[Trained]]:
    """Tune and train the rivals, and the controllers; return both."""
    with steps.step("tuning", "Tuning the comparators (Optuna)"), storage_errors(storage):
        study.storage = open_storage(storage)
        tuned = tuned_entrants(study)
    with steps.step("meta_training", "Meta-training the controller (policy gradient)"):
        variants = [VARIANTS[each] for each in study.budget.variants]
        trained = train_all(study, [CONTROLLER, *variants])
        write_training(study, trained)
        rivals = trained_rivals(study)
    return [*tuned, *rivals], trained


def _export_title(budget: Budget) -> str:
    more = "; running it on the real clock" if budget.real_seconds else ""
    return f"Exporting the controller{more}"


def _report(out: Path, info: Mapping[str, Any], steps: Steps) -> None:
    """Write study.json and the report."""
    write_json(out / "study.json", dict(info))
    with steps.step("report", "Writing the report"):
        deliver.report(out, console)
    write_json(out / "study.json", {**info, "wall_seconds": steps.seconds})


def _check_opened(out: Path, saved_only: bool) -> None:
    """Refuse to end what has not begun."""
    if saved_only and not (out / OPENED).is_file():
        raise UserError(f"--saved-only: {out} holds no test runs yet; leave it out to make them")


def _check_installed(budget: Budget) -> None:
    """Refuse a budget whose rivals or games need what is not installed, before anything is written.

    Raises:
        UserError: with what to install.
    """
    check_rivals(budget)
    for game in budget.env_steps:
        num_actions(game)


def _plan(
    out: Path, budget: Budget, seed: int, profiles: Mapping[str, LatencyProfile]
) -> tuple[list[Instance], dict[str, Any], str]:
    """Write and print the plan; return its instances, the plan and its hash."""
    _print_machines(profiles)
    instances = find_instances(budget, profiles)
    check_specs(instances, budget.actions.all_specs)
    for item in instances:
        console.print(f"  {item.name}: {item.group}, limited by the {item.limit}")
    if budget.held_out:
        check_rule(instances)
    plan = make_plan(budget, instances, seed=seed, primary=primary_names(budget))
    digest = write_plan(out, plan)
    hours = duration(planned_seconds(budget, instances, CoreSeconds(out)) / CORES)
    console.print(
        f"  plan {digest[:12]}: {len(instances)} instances, kept in {out / 'plan.json'}; "
        f"some {hours} on {CORES} cores"
    )
    return instances, plan, digest


def _print_machines(profiles: Mapping[str, LatencyProfile]) -> None:
    """Print every time of what was measured here, and a row for each machine that comes with us."""
    if MEASURED in profiles:
        print_profile(profiles[MEASURED], console)
    others = [latency for name, latency in profiles.items() if name != MEASURED]
    if others:
        print_profiles([profile_row(latency) for latency in others], console)


def _export(
    study: Study,
    controller: Trained,
    entrants: Sequence[Entrant],
    results: Results,
    digest: str,
) -> None:
    """Export the controller as a bundle, with its results against the primary comparators."""
    compared = {item.name for item in entrants if item.primary} | {CONTROLLER.name}
    assert isinstance(controller.indicator, AdvancedIndicator)
    deliver.export(
        study.out,
        controller.indicator,
        study.budget.actions,
        study.instances,
        study.trained,
        study.profiles,
        {name: results[name] for name in results if name in compared},
        subject=CONTROLLER.name,
        decisions=controller.decisions,
        shield_nats=SHIELD["threshold_nats"],
        inner_runs=controller.entrant.inner_runs,
        ended_with=controller.entrant.params["accepted"],
        seeds=controller.seeds,
        validated=study.validate_seeds,
        contest=digest,
    )


def _write_variants(
    study: Study,
    entrants: Sequence[Entrant],
    trained: Sequence[Trained],
    results: Results,
) -> None:
    """Write variants.json: every way of training against the best threshold rule."""
    rules = [item for item in entrants if item.kind == "threshold" and item.scope != EACH]
    rule = next(item.name for item in rules if item.primary)
    new = [item for item in study.instances if item.group != TRAINED]
    rows = deliver.variant_rows(new or study.trained, results, trained, rule)
    write_json(study.out / "variants.json", rows)


def _real(study: Study, entrants: Sequence[Entrant]) -> None:
    """Run on the real clock: the bundle in short, or controller, threshold and fp32.

    Of a study that makes no more runs there are no entrants.
    """
    budget = study.budget
    if budget.real_seconds == 0.0 or not entrants:
        return
    study.executor.take_folder()  # all jobs may be saved, and the replay is none
    if budget.real_seeds == 0:
        times = study.profiles.get(MEASURED)
        is_ours = times is not None and times.fingerprint.get("id") == fingerprint()["id"]
        deliver.replay(study.out, budget.real_seconds, study.seed, times if is_ours else None)
        return
    by_kind = {item.kind: item for item in reversed(entrants) if item.scope != EACH}
    wanted = [by_kind[kind] for kind in ("controller", "threshold", "fp32")]
    instances = {item.game: item for item in study.instances}
    others = {
        game: replace(study.trained[0], game=game, random_return=lowest, reference_return=highest)
        for game, (lowest, highest) in SCORE_RANGES.items()
    }

    def describe(entrant: Entrant, game: str) -> tuple[Mapping[str, Any], Instance]:
        instance = instances.get(game) or others[game]
        return entrant.strategy(instance.name), instance

    real_contest(
        study.out,
        study.executor,
        {item.name: partial(describe, item) for item in wanted},
        budget.actions.all_specs,
        games=budget.real_games,
        seeds=budget.real_seeds,
        seconds=budget.real_seconds,
        changing=budget.changing,
        repeats=max(budget.profile_repeats, 3),
    )


def _study_json(
    study: Study,
    settings: Mapping[str, Any],
    entrants: Sequence[Entrant],
    trained: Sequence[Trained],
    plan: Mapping[str, Any],
    digest: str,
    steps: Steps,
) -> dict[str, Any]:
    """Return what the records say of the whole study."""
    rows = [row for item in trained for row in item.history]
    text = "".join(json.dumps(row) + "\n" for row in rows if row["variant"] == CONTROLLER.name)
    write_bytes(study.out / "meta_training.jsonl", text.encode())
    return {
        **settings,
        "name": settings["study"],
        "subject": CONTROLLER.name,
        "plan": dict(plan),
        "plan_hash": digest,
        "primary_against": [item.name for item in entrants if item.primary],
        "primary_groups": plan["primary"]["groups"],
        "fingerprint": fingerprint(),
        "versions": versions(),
        "runs_by": study.executor.runs_by,
        "profile": " and ".join(study.profiles),
        "profile_hashes": {name: latency.hash for name, latency in study.profiles.items()},
        "tier": "virtual",
        "games": {item.name: item.to_json() for item in study.instances},
        "strategies": [item.to_json() for item in entrants],
        "tune_seeds": study.tune_seeds,
        "validate_seeds": study.validate_seeds,
        "test_seeds": study.test_seeds,
        "pretrain_iterations_tier0": study.budget.pretrain_iterations,
        "accounting": {
            "inner_runs": trained[0].entrant.inner_runs,
            "accepted": trained[0].entrant.params["accepted"],
            "meta_cpu_seconds": trained[0].entrant.cpu_seconds,
            "meta_wall_seconds": trained[0].wall_seconds(study.executor.workers),
            "processes": study.executor.workers,
        },
        "wall_seconds": dict(steps.seconds),
        "notes": [
            "Games are learned for real; every operation is charged the seconds that it takes in "
            "a latency profile.",
            "The Advanced Indicator starts from a rule: the fastest spec whose KL is at most a "
            "cap, by what it believes. It is trained on drawn games and machines, which "
            "costs no inner run, then on real learning; the best on validation seeds is entered.",
            *rival_notes(study.budget),
        ],
    }
