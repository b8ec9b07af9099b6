"""Strategies that follow the stages of training: exploration, improving, convergence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from accerl.errors import UserError, require_choice
from accerl.monitor.features import Features
from accerl.monitor.strategies.base import SECONDS_EPSILON, HandSetStrategy
from accerl.monitor.strategies.checks import require_number, require_spec
from accerl.monitor.strategies.search import Levels, suggest_spec
from accerl.spec import CompressionSpec, Decision

if TYPE_CHECKING:
    import optuna

BY = ("time", "stage")


@dataclass(frozen=True)
class ThreeStageStrategy(HandSetStrategy):
    """Smallest network while exploring, larger while improving, smaller again at the end (Fig. 5).

    The defaults follow the paper's section 2.4: a policy that acts almost at random needs no large
    network; one that improves fast is copied faithfully; one that has converged acts with fewer
    bits, which cost its by now clear-cut choices least and, unlike a small student, take nothing
    from what the network can represent.

    The paper leaves open how to judge the stage. `by` "time" takes shares of the run's horizon,
    `by` "stage" the raw indicator `stage` (0.0 exploration, 1.0 improving, 2.0 convergence), which
    counts as exploration while it is missing or not a number.

    Raises:
        UserError: a parameter lies outside what is allowed.
    """

    name: ClassVar[str] = "three-stage"
    exploring: CompressionSpec = CompressionSpec(student="net3")
    improving: CompressionSpec = CompressionSpec(student="original")
    converged: CompressionSpec = CompressionSpec(bits=8)
    by: str = "time"
    """time or stage"""
    improving_from: float = 0.2
    """by time: share of the horizon at which improving begins"""
    converged_from: float = 0.7
    """by time: share of the horizon at which convergence begins; 1: never"""

    def __post_init__(self) -> None:
        for stage in ("exploring", "improving", "converged"):
            require_spec(self.name, stage, getattr(self, stage))
        if self.exploring == self.improving == self.converged:
            raise UserError(
                f"strategy {self.name}: exploring, improving and converged are the same spec; "
                "use the fixed strategy"
            )
        require_choice(f"strategy {self.name}: by", self.by, BY)
        require_number(self.name, "improving_from", self.improving_from, at_least=0.0, at_most=1.0)
        require_number(
            self.name, "converged_from", self.converged_from, above=self.improving_from, at_most=1.0
        )

    @property
    def specs(self) -> tuple[CompressionSpec, ...]:
        """The specs of the three stages, each once."""
        return tuple(dict.fromkeys((self.exploring, self.improving, self.converged)))

    def decide(self, features: Features) -> Decision:
        """Return the spec of the present stage."""
        raw = features.raw
        if self.by == "time":
            reached = (raw["seconds"] + SECONDS_EPSILON) / raw["horizon_seconds"]
            improving, converged = self.improving_from, self.converged_from
        else:
            reached, improving, converged = raw.get("stage", math.nan), 1.0, 2.0
        if reached >= converged:
            return Decision.of(self.converged)
        return Decision.of(self.improving if reached >= improving else self.exploring)

    @classmethod
    def suggest(cls, trial: optuna.Trial, actions: Levels) -> dict[str, Any]:
        """Return three specs, of which two may be the same, and how to judge the stage."""
        stages = ("exploring", "improving", "converged")
        params: dict[str, Any] = {name: suggest_spec(trial, actions, name) for name in stages}
        if params["exploring"] == params["improving"] == params["converged"]:
            other = 32 if params["improving"] == CompressionSpec(bits=8).to_json() else 8
            params["improving"] = CompressionSpec(bits=other).to_json()
        params["by"] = trial.suggest_categorical("by", list(BY))
        if params["by"] == "time":
            params["improving_from"] = trial.suggest_float("improving_from", 0.02, 0.5)
            params["converged_from"] = trial.suggest_float("converged_from", 0.55, 1.0)
        return params
