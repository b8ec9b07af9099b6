"""Training the Advanced Indicator on as many inner runs as every tuned strategy gets.

1 The rule that it starts from: the fastest spec whose KL is at most a cap, by what is believed.
2 Meta-training on tier 0, on machines and games drawn anew every iteration: no inner run. 3 The
same on real learning on the trained instances, with the runs that are left. After each step the
indicator is run on the validation seeds; what is best there is entered. The runs of training and
those of validation together are `Budget.inner_runs`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from accerl.records import json_hash, write_json
from accerl.seeds import Role, generator, number, torch_generator
from accerl.spec import Decision
from analysis.comparison import stats
from controller.bundle.schedule import median_schedule
from controller.env.instances import SPLITS, Instance
from controller.indicator.recurrent import RecurrentIndicator, SpecMemory
from controller.indicator.strategy import IndicatorSettings
from controller.indicator.trainable import Trainable
from controller.objective import gain_ratio, reward
from controller.training.evolution import Evolution, EvolutionConfig
from controller.training.gradient import GradientConfig, ParameterGradient
from studies.contest.budget import FP32
from studies.contest.entrants import Entrant
from studies.contest.study import Study, strategy_job
from studies.contest.variants import Variant
from studies.jobs.inner import score
from studies.jobs.meta_training import MetaTrainingJob, TrainedPolicy, first_indicator
from studies.progress import bar, console

SHIELD = {"threshold_nats": 14.0}
"""the paper's KL-max rule, around every learned controller"""
REAL_LEARNING = 2**32 - 1
"""number of a stream that no iteration has"""
PAIRS = 2
"""mirrored pairs on each instance of an iteration on real learning"""
SIGMA = 0.15
"""of real learning, half of tier 0's, which has done the rough work"""
Decisions = dict[str, list[Sequence[Decision]]]
"""what a policy chose on the validation seeds, by instance"""


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What came of a training."""

    indicator: Trainable
    entrant: Entrant
    what: str
    """what is particular about it"""
    history: list[dict[str, Any]]
    checks: list[dict[str, Any]]
    """one row per candidate: its paired gain over the best before it, with the interval"""
    seeds: Mapping[str, Sequence[int]]
    """of the runs that its training made, by game"""
    decisions: Decisions
    """what it chose on the validation seeds, by instance"""
    longest_seconds: float = 0.0
    """of its most expensive job, which workers cannot share: that on tier 0"""

    def wall_seconds(self, workers: int) -> float:
        """Return what it took, at least, on so many workers."""
        return self.longest_seconds + (self.entrant.cpu_seconds - self.longest_seconds) / workers


def train_all(study: Study, variants: Sequence[Variant]) -> list[Trained]:
    """Train every variant; those of tier 0 side by side."""
    jobs = {item.name: _tier0_job(study, item) for item in variants if item.trained}
    with bar("meta-training on tier 0", len(jobs)) as advance:
        study.run([*jobs.values()], advance)
    trained = []
    for variant in variants:
        with study.costs.step(variant.name):
            # Asked for again, which is free: so what it has cost counts for this variant.
            job = jobs.get(variant.name)
            one = _train(study, variant, study.run([job])[0] if job else None)
            longest = study.costs.longest
        spent = replace(one.entrant, cpu_seconds=study.costs[variant.name])
        trained.append(replace(one, entrant=spent, longest_seconds=longest))
    return trained


def first(study: Study, variant: Variant) -> Trainable:
    """Return what the training of a variant starts from."""
    specs = study.budget.actions.all_specs
    if variant.recurrent:
        dice = torch_generator(study.seed, Role.CONTROLLER)
        return RecurrentIndicator(SpecMemory(generator=dice), specs)
    return first_indicator(IndicatorSettings(specs=specs, **variant.settings), study.seed)


def _tier0_job(study: Study, variant: Variant) -> MetaTrainingJob:
    return MetaTrainingJob(
        indicator=first(study, variant).to_json(),
        config=GradientConfig(instances=study.budget.pretrain_instances, seed=study.seed),
        iterations=study.budget.pretrain_iterations,
        evolution=variant.evolution,
        keeps_pace=study.budget.keeps_pace,
    )


def _train(study: Study, variant: Variant, tier0: TrainedPolicy | None) -> Trained:
    start = first(study, variant)
    checker = _Checker(study, variant, start)
    history: list[dict[str, Any]] = []
    if tier0 is not None:
        about = {"tier": "analytic", "runs": 0, "game": "drawn games", "seed": None}
        history += [{**row, **about} for row in tier0.history]
        indicator = start.with_policy(tier0.policy)
        checker.check(indicator, "trained on tier 0")
        # Goes on from what validation held to be better, and leaves that as it is.
        indicator = checker.best.with_policy(checker.best.policy.to_json())
        last = len(checker.places)  # kept for the check at the end
        train = _evolve if variant.evolution else _policy_gradient
        rows = train(study, variant, indicator, study.budget.inner_runs - checker.runs - last)
        if rows:
            history += rows
            checker.check(indicator, "finished on real learning")
    runs = sum(int(row["runs"]) for row in history)
    best = checker.best
    entrant = Entrant(
        name=variant.name,
        label=variant.label,
        kind=variant.kind,
        scope="one for all",
        description=described(best),
        inner_runs=runs + checker.runs,
        validation_runs=checker.runs,
        params={
            "parameters": best.policy.num_parameters(),
            "accepted": checker.accepted,
            "policy_hash": json_hash(best.to_json())[:12],
        },
        primary=variant.kind == "evolution",
    )
    return Trained(
        indicator=best,
        entrant=entrant,
        what=variant.what,
        history=[{"variant": variant.name, **row} for row in history],
        checks=checker.rows,
        seeds=_seeds_by_game(history),
        decisions=checker.decisions,
    )


def _seeds_by_game(history: Sequence[Mapping[str, Any]]) -> dict[str, list[int]]:
    """Return the seeds of real runs that iterations of training made, by game."""
    found: dict[str, set[int]] = {}
    for row in history:
        if row["seed"] is not None:
            found.setdefault(row["game"], set()).add(row["seed"])
    return {game: sorted(seeds) for game, seeds in found.items()}


def described(indicator: Trainable) -> dict[str, Any]:
    """Return the description of an indicator's strategy, under the shield."""
    return {**indicator.to_json(), "shield": SHIELD}


class _Checker:
    """Runs candidates on the validation seeds, and keeps the best."""

    def __init__(self, study: Study, variant: Variant, start: Trainable) -> None:
        self.study = study
        self.variant = variant
        self.accepted = "the rule that training starts from"
        self.rows: list[dict[str, Any]] = []
        self.runs = 0
        """that were made on the validation seeds"""
        self.best = start
        self._values, self.decisions = self._run(start)

    @property
    def places(self) -> list[tuple[Instance, int]]:
        """Where candidates are run."""
        study = self.study
        return [(item, seed) for item in study.trained for seed in study.validate_seeds]

    def check(self, trained: Trainable, what: str) -> None:
        """Have a candidate take the place of the best, if it is better."""
        candidate = trained.with_policy(trained.policy.to_json())  # training goes on with the other
        values, decisions = self._run(candidate)
        names = [item.name for item, _ in self.places]
        # Runs of one game and seed begin alike on all machines: they are not independent.
        shared = [(item.game, seed) for item, seed in self.places]
        rng = generator(self.study.seed, Role.BOOTSTRAP, len(self.rows))
        gain = stats.paired_mean(values - self._values, names, rng, clusters=shared)
        accepted = bool(gain.estimate > 0.0)
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
            f"  {self.variant.label}, {what}: {gain.estimate:+.3f} over what was best ({bounds}): "
            f"{'taken' if accepted else 'left'}"
        )
        if accepted:
            self.best, self.accepted = candidate, what
            self._values, self.decisions = values, decisions

    def _run(self, candidate: Trainable) -> tuple[np.ndarray, Decisions]:
        """Return the scores on the validation seeds [instances x seeds], and what was chosen."""
        study = self.study
        strategy = described(candidate)
        results = study.run([strategy_job(item, seed, strategy) for item, seed in self.places])
        self.runs += len(self.places)
        scores: list[float] = []
        decisions: Decisions = {}
        for (item, _), result in zip(self.places, results, strict=True):
            scores.append(score(item, result))
            decisions.setdefault(item.name, []).append(result.decisions)
        return np.array(scores), decisions


def _dice(study: Study) -> int:
    """Return the seed of perturbations on real learning: other directions than tier 0 tried."""
    return number(study.seed, Role.PERTURBATION, REAL_LEARNING)


def _policy_gradient(
    study: Study, variant: Variant, indicator: Trainable, runs: int
) -> list[dict[str, Any]]:
    """Go on by policy gradient: an iteration plays one game on all of its trained machines."""
    turns = _turns(study.trained)
    count = len(turns[0])
    config = GradientConfig(instances=count, pairs=PAIRS, sigma=SIGMA, seed=_dice(study))
    per_iteration = config.episodes + count  # each machine's run without compression
    iterations = max(runs, 0) // per_iteration
    with bar(variant.label, iterations * per_iteration) as advance:

        def evaluate(states: Sequence[Mapping[str, Any]], iteration: int) -> np.ndarray:
            instances, seed = _turn(turns, iteration)
            played = [item for item in instances for _ in range(2 * PAIRS)]
            rewards = _rewards(study, indicator, played, states, seed, advance)
            return rewards.reshape(count, 2 * PAIRS)

        trainer = ParameterGradient(indicator.policy, config)
        history = trainer.train(evaluate, iterations)
    return _rows(history, turns, per_iteration)


def _evolve(
    study: Study, variant: Variant, indicator: Trainable, runs: int
) -> list[dict[str, Any]]:
    """Go on by evolution strategies: every candidate plays one game on all of its machines."""
    turns = _turns(study.trained)
    count = len(turns[0])
    config = EvolutionConfig(pairs=PAIRS, sigma=SIGMA, seed=_dice(study))
    per_generation = (config.population + 1) * count  # each machine's run without compression
    generations = max(runs, 0) // per_generation
    with bar(variant.label, generations * per_generation) as advance:

        def evaluate(states: Sequence[Mapping[str, Any]], generation: int) -> np.ndarray:
            instances, seed = _turn(turns, generation)
            played = [item for _ in states for item in instances]
            each = [state for state in states for _ in instances]
            rewards = _rewards(study, indicator, played, each, seed, advance)
            return rewards.reshape(len(states), count)

        history = Evolution(indicator.policy, config).train(evaluate, generations)
    return _rows(history, turns, per_generation)


def _rewards(
    study: Study,
    indicator: Trainable,
    instances: Sequence[Instance],
    states: Sequence[Mapping[str, Any]],
    seed: int,
    on_done: Any,
) -> np.ndarray:
    """Return what policies reach, one on each of the instances.

    As on tier 0, every run is held against the one without compression that has the same dice.
    """
    machines = list({item.name: item for item in instances}.values())
    jobs = [strategy_job(item, seed, FP32) for item in machines]
    for item, state in zip(instances, states, strict=True):
        strategy = described(indicator.with_policy(state))
        jobs.append(strategy_job(item, seed, strategy))
    results = study.run(jobs, on_done)
    alone, played = results[: len(machines)], results[len(machines) :]
    least = {item.name: one.gain(item) for item, one in zip(machines, alone, strict=True)}
    return np.array(
        [
            reward(gain_ratio(one.gain(item), least[item.name]))
            for item, one in zip(instances, played, strict=True)
        ]
    )


def _rows(
    history: Sequence[Mapping[str, float]], turns: Sequence[list[Instance]], runs: int
) -> list[dict[str, Any]]:
    rows = []
    for place, row in enumerate(history):
        instances, seed = _turn(turns, place)
        about = {"tier": "virtual", "runs": runs, "game": instances[0].game, "seed": seed}
        rows.append({**row, **about})
    return rows


def _turns(instances: Sequence[Instance]) -> list[list[Instance]]:
    """Return the trained instances game by game; every game is trained on as many machines."""
    games = dict.fromkeys(instance.game for instance in instances)
    turns = [[item for item in instances if item.game == game] for game in games]
    fewest = min(map(len, turns))
    return [own[:fewest] for own in turns]


def _turn(turns: Sequence[list[Instance]], number: int) -> tuple[list[Instance], int]:
    """Return the instances of an iteration, and their seed."""
    seeds = SPLITS["train"].seeds
    return turns[number % len(turns)], seeds[number // len(turns) % len(seeds)]


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
        label="indicator's median schedule, open loop",
        kind="replay",
        scope="one for all",
        description={"name": "schedule", "params": {}, "points": schedule.to_json()},
        params={"points": len(schedule.points)},
    )


def write_training(study: Study, trained: Sequence[Trained]) -> None:
    """Write checks.json: every candidate's gain over what was best before it."""
    write_json(study.out / "checks.json", [row for item in trained for row in item.checks])
