"""`accerl bench inner`: where the core-seconds of an inner run go."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accerl.errors import UserError, require_choice
from accerl.spec import CompressionSpec
from studies.benchmarks.inner import PRECISIONS, bench_inner
from studies.benchmarks.tables import print_inner
from studies.cli.command import Command, check_positive, save_result
from studies.cli.options import GameOption
from studies.progress import console


@dataclass(frozen=True, kw_only=True)
class Inner(Command):
    """Show where the core-seconds of an inner run go.

    Runs on the virtual clock, one thread, interleaved; processor time, scaled to 500,000 env steps.
    """

    env: GameOption = "minatar-breakout"
    """preset"""
    specs: tuple[str, ...] = ("{}", '{"student": "net3", "bits": 8}')
    """what actors act with, each as JSON"""
    precisions: tuple[str, ...] = ("fp32",)
    """precision of learner and students: fp32, bf16"""
    profile: str = "paper-1080ti"
    """latency profile"""
    env_steps: int = 60_000
    """least number of env steps in a run"""
    repeats: int = 3
    """interleaved runs of each kind"""
    seed: int = 0
    """seed of all runs"""
    out: Path | None = None
    """folder to write bench-inner.json to"""

    def execute(self) -> dict[str, Any]:
        """Measure and print."""
        check_positive(env_steps=self.env_steps, repeats=self.repeats)
        if not (self.specs and self.precisions):
            raise UserError("--specs and --precisions: name at least one of each")
        for precision in self.precisions:
            require_choice("--precisions", precision, PRECISIONS)
        result = bench_inner(
            self.env,
            [CompressionSpec.from_json(text) for text in self.specs],
            profile=self.profile,
            precisions=self.precisions,
            env_steps=self.env_steps,
            repeats=self.repeats,
            seed=self.seed,
        )
        print_inner(result, console)
        return save_result(result, self.out, "bench-inner.json")
