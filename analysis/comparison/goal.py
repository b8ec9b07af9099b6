"""The goal that was set before the contest, and whether it was met: by how much, where, how surely.

It is set against one comparator, the best threshold rule that is one for all instances: faster on
new instances, most of the oracle gap closed, and nowhere much slower.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis import formats
from analysis.comparison import stats
from analysis.comparison.contrasts import PRIMARY, Pairs, find_pairs, paired_values
from analysis.comparison.worth import ROOM
from analysis.records.entrants import stronger_static
from analysis.records.load import StudyRecord

GOAL_RATIO = 0.85
"""at most this many of the rule's seconds to target on the games of the plan's contrasts"""
CLOSED = 0.7
"""median share of the oracle gap that is closed where there is room"""
WORSE = 1.03
"""no instance's ratio may lie above this"""


def find_goal(
    study: StudyRecord, contest: Mapping[str, Any], rng: np.random.Generator
) -> dict[str, Any]:
    """Return the parts of the goal, each with `met`; None is "unknown".

    `held_out` is the planned contrast with the rule, with its uncorrected p; on instances that
    were all `trained` on it is unknown. `stronger_static` is a spec that outdid the rule on the
    validation seeds. `gap_closed` counts the instances whose gap was `measured`, the `instances` of
    them with a gap of at least ROOM, and those whose closed share is `known`, whose median is
    `closed`. `by_instance` is over all games of the study; `worst` is the highest ratio of those
    that tell something, see `_tells`.
    """
    against = find_rule(study, contest)
    static = against and stronger_static(study, against)
    by_instance = [] if against is None else _by_instance(study, contest["rows"], against, rng)
    telling = [row for row in by_instance if row["tells"]]
    worst = max(telling, key=lambda row: row["ratio"], default=None)
    return {
        "against": against,
        "held_out": _held_out(study, contest, against),
        "stronger_static": static and static.name,
        "gap_closed": _gap_closed(contest),
        "by_instance": by_instance,
        "worst": worst and {key: worst[key] for key in ("env", "ratio", "low", "high")},
        "nowhere_worse": None if worst is None else bool(worst["ratio"] <= WORSE),
    }


def find_rule(study: StudyRecord, contest: Mapping[str, Any]) -> str | None:
    """Return the best threshold rule that is one for all, among the planned comparators.

    Of several it is the one against which the subject does worst.
    """
    rules = [
        item.name
        for item in study.strategies
        if item.kind == "threshold"
        and item.scope == "one for all"
        and item.name in study.primary_against
    ]
    ratios = {
        item["b"]: item["ratio"] for item in contest["contrasts"] if item["metric"] == PRIMARY
    }
    return max(rules, key=lambda name: ratios.get(name, 0.0), default=None)


def _held_out(
    study: StudyRecord, contest: Mapping[str, Any], against: str | None
) -> dict[str, Any]:
    trained = all(study.games[name].group == "trained" for name in study.primary_games)
    for item in contest["contrasts"]:
        if (item["b"], item["metric"]) == (against, PRIMARY):
            kept = {key: item[key] for key in ("ratio", "low", "high", "p", "n", "clusters")}
            sure = item["high"] is not None and item["high"] < 1.0
            met = sure and item["ratio"] <= GOAL_RATIO
            nobody = item["censored_a"] == item["censored_b"] == item["n"]
            return {**kept, "trained": trained, "met": None if trained or nobody else met}
    empty = dict.fromkeys(("ratio", "low", "high", "p"))
    return {**empty, "n": 0, "clusters": 0, "trained": trained, "met": None}


def _gap_closed(contest: Mapping[str, Any]) -> dict[str, Any]:
    measured = [row for row in contest["oracle_gap"] if row["gap"] is not None]
    roomy = [row for row in measured if row["gap"] >= ROOM]
    shares = [row["closed"] for row in roomy if row["closed"] is not None]
    closed = float(np.median(shares)) if shares else None
    return {
        "instances": len(roomy),
        "measured": len(measured),
        "known": len(shares),
        "closed": closed,
        "met": None if closed is None else closed >= CLOSED,
    }


def _by_instance(
    study: StudyRecord,
    rows: Sequence[Mapping[str, Any]],
    against: str,
    rng: np.random.Generator,
) -> list[dict[str, Any]]:
    found = []
    for game in study.games.values():
        own = [row for row in rows if row["env"] == game.name]
        if pairs := find_pairs(own, study.subject, against):
            ratio = stats.paired_log_ratio(*paired_values(pairs), rng)
            row = {"env": game.name, "group": game.group, "ratio": ratio.estimate}
            found.append({**row, **ratio.bounds(), "n": len(pairs), "tells": _tells(pairs)})
    return found


def _tells(pairs: Pairs) -> bool:
    """Return whether any run reached its target: between two horizons the ratio is 1 anyhow."""
    return not all(row["censored"] for pair in pairs for row in pair)


def goal_sentences(contest: Mapping[str, Any], labels: Mapping[str, str]) -> list[str]:
    """Return the goal's parts in words, as plainly when missed as when met."""
    goal = contest["goal"]
    if goal["against"] is None:
        return [
            f"Goal, at most {GOAL_RATIO:.2f}x the seconds of the best threshold rule: unknown, "
            "no such rule that is one for all instances is among the planned comparators."
        ]
    total = len(contest["oracle_gap_missing"]) + goal["gap_closed"]["measured"]
    return [
        _faster(goal["held_out"], labels[goal["against"]]),
        *_strength(goal, labels),
        _closing(goal["gap_closed"], total),
        *_nowhere(goal, labels[goal["against"]]),
    ]


def _faster(found: Mapping[str, Any], rule: str) -> str:
    text = (
        f"Goal, at most {GOAL_RATIO:.2f}x the seconds of the best threshold rule with the interval "
        "below 1"
    )
    if found["ratio"] is None:
        return f"{text}: unknown, no test run is shared with {rule}."
    here = f"{found['ratio']:.2f}x{_bounds(found, ', {}')}"
    if found["trained"]:
        return f"{text}: unknown, all instances were used in training ({here} here)."
    if found["met"] is None:
        return f"{text}: unknown, no run reached its target ({here})."
    return f"{text}: {_met(found['met'])} ({here})."


def _strength(goal: Mapping[str, Any], labels: Mapping[str, str]) -> list[str]:
    """Say where the rule is a weak comparator, because its search was short."""
    if not goal["stronger_static"]:
        return []
    return [
        f"{labels[goal['against']]} gained less on the validation seeds than "
        f"{labels[goal['stronger_static']]}. A rule that never switches is a static spec, so its "
        "search was too short; a longer one could make it harder to beat."
    ]


def _closing(found: Mapping[str, Any], total: int) -> str:
    measured = found["measured"]
    text = f"Goal, {CLOSED:.0%} of the oracle gap closed where it is at least {ROOM:.0%}"
    if not measured:
        return f"{text}: unknown, the gap was not measured."
    if not found["instances"]:
        return f"{text}: unknown, the gap is smaller wherever it was measured."
    if not found["known"]:
        return (
            f"{text}: unknown, where the gap is that large it was not measured over the "
            "contest's length of the run."
        )
    return (
        f"{text}: {_met(found['met'])} (median {found['closed']:.0%} over {found['known']} of "
        f"{found['instances']} such instances; measured on {measured} of {total})."
    )


def _nowhere(goal: Mapping[str, Any], rule: str) -> list[str]:
    worst = goal["worst"]
    if not goal["by_instance"]:
        return []
    text = f"Goal, never more than {WORSE - 1.0:.0%} slower than {rule} anywhere"
    if worst is None:
        return [f"{text}: unknown, no run reached its target."]
    result = "met, at most" if goal["nowhere_worse"] else "missed,"
    found = f"{worst['ratio']:.2f}x on {worst['env']}{_bounds(worst, ' ({})')}"
    silent = sum(not row["tells"] for row in goal["by_instance"])
    others = f"; no run reached its target on {formats.counted(silent, 'other instance')}"
    return [f"{text}: {result} {found}{others if silent else ''}."]


def _met(met: bool) -> str:
    return "met" if met else "missed"


def _bounds(found: Mapping[str, Any], text: str) -> str:
    return (
        "" if found["low"] is None else text.format(formats.interval(found["low"], found["high"]))
    )
