"""What a contest will take: core-seconds of runs and training, before any of them is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from accerl.spec import IDENTITY, CompressionSpec
from controller.env.instances import Instance
from studies.contest.budget import Budget
from studies.contest.entrants import ADVISE, KINDS, STATIC, rules_tuned_each
from studies.contest.plan import TRAINED
from studies.contest.testing import CLOSEST
from studies.contest.variants import CONTROLLER, EVOLUTION, VARIANTS
from studies.core_seconds import CoreSeconds

TYPICAL = (IDENTITY, CompressionSpec(bits=8))
"""specs whose mean stands for what strategies act with"""
TIER0_PER_INSTANCE = 1.0
"""core-seconds of an instance's episodes and its part of the update: 0.6 on an AMD EPYC, 1.5 on a
Xeon beside other work"""
CORES = 2
"""that hours are told for, and that a run on the real clock keeps to itself"""


def planned_seconds(budget: Budget, instances: Sequence[Instance], costs: CoreSeconds) -> float:
    """Return the core-seconds of a contest, runs on the real clock included.

    Left out are measuring this machine, and starting processes.
    """
    run = {item.name: costs.of(item, TYPICAL) / len(TYPICAL) for item in instances}
    trained = [run[item.name] for item in instances if item.group == TRAINED]
    variants = [CONTROLLER, *(VARIANTS[name] for name in budget.variants)]
    policies = sum(variant.trained for variant in variants)
    searches = len(budget.entrants) - 1 + policies + len(budget.rivals)
    runs = searches * budget.inner_runs + _grid_runs(budget, len(trained))
    total = runs * sum(trained) / len(trained)
    total += sum(_by_game(run, instances).values()) * budget.reference_runs
    total += sum(run.values()) * _runs_by_itself(budget)
    total += sum(run.values()) * _test_seeds(budget)
    simulated = policies + len(budget.rivals)
    drawn = budget.pretrain_iterations * budget.pretrain_instances
    total += simulated * drawn * TIER0_PER_INSTANCE
    # The controller, a threshold and fp32 by game and seed; or the bundle once, beside fp32.
    real = 3 * budget.real_seeds * len(budget.real_games) or 2
    return total + CORES * real * budget.real_seconds


def _by_game(run: Mapping[str, float], instances: Sequence[Instance]) -> dict[str, float]:
    """Return the mean of a game's runs, by game."""
    games: dict[str, list[float]] = {}
    for item in instances:
        games.setdefault(item.game, []).append(run[item.name])
    return {game: sum(each) / len(each) for game, each in games.items()}


def _grid_runs(budget: Budget, trained: int) -> int:
    """Return the runs of the grid of static specs, which is tried as a whole."""
    tried = len(budget.actions.all_specs) * budget.tune_seeds
    return trained * (tried + budget.finalists * budget.validate_seeds)


def _runs_by_itself(budget: Budget) -> int:
    """Return the runs on every instance of what is tuned for each by itself."""
    if not budget.instance_runs:
        return 0
    rules = len(rules_tuned_each(budget))
    grid = len(budget.actions.all_specs) * budget.tune_seeds
    validated = (1 + rules) * budget.instance_finalists * budget.validate_seeds
    return grid + rules * budget.instance_runs + validated


def _test_seeds(budget: Budget) -> int:
    """Return the test seeds of all entrants together; see `testing`."""
    kinds = {KINDS[name] for name in budget.entrants}
    primary = len(kinds.intersection((STATIC, "threshold", ADVISE, "bandit")))
    evolution = EVOLUTION.name in budget.variants
    closest = 1 + len(kinds.intersection(CLOSEST))
    closest += (budget.instance_runs > 0) + bool(rules_tuned_each(budget))
    few = 1 + ("bandit" in kinds) + evolution + len(budget.rivals)
    others = len(budget.entrants) - primary + len(budget.variants) - evolution
    others += bool(budget.held_out)  # the replay
    seeds = budget.test_seeds if budget.other_seeds is None else budget.other_seeds
    return closest * budget.test_seeds + few * seeds + others * budget.exploratory_seeds
