"""What a contest will take: core-seconds of runs and training, before any of them is made."""

from __future__ import annotations

from collections.abc import Sequence

from accerl.spec import IDENTITY, CompressionSpec
from controller.env.instances import Instance
from studies.contest.budget import Budget
from studies.contest.entrants import RULES
from studies.contest.plan import TRAINED
from studies.contest.variants import CONTROLLER, VARIANTS
from studies.core_seconds import CoreSeconds

TYPICAL = (IDENTITY, CompressionSpec(bits=8))
"""specs whose mean stands for what strategies act with"""
TIER0_PER_INSTANCE = 0.6
"""core-seconds of an instance's episodes and its part of the update, on a 2-core AMD EPYC"""


def planned_seconds(budget: Budget, instances: Sequence[Instance], costs: CoreSeconds) -> float:
    """Return the core-seconds of a contest, runs on the real clock included.

    Which strategies are tested on all seeds is decided on the way: half of them are thought to be.
    """
    run = {item.name: costs.of(item, TYPICAL) / len(TYPICAL) for item in instances}
    trained = [run[item.name] for item in instances if item.group == TRAINED]
    variants = [CONTROLLER, *(VARIANTS[name] for name in budget.variants)]
    chosen = len(budget.entrants) + len(variants) + len(budget.rivals)
    total = chosen * budget.inner_runs * sum(trained) / len(trained)
    rules = [name for name in budget.entrants if name in RULES]
    by_itself = (1 + len(rules)) * budget.instance_runs if budget.instance_runs else 0
    each = bool(by_itself) * (1 + bool(rules))
    seeds = (budget.test_seeds + budget.exploratory_seeds) / 2.0
    total += sum(run.values()) * (budget.reference_runs + by_itself)
    total += sum(run.values()) * seeds * (1 + chosen + each)
    policies = sum(variant.trained for variant in variants)
    total += policies * budget.pretrain_iterations * budget.pretrain_instances * TIER0_PER_INSTANCE
    return total + 3 * budget.real_seeds * len(budget.real_games) * budget.real_seconds
