"""Rules and schedules compared with static specs: overall, by part, and by what they decided."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from accerl.spec import IDENTITY
from analysis.comparison.families import family_of
from analysis.comparison.room.matrix import (
    CHOICES,
    ELSEWHERE,
    SINGLE,
    VIRTUAL,
    Bootstrap,
    Matrix,
    cross_fit,
    taken,
)
from controller.env.instances import Instance
from studies.jobs.inner import StrategyResult
from studies.room.result import dice
from studies.room.runs import Rows, log_seconds, rows_of
from studies.room.tuned import Rule

AGAINST = {
    "over_single": SINGLE,
    "over_elsewhere": ELSEWHERE,
    "over_virtual": VIRTUAL,
}
"""what is compared with a rule, chosen on other seeds; and `UNCOMPRESSED`"""
UNCOMPRESSED = "over_uncompressed"
PARTS: Mapping[str, Callable[[Instance], str]] = {
    "game": lambda item: item.game,
    "machines": lambda item: family_of(item.profile),
    "conditions": lambda item: item.group,
}
"""by what instances are told apart; seeds come beside"""


@dataclass(frozen=True)
class RuleRuns:
    """A rule, and its runs by name of the instance and seed."""

    rule: Rule
    runs: Mapping[tuple[str, int], StrategyResult]

    def rows(self, instances: Sequence[Instance]) -> dict[tuple[str, int], Rows]:
        """Return the rows of its runs on some instances, by name of the instance and seed."""
        by_name = {item.name: item for item in instances}
        return {
            (name, seed): rows_of(by_name[name], self.rule.name, seed, result)
            for (name, seed), result in self.runs.items()
        }


def compared(
    matrix: Matrix, instances: Sequence[Instance], tested: Sequence[RuleRuns], seed: int
) -> list[dict[str, Any]]:
    """Return, for every rule, the seconds of other choices over its own: above 1, it is faster.

    The others are the one spec for all, the one that is best in all other games, the virtual best,
    and no compression. Pairs are those of instance and seed that the rule was tested on. `by` has
    the same for games, families of machines, conditions and seeds, geometric means without
    intervals; `slower` the instances where its seconds over those of no compression are above 1,
    worst first; `acted` the share of the clock for which it had decided on each spec.

    Args:
        matrix: of the drawn instances.
        instances: the same, in its order.
        tested: the rules, with their runs.
        seed: of the bootstraps.
    """
    others = {name: _chosen(matrix, choice) for name, choice in AGAINST.items()}
    others[UNCOMPRESSED] = matrix.log_seconds[:, matrix.specs.index(IDENTITY.label), :]
    return [
        _compared(matrix, instances, each, others, dice(seed, 100 + place))
        for place, each in enumerate(tested)
    ]


def _chosen(matrix: Matrix, choice: str) -> np.ndarray:
    return taken(matrix.log_seconds, cross_fit(matrix, CHOICES[choice]))


def _compared(
    matrix: Matrix,
    instances: Sequence[Instance],
    tested: RuleRuns,
    others: Mapping[str, np.ndarray],
    rng: np.random.Generator,
) -> dict[str, Any]:
    rule, rows = tested.rule, tested.rows(instances)
    own = np.full((len(instances), len(matrix.seeds)), np.nan)
    for n, item in enumerate(instances):
        for k, each in enumerate(matrix.seeds):
            if found := rows.get((item.name, each)):
                own[n, k] = log_seconds(found)
    gains = {name: values - own for name, values in others.items()}
    bootstrap = Bootstrap(matrix, np.isfinite(own), rng)
    return {
        "name": rule.name,
        "label": rule.label,
        **{name: bootstrap.ratio(values) for name, values in gains.items()},
        "pairs": bootstrap.pairs,
        "by": _by_part(instances, matrix.seeds, gains),
        "slower": _slower(instances, gains[UNCOMPRESSED]),
        "acted": acted_with(list(tested.runs.values())),
        "inner_runs": rule.inner_runs,
        "sets": rule.sets,
        "tuned_on": list(rule.tuned_on),
        "params": dict(rule.params),
    }


def _by_part(
    instances: Sequence[Instance], seeds: Sequence[int], gains: Mapping[str, np.ndarray]
) -> list[dict[str, Any]]:
    """Return the mean gains of parts of the pairs; those without a pair are left out."""
    masks = []
    for by, label_of in PARTS.items():
        labels = [label_of(item) for item in instances]
        for name in dict.fromkeys(labels):
            own = np.array([label == name for label in labels])
            masks.append((by, name, own[:, None] & np.ones(len(seeds), dtype=bool)))
    for k, seed in enumerate(seeds):
        column = np.arange(len(seeds)) == k
        masks.append(("seed", str(seed), column & np.ones((len(instances), 1), dtype=bool)))
    known = np.isfinite(gains[UNCOMPRESSED])
    return [
        {
            "by": by,
            "name": name,
            "pairs": int((mask & known).sum()),
            **{what: float(np.exp(values[mask & known].mean())) for what, values in gains.items()},
        }
        for by, name, mask in masks
        if (mask & known).any()
    ]


def _slower(instances: Sequence[Instance], gain: np.ndarray) -> list[dict[str, Any]]:
    found = []
    for item, own in zip(instances, gain, strict=True):
        made = own[np.isfinite(own)]
        if made.size and made.mean() < 0.0:
            ratio = float(np.exp(-made.mean()))
            found.append({"instance": item.name, "ratio": ratio, "seeds": made.size})
    return sorted(found, key=lambda row: -row["ratio"])


def acted_with(results: Sequence[StrategyResult]) -> dict[str, float]:
    """Return the share of the runs' seconds for which each spec was decided on.

    Of a mix every spec has its share. A run counts as much as any other, however long.
    """
    found: dict[str, float] = {}
    for result in results:
        seconds = np.diff(result.times)
        for decision, share in zip(result.decisions, seconds / seconds.sum(), strict=True):
            for spec, part in decision.mix:
                found[spec.label] = found.get(spec.label, 0.0) + part * float(share)
    total = math.fsum(found.values())
    return {label: share / total for label, share in found.items()}
