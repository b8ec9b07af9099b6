"""Strategies that look at nothing: one spec for good, or any spec at random."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from accerl.monitor.features import Features
from accerl.monitor.strategies.base import HandSetStrategy
from accerl.monitor.strategies.checks import require_held, require_spec
from accerl.monitor.strategies.search import Levels, all_specs, suggest_held
from accerl.seeds import Role, generator
from accerl.spec import IDENTITY, CompressionSpec, Decision

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True)
class FixedStrategy(HandSetStrategy):
    """Acts with one spec from start to end: the paper's INT8 and pruning experiments.

    Raises:
        UserError: the spec is none.
    """

    name: ClassVar[str] = "fixed"
    spec: CompressionSpec = IDENTITY

    def __post_init__(self) -> None:
        require_spec(self.name, "spec", self.spec)

    @property
    def specs(self) -> tuple[CompressionSpec, ...]:
        """The one spec."""
        return (self.spec,)

    @property
    def label(self) -> str:
        """Its name and its spec, such as ``fixed original INT8``."""
        return f"{self.name} {self.spec.label}"

    def decide(self, features: Features) -> Decision:
        """Return the same decision whatever the features."""
        return Decision.of(self.spec)

    @classmethod
    def suggest(cls, trial: optuna.Trial, actions: Levels) -> dict[str, Any]:
        """Return one spec of the grid."""
        specs = all_specs(actions)
        return {"spec": specs[trial.suggest_int("spec", 0, len(specs) - 1)].to_json()}


@dataclass
class _Draw:
    """What is being held, for how long, and the dice for the next one."""

    dice: np.random.Generator
    decision: Decision | None = None
    held_intervals: int = 0
    seconds: float = 0.0
    """the run's clock at the last decision"""


@dataclass(frozen=True)
class RandomStrategy(HandSetStrategy):
    """Acts with a uniformly random spec and holds it for a while: the baseline that knows nothing.

    Every reset starts the same sequence again.

    Raises:
        UserError: a parameter lies outside what is allowed.
    """

    name: ClassVar[str] = "random"
    specs: tuple[CompressionSpec, ...] = field(metadata={"example": '[{"bits": 32}, {"bits": 8}]'})
    seed: int = 0
    hold_intervals: int = 1
    """intervals that a spec is kept"""
    _draw: _Draw = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        specs = require_held(self.name, self.specs, self.seed, self.hold_intervals)
        object.__setattr__(self, "specs", specs)
        self.reset()

    def reset(self) -> None:
        """Pick up the first dice again."""
        object.__setattr__(self, "_draw", _Draw(generator(self.seed, Role.RANDOM_STRATEGY)))

    def decide(self, features: Features) -> Decision:
        """Return the spec that is being held, or draw another one."""
        draw, now = self._draw, features.raw["seconds"]
        draw.held_intervals += now > draw.seconds
        draw.seconds = now
        if draw.decision is None or draw.held_intervals >= self.hold_intervals:
            draw.decision = Decision.of(self.specs[int(draw.dice.integers(len(self.specs)))])
            draw.held_intervals = 0
        return draw.decision

    @classmethod
    def suggest(cls, trial: optuna.Trial, actions: Levels) -> dict[str, Any]:
        """Return the whole grid and how long to hold; a seed is no parameter to tune."""
        return suggest_held(trial, actions)
