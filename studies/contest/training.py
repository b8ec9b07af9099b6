"""Meta-training on inner runs: clone demonstrations, pre-train, improve, and accept.

1 Clone the best tuned threshold rule: the incumbent. 2 Clone the best static spec of
each machine, labelled in several ways (`demonstrations.py`). 3 Pre-train on tier 0; that
costs no inner run. 4 Policy gradient, or evolution strategies as a cross-check, on the trained
instances with the runs that are left of what every tuned strategy got; it goes on from the best
policy so far, and is kept near it. Along the way candidates are run on the validation seeds; one
replaces the incumbent only if its paired 95% interval over it lies above zero. So no controller is
chosen that is worse, as far as validation can tell, than the rule it started from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from accerl.records import json_hash, write_json
from accerl.seeds import Role, generator, number, torch_generator
from accerl.spec import Decision
from analysis.comparison import stats
from controller.analytic.model import Machine, machine_from_profile
from controller.bundle.schedule import median_schedule
from controller.env.instances import SPLITS, Instance
from controller.policy.policy import ControllerPolicy
from controller.training.cloning import clone
from controller.training.config import MetaTrainConfig
from controller.training.evolution import Evolution, EvolutionConfig
from controller.training.policy_gradient import MetaTrainer
from controller.training.pretraining import pretrain_tier0
from controller.training.rollouts import RecordedEpisode, Trajectory
from studies.contest.demonstrations import StaticDemonstrations
from studies.contest.entrants import Entrant
from studies.contest.study import Study, score, strategy_job
from studies.contest.variants import Variant
from studies.jobs.inner import RolloutJob
from studies.progress import bar, console

ROLLOUTS = 4
SHIELD = {"threshold_nats": 14.0}
"""the paper's KL-max rule, around every learned controller"""
MILDEST = 0.02
"""of the analytic games that controllers are pre-trained on: small games forgive compression"""
Decisions = dict[str, list[Sequence[Decision]]]
"""what a policy chose on the validation seeds, by instance"""


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What came of a training."""

    policy: ControllerPolicy
    entrant: Entrant
    what: str
    """what is particular about it"""
    history: list[dict[str, Any]]
    checks: list[dict[str, Any]]
    """one row per candidate: its paired gain over the incumbent, with the interval"""
    seeds: list[int]
    """of the runs that its demonstrations and its training made"""
    decisions: Decisions
    """what the accepted policy chose on the validation seeds, by instance"""


def train_controller(
    study: Study,
    rule: Sequence[RecordedEpisode],
    statics: StaticDemonstrations | None,
    demonstration_seconds: float,
    variant: Variant,
) -> Trained:
    """Train one variant with `Budget.inner_runs` runs, those of its demonstrations included.

    Checking its candidates takes runs on top, and the rule that it begins with took its own.

    Args:
        study: the contest.
        rule: what the best threshold rule saw and chose.
        statics: the best static specs; None: they are not demonstrated.
        demonstration_seconds: processor seconds of finding and recording both.
        variant: what is particular about it.
    """
    with study.costs.step(variant.name):
        found = _train(study, rule, statics, variant)
    cpu_seconds = demonstration_seconds + study.costs[variant.name]
    return replace(found, entrant=replace(found.entrant, cpu_seconds=cpu_seconds))


def _train(
    study: Study,
    rule: Sequence[RecordedEpisode],
    statics: StaticDemonstrations | None,
    variant: Variant,
) -> Trained:
    budget = study.budget
    checker = _Checker(study, variant, _clone(study, variant, rule, "the rule"))
    demonstrated = len(rule)
    if statics is not None:
        demonstrated += statics.inner_runs
        for way, episodes in statics.labelled.items():
            cloned = _clone(study, variant, episodes, f"a static spec for each machine ({way})")
            checker.check(cloned, f"clone of a static spec for each machine: {way}")
    start = checker.best
    policy = ControllerPolicy.from_json(start.to_json())
    pretrain_tier0(
        policy,
        budget.actions,
        MetaTrainConfig(groups=8, rollouts=ROLLOUTS, entropy_weight=0.1),
        generator(study.seed, Role.PRETRAINING),
        budget.pretrain_iterations,
        _machines(study),
        mildest=MILDEST,
        clone=start,
    )
    checker.check(policy, "pre-trained on tier 0")
    start = checker.best
    policy = ControllerPolicy.from_json(start.to_json())
    runs = budget.inner_runs - demonstrated
    train = _evolve if variant.evolution else _policy_gradient
    history = train(study, policy, start, runs, checker)
    rows = [{"variant": variant.name, **row} for row in history]
    entrant = Entrant(
        name=variant.name,
        label=variant.label,
        kind=variant.kind,
        scope="one for all",
        description=learned(study, checker.incumbent),
        inner_runs=demonstrated + sum(int(row["runs"]) for row in history),
        validation_runs=checker.runs,
        params={
            "parameters": policy.num_parameters(),
            "accepted": checker.accepted,
            "policy_hash": json_hash(checker.incumbent.to_json())[:12],
        },
        primary=variant.kind == "evolution",
    )
    return Trained(
        policy=checker.incumbent,
        entrant=entrant,
        what=variant.what,
        history=rows,
        checks=checker.rows,
        seeds=sorted({*study.tune_seeds, *(int(row["seed"]) for row in history)}),
        decisions=checker.decisions,
    )


def _clone(
    study: Study, variant: Variant, episodes: Sequence[RecordedEpisode], source: str
) -> ControllerPolicy:
    policy = ControllerPolicy(
        study.budget.actions.sizes,
        generator=torch_generator(study.seed, Role.CONTROLLER),
    )
    repeated = clone(policy, episodes)
    console.print(f"  {variant.label}: a clone repeats {repeated:.0%} of the choices of {source}")
    return policy


def learned(study: Study, policy: ControllerPolicy) -> dict[str, Any]:
    """Return the description of a policy's strategy: its most likely choices, under the shield."""
    return {
        "name": "learned",
        "params": {},
        "policy": policy.to_json(),
        "actions": study.budget.actions.to_json(),
        "shield": SHIELD,
    }


class _Checker:
    """Keeps the incumbent, which only a clearly better policy replaces, and the best so far."""

    def __init__(self, study: Study, variant: Variant, start: ControllerPolicy) -> None:
        self.study = study
        self.variant = variant
        self.incumbent = start
        self.accepted = "clone of the best threshold rule"
        self.rows: list[dict[str, Any]] = []
        self.runs = 0
        """that were made on the validation seeds"""
        self._values, self.decisions = self._run(start)
        self.best = start
        """the policy with the highest mean, clearly or not: training goes on from it"""
        self._best_value = float(self._values.mean())

    def check(self, policy: ControllerPolicy, what: str) -> None:
        """Have a candidate replace the incumbent, if it is clearly better."""
        candidate = ControllerPolicy.from_json(policy.to_json())
        values, decisions = self._run(candidate)
        names = [item.name for item, _ in self._places]
        # Runs of one game and seed begin alike on all machines: they are not independent.
        shared = [(item.game, seed) for item, seed in self._places]
        rng = generator(self.study.seed, Role.BOOTSTRAP, len(self.rows))
        gain = stats.paired_mean(values - self._values, names, rng, clusters=shared)
        accepted = bool(gain.low > 0.0)
        self.rows.append(
            {
                "variant": self.variant.name,
                "candidate": what,
                "gain": gain.estimate,
                **gain.bounds(),
                "value": float(values.mean()),
                "accepted": accepted,
            }
        )
        bounds = f"95% {gain.low:+.3f} to {gain.high:+.3f}"
        if np.isnan(gain.low):
            bounds = "too few seeds for an interval"
        console.print(
            f"  {self.variant.label}, {what}: {gain.estimate:+.3f} over the incumbent ({bounds}): "
            f"{'accepted' if accepted else 'kept out'}"
        )
        if float(values.mean()) > self._best_value:
            self.best, self._best_value = candidate, float(values.mean())
        if accepted:
            self.incumbent, self.accepted = candidate, what
            self._values, self.decisions = values, decisions

    @property
    def _places(self) -> list[tuple[Instance, int]]:
        study = self.study
        return [(item, seed) for item in study.trained for seed in study.candidate_seeds]

    def _run(self, policy: ControllerPolicy) -> tuple[np.ndarray, Decisions]:
        """Return the scores on the validation seeds [instances x seeds], and what was chosen."""
        study, strategy = self.study, {**learned(self.study, policy), "label": "candidate"}
        places = self._places
        results = study.run([strategy_job(item, seed, strategy) for item, seed in places])
        self.runs += len(places)
        scores: list[float] = []
        decisions: Decisions = {}
        for (item, _), result in zip(places, results, strict=True):
            scores.append(score(item, result))
            decisions.setdefault(item.name, []).append(result.decisions)
        return np.array(scores), decisions


def _policy_gradient(
    study: Study, policy: ControllerPolicy, start: ControllerPolicy, runs: int, checker: _Checker
) -> list[dict[str, Any]]:
    """Meta-train by policy gradient: a game's instances are the groups; games and seeds take turns.

    A group is (game, machine, seed), so an iteration sees one game on all of its machines.
    """
    turns = _turns(study.trained)
    config = MetaTrainConfig(
        groups=len(turns[0]),
        rollouts=ROLLOUTS,
        reuse_iterations=2,
        entropy_weight=0.02,
        entropy_decay=0.8,
    )
    per_iteration = config.groups * config.rollouts
    iterations = runs // per_iteration
    turn_of = partial(_turn, turns)
    with bar(checker.variant.label, iterations * per_iteration) as advance:

        def collect(state: dict[str, Any], iteration: int) -> list[list[Trajectory]]:
            instances, seed = turn_of(iteration)
            first = number(study.seed, Role.TRAINING_ROLLOUTS, iteration)
            first -= first % per_iteration  # pairs begin at even seeds
            played = [item for item in instances for _ in range(ROLLOUTS)]
            jobs = [
                _rollout_job(study, item, seed, state, first + place)
                for place, item in enumerate(played)
            ]
            found = study.run(jobs, advance)
            flat = [_in_units(*pair) for pair in zip(played, found, strict=True)]
            return [flat[at : at + ROLLOUTS] for at in range(0, len(flat), ROLLOUTS)]

        # No checkpoint: the runs themselves are kept, and what is learned from them is repeated.
        trainer = MetaTrainer(policy, config, start)
        for iteration in range(iterations):
            trainer.improve(collect(policy.to_json(), iteration))
            if iteration + 1 == iterations // 2 and iterations >= 4:
                checker.check(policy, f"after {iteration + 1} of {iterations} iterations")
    checker.check(policy, f"after {iterations} iterations")
    return [
        {**row, "runs": per_iteration, **_row_of_turn(*turn_of(place))}
        for place, row in enumerate(trainer.history)
    ]


def _evolve(
    study: Study, policy: ControllerPolicy, start: ControllerPolicy, runs: int, checker: _Checker
) -> list[dict[str, Any]]:
    """Evolve with as many runs; every candidate plays one game on all of its machines."""
    turns = _turns(study.trained)
    machines = len(turns[0])
    generations = max(2, runs // (machines * 8))
    pairs = max(1, runs // (generations * machines * 2))
    config = EvolutionConfig(pairs=pairs, seed=study.seed)
    per_generation = config.population * machines
    turn_of = partial(_turn, turns)
    with bar(checker.variant.label, generations * per_generation) as advance:

        def evaluate(states: Sequence[dict[str, Any]], generation: int) -> np.ndarray:
            instances, seed = turn_of(generation)
            played = [(item, state) for state in states for item in instances]
            jobs = [_rollout_job(study, item, seed, state, None) for item, state in played]
            found = study.run(jobs, advance)
            gains = [
                _in_units(item, trajectory).gain
                for (item, _), trajectory in zip(played, found, strict=True)
            ]
            return np.array(gains).reshape(len(states), len(instances))

        history = Evolution(policy, config).train(evaluate, generations)
    checker.check(policy, f"after {generations} generations")
    return [
        {**row, "runs": per_generation, **_row_of_turn(*turn_of(place))}
        for place, row in enumerate(history)
    ]


def _rollout_job(
    study: Study, instance: Instance, seed: int, policy: dict[str, Any], action_seed: int | None
) -> RolloutJob:
    return RolloutJob(
        instance=instance,
        seed=seed,
        policy=policy,
        actions=study.budget.actions,
        action_seed=action_seed,
    )


def _in_units(instance: Instance, trajectory: Trajectory) -> Trajectory:
    """Return a trajectory whose rewards are relative to fp32's gain on its instance."""
    return replace(trajectory, rewards=trajectory.rewards / instance.fp32_gain)


def _turns(instances: Sequence[Instance]) -> list[list[Instance]]:
    """Return the trained instances game by game; every game is trained on the same machines."""
    games = dict.fromkeys(instance.game for instance in instances)
    return [[item for item in instances if item.game == game] for game in games]


def _turn(turns: Sequence[list[Instance]], number: int) -> tuple[list[Instance], int]:
    """Return the instances of an iteration, and their seed."""
    seeds = SPLITS["train"].seeds
    return turns[number % len(turns)], seeds[number // len(turns) % len(seeds)]


def _row_of_turn(instances: Sequence[Instance], seed: int) -> dict[str, Any]:
    """Return what the records say of a turn."""
    return {"game": instances[0].game, "seed": seed}


def _machines(study: Study) -> list[Machine | None]:
    """Return the trained machines as the analytic tier sees them, and as many random ones."""
    machines: list[Machine | None] = []
    for item in study.trained:
        config = item.config(0)
        distilled = config.compression.distill_updates * config.compression.distill_batch
        ratio = distilled / (config.learner.unroll * config.runtime.num_envs)
        machine = machine_from_profile(study.profiles[item.profile], config.runtime.num_envs, ratio)
        machines += [machine, None]
    return machines


def replay_entrant(study: Study, trained: Trained) -> Entrant:
    """Return the open-loop replay of the controller's median schedule: does feedback matter?

    The schedule is the pooled one of the validation seeds; it knows time, and nothing else.
    """
    actions = study.budget.actions
    runs = [run for runs in trained.decisions.values() for run in runs]
    episodes = [[actions.indices(decision.main) for decision in run] for run in runs]
    longest = max(study.trained, key=lambda item: item.horizon_seconds)
    schedule = median_schedule(actions, episodes, *longest.lengths)
    return Entrant(
        name="controller_replay",
        label="controller's median schedule, open loop",
        kind="replay",
        scope="one for all",
        description={"name": "schedule", "params": {}, "points": schedule.to_json()},
        params={"points": len(schedule.points)},
    )


def write_training(study: Study, trained: Sequence[Trained]) -> None:
    """Write checks.json: every candidate's gain over the incumbent of its time."""
    write_json(study.out / "checks.json", [row for item in trained for row in item.checks])
