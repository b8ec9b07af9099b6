"""Whom a controller imitates before it tries for itself: a tuned rule, and the best static specs.

The second teacher knows what no rule does: on which machine it is. What the controller is shown is
what every spec looks like on every machine, so that it can tell machines apart by the features
alone. What to act with there is told in several ways, and whoever learns tries each:

- what the rule does, but the fastest spec where another one is clearly faster. Gains of a handful
  of runs differ by chance; environment steps per second hardly do. So this departs from the rule
  only on a machine whose limits the rule cannot see;
- the spec that gained most there over all trained games, or the mildest of those that gained about
  as much.

At first, before anything was seen, all machines look alike. So all begin with what the rule chooses
most: a student has to be distilled before it can act, and it costs less to begin with one and leave
it than to begin without and change. Where the rule itself begins without, beginning with the spec
of each machine is tried as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from accerl.spec import CompressionSpec
from controller.actions import ActionSpace
from controller.analytic.model import severity
from controller.objective import default_beta
from controller.training.rollouts import RecordedEpisode
from studies.contest.entrants import Entrant
from studies.contest.games import Study
from studies.jobs.inner import GameSetup, record_job
from studies.progress import bar, console

WAYS = {1.0: "the mildest of the best", 0.0: "the best"}
"""how many standard errors below the best a milder spec is preferred -> in words"""
FASTEST = "the fastest where the rule is clearly slower"
FASTER = 0.05
"""share by which more environment steps per second are clearly more"""
HOLD_INTERVALS = 2
"""how long the wandering recordings keep a spec: a controller must know switches too"""


@dataclass(frozen=True, kw_only=True)
class StaticsTeacher:
    """The best static spec of every trained machine, and what is seen on the way."""

    best: dict[str, CompressionSpec]
    """by latency profile; of specs that hardly differ the mildest"""
    lessons: dict[str, tuple[RecordedEpisode, ...]]
    """what to imitate, in words -> all specs and random switching, as seen on every machine, with
    what the teacher would have chosen there"""
    inner_runs: int


def record_rule(study: Study, rule: Entrant) -> list[RecordedEpisode]:
    """Return what a hand-set rule saw and chose on the trained instances."""
    asked = [(setup, seed) for seed in study.tune_seeds for setup in study.trained]
    jobs = [record_job_of(study, setup, seed, rule.strategy(setup.name)) for setup, seed in asked]
    with bar(f"recording {rule.label}", len(jobs)) as advance:
        results = study.runs.map(jobs, advance)
    return [RecordedEpisode.from_json(result) for result in results]


def record_statics(study: Study, rule: Sequence[RecordedEpisode]) -> StaticsTeacher:
    """Run every spec, and random switching, on the trained instances; see who was best where.

    Args:
        study: whose.
        rule: what the other teacher saw and chose.
    """
    actions, seeds = study.budget.actions, study.tune_seeds[: study.budget.teacher_seeds]
    specs = actions.all_specs
    places = [(setup, seed) for setup in study.trained for seed in seeds]
    jobs = [
        record_job_of(study, setup, seed, {"name": "fixed", "params": {"spec": spec.to_json()}})
        for setup, seed in places
        for spec in specs
    ]
    jobs += [record_job_of(study, setup, seed, _wandering(study, setup)) for setup, seed in places]
    with bar("recording static specs", len(jobs)) as advance:
        results = study.runs.map(jobs, advance)
    episodes = [RecordedEpisode.from_json(result) for result in results]
    shape = (len(study.trained), len(seeds), len(specs))
    fixed = range(len(places) * len(specs))
    betas = [default_beta(setup.horizon_seconds) for setup, _ in places for _ in specs]
    gains = np.array([episodes[at].discounted(betas[at]).sum() for at in fixed]).reshape(shape)
    steps = np.array([results[at]["env_steps"] for at in fixed])
    speeds = (steps / [episodes[at].seconds.sum() for at in fixed]).reshape(shape)
    machines = [setup.profile for setup in study.trained]
    home = _mostly(rule, actions)
    ways = {FASTEST: fastest_of_machines(machines, speeds, specs, home)}
    ways |= {what: best_of_machines(machines, gains, specs, e) for e, what in WAYS.items()}
    owners = [setup.profile for setup, _ in places for _ in specs]
    owners += [setup.profile for setup, _ in places]
    lessons: dict[str, tuple[RecordedEpisode, ...]] = {}
    for what, best in ways.items():
        told = ", ".join(f"{spec.label} on {machine}" for machine, spec in best.items())
        console.print(f"  to be imitated, {what}: {told}", highlight=False)
        # Gains of so few runs are no reason to begin otherwise than the rule.
        for first in dict.fromkeys([home, *(best.values() if what == FASTEST else ())]):
            shown = _shown(episodes, owners, best, first, actions)
            if not any(_alike(shown, known) for known in lessons.values()):
                lessons[f"{what}, beginning with {first.label}"] = shown
    return StaticsTeacher(
        best=best_of_machines(machines, gains, specs), lessons=lessons, inner_runs=len(jobs)
    )


def _mostly(rule: Sequence[RecordedEpisode], actions: ActionSpace) -> CompressionSpec:
    """Return the spec that a rule chose for most of the time."""
    seconds: dict[tuple[int, ...], float] = {}
    for episode in rule:
        for indices, length in zip(map(tuple, episode.actions), episode.seconds, strict=True):
            seconds[indices] = seconds.get(indices, 0.0) + float(length)
    return actions.spec(max(seconds, key=lambda indices: seconds[indices]))


def _shown(
    episodes: Sequence[RecordedEpisode],
    owners: Sequence[str],
    best: Mapping[str, CompressionSpec],
    first: CompressionSpec,
    actions: ActionSpace,
) -> tuple[RecordedEpisode, ...]:
    """Return the episodes with what the teacher would have chosen on their machines."""
    shown = []
    for machine, episode in zip(owners, episodes, strict=True):
        chosen = np.tile(actions.indices(best[machine]), (len(episode), 1))
        chosen[0] = actions.indices(first)
        shown.append(replace(episode, actions=chosen))
    return tuple(shown)


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
    hardly differ the best one is luck, and whoever imitates it must tell apart machines that are
    alike.

    Args:
        machines: of every instance.
        values: [instances, seeds, specs], more is better.
        specs: what was run.
        errors: 0 takes the best at its word.
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


def record_job_of(
    study: Study, setup: GameSetup, seed: int, strategy: dict[str, object]
) -> dict[str, object]:
    """Return the job that records a strategy on an instance."""
    return record_job(setup, seed, strategy, study.budget.actions, study.profile(setup))


def _wandering(study: Study, setup: GameSetup) -> dict[str, object]:
    params = {
        "specs": [spec.to_json() for spec in study.budget.actions.all_specs],
        "hold_seconds": HOLD_INTERVALS * setup.interval_seconds,
    }
    return {"name": "random", "params": params}


def _rows(episodes: Sequence[RecordedEpisode], width: int) -> list[Sequence[RecordedEpisode]]:
    return [episodes[at : at + width] for at in range(0, len(episodes), width)]
