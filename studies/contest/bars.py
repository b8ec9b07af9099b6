"""The bars of a contest: what the controller is to reach on what it never saw, fixed beforehand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from scipy.special import stdtrit

PLANNED, CHANGING, INSTANCES, LAPTOP, ROOM = (
    "held out",
    "changing conditions",
    "every instance",
    "laptop",
    "of the room",
)
"""where a bar is set, in the words that the analysis reads"""
SHARE = 0.7
"""of the room over the best static spec for all that is to be taken"""
MEASURED = {"room": 0.063, "room_low": 0.017, "room_high": 0.110, "room_plan": "3cbe523ce87a"}
"""by the study of room, over all of its instances, with its 95% interval;
`analysis/gallery/room.json`"""
COMPARATORS = {
    "best threshold rule, one for all": ("threshold", "one for all"),
    "best static spec, one for all": ("static", "one for all"),
    "fp32": ("fp32", None),
    "advise + KL cap": ("advise", "one for all"),
    "best static spec of each instance": ("static", "per instance"),
}
"""kind and scope of an entrant by what the plan calls it"""
BARS = (
    ("best threshold rule, one for all", PLANNED, 0.90, True),
    ("best static spec, one for all", PLANNED, 0.90, True),
    ("fp32", PLANNED, 1.0, True),
    ("best threshold rule, one for all", LAPTOP, 0.80, False),
    ("best threshold rule, one for all", CHANGING, 0.80, False),
    ("best static spec, one for all", LAPTOP, 0.80, False),
    ("best static spec, one for all", CHANGING, 0.80, False),
    ("advise + KL cap", PLANNED, 0.95, True),
    ("best static spec of each instance", PLANNED, 1.03, False),
    ("best static spec of each instance", CHANGING, 0.95, False),
    ("fp32", INSTANCES, 1.03, False),
)
"""against what, where, at most how many times its seconds, and whether surely fewer"""


SPREAD = 0.22
"""between independent pairs (a game and a seed): standard deviation of the log of the indicator's
seconds over the KL threshold's, in the contest of plan 9c27005d2f6d; over others' it was less, and
in that of plan 403dd0b027d1 half as much"""


def expected_half_width(games: int, seeds: int) -> float:
    """Return half of a primary ratio's 95% interval that is to be expected, as a share of it."""
    freedom = games * (seeds - 1)
    if freedom < 1:
        return math.inf
    return math.expm1(stdtrit(freedom, 0.975) * SPREAD / math.sqrt(games * seeds))


def planned_bars(against: Sequence[str]) -> list[dict[str, Any]]:
    """Return the bars of a plan as JSON, those whose comparator takes part."""
    found: list[dict[str, Any]] = [
        {**_comparator(name), "where": where, "at_most": at_most, "below_one": below_one}
        for name, where, at_most, below_one in BARS
        if name in against
    ]
    static = "best static spec, one for all"
    share = {"where": ROOM, "at_least": SHARE, "below_one": False, **MEASURED}
    return found + ([{**_comparator(static), **share}] if static in against else [])


def _comparator(name: str) -> dict[str, str | None]:
    kind, scope = COMPARATORS[name]
    return {"against": name, "kind": kind, "scope": scope}
