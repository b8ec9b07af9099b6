"""What changes its spec during a run: rules tuned for all instances, schedules for some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import numpy as np
from optuna.storages import BaseStorage

from accerl.records import json_hash
from accerl.spec import STUDENTS, CompressionSpec
from controller.actions import ActionSpace
from controller.env.instances import Instance
from controller.shipped import shipped_indicator
from studies.contest.budget import TUNE_SEEDS, VALIDATE_SEEDS
from studies.contest.study import strategy_job
from studies.contest.tuning.guesses import guesses
from studies.contest.tuning.search import choose_on_validation, tune
from studies.contest.tuning.spaces import SPACES_BY_NAME, SearchSpace
from studies.progress import Advance, bar, silent
from studies.room.runs import log_seconds, rows_of
from studies.room.study import RoomStudy, static

Strategy = Mapping[str, Any]
"""its description, see `studies.jobs.inner.build_strategy`"""
SCHEDULE, INDICATOR = "schedule", "indicator"
FINALISTS = 2
"""parameter sets of a rule that are run again on a validation seed"""
COMPOSED = 3
"""statics that schedules are made of"""
TWO_PHASES = (0.2, 0.5)
"""shares of the horizon at which the second phase begins"""
THREE_PHASES = ((0.2, 0.6),)
"""likewise of the second and the third"""
HALVING = ((1, 0), (1, 6), (2, 3))
"""seeds that are added, and how many candidates are left for them (0: all)"""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A strategy that was tuned, and what for."""

    name: str
    label: str
    by_instance: Mapping[str, Strategy]
    """its description, by name of the instance"""
    params: Mapping[str, Any]
    """what was found, for people; of schedules, by name of the instance"""
    inner_runs: int
    sets: int
    """of parameters that were run on all that it was tuned on: it is the best of these"""
    tuned_on: tuple[str, ...]
    """names of instances; of schedules, each on its own"""


def spread_over(instances: Sequence[Instance], count: int) -> list[Instance]:
    """Return some instances such that games take turns, and machines are of as many families."""
    games = list(dict.fromkeys(item.game for item in instances))
    machines = list(dict.fromkeys(item.profile for item in instances))
    # A family's machines are side by side: few of them are taken evenly spaced.
    count = min(count, len(instances))
    if count < len(machines):
        machines = [machines[at * len(machines) // count] for at in range(count)]
    by_name = {(item.game, item.profile): item for item in instances}
    places = [
        (games[(i + i // len(machines)) % len(games)], machines[i % len(machines)])
        for i in range(len(games) * len(machines))
    ]
    ordered = dict.fromkeys([*places, *by_name])
    return [by_name[place] for place in ordered if place in by_name][:count]


def levels_of(specs: Sequence[CompressionSpec]) -> ActionSpace:
    """Return the levels that searches choose from: those that the specs have, in any combination.

    So rules may act with specs that the matrix does not have.
    """
    students = {spec.student for spec in specs}
    return ActionSpace(
        bits=tuple(sorted({spec.bits for spec in specs}, reverse=True)),
        sparsities=tuple(sorted({spec.sparsity for spec in specs})),
        students=tuple(name for name in STUDENTS if name in students),
    )


def tune_rule(
    study: RoomStudy, name: str, instances: Sequence[Instance], storage: BaseStorage
) -> Rule:
    """Tune one parameter set for all; choose it on a validation seed.

    The search begins with what the contest's begins with, but for what follows from the best static
    spec: of that nothing is known here but by the test seeds.

    Args:
        study: whose budget is spent.
        name: a key of `SPACES_BY_NAME`.
        instances: all that the rule is for; it is tuned on some of them.
        storage: of the trials.
    """
    budget = study.budget
    space = _over(SPACES_BY_NAME[name], study.specs)
    chosen = spread_over(instances, budget.rule_instances)
    with bar(f"tuning: {space.label}", budget.rule_runs) as advance:
        found = tune(
            space,
            levels_of(study.specs),
            _Evaluator(study, chosen, TUNE_SEEDS[0], advance),
            instances=len(chosen),
            runs=budget.rule_runs,
            out=study.out,
            seed=study.seed,
            # The plan does not say what rules are tuned on, and targets are measured after it.
            plan=json_hash([study.plan, [item.to_json() for item in chosen], TUNE_SEEDS[0]]),
            storage=storage,
            on_replayed=advance,
            first=guesses(name, None),
        )
    validated = choose_on_validation(
        found,
        _Evaluator(study, chosen, VALIDATE_SEEDS[0]),
        instances=len(chosen),
        count=FINALISTS,
    )
    described = {**validated.strategy, "label": name}
    return Rule(
        name=name,
        label=space.label,
        by_instance={item.name: described for item in instances},
        params=validated.params,
        inner_runs=found.inner_runs + len(validated.candidates) * len(chosen),
        sets=len(found.candidates),
        tuned_on=tuple(item.name for item in chosen),
    )


def _over(space: SearchSpace, specs: Sequence[CompressionSpec]) -> SearchSpace:
    """Return a space whose lists of specs are the study's own."""

    def suggest(trial: Any, actions: Any) -> dict[str, Any]:
        params = space.suggest(trial, actions)
        own = {"specs": [spec.to_json() for spec in specs]} if "specs" in params else {}
        return {**params, **own}

    return replace(space, suggest=suggest)


@dataclass(frozen=True)
class _Evaluator:
    """Runs a strategy on numbered instances; scores minus log seconds."""

    study: RoomStudy
    instances: Sequence[Instance]
    seed: int
    on_done: Advance = silent

    def __call__(self, strategy: dict[str, Any], numbers: Sequence[int]) -> list[float]:
        asked = [(self.instances[number], strategy) for number in numbers]
        return [-value for value in seconds_of(self.study, asked, [self.seed], self.on_done)]


def seconds_of(
    study: RoomStudy,
    asked: Sequence[tuple[Instance, Strategy]],
    seeds: Sequence[int],
    on_done: Advance = silent,
) -> list[float]:
    """Return the mean log seconds of strategies on instances, over some seeds."""
    jobs = [strategy_job(item, seed, what) for item, what in asked for seed in seeds]
    results = iter(study.results(jobs, on_done))
    return [
        float(np.mean([log_seconds(rows_of(item, "", seed, next(results))) for seed in seeds]))
        for item, _ in asked
    ]


def shipped_rule(instances: Sequence[Instance]) -> Rule:
    """Return the indicator that comes with AcceRL, as it is.

    Nothing is tuned for the instances; its prior was set by runs of some of the games.
    """
    described = {**shipped_indicator().to_json(), "label": INDICATOR}
    return Rule(
        name=INDICATOR,
        label="Advanced Indicator that ships",
        by_instance={item.name: described for item in instances},
        params={},
        inner_runs=0,
        sets=1,
        tuned_on=(),
    )


def find_schedules(study: RoomStudy, instances: Sequence[Instance]) -> Rule | None:
    """Search the best schedule of some instances by successive halving, on tuning seeds.

    All statics are run on one seed; the best `COMPOSED` of them, and the schedules of two and three
    phases that they make, go through the rungs of `HALVING`. A static may win.
    """
    chosen = spread_over(instances, study.budget.scheduled)
    if not chosen:
        return None
    by_instance, params, runs = {}, {}, 0
    with bar("schedules", len(chosen)) as advance:
        for item in chosen:
            best, spent = _schedule(study, item)
            by_instance[item.name] = {**best, "label": SCHEDULE}
            params[item.name] = best["params"]
            runs += spent
            advance()
    switching = sum(map(switches, params.values()))
    return Rule(
        name=SCHEDULE,
        label=f"best schedule of one to three phases ({switching} of {len(params)} switch)",
        by_instance=by_instance,
        params=params,
        inner_runs=runs,
        sets=len(composed(study.specs[:COMPOSED])) + len(study.specs),
        tuned_on=tuple(by_instance),
    )


def switches(params: Mapping[str, Any]) -> bool:
    """Return whether a schedule changes its spec; a static one has a single `spec`."""
    return "spec" not in params


def _schedule(study: RoomStudy, instance: Instance) -> tuple[Strategy, int]:
    """Return an instance's best schedule, and how many runs were asked for."""
    specs = [spec for spec in study.specs if instance.has(spec)]
    statics = [static(spec, "tuned") for spec in specs]
    first = seconds_of(study, [(instance, each) for each in statics], TUNE_SEEDS[:1])
    order = np.argsort(first, kind="stable")[:COMPOSED]
    left = [statics[at] for at in order] + composed([specs[at] for at in order])
    spent, seeds = len(statics) + len(left) - len(order), 0
    for added, keep in HALVING:
        left = left[:keep] if keep else left
        spent += len(left) * added if seeds else 0
        seeds += added
        scores = seconds_of(study, [(instance, each) for each in left], TUNE_SEEDS[:seeds])
        left = [left[at] for at in np.argsort(scores, kind="stable")]
    return left[0], spent


def composed(specs: Sequence[CompressionSpec]) -> list[Strategy]:
    """Return the schedules of two and three phases that specs make."""
    found = []
    for first, second in permutations(specs, 2):
        for share in TWO_PHASES:
            found.append(_phases(first, second, second, share, 1.0))
        for begin, end in THREE_PHASES:
            found.append(_phases(first, second, first, begin, end))
    for phases in permutations(specs, 3):
        for begin, end in THREE_PHASES:
            found.append(_phases(*phases, begin, end))
    return found


def _phases(
    first: CompressionSpec,
    second: CompressionSpec,
    third: CompressionSpec,
    begin: float,
    end: float,
) -> Strategy:
    params = {
        "exploring": first.to_json(),
        "improving": second.to_json(),
        "converged": third.to_json(),
        "by": "time",
        "improving_from": begin,
        "converged_from": end,
    }
    return {"name": "three-stage", "params": params}
