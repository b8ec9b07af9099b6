"""What `accerl bench clock` runs on both clocks: games, specs, strategies, wiring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from accerl.config import RunConfig
from accerl.monitor.strategies import ThreeStageStrategy
from accerl.presets import load_preset
from accerl.runtime.machine.cores import usable_cores
from accerl.spec import CompressionSpec
from studies.benchmarks.pipelines import base_config

INT8 = CompressionSpec(bits=8)
NET3_INT8 = CompressionSpec(student="net3", bits=8)
EAGER = CompressionSpec(graph="eager")
SPECS = {
    "pong": (
        EAGER,
        CompressionSpec(),
        CompressionSpec(bits=16),
        INT8,
        CompressionSpec(sparsity=0.5, bits=8),
        CompressionSpec(student="net1", bits=8),
        CompressionSpec(student="net2"),
        CompressionSpec(student="net3"),
        CompressionSpec(student="net3", sparsity=0.75, bits=8),
    ),
    "minatar-breakout": (
        CompressionSpec(bits=16),
        CompressionSpec(student="net3", bits=16),
        EAGER,
        CompressionSpec(student="net2", graph="eager"),
        CompressionSpec(student="net3", graph="eager"),
        CompressionSpec(graph="torchscript"),
        CompressionSpec(student="net3", graph="torchscript"),
        CompressionSpec(),
        INT8,
    ),
}
"""what acts all along, by game; where games are learned, at speeds that lie well apart"""
SWITCHING = {
    "pong": (CompressionSpec(), INT8, NET3_INT8),
    "minatar-breakout": (EAGER, CompressionSpec(graph="torchscript"), INT8),
}
"""what the random strategy draws from at every decision"""
INTERVALS = 8
WARM_UP_INTERVALS = 2
"""left out of speeds: actors import torch, and everything happens for the first time"""
SECONDS = {"pong": 12.0, "minatar-breakout": 16.0}
"""length of a run by game; Pong is not learned in any time that a benchmark has"""
LEARNED = ("minatar-breakout",)
"""games that are learned in that time, so that returns can be compared; actors infer one state at
a time there and the learner is small, as otherwise the learner alone sets the pace of a small game
and every spec is as good as any"""


@dataclass(frozen=True)
class Case:
    """One strategy on one game."""

    game: str
    label: str
    strategy: str
    params: Mapping[str, Any]


def cases_of(game: str) -> list[Case]:
    """Return the fixed specs, and two strategies that switch: by time, and at every decision."""
    fixed = [Case(game, spec.label, "fixed", {"spec": spec.to_json()}) for spec in SPECS[game]]
    drawn = {"specs": [spec.to_json() for spec in SWITCHING[game]]}
    stages = Case(game, "three stages", "three-stage", {"by": "time"})
    return [*fixed, stages, Case(game, "random", "random", drawn)]


def all_specs(game: str) -> list[CompressionSpec]:
    """Return everything that acts in a game's cases."""
    staged = [ThreeStageStrategy.exploring, ThreeStageStrategy.improving]
    staged.append(ThreeStageStrategy.converged)
    return list(dict.fromkeys([*SPECS[game], *SWITCHING[game], *staged]))


def clock_config(game: str, seconds: float) -> RunConfig:
    """Return the run whose speed is predicted, in the process runtime."""
    if game in LEARNED:
        config = replace(load_preset(game), network="net1").with_runtime(infer_batch=1)
    else:  # wired as `bench pipeline` found it fastest
        config = base_config(game, "original")
    return replace(config, seconds=seconds).with_runtime(
        runtime="process",
        clock="real",
        num_actors=1,
        interval_seconds=seconds / INTERVALS,
        eval_episodes=16 if game in LEARNED else 0,
        pin_cores=usable_cores() > 1,
    )
