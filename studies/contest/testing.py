"""The test of a contest: who takes part, on which seeds, and the runs, seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from accerl.errors import UserError
from studies.contest.budget import Budget
from studies.contest.deliver import Results
from studies.contest.entrants import ADVISE, Entrant, fp32
from studies.contest.rivals import RIVAL
from studies.contest.study import Study, strategy_job
from studies.contest.training import Trained, replay_entrant
from studies.contest.variants import CONTROLLER
from studies.jobs.inner import StrategyJob, StrategyResult
from studies.progress import console

CLOSEST = ("static", "threshold", ADVISE)
"""kinds of the comparators that the controller has to beat; fp32, say, is far off"""


def all_entrants(
    study: Study, tuned: Sequence[Entrant], trained: Sequence[Trained]
) -> list[Entrant]:
    """Return all that is tested: fp32, the tuned, rivals, the trained, the replay."""
    found = [fp32(), *tuned, *(item.entrant for item in trained)]
    if study.budget.held_out:
        found.append(replay_entrant(study, trained[0]))
    return [replace(item, test_seeds=_test_seeds(study, item)) for item in found]


def _test_seeds(study: Study, entrant: Entrant) -> list[int]:
    """Return all test seeds for the closest comparisons, and the first few for others."""
    budget = study.budget
    closest = entrant.primary and entrant.kind in CLOSEST
    if entrant.name == CONTROLLER.name or closest:
        return study.test_seeds
    few = entrant.primary or entrant.kind == RIVAL
    return study.test_seeds[: budget.other_seeds if few else budget.exploratory_seeds]


TestRun = tuple[str, str, StrategyJob]
"""entrant, instance, and what is run"""


def _test_runs(study: Study, entrants: Sequence[Entrant], seed: int) -> list[TestRun]:
    """Return the runs of a test seed; entrants outside the primary comparisons lack some seeds."""
    found = []
    for item in study.instances:
        for entrant in entrants:
            if seed in entrant.test_seeds:
                folder = study.out / "runs" / entrant.name / item.name / f"seed-{seed}"
                job = strategy_job(item, seed, entrant.strategy(item.name), folder)
                found.append((entrant.name, item.name, job))
    return found


def ended_early(study: Study, entrants: Sequence[Entrant]) -> Budget:
    """Return the budget with those of its first test seeds of which all runs are saved.

    Raises:
        UserError: there are none.
    """
    count, planned = 0, study.test_seeds
    for seed in planned:
        if not all(study.executor.is_saved(job) for *_, job in _test_runs(study, entrants, seed)):
            break
        count += 1
    if not count:
        raise UserError(f"--saved-only: no test seed of {study.out} is complete yet; leave it out")
    if count < len(planned):
        console.print(f"  ends early, with {count} of {len(planned)} planned test seeds")
    return replace(study.budget, test_seeds=count)


def is_tested(study: Study, entrants: Sequence[Entrant]) -> bool:
    """Return whether all test runs are saved."""
    seeds = study.test_seeds
    runs = (run for seed in seeds for run in _test_runs(study, entrants, seed))
    return all(study.executor.is_saved(job) for *_, job in runs)


def run_test(study: Study, entrants: Sequence[Entrant]) -> Results:
    """Run every entrant on every (instance, test seed); return results by entrant and instance.

    Seed by seed, so that what is there after an interruption is a smaller contest, not a part of
    one.
    """
    runs = [run for seed in study.test_seeds for run in _test_runs(study, entrants, seed)]
    found = study.run_shown("test runs", [job for *_, job in runs])
    results: dict[str, dict[str, list[StrategyResult]]] = {}
    for (name, instance, _), result in zip(runs, found, strict=True):
        results.setdefault(name, {}).setdefault(instance, []).append(result)
    return results
