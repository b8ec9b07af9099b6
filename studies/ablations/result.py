"""What the runs say: each part's seconds to target over those of the whole, paired by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from accerl.seeds import Role, generator
from analysis.comparison import stats
from analysis.comparison.families import family_of
from controller.env.instances import Instance
from studies.ablations.plan import WHOLE, Part
from studies.jobs.inner import StrategyResult

Runs = Mapping[tuple[str, str, int], StrategyResult]
"""by name of the part and of the instance, and seed"""
STEADY, CHANGING = "same machine throughout", "changing conditions"


def run_rows(instances: Sequence[Instance], runs: Runs) -> list[dict[str, Any]]:
    """Return a row for each run: when it reached the target, what it reached, and its decisions."""
    by_name = {item.name: item for item in instances}
    return [
        {
            "part": part,
            "instance": name,
            "seed": seed,
            **_ended(by_name[name], result),
            "decisions": [decision.label for decision in result.decisions],
        }
        for (part, name, seed), result in runs.items()
    ]


def _ended(instance: Instance, result: StrategyResult) -> dict[str, Any]:
    reached = result.seconds_to_target(instance)
    return {
        "seconds_to_target": reached.seconds,
        "censored": reached.censored,
        "final_share": instance.reference.normalise(result.final_return(instance)),
    }


def part_rows(
    parts: Sequence[Part],
    instances: Sequence[Instance],
    rows: Sequence[Mapping[str, Any]],
    seed: int,
) -> list[dict[str, Any]]:
    """Return a row for each part: its seconds to target over those of the whole.

    `ratio` is the geometric mean over pairs of (instance, seed), with its 95% interval; pairs of a
    game and a seed begin alike on all machines, and count as one (`independent`). `by` has the same
    by family of machines, conditions and game, without intervals. `alike` counts the pairs in which
    both acted with the same throughout, whatever they measured beside it; `final` is the difference
    of what they reached in the end, in shares of the way from random play to the reference.

    Args:
        parts: the whole first.
        instances: that they were run on.
        rows: of `run_rows`; of a part that some pairs lack, the others count.
        seed: of the bootstraps.
    """
    by_name = {item.name: item for item in instances}
    known = {(row["part"], row["instance"], row["seed"]): row for row in rows}
    return [
        _part_row(part, by_name, known, generator(seed, Role.BOOTSTRAP, place))
        for place, part in enumerate(parts)
        if part.name != WHOLE
    ]


def _part_row(
    part: Part,
    instances: Mapping[str, Instance],
    rows: Mapping[tuple[str, str, int], Mapping[str, Any]],
    rng: np.random.Generator,
) -> dict[str, Any]:
    pairs = [
        (row, rows[WHOLE, name, seed])
        for (own, name, seed), row in rows.items()
        if own == part.name and (WHOLE, name, seed) in rows
    ]
    names = [row["instance"] for row, _ in pairs]
    shared = [(instances[row["instance"]].game, row["seed"]) for row, _ in pairs]
    mine, whole = (np.array([pair[k]["seconds_to_target"] for pair in pairs]) for k in (0, 1))
    found = stats.paired_log_ratio(mine, whole, names, rng, clusters=shared)
    final = np.array([row["final_share"] - other["final_share"] for row, other in pairs])
    ended = stats.paired_mean(final, names, rng, clusters=shared)
    logs = np.log(mine / whole)
    arrived = not all(row["censored"] for pair in pairs for row in pair)
    return {
        "name": part.name,
        "label": part.label,
        "what": part.what,
        "ratio": found.estimate,
        # Between runs that all miss the target the ratio is 1, however many there are.
        **(found.bounds() if arrived else {"low": None, "high": None}),
        "pairs": len(pairs),
        "independent": len(set(shared)),
        "missed": sum(row["censored"] for row, _ in pairs),
        "missed_whole": sum(other["censored"] for _, other in pairs),
        "alike": sum(_acted(row) == _acted(other) for row, other in pairs),
        "final": {"difference": ended.estimate, **ended.bounds()},
        "by": _by([instances[name] for name in names], logs),
    }


def _acted(row: Mapping[str, Any]) -> list[str]:
    """Return the labels of what acted: a shadow, which comes last in one, does not act."""
    return [label.partition(" + shadow ")[0] for label in row["decisions"]]


def _by(instances: Sequence[Instance], logs: np.ndarray) -> list[dict[str, Any]]:
    found = []
    for by, labels in (
        ("machines", [family_of(item.profile) for item in instances]),
        ("conditions", [_conditions(item) for item in instances]),
        ("game", [item.game for item in instances]),
    ):
        for name in dict.fromkeys(labels):
            own = logs[[label == name for label in labels]]
            found.append(
                {"by": by, "name": name, "pairs": len(own), "ratio": float(np.exp(own.mean()))}
            )
    return found


def _conditions(instance: Instance) -> str:
    return CHANGING if instance.config(0).conditions.events else STEADY
