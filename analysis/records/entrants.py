"""What study.json and tuning.jsonl tell of every entrant beyond its name: seeds, budget, trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.records.load import StudyRecord
from analysis.records.plan import StrategyInfo

EACH = "per instance"
"""scope of what was tuned on every instance by itself"""


def test_seeds(study: StudyRecord, name: str) -> tuple[int, ...]:
    """Return the seeds that an entrant was tested on: its own, or else those of the study."""
    own = next(item.test_seeds for item in study.strategies if item.name == name)
    return study.test_seeds if own is None else own


def runs_per_instance(study: StudyRecord, name: str) -> int | None:
    """Return how many inner runs an entrant had on each instance; None where nothing tells."""
    told = next(item for item in study.info["strategies"] if item["name"] == name)
    runs = told.get("runs_per_instance")
    return None if runs is None else int(runs)


def tuning_rows(study: StudyRecord, item: StrategyInfo) -> list[Mapping[str, Any]]:
    """Return the trials of an entrant's tuning.

    What was tuned for all instances has rows under its own name. What was tuned on each has rows
    ``NAME@INSTANCE``, one search a NAME: all those of its kind, as the best of them was chosen.
    """
    if item.scope != EACH:
        return [row for row in study.tuning if row.get("strategy") == item.name]
    kinds = {other.name: other.kind for other in study.strategies}
    found = []
    for row in study.tuning:
        search, at, _ = str(row.get("strategy", "")).partition("@")
        if at and (search == item.name or kinds.get(search, search) == item.kind):
            found.append(row)
    return found or [row for row in study.tuning if row.get("strategy") == item.name]


def best_score(item: StrategyInfo, rows: list[Mapping[str, Any]]) -> float | None:
    """Return the best score of a tuning; of one by instance, the mean over these of the best."""
    best: dict[str, float] = {}
    for row in rows:
        if row.get("score") is not None:
            _, _, instance = str(row["strategy"]).partition("@")
            score = float(row["score"])
            best[instance] = max(score, best.get(instance, score))
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
