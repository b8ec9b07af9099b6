"""Entrants of a contest: hand-set strategies and bandits, tuned at equal budgets.

Scope "one for all": one parameter set for every instance, tuned on the trained ones with
`Budget.inner_runs`, of which choosing among the best takes its part. Scope "per instance": a set
for each instance, tuned on that very game and machine with `Budget.instance_runs`, also where the
controller has never been: a comparator that knows more than the controller does. Both choose among
their best on the validation seeds, if there is more than one finalist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isnan
from typing import Any

from accerl.records import json_hash
from accerl.spec import CompressionSpec
from controller.env.instances import Instance
from studies.contest.budget import FP32, Budget
from studies.contest.study import Study, strategy_job
from studies.contest.tuning.guesses import guesses
from studies.contest.tuning.search import Tuned, choose_on_validation, tune
from studies.contest.tuning.spaces import SPACES_BY_NAME, SearchSpace
from studies.jobs.inner import score
from studies.progress import Advance, bar, console, silent

ALL, EACH = "one for all", "per instance"
STATIC = "static"
ADVISE = "advise"
"""kind of the rule that knows the machine's profile, and nothing of what it was not told"""
THRESHOLDS = ("kl-threshold", "reward-gap")
RULES = (*THRESHOLDS, "three-stage")
"""of which the best of each instance is tuned too"""
BANDITS = ("sw-ucb", "thompson", "gp-bandit")
KINDS = {
    STATIC: "static",
    **dict.fromkeys(THRESHOLDS, "threshold"),
    **dict.fromkeys(BANDITS, "bandit"),
    "linear-kl": "threshold",
    "advise-kl-cap": ADVISE,
    "three-stage": "schedule",
    "random": "random",
    "first-that-fires": "threshold",
}


@dataclass(frozen=True, kw_only=True)
class Entrant:
    """One contestant."""

    name: str
    """of its folder and rows"""
    label: str
    kind: str
    scope: str | None = None
    description: Mapping[str, Any] = field(default_factory=dict)
    """of its strategy, for every instance that has no own"""
    by_instance: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    inner_runs: int = 0
    """spent on tuning or training it, and on choosing what to enter"""
    validation_runs: int = 0
    """those of `inner_runs` that chose among finalists or candidates"""
    runs_per_instance: int | None = None
    """the same on each instance, if it was tuned for each by itself"""
    cpu_seconds: float = 0.0
    """of all inner runs that it needed, those that chose among finalists too"""
    test_seeds: Sequence[int] = ()
    """that it is tested on"""
    params: Mapping[str, Any] = field(default_factory=dict)
    """what came of that, for people"""
    primary: bool = False
    """whether the controller is compared with it first of all"""
    score: float = float("nan")
    """on the validation seeds"""
    searches: Sequence[str] = ()
    """keys of the spaces that were searched on each instance"""

    def strategy(self, instance: str) -> dict[str, Any]:
        """Return the description of its strategy on an instance."""
        return {**(self.by_instance.get(instance) or self.description), "label": self.name}

    def to_json(self) -> dict[str, Any]:
        """Return what a study's records say of it."""
        return {
            "name": self.name,
            "label": self.label,
            "kind": self.kind,
            "scope": self.scope,
            "tuned_params": dict(self.params),
            "inner_runs": self.inner_runs,
            "validation_runs": self.validation_runs,
            "runs_per_instance": self.runs_per_instance,
            "cpu_seconds": self.cpu_seconds,
            "test_seeds": list(self.test_seeds),
            "score": None if isnan(self.score) else self.score,
            "searches": list(self.searches),
        }


def primary_names(budget: Budget) -> list[str]:
    """Return what the primary comparisons are with, before anything is run.

    Which threshold rule and which bandit it will be is decided on the validation seeds.
    """
    kinds = {KINDS[name] for name in budget.entrants}
    names = ["fp32", "best static spec, one for all"]
    names += ["best threshold rule, one for all"] if "threshold" in kinds else []
    names += ["advise + KL cap"] if ADVISE in kinds else []
    names += ["best bandit"] if "bandit" in kinds else []
    if budget.instance_runs:
        names.append("best static spec of each instance")
    if rules_tuned_each(budget):
        names.append("best hand-set rule of each instance")
    return names + (["evolution strategies"] if "evolution" in budget.variants else [])


def rules_tuned_each(budget: Budget) -> list[str]:
    """Return the rules that are tuned for every instance by itself."""
    return [name for name in budget.entrants if budget.instance_runs and name in RULES]


def fp32() -> Entrant:
    """Return the entrant that never compresses."""
    return Entrant(name="fp32", label="fp32 only", kind="fp32", description=FP32, primary=True)


def tuned_for_all(study: Study, name: str, static: CompressionSpec | None = None) -> Tuned:
    """Tune one parameter set for all trained instances; choose it on the validation seeds.

    Args:
        study: the contest.
        name: of the strategy.
        static: the best static spec, which rules try first.
    """
    budget = study.budget
    space = _space(name)
    trained = study.trained
    validated = budget.finalists * len(trained) * len(study.validate_seeds)
    runs = budget.inner_runs - validated
    with bar(space.label, runs) as advance:
        tuned = tune(
            space,
            budget.actions,
            _evaluator(study, trained, study.tune_seeds, advance),
            instances=len(trained) * len(study.tune_seeds),
            runs=runs,
            out=study.out,
            seed=study.seed,
            plan=_scored_by(study),
            storage=study.storage,
            costs=study.costs,
            on_replayed=advance,
            first=guesses(name, static),
        )
    chosen = choose_on_validation(
        tuned,
        _evaluator(study, trained, study.validate_seeds),
        instances=len(trained) * len(study.validate_seeds),
        count=budget.finalists,
    )
    console.print(f"  {space.label}: {describe(chosen.params)} (score {chosen.score:.3f})")
    return chosen


def tuned_per_instance(
    study: Study, names: Sequence[str], statics: Mapping[str, CompressionSpec]
) -> tuple[dict[str, tuple[str, Tuned]], int, int]:
    """Tune every named strategy on each instance by itself.

    Args:
        study: the contest.
        names: of the strategies.
        statics: the best static spec of each instance, if known, which rules try first.

    Returns:
        the best of them by instance, how many inner runs were spent on all, and how many more on
        choosing among them.
    """
    best: dict[str, tuple[str, Tuned]] = {}
    spent, validated = 0, 0
    budget = study.budget
    total = budget.instance_runs * len(study.instances) * len(names)
    with bar(f"per instance: {', '.join(names)}", total) as advance:
        for item in study.instances:
            for name in names:
                space = _space(name)
                tuned = tune(
                    replace(space, key=f"{space.key}@{item.name}"),
                    budget.actions,
                    _evaluator(study, [item], study.tune_seeds, advance),
                    instances=len(study.tune_seeds),
                    runs=budget.instance_runs,
                    out=study.out,
                    seed=study.seed,
                    plan=_scored_by(study),
                    storage=study.storage,
                    costs=study.costs,
                    on_replayed=advance,
                    first=guesses(name, statics.get(item.name)),
                )
                spent += tuned.inner_runs
                chosen = choose_on_validation(
                    tuned,
                    _evaluator(study, [item], study.validate_seeds),
                    instances=len(study.validate_seeds),
                    count=budget.instance_finalists,
                )
                validated += len(chosen.candidates) * len(study.validate_seeds)
                if item.name not in best or chosen.score > best[item.name][1].score:
                    best[item.name] = (name, chosen)
    return best, spent, validated


def _scored_by(study: Study) -> str:
    """Return the hash of what scores depend on: the plan, and targets, which are measured after it.

    Drivers on processors of two kinds may share trials, and have other targets.
    """
    return json_hash([study.plan, [item.to_json() for item in study.instances]])


def _space(name: str) -> SearchSpace:
    return SPACES_BY_NAME["fixed" if name == STATIC else name]


def _evaluator(
    study: Study,
    instances: Sequence[Instance],
    seeds: Sequence[int],
    on_done: Advance = silent,
) -> Callable[[dict[str, Any], Sequence[int]], list[float]]:
    """Return what runs a strategy on numbered pairs of (instance, seed) and scores it."""
    pairs = [(instance, seed) for seed in seeds for instance in instances]

    def evaluate(strategy: dict[str, Any], numbers: Sequence[int]) -> list[float]:
        asked = [pairs[number] for number in numbers]
        jobs = [strategy_job(instance, seed, strategy) for instance, seed in asked]
        results = study.run(jobs, on_done)
        return [score(item, result) for (item, _), result in zip(asked, results, strict=True)]

    return evaluate


def tuned_entrants(study: Study) -> list[Entrant]:
    """Tune everything that the budget names; return the entrants, those of the primary first.

    Of several threshold rules the one with the best validation score stands for all of them in
    the primary comparisons, and likewise of several bandits; the others take part all the same.
    """
    found: list[Entrant] = []
    static: CompressionSpec | None = None
    for name in study.budget.entrants:
        found.append(_for_all(study, name, static))
        if name == STATIC:
            static = CompressionSpec.from_json(found[-1].params["spec"])
    for kind in ("static", "threshold", ADVISE, "bandit"):
        own = [item for item in found if item.kind == kind]
        if own:
            best = max(own, key=lambda item: item.score)
            found[found.index(best)] = replace(best, primary=True)
    if study.budget.instance_runs:
        each = _per_instance(study, "static_each", "best static spec of each instance", [STATIC])
        found.append(each)
        if rules := rules_tuned_each(study.budget):
            label = "best hand-set rule of each instance"
            found.append(_per_instance(study, "rule_each", label, rules, _specs_held(each)))
    study.core_seconds.save()
    return sorted(found, key=lambda item: not item.primary)


def _for_all(study: Study, name: str, static: CompressionSpec | None) -> Entrant:
    with study.costs.step(_space(name).key):
        tuned = tuned_for_all(study, name, static)
    validated = len(tuned.candidates) * len(study.trained) * len(study.validate_seeds)
    return Entrant(
        name=tuned.space.key,
        label=tuned.space.label,
        kind=KINDS[name],
        scope=ALL,
        description=tuned.strategy,
        inner_runs=tuned.inner_runs + validated,
        validation_runs=validated,
        cpu_seconds=study.costs[tuned.space.key],
        params=tuned.params,
        score=tuned.score,
    )


def _specs_held(static: Entrant) -> dict[str, CompressionSpec]:
    """Return the spec of a static entrant on each instance."""
    return {
        instance: CompressionSpec.from_json(params["spec"])
        for instance, params in static.params.items()
    }


def _per_instance(
    study: Study,
    key: str,
    label: str,
    names: Sequence[str],
    statics: Mapping[str, CompressionSpec] | None = None,
) -> Entrant:
    with study.costs.step(key):
        best, spent, validated = tuned_per_instance(study, names, statics or {})
    return Entrant(
        name=key,
        label=label,
        kind=KINDS[names[0]],
        scope=EACH,
        by_instance={item: tuned.strategy for item, (_, tuned) in best.items()},
        inner_runs=spent + validated,
        validation_runs=validated,
        runs_per_instance=(spent + validated) // len(study.instances),
        cpu_seconds=study.costs[key],
        params={item: tuned.params for item, (_, tuned) in best.items()},
        searches=[_space(name).key for name in names],
        primary=True,
    )


def describe(params: Mapping[str, Any]) -> str:
    """Return parameters in one line, specs by their labels."""
    return ", ".join(f"{name}={_in_words(value)}" for name, value in params.items())


def _in_words(value: Any) -> str:
    if isinstance(value, Mapping):
        return CompressionSpec.from_json(value).label
    if isinstance(value, list | tuple):
        # Terminals take brackets for markup.
        return f"({', '.join(_in_words(item) for item in value)})"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
