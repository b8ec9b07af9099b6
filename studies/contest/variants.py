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
    features: str = "all"
    recurrent: bool = False
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
    "recurrent": Variant(
        name="controller_recurrent",
        label="recurrent controller",
        what="a GRU in place of the hidden layer",
        recurrent=True,
    ),
    "kl-only": Variant(
        name="controller_kl",
        label="controller, KL alone",
        what="sees how far actors are from the learner, and no more",
        features="kl",
    ),
    "reward-only": Variant(
        name="controller_reward",
        label="controller, rewards alone",
        what="sees returns, and no more",
        features="reward",
    ),
    "machine-only": Variant(
        name="controller_machine",
        label="controller, machine alone",
        what="sees where the seconds go, and no more",
        features="machine",
    ),
    "rule-only": Variant(
        name="controller_rule",
        label="controller, taught by the rule alone",
        what="is not shown the best static spec of each machine",
        statics=False,
    ),
}
"""besides the controller itself, by the names that budgets use"""
