"""The ways in which a contest trains controllers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to train a controller."""

    name: str
    label: str
    what: str
    kind: str
    evolution: bool = False


CONTROLLER = Variant(
    name="controller",
    label="learned controller",
    what="clones of two demonstrations, then policy gradient",
    kind="controller",
)
EVOLUTION = Variant(
    name="evolution",
    label="evolution strategies",
    what="clones of two demonstrations, then evolution strategies on the same weights",
    kind="evolution",
    evolution=True,
)
VARIANTS = {EVOLUTION.name: EVOLUTION}
"""besides the controller itself, by the names that budgets use"""
