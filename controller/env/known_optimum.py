"""Instances of tier 0 whose optimum is known by dynamic programming: what a controller could reach.

Drawn games on drawn machines (`machine_instances`) are what controllers are trained on; these are
for finding out whether what trains them works.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from accerl.presets import load_preset
from accerl.runtime.run import InnerRun
from accerl.seeds import Role, generator
from accerl.spec import CompressionSpec
from controller.analytic.model import AnalyticConfig, sample_config
from controller.analytic.run import AnalyticRun
from controller.env.instances import SPLITS, Instance, find_split

HORIZON_SECONDS, INTERVAL_SECONDS = 60.0, 3.0


@dataclass(frozen=True, kw_only=True)
class KnownOptimum(Instance):
    """A game of `controller.analytic.model`; every spec can act in it."""

    not_in_json: ClassVar[tuple[str, ...]] = (*Instance.not_in_json, "model")
    model: AnalyticConfig
    tier: str = "analytic"

    @property
    def name(self) -> str:
        """The game's name alone: it is a machine of its own."""
        return self.game

    def make_run(self, seed: int) -> InnerRun:
        """Start the inner run of `seed`."""
        return AnalyticRun(self.model, seed)

    def has(self, spec: CompressionSpec) -> bool:
        """Every spec exists."""
        return True


def known_optimum(config: AnalyticConfig, name: str = "analytic") -> KnownOptimum:
    """Return the instance of a game."""
    return KnownOptimum(
        game=name,
        model=config,
        base=load_preset("catch"),  # says nothing: strategies want to know some run
        random_return=config.reference.random_return,
        reference_return=config.reference.reference_return,
        horizon_seconds=HORIZON_SECONDS,
        interval_seconds=INTERVAL_SECONDS,
    )


def draw_known_optimum(split: str, number: int) -> KnownOptimum:
    """Return the game of a number; splits have none in common.

    Raises:
        UserError: the split does not exist.
    """
    find_split(split)
    rng = generator(number, Role.ANALYTIC_GAME, list(SPLITS).index(split))
    return known_optimum(sample_config(rng), f"analytic-{split}-{number}")
