"""`accerl compare`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.render.terminal import rich_table
from studies.cli.command import as_file_name
from studies.cli.run_options import RunOptions
from studies.compare.run import compare
from studies.jobs.round import AGAIN
from studies.progress import console, paragraph, say

PAGE = "comparison.html"


@dataclass(frozen=True, kw_only=True)
class Compare(RunOptions):
    """Train under several strategies with the same seeds, and compare what they take.

    For example `accerl compare catch --strategies '{}' '{"bits": 8}' indicator --seeds 5`. On the
    real clock (`--runtime process`) runs are made one after another: leave the machine to them.
    """

    strategies: tuple[str, ...] = ("{}", '{"bits": 8}', "indicator")
    """each a spec as JSON, the name of a strategy of `accerl train`, one with parameters
    ('kl-threshold {"threshold_nats": 2.0}'), the path of a schedule bundle, or module:Class, your
    own; the first is what the others are compared with"""
    seeds: int = 3
    """runs of each, from --seed on"""
    scores: tuple[float, ...] = ()
    """which actors are timed to, as means of 20 episodes (default: half and nine tenths of the way
    that the first strategy goes)"""
    until_score: float | None = None
    """not here: a comparison is of runs of one length; give --scores"""
    workers: int = 0
    """runs at once on the virtual clock; 0: as many as there are cores and memory for"""
    out: Path | None = None
    """folder (default: compare/GAME); a later call goes on there, with more strategies or seeds,
    and shows what it asks for"""

    def execute(self) -> dict[str, Any]:
        """Compare, print, and write the page."""
        # Brings Altair, which no run needs.
        from analysis.render.html import write_comparison_report
        from analysis.report.studies.comparison import cautions, comparison_tables, headline

        config = self.run_config()
        out = self.out or Path("compare") / as_file_name(config.preset)
        try:
            result = compare(
                config,
                self.strategies,
                out=out,
                seeds=self.seeds,
                scores=self.scores,
                workers=self.workers,
            )
        except KeyboardInterrupt as interrupt:
            raise KeyboardInterrupt(AGAIN) from interrupt
        for table in comparison_tables(result):
            console.print(rich_table(table))
        for note in (*cautions(result), headline(result)):
            paragraph(note)
        page = write_comparison_report(out, out / PAGE)
        say(f"wrote {page}")
        return {**result, "html": str(page)}
