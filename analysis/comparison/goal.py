"""The goal of a contest in one ratio: seconds to target over those of the best threshold rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.comparison.contrasts import PRIMARY
from analysis.records.load import StudyRecord

UNKNOWN: Mapping[str, Any] = {"ratio": None, "low": None, "high": None, "n": 0}


def find_goal(study: StudyRecord, contest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the planned contrast with the best threshold rule that is one for all instances.

    Of several such rules it is the one against which the subject does worst.

    Args:
        study: names the strategies.
        contest: with its contrasts.

    Returns:
        `against`, the rule's name (None: no planned comparator is one), and `held_out`: the ratio
        of seconds to target with its interval, and how many pairs it is of. `is_held_out` is false
        where the plan holds nothing out, and these are the instances that all were tuned on.
    """
    rules = {
        item.name
        for item in study.strategies
        if (item.kind, item.scope) == ("threshold", "one for all")
        and item.name in study.primary_against
    }
    found = [
        item
        for item in contest["contrasts"]
        if item["b"] in rules and item["metric"] == PRIMARY and item["ratio"] is not None
    ]
    is_held_out = any(study.games[name].group != "trained" for name in study.primary_games)
    hardest: Mapping[str, Any] = {"b": min(rules, default=None), **UNKNOWN}
    if found:
        hardest = max(found, key=lambda item: item["ratio"])
    return {
        "against": hardest["b"],
        "is_held_out": is_held_out,
        "held_out": {key: hardest[key] for key in UNKNOWN},
    }
