"""A contest's games: on which machines they are played, for how long, and what is a good score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, cast

import numpy as np
from optuna.storages import BaseStorage

from accerl.errors import UserError
from accerl.presets import load_preset
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.profiles import PAPER, load_profile, save_profile
from accerl.spec import STUDENTS, CompressionSpec
from controller.env.instances import Instance
from controller.env.references import random_return as measure_random_return
from studies.contest.budget import (
    FP32,
    MEASURED,
    REFERENCE_SEEDS,
    TUNE_SEEDS,
    VALIDATE_SEEDS,
    Budget,
)
from studies.contest.costs import StepCosts
from studies.contest.plan import TRAINED, play_on
from studies.core_seconds import CoreSeconds
from studies.jobs.executor import Executor, Job, Outcome, R
from studies.jobs.inner import StrategyJob, StrategyResult
from studies.jobs.timed import ProfileJob
from studies.progress import Advance, bar, console, silent

UNIT_RUNS = 5
"""fp32 runs of every instance at most, whose mean gain is its unit"""
SMALLEST_UNIT = 0.1
"""of the game's own scale: where fp32 learns less, its gain would be noise to divide by"""


@dataclass
class Study:
    """What the steps of a contest hand to each other."""

    out: Path
    budget: Budget
    seed: int
    profiles: dict[str, LatencyProfile]
    instances: list[Instance]
    executor: Executor
    costs: StepCosts
    plan: str = ""
    """hash of the plan"""
    storage: BaseStorage | None = None
    """where Optuna keeps its trials; None: in `out`"""
    core_seconds: CoreSeconds = field(init=False)
    """what runs have taken, by game"""

    def __post_init__(self) -> None:
        self.core_seconds = CoreSeconds(self.out)

    @property
    def trained(self) -> list[Instance]:
        """Instances that rules are tuned and controllers trained on."""
        return [item for item in self.instances if item.group == TRAINED]

    @property
    def tune_seeds(self) -> list[int]:
        """Seeds that hand-set strategies are tuned on; what is trained may use all of them."""
        return list(TUNE_SEEDS)[: self.budget.tune_seeds]

    @property
    def validate_seeds(self) -> list[int]:
        """Seeds that the best few of a search, and candidates for the controller, are run on."""
        return list(VALIDATE_SEEDS)[: self.budget.validate_seeds]

    @property
    def test_seeds(self) -> list[int]:
        """Seeds that nothing was chosen on."""
        return self.budget.test

    def run(self, jobs: Sequence[Job[R]], on_done: Advance = silent) -> list[R]:
        """Return the result of every job, in order; count what they cost."""
        outcomes = self.executor.map(jobs, on_done)
        self.costs.add(outcomes)
        for job, outcome in zip(jobs, outcomes, strict=True):
            if isinstance(job, StrategyJob):
                made = cast("Outcome[StrategyResult]", outcome)
                self.core_seconds.add(job.instance.game, made)
        return [outcome.result for outcome in outcomes]

    def run_shown(self, title: str, jobs: Sequence[Job[R]]) -> list[R]:
        """Do the same with a progress bar."""
        with bar(title, len(jobs)) as advance:
            found = self.run(jobs, advance)
        self.core_seconds.save()
        return found


def strategy_job(
    instance: Instance, seed: int, strategy: Mapping[str, Any], out: Path | None = None
) -> StrategyJob:
    """Return the inner run of a strategy on an instance."""
    return StrategyJob(instance=instance, seed=seed, strategy=dict(strategy), out=out)


def find_profiles(
    out: Path, budget: Budget, name: str, executor: Executor
) -> dict[str, LatencyProfile]:
    """Return the machines to play on: those that the budget names, or the named profile alone.

    Where learner and actors share the cores the learner is often the bottleneck, on the paper's
    server actors are. What compression is worth differs, so a controller must tell them apart.
    """
    if name:
        alone = load_profile(name)
        return {alone.name: alone}
    found = {}
    for wanted in dict.fromkeys(profile for _, profile in budget.pairs):
        is_ours = wanted == MEASURED
        found[wanted] = _measured(out, budget, executor) if is_ours else load_profile(wanted)
    return found


def save_profiles(out: Path, profiles: Mapping[str, LatencyProfile]) -> None:
    """Save every machine for the report."""
    (out / "profiles").mkdir(exist_ok=True)
    for name, profile in profiles.items():
        save_profile(profile, out / "profiles" / f"{name}.json")


def _measured(out: Path, budget: Budget, executor: Executor) -> LatencyProfile:
    path = out / "profile.json"
    if not path.is_file():
        job = ProfileJob(
            name="measured",
            specs=tuple(_needed_specs(budget)),
            batches=tuple(sorted({load_preset(g).runtime.num_envs for g in budget.env_steps})),
            networks=STUDENTS[:1],
            repeats=budget.profile_repeats,
        )
        with bar("latency profile", 1) as advance:
            (outcome,) = executor.map([job], advance)
        save_profile(outcome.result, path)
    return load_profile(str(path))


def _needed_specs(budget: Budget) -> list[CompressionSpec]:
    """Return what is chosen among, and the students whose times describe a machine on tier 0."""
    students = [CompressionSpec(student=student) for student in STUDENTS]
    return list(dict.fromkeys([*budget.actions.all_specs, *students]))


def add_references(study: Study) -> list[Instance]:
    """Measure what random play and uncompressed training reach: scale, target, and unit of gains.

    Scale and target are a game's, not an instance's: on a slow network uncompressed training may
    learn nothing at all, and that is no scale. They are measured on the paper's machine. The unit
    is an instance's: what rivals gain counts relative to uncompressed actors on the same machine,
    so that machines on which everything is slow weigh as much as others in what they learn from.

    Raises:
        UserError: training reached no more than random play.
    """
    budget = study.budget
    profile = load_profile(PAPER)
    seeds = list(REFERENCE_SEEDS)[: budget.reference_runs]
    references = {game: play_on(budget, game, profile) for game in budget.env_steps}
    jobs = [strategy_job(item, seed, FP32) for item in references.values() for seed in seeds]
    results = iter(study.run_shown("fp32 reference", jobs))
    known: dict[str, dict[str, Any]] = {}
    for game, reference in references.items():
        reached = [next(results).final_return(reference) for _ in seeds]
        random = measure_random_return(game)
        middle = median(reached)
        if not middle > random:
            raise UserError(
                f"{game}: fp32 training reached {middle:.3g}, no better than random play "
                f"({random:.3g}); use a larger --budget"
            )
        target = random + budget.target_share * (middle - random)
        console.print(
            f"  {game}: random {random:.2f}; the median of {len(seeds)} fp32 runs of "
            f"{reference.horizon_seconds:.3g} virtual seconds on {PAPER} reaches {middle:.2f}; "
            f"the target is {target:.2f}"
        )
        known[game] = {
            "random_return": random,
            "reference_return": middle,
            "target_return": target,
            "fp32_returns": tuple(reached),
        }
    scaled = [replace(item, **known[item.game]) for item in study.instances]
    return _with_units(study, scaled, seeds[:UNIT_RUNS])


def _with_units(
    study: Study, instances: Sequence[Instance], seeds: Sequence[int]
) -> list[Instance]:
    """Return the instances with the mean gain of fp32 runs as the unit that rivals learn in.

    Only those are measured that rivals are trained on.
    """
    own = [item for item in instances if study.budget.rivals and item.group == TRAINED]
    if not own:
        return list(instances)
    names = {item.name for item in own}
    jobs = [strategy_job(item, seed, FP32) for item in own for seed in seeds]
    results = iter(study.run_shown("fp32 on every machine", jobs))
    found = []
    for item in instances:
        if item.name not in names:
            found.append(item)
            continue
        gain = float(np.mean([next(results).gain(item) for _ in seeds]))
        unit = max(gain, SMALLEST_UNIT)
        console.print(f"  {item.name}: fp32 gains {gain:.3f}; PPO learns in units of {unit:.3f}")
        found.append(replace(item, fp32_gain=unit))
    return found
