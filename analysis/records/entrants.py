"""What tuning.jsonl records of every strategy: its trials, and its best score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.records.load import StudyRecord
from analysis.records.plan import StrategyInfo

EACH = "per instance"
"""scope of what was tuned on every instance by itself"""


def tuning_rows(study: StudyRecord, item: StrategyInfo) -> list[Mapping[str, Any]]:
    """Return the trials of a strategy's tuning.

    What was tuned for all instances has rows under its own name. What was tuned on each has rows
    ``NAME@INSTANCE``, one search a NAME, of which the best was chosen.
    """
    if item.scope != EACH:
        return [row for row in study.tuning if row["strategy"] == item.name]
    rows = [(row["strategy"].partition("@"), row) for row in study.tuning]
    return [row for (search, at, _), row in rows if at and search in item.searches]


def best_score(rows: list[Mapping[str, Any]]) -> float | None:
    """Return the best score of a tuning; of one by instance, the mean over these of the best."""
    best: dict[str, float] = {}
    for row in rows:
        if row["score"] is not None:
            _, _, instance = row["strategy"].partition("@")
            best[instance] = max(row["score"], best.get(instance, row["score"]))
    return sum(best.values()) / len(best) if best else None


def stronger_static(study: StudyRecord, rule: str) -> StrategyInfo | None:
    """Return the static spec that outdid a rule on the validation seeds, if one did.

    Both were chosen for all instances. A rule that never switches is a static spec: one that ends
    below is no weaker idea, its search was only too short to find that.
    """
    own = next(item for item in study.strategies if item.name == rule)
    statics = [
        item for item in study.strategies if (item.kind, item.scope) == ("static", own.scope)
    ]
    for item in statics:
        if item.score is not None and own.score is not None and item.score > own.score:
            return item
    return None
