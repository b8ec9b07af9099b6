"""Demonstrations for behaviour cloning: a tuned threshold rule, and the best static specs.

A threshold rule does not know on which machine it is. The static demonstrations show what every
spec looks like on every machine, so that a controller can tell machines apart by the features
alone. Which spec is the right one on a machine is labelled in several ways; each is cloned:

- the rule's spec, but the fastest one where it is clearly faster. Gains of a handful of runs differ
  by chance; environment steps per second hardly do. So this departs from the rule only on a machine
  whose limits the rule cannot see;
- the spec that gained most there over all trained games, or the mildest of those that gained about
  as much.

Before the first interval all machines look alike. So all demonstrations begin with the spec that
the rule chooses most: a student has to be distilled before it can act, and to begin with one and
leave it costs less than to begin without and change. Where the rule itself begins without, the spec
of each machine is also tried from the start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from accerl.spec import CompressionSpec
from controller.actions import ActionSpace
from controller.analytic.model import severity
from controller.env.instances import Instance
from controller.objective import default_beta
from controller.training.rollouts import RecordedEpisode
from studies.contest.entrants import TUNED, Entrant
from studies.contest.study import Study, strategy_job
from studies.jobs.inner import StrategyJob, StrategyResult
from studies.progress import console

WAYS = {1.0: "the mildest of the best", 0.0: "the best"}
"""how many standard errors below the best a milder spec is preferred -> in words"""
FASTEST = "the fastest where the rule is clearly slower"
FASTER = 0.05
"""share by which more environment steps per second are clearly more"""
HOLD_INTERVALS = 2
"""how long random switching keeps a spec: a controller must know switches too"""


@dataclass(frozen=True, kw_only=True)
class StaticDemonstrations:
    """The best static spec of every trained machine, and runs labelled with it."""

    best: dict[str, CompressionSpec]
    """by latency profile; of specs that hardly differ the mildest"""
    labelled: dict[str, tuple[RecordedEpisode, ...]]
    """by the way of labelling: all specs and random switching on every machine"""
    inner_runs: int


def record_rule(study: Study, rule: Entrant) -> list[RecordedEpisode]:
    """Return what a hand-set rule saw and chose on the trained instances."""
    places = [(instance, seed) for seed in study.tune_seeds for instance in study.trained]
    jobs = [_tuned_job(item, seed, rule.strategy(item.name)) for item, seed in places]
    results = study.run_shown(f"recording {rule.label}", jobs)
    return _episodes(study, [item for item, _ in places], results)


def record_statics(study: Study, rule: Sequence[RecordedEpisode]) -> StaticDemonstrations:
    """Run every spec, and random switching, on the trained instances; find the best by machine.

    Args:
        study: the contest.
        rule: what the threshold rule saw and chose.
    """
    actions, seeds = study.budget.actions, study.tune_seeds[: study.budget.demonstration_seeds]
    specs = actions.all_specs
    places = [(instance, seed) for instance in study.trained for seed in seeds]
    jobs = [
        _tuned_job(instance, seed, {"name": "fixed", "params": {"spec": spec.to_json()}})
        for instance, seed in places
        for spec in specs
    ]
    jobs += [_tuned_job(item, seed, _random_switching(study, item)) for item, seed in places]
    results = study.run_shown("recording static specs", jobs)
    instances = [job.instance for job in jobs]
    episodes = _episodes(study, instances, results)
    shape = (len(study.trained), len(seeds), len(specs))
    fixed = range(len(places) * len(specs))
    betas = [default_beta(instance.horizon_seconds) for instance in instances]
    gains = np.array([episodes[at].discounted(betas[at]).sum() for at in fixed]).reshape(shape)
    steps = np.array([results[at].env_steps[-1] for at in fixed])
    speeds = (steps / [episodes[at].seconds.sum() for at in fixed]).reshape(shape)
    machines = [instance.profile for instance in study.trained]
    home = _mostly(rule, actions)
    ways = {FASTEST: fastest_of_machines(machines, speeds, specs, home)}
    ways |= {way: best_of_machines(machines, gains, specs, e) for e, way in WAYS.items()}
    labelled: dict[str, tuple[RecordedEpisode, ...]] = {}
    for way, best in ways.items():
        listed = ", ".join(f"{spec.label} on {machine}" for machine, spec in best.items())
        console.print(f"  demonstrated, {way}: {listed}", highlight=False)
        # Gains of so few runs are no reason to begin otherwise than the rule.
        for first in dict.fromkeys([home, *(best.values() if way == FASTEST else ())]):
            found = _label(episodes, [item.profile for item in instances], best, first, actions)
            if not any(_alike(found, known) for known in labelled.values()):
                labelled[f"{way}, beginning with {first.label}"] = found
    best = best_of_machines(machines, gains, specs)
    return StaticDemonstrations(best=best, labelled=labelled, inner_runs=len(jobs))


def _tuned_job(instance: Instance, seed: int, strategy: Mapping[str, Any]) -> StrategyJob:
    """Return a job that equals the one that tuning made of the same parameters."""
    return strategy_job(instance, seed, {**strategy, "label": TUNED})


def _episodes(
    study: Study, instances: Sequence[Instance], results: Sequence[StrategyResult]
) -> list[RecordedEpisode]:
    pairs = zip(instances, results, strict=True)
    return [result.episode(instance, study.budget.actions) for instance, result in pairs]


def _mostly(rule: Sequence[RecordedEpisode], actions: ActionSpace) -> CompressionSpec:
    """Return the spec that a rule chose for most of the time."""
    seconds: dict[tuple[int, ...], float] = {}
    for episode in rule:
        for indices, length in zip(map(tuple, episode.actions), episode.seconds, strict=True):
            seconds[indices] = seconds.get(indices, 0.0) + float(length)
    return actions.spec(max(seconds, key=lambda indices: seconds[indices]))


def _label(
    episodes: Sequence[RecordedEpisode],
    machines: Sequence[str],
    best: Mapping[str, CompressionSpec],
    first: CompressionSpec,
    actions: ActionSpace,
) -> tuple[RecordedEpisode, ...]:
    """Return the episodes as if the best spec of their machine had been chosen in them."""
    labelled = []
    for machine, episode in zip(machines, episodes, strict=True):
        chosen = np.tile(actions.indices(best[machine]), (len(episode), 1))
        chosen[0] = actions.indices(first)
        labelled.append(replace(episode, actions=chosen))
    return tuple(labelled)


def _alike(some: Sequence[RecordedEpisode], others: Sequence[RecordedEpisode]) -> bool:
    return all(np.array_equal(a.actions, b.actions) for a, b in zip(some, others, strict=True))


def best_of_machines(
    machines: Sequence[str],
    values: np.ndarray,
    specs: Sequence[CompressionSpec],
    errors: float = 1.0,
) -> dict[str, CompressionSpec]:
    """Return the spec to act with on each machine, judged over games and seeds, each on its scale.

    That is the mildest of those that lie within `errors` standard errors of the best: where specs
    hardly differ the best one is luck, and a clone of it would have to tell apart machines that
    are alike.

    Args:
        machines: of every instance.
        values: [instances, seeds, specs], more is better.
        specs: what was run.
        errors: 0: the best by its mean alone.
    """
    scale = np.abs(values).mean(axis=(1, 2), keepdims=True)
    relative = values / np.where(scale > 0.0, scale, 1.0)
    mildest = sorted(range(len(specs)), key=lambda place: severity(specs[place]))
    found = {}
    for machine in dict.fromkeys(machines):
        own = relative[[name == machine for name in machines]].reshape(-1, len(specs))
        lost = own[:, [own.mean(axis=0).argmax()]] - own  # [runs, specs], paired by game and seed
        error = lost.std(axis=0, ddof=1) / np.sqrt(len(lost)) if len(lost) > 1 else 0.0 * lost[0]
        near = lost.mean(axis=0) <= errors * error
        found[machine] = specs[next(place for place in mildest if near[place])]
    return found


def fastest_of_machines(
    machines: Sequence[str],
    speeds: np.ndarray,
    specs: Sequence[CompressionSpec],
    home: CompressionSpec,
) -> dict[str, CompressionSpec]:
    """Return `home`, or on machines where another spec is clearly faster the fastest one.

    That is the mildest of those that are hardly slower than the fastest.

    Args:
        machines: of every instance.
        speeds: [instances, seeds, specs], environment steps per second.
        specs: what was run.
        home: what is kept unless another is more than `FASTER` faster.
    """
    mildest = sorted(range(len(specs)), key=lambda place: severity(specs[place]))
    found = {}
    for machine in dict.fromkeys(machines):
        own = speeds[[name == machine for name in machines]].reshape(-1, len(specs))
        relative = (own / np.maximum(own.max(axis=1, keepdims=True), 1e-9)).mean(axis=0)
        limit = relative.max() / (1.0 + FASTER)
        fast = next(specs[place] for place in mildest if relative[place] >= limit)
        found[machine] = home if relative[specs.index(home)] >= limit else fast
    return found


def _random_switching(study: Study, instance: Instance) -> dict[str, Any]:
    params = {
        "specs": [spec.to_json() for spec in study.budget.actions.all_specs],
        "hold_seconds": HOLD_INTERVALS * instance.interval_seconds,
    }
    return {"name": "random", "params": params}
