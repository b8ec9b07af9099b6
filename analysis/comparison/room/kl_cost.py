"""What KL says of cost: do specs that are farther from the learner need more env steps?

Monitors bound KL because a policy that acts differently is thought to teach less. That may be so
among the specs of a game, and among games, and the two are different questions: a controller that
has learned what a nat costs on some games uses it on others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from accerl.spec import IDENTITY, CompressionSpec
from analysis.comparison.stats import spearman

DRAWN = ("same machine throughout", "changing conditions")
"""groups of a study of room whose instances were drawn by rule"""
MILD = CompressionSpec(bits=8).label
"""what costs are relative to: it is hardly farther from the learner than no compression, and as
fast as others, so that the horizon cuts few of its runs"""
FLOOR_NATS = 1e-5
LEAST_NATS = 2e-3
"""below it a KL counts as none: what such a spec costs is noise"""


def kl_and_cost(means: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return KL and cost by game and spec, and how their ranks go together.

    Only instances that were drawn by rule count. Env steps of runs that missed a target are what
    the study's additive model expects (`matrix.expected_steps`).

    Args:
        means: of a room.json.

    Returns:
        `rows`, each with game, label, `kl_nats` (geometric mean over the machines on which it was
        sampled: `sampled_on`) and `steps_ratio` (env steps to target over those of `MILD`,
        geometric mean over all `machines`); Spearman's rank correlations of the two over specs with
        a KL: `within_games` (over the specs of a game, mean over games), `across_games` (over the
        games of a spec, mean over specs), None: fewer than three to rank; and `noise`, the root
        mean square of the log of `steps_ratio` of specs without a KL, None: there are none.
    """
    cells: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    mild: dict[tuple[str, str], float | None] = {}
    for row in means:
        if row["group"] not in DRAWN:
            continue
        cells.setdefault((row["game"], row["label"]), []).append(row)
        if row["label"] == MILD:
            mild[row["game"], row["machine"]] = row["env_steps_to_target"]
    rows = []
    for (game, label), own in cells.items():
        kls = [row.get("compression_kl_nats") for row in own]
        known = [math.log(max(kl, FLOOR_NATS)) for kl in kls if kl is not None]
        costs = [
            math.log(steps / least)
            for row in own
            if (steps := row["env_steps_to_target"]) and (least := mild.get((game, row["machine"])))
        ]
        if label not in (MILD, IDENTITY.label) and known and costs:
            kl, cost = (float(np.exp(np.mean(values))) for values in (known, costs))
            found = {"game": game, "label": label, "kl_nats": kl, "steps_ratio": cost}
            rows.append(found | {"sampled_on": len(known), "machines": len(costs)})
    far = [row for row in rows if row["kl_nats"] >= LEAST_NATS]
    none = [math.log(row["steps_ratio"]) for row in rows if row["kl_nats"] < LEAST_NATS]
    return {
        "rows": rows,
        "within_games": _together(far, "game"),
        "across_games": _together(far, "label"),
        "noise": float(np.sqrt(np.mean(np.square(none)))) if none else None,
    }


def _together(rows: Sequence[Mapping[str, Any]], field: str) -> float | None:
    """Return the mean over the values of a field of the rank correlation of KL and cost."""
    found = []
    for value in dict.fromkeys(row[field] for row in rows):
        own = [row for row in rows if row[field] == value]
        kls, costs = ([row[name] for row in own] for name in ("kl_nats", "steps_ratio"))
        if len(own) >= 3 and not math.isnan(rank := spearman(kls, costs)):
            found.append(rank)
    return float(np.mean(found)) if found else None
