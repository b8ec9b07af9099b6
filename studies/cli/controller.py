"""`accerl controller`: train one on tier 0, compare those of a study."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from analysis.comparison.contest import CONTEST
from analysis.render.terminal import print_summary
from analysis.report.study import StudyReport
from studies.cli.command import Command, check_positive, save_result
from studies.controller_training import train_tier0
from studies.progress import console


@dataclass(frozen=True, kw_only=True)
class Train(Command):
    """Meta-train the Advanced Indicator on tier 0, simulated runs on drawn machines.

    It is compared with static specs and with the rule that training starts from, and exported as a
    schedule bundle. An interrupted training goes on with the same command.
    """

    out: Path
    """the bundle's folder, a new one"""
    iterations: int = 20
    """iterations of policy gradient"""
    instances: int = 8
    """drawn machines and games of an iteration, 8 episodes each"""
    draws: int = 60
    """instances of the validation split on which it is compared"""
    seed: int = 0
    """seed of initial weights, drawn instances and exploration"""

    def execute(self) -> dict[str, Any]:
        """Train, compare, export, and print the comparison."""
        check_positive(iterations=self.iterations, instances=self.instances, draws=self.draws)
        try:
            return train_tier0(
                self.out,
                iterations=self.iterations,
                instances=self.instances,
                draws=self.draws,
                seed=self.seed,
            )
        except KeyboardInterrupt as interrupt:
            raise KeyboardInterrupt(
                "finished iterations are saved: start the same command again to go on"
            ) from interrupt


@dataclass(frozen=True, kw_only=True)
class Eval(Command):
    """Compare the strategies of a finished contest.

    Prints rows per run, and contrasts with intervals.
    """

    study: tyro.conf.Positional[Path]
    """study folder"""
    out: Path | None = None
    """folder to write contest.json to"""

    def execute(self) -> dict[str, Any]:
        """Compute the contest and print it."""
        found = StudyReport.of(self.study)
        print_summary(found, console)
        return save_result(dict(found.contest), self.out, CONTEST)
