"""The ways in which a contest trains the Advanced Indicator, and what is left out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to train or to cut down the indicator."""

    name: str
    label: str
    what: str
    kind: str
    evolution: bool = False
    """evolution strategies in place of the policy gradient"""
    trained: bool = True
    """False: the rule that training starts from"""
    recurrent: bool = False
    """memory in place of beliefs, see `controller.indicator.recurrent`"""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """of `IndicatorSettings`, where they are not the default"""


CONTROLLER = Variant(
    name="controller",
    label="Advanced Indicator",
    what="beliefs about speed and fidelity; policy gradient on drawn machines, then on real runs",
    kind="controller",
)
EVOLUTION = Variant(
    name="evolution",
    label="evolution strategies",
    what="the same with evolution strategies in place of the policy gradient",
    kind="evolution",
    evolution=True,
)
ABLATION = "ablation"
VARIANTS = {
    item.name: item
    for item in (
        EVOLUTION,
        Variant(
            name="untrained",
            label="without policy gradient",
            what="the rule that training starts from",
            kind=ABLATION,
            trained=False,
        ),
        Variant(
            name="no_predictions",
            label="without predictions",
            what="all specs are thought equally fast until they have acted",
            kind=ABLATION,
            settings={"uses_predictions": False},
        ),
        Variant(
            name="no_kl",
            label="without KL",
            what="KL is never measured, only what the prior says is known, and only admission and "
            "the shield cap it",
            kind=ABLATION,
            settings={"uses_kl": False},
        ),
        Variant(
            name="no_changes",
            label="without change points",
            what="conditions that change are taken for noise",
            kind=ABLATION,
            settings={"uses_changes": False},
        ),
        Variant(
            name="recurrent",
            label="recurrent instead of belief",
            what="a GRU over the run's features in place of beliefs, trained alike",
            kind=ABLATION,
            recurrent=True,
        ),
    )
}
"""besides the controller itself, by the names that budgets use"""
