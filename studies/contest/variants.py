"""The ways in which a contest trains controllers: its own, and what that is held against."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to train a controller."""

    name: str
    label: str
    what: str
    kind: str = "ablation"
    evolution: bool = False
    statics: bool = True
    """whether it also learns from the best static specs"""


CONTROLLER = Variant(
    name="controller",
    label="learned controller",
    what="two teachers, then policy gradient",
    kind="controller",
)
VARIANTS = {
    "evolution": Variant(
        name="evolution",
        label="evolution strategies",
        what="two teachers, then evolution strategies on the same weights",
        kind="evolution",
        evolution=True,
    ),
    "rule-only": Variant(
        name="controller_rule",
        label="controller, taught by the rule alone",
        what="is not shown the best static spec of each machine",
        statics=False,
    ),
}
"""besides the controller itself, by the names that budgets use"""
