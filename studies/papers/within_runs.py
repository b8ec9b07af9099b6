"""Verdicts on what happens within runs, whatever the others of their panel do."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from analysis.comparison.stats import finite_or_none, spearman
from studies.learning.curve import LearningCurve
from studies.learning.interval import mean_over_games
from studies.papers.verdict import FAILS, HOLDS, OPEN, Verdict, curves_of

if TYPE_CHECKING:
    from studies.papers.figure import Curves, Panel

_MOST = 0.5  # of the runs
_LEAST_POINTS = 3  # of a curve, for a correlation


@dataclass(frozen=True, kw_only=True)
class Happens:
    """Something happens in most runs of a line, on all games.

    Holds if the exact 95% interval (Clopper-Pearson) of the share of runs lies above a half, and
    does not if it lies below: that takes six runs that agree.
    """

    claim: str
    label: str
    machine: str
    what: str
    """in words"""
    happens: Callable[[LearningCurve], bool]
    games: tuple[str, ...] = ()
    """of which alone it is claimed; (): of all"""

    def __call__(self, panels: Sequence[tuple[Panel, Curves]]) -> Verdict:
        """See `Check`."""
        runs = [
            self.happens(curve)
            for panel, curves in panels
            if not self.games or panel.game in self.games
            for curve in curves_of(curves, self.machine, self.label).values()
        ]
        share, low, high = None, 0.0, 1.0
        if runs:
            from scipy.stats import binomtest  # takes a second to import

            share = sum(runs) / len(runs)
            low, high = binomtest(sum(runs), len(runs)).proportion_ci(method="exact")
        outcome = HOLDS if low > _MOST else FAILS if high < _MOST else OPEN
        return Verdict(
            claim=self.claim,
            outcome=outcome,
            what=f"share of the runs of {self.label} on {self.machine} in which {self.what} (holds "
            f"if above {_MOST:.0%}; it takes six runs that agree)",
            estimate=share,
            low=float(low) if len(runs) > 1 else None,
            high=float(high) if len(runs) > 1 else None,
            runs=len(runs),
            over="runs",
        )


@dataclass(frozen=True, kw_only=True)
class MovesTogether:
    """The largest KL and the score of a run rise and fall together, in the mean of runs.

    Each run counts with one rank correlation (Spearman) of their changes from interval to interval:
    both may rise throughout a run and have nothing to do with each other.
    """

    claim: str
    label: str
    machine: str

    def __call__(self, panels: Sequence[tuple[Panel, Curves]]) -> Verdict:
        """See `Check`."""
        by_game: dict[str, list[float]] = {}
        for panel, curves in panels:
            for curve in curves_of(curves, self.machine, self.label).values():
                if (found := _rank_correlation(curve)) is not None:
                    by_game.setdefault(panel.game, []).append(found)
        estimate, low, high, over = mean_over_games([*by_game.values()])
        return Verdict(
            claim=self.claim,
            outcome=HOLDS if low > 0.0 else FAILS if high < 0.0 else OPEN,
            what="rank correlation of the changes of the largest KL and of the score from interval "
            f"to interval of a run of {self.label} on {self.machine} (holds if above 0)",
            estimate=finite_or_none(estimate),
            low=finite_or_none(low),
            high=finite_or_none(high),
            runs=sum(map(len, by_game.values())),
            over=over,
        )


def _rank_correlation(curve: LearningCurve) -> float | None:
    """Return that of the changes; None where one of them is always the same, or is unknown."""
    pairs = zip(curve.kl_max_nats, curve.scores, strict=True)
    known = [(kl, score) for kl, score in pairs if score is not None and math.isfinite(kl)]
    if len(known) < _LEAST_POINTS:
        return None
    return finite_or_none(spearman(*np.diff(known, axis=0).T))
