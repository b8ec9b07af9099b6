"""`accerl bench advice`: predictions of the advice, and what this machine really does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accerl.records import make_out_dir
from accerl.spec import CompressionSpec
from studies.benchmarks.clocks.advice import bench_advice
from studies.benchmarks.tables import print_advised
from studies.cli.command import Command, save_result
from studies.cli.options import GameOption
from studies.jobs.cache import ResultCache
from studies.progress import console


@dataclass(frozen=True, kw_only=True)
class Advice(Command):
    """Let specs act for real, beside what `profile advise` predicts.

    Run it on an idle machine; under `taskset` it is one with fewer cores. A GPU learns if torch
    sees one.
    """

    env: GameOption = "pong"
    """game"""
    network: str = "original"
    """the learner's network"""
    specs: tuple[str, ...] = (
        "{}",
        '{"bits": 8}',
        '{"sparsity": 0.5, "bits": 8}',
        '{"student": "net1", "bits": 8}',
        '{"student": "net2", "bits": 8}',
        '{"student": "net3", "bits": 8}',
    )
    """what actors act with, each as JSON; fp32 always does"""
    actors: int | None = None
    """processes that act (default: as many as a run would have here)"""
    seconds: float = 12.0
    """seconds for each spec and repeat; the first four tenths are left out"""
    repeats: int = 1
    """runs, in which each spec has its turn"""
    rounds: int = 5
    """rounds of the latency profile that is measured first"""
    seed: int = 0
    """seed of the first repeat"""
    out: Path | None = None
    """folder to write bench-advice.json to; a call that was interrupted goes on there"""

    def execute(self) -> dict[str, Any]:
        """Measure and print."""
        if self.out is not None:
            make_out_dir(self.out)
        result = bench_advice(
            game=self.env,
            network=self.network,
            specs=[CompressionSpec.from_json(text) for text in self.specs],
            actors=self.actors or 0,
            seconds=self.seconds,
            repeats=self.repeats,
            rounds=self.rounds,
            seed=self.seed,
            kept=ResultCache(None if self.out is None else self.out / "advice_runs"),
        )
        print_advised(result, console)
        return save_result(result, self.out, "bench-advice.json")
