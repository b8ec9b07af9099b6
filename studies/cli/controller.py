"""`accerl controller`: train one on analytic games, compare those of a study."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from accerl.records import read_json
from analysis.comparison.contest import write_contest
from analysis.render.terminal import print_summary
from studies.cli.command import Command, check_positive, save_result
from studies.contest.tier0 import train_tier0
from studies.progress import console, say


@dataclass(frozen=True, kw_only=True)
class Train(Command):
    """Train a controller on the analytic tier.

    It is exported as a schedule bundle.
    """

    out: Path
    """the bundle's folder"""
    iterations: int = 30
    """policy-gradient iterations of 32 episodes"""
    seed: int = 0
    """of initialisation and games"""

    def execute(self) -> dict[str, Any]:
        """Train on analytic games, export, and print how close the optimum is."""
        check_positive(iterations=self.iterations)
        result = train_tier0(self.out, self.iterations, self.seed)
        say(
            f"reaches {result['share_of_optimum']:.1%} of the dynamic-programming optimum on "
            f"{result['games']} held-out analytic games; bundle in {self.out}"
        )
        return result


@dataclass(frozen=True, kw_only=True)
class Eval(Command):
    """Compare the strategies of a finished study.

    Prints rows per run, and contrasts with intervals.
    """

    study: tyro.conf.Positional[Path]
    """study folder"""
    out: Path | None = None
    """folder to write contest.json to"""

    def execute(self) -> dict[str, Any]:
        """Compute the contest and print it."""
        path = write_contest(self.study)
        print_summary(self.study, console)
        return save_result(read_json(path), self.out, "contest.json")
