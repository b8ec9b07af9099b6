"""Verdicts: whether what a paper claims comes out of runs, by intervals over games or seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.comparison.scores import reached
from analysis.comparison.stats import finite_or_none
from analysis.formats import counted
from studies.learning.curve import LearningCurve, Pair, Ratios
from studies.learning.interval import mean_over_games
from studies.papers.targets import fixed_by, target_score

if TYPE_CHECKING:
    from studies.papers.figure import Curves, Panel

HOLDS, FAILS, OPEN = "holds", "does not hold", "these runs cannot tell"
MARGIN = 0.05
"""of what the baseline has learned: what ends so much lower does not end alike. On Pong, Net3's
17.3 beside Original's 20.5 is 0.08"""
LAST_SHARE = 0.1
"""of a run, whose mean score is where it ends"""
END_POINTS = 10
"""env steps in it at which scores are read"""
FARTHEST = 100.0
"""logarithm of a ratio beyond which it says nothing, as where there is one run alone"""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of a claim."""

    claim: str
    outcome: str
    """`HOLDS`, `FAILS` or `OPEN`"""
    what: str
    """what the numbers are"""
    estimate: float | None
    low: float | None
    """of the 95% interval, as is `high`; None: too few runs for one"""
    high: float | None
    runs: int
    over: str = ""
    """what the interval is over: games, or seeds where there are too few games"""
    bound: str = ""
    """what is to be written before the estimate, see `Ratios.bound`"""

    def to_json(self) -> dict[str, Any]:
        """Return all fields."""
        return asdict(self)


def outcome_of(
    low: float, high: float, *, at_least: float = -math.inf, at_most: float = math.inf
) -> str:
    """Return what became of a claim that a number lies within bounds, by the number's interval.

    What is as long as the other, to the last digit, is not shorter.
    """
    is_above, is_below = low > at_least, high < at_most
    if (is_above or at_least == -math.inf) and (is_below or at_most == math.inf):
        return HOLDS
    return FAILS if high < at_least or low > at_most else OPEN


def end_score(curve: LearningCurve, env_steps: float = math.inf) -> float | None:
    """Return the mean of the scores in the last `LAST_SHARE` of a run, up to so many env steps.

    It is the mean over env steps, as fast and slow runs have points at other ones. None: there is
    no score yet.
    """
    last = min(curve.env_steps[-1], env_steps)
    pairs = zip(curve.env_steps, curve.scores, strict=True)
    known = [(at, score) for at, score in pairs if score is not None]
    if not known or known[0][0] > last:
        return None
    env_steps, scores = np.array(known, dtype=np.float64).T
    sampled = np.linspace((1.0 - LAST_SHARE) * last, last, END_POINTS + 1)[1:]
    return float(np.mean(np.interp(sampled, env_steps, scores)))


def learned(curve: LearningCurve) -> float | None:
    """Return by how much a run's score rose: from its first to the best mean of a tenth of it.

    None: it has no score, or rose by no more than scores differ within a tenth, as those of a run
    do that learns nothing.
    """
    known = [score for score in curve.scores if score is not None]
    if not known:
        return None
    tenths = np.array_split(np.array(known), round(1.0 / LAST_SHARE))
    rise = max(tenth.mean() for tenth in tenths if len(tenth)) - known[0]
    scatter = np.median([np.ptp(tenth) for tenth in tenths if len(tenth)])
    return float(rise) if rise > scatter else None


def has_switched(curve: LearningCurve, env_steps: float = math.inf) -> bool:
    """Return whether the decision changed during so many env steps of a run."""
    pairs = zip(curve.env_steps, curve.acting, strict=True)
    return len({acts for at, acts in pairs if acts and at <= env_steps}) > 1


def target_of(panel: Panel, baseline: Sequence[LearningCurve]) -> float | None:
    """Return the score that a panel's runs are timed to: its own, or see `target_score`."""
    return target_score(panel.game, baseline) if panel.score is None else panel.score


@dataclass(frozen=True, kw_only=True)
class SecondsAtMost:
    """A run reaches its game's score within a share of the seconds of another.

    Where a run that would pass did not reach it, or the baseline of one that would fail, or neither
    of a pair, nothing is concluded (see `Ratios`). Nor is it where a game's runs were not measured,
    or from failing beside baselines that the score was taken from, if without them it does not
    fail.
    """

    claim: str
    label: str
    machine: str
    at_most: float
    by: str = "seconds"
    """or env_steps or core_seconds"""
    over: str = ""
    """label of the other; "": the panel's baseline"""
    left_out: tuple[str, ...] = ()
    """games"""
    is_scored_run: bool = True
    """whether the baseline is what the games' scores were taken from, with the first seeds"""

    def __call__(self, panels: Sequence[tuple[Panel, Curves]]) -> Verdict:
        """See `Check`."""
        by_game: dict[str, list[Pair]] = {}
        fresh: dict[str, list[Pair]] = {}
        unmeasured: list[str] = []
        seen = 0
        for panel, curves in panels:
            base = curves_of(curves, self.machine, self.over or panel.baseline)
            own = curves_of(curves, self.machine, self.label)
            first_runs = curves_of(curves, self.machine, panel.baseline)
            target = target_of(panel, list(first_runs.values()))
            if target is None or panel.game in self.left_out:
                continue
            for seed in sorted(base.keys() & own.keys()):
                points = getattr(base[seed], self.by), getattr(own[seed], self.by)
                if not all(points):
                    unmeasured.append(panel.game)
                    continue
                first = reached(points[0], base[seed].scores, target)
                pair = reached(points[1], own[seed].scores, target), first
                by_game.setdefault(panel.game, []).append(pair)
                is_own = self.is_scored_run and panel.score is None and not self.over
                if is_own and fixed_by(panel.game, seed):
                    seen += 1
                else:
                    fresh.setdefault(panel.game, []).append(pair)
        found = Ratios.of([pair for pairs in by_game.values() for pair in pairs])
        estimate, low, high, over = _interval(by_game)
        outcome = outcome_of(low, high, at_most=math.log(self.at_most))
        if outcome == FAILS and seen:
            _, least, most, _ = _interval(fresh)
            also = outcome_of(least, most, at_most=math.log(self.at_most))
            outcome = FAILS if also == FAILS else OPEN
        missed = found.own_missed if outcome == HOLDS else found.base_missed
        # Seeds that were not measured have nothing to do with what came out; games may.
        unknown = set(unmeasured) - by_game.keys()
        if missed or found.left_out or unknown:
            outcome = OPEN
        measure = self.by.replace("core", "processor").replace("_", " ")
        what = f"{measure} to the same score, {self.label} / {self.over or 'baseline'}"
        what += f" on {self.machine} (holds if at most {self.at_most:.2f})"
        if found.own_missed:
            what += f"; too low: {found.own_missed} of the runs ended before they reached it"
        if found.base_missed:
            what += (
                f"; too high: {found.base_missed} of {self.over or 'the baseline'}'s ended before"
            )
        if self.left_out:
            what += f"; {_without(self.left_out)}"
        if seen:
            what += f"; beside {seen} runs that the score was taken from"
        if found.left_out:
            what += f"; left out: {found.left_out} pairs, of which neither reached it"
        if unmeasured:
            what += f"; left out: {len(unmeasured)} pairs without {measure}"
            what += f", all of {counted(len(unknown), 'game')}" if unknown else ""
        return Verdict(
            claim=self.claim,
            outcome=outcome,
            what=what,
            estimate=_exp(estimate),
            low=_exp(low),
            high=_exp(high),
            runs=len(found.logs),
            over=over,
            bound=found.bound,
        )


@dataclass(frozen=True, kw_only=True)
class EndsWithin:
    """A run ends within bounds of where another ends, as a share of what the baseline has learned.

    Both are compared after as many env steps, all that the slower of them has made: what is faster
    does not end higher for having gone on. Where a baseline has learned nothing (see `learned`)
    there is no share, and nothing is concluded.
    """

    claim: str
    label: str
    machine: str
    at_least: float = -math.inf
    at_most: float = math.inf
    over: str = ""
    """label of what takes the baseline's place; shares are of what the baseline has learned still
    """
    left_out: tuple[str, ...] = ()
    """games"""
    up_to_baseline: bool = False
    """whether they are compared no later than the baseline's last env step: later, all of them may
    have learned what there is to learn"""
    switched: bool = False
    """whether only runs count in which the decision changed before the end that is compared: where
    it did not, a rule has not acted, and nothing can be said of it"""

    def __call__(self, panels: Sequence[tuple[Panel, Curves]]) -> Verdict:
        """See `Check`."""
        by_game: dict[str, list[float]] = {}
        unswitched = left_out = 0
        for panel, curves in panels:
            if panel.game in self.left_out:
                continue
            base = curves_of(curves, self.machine, panel.baseline)
            own = curves_of(curves, self.machine, self.label)
            other = curves_of(curves, self.machine, self.over) if self.over else base
            for seed in sorted(base.keys() & own.keys() & other.keys()):
                compared = [own[seed], other[seed], *[base[seed]] * self.up_to_baseline]
                least = min(curve.env_steps[-1] for curve in compared)
                if self.switched and not has_switched(own[seed], (1.0 - LAST_SHARE) * least):
                    unswitched += 1
                    continue
                ends = end_score(other[seed], least), end_score(own[seed], least)
                rise = learned(base[seed])
                if ends[0] is None or ends[1] is None or rise is None:
                    left_out += 1
                    continue
                gap = (ends[1] - ends[0]) / rise
                by_game.setdefault(panel.game, []).append(gap)
        estimate, low, high, over = mean_over_games([*by_game.values()])
        outcome = outcome_of(low, high, at_least=self.at_least, at_most=self.at_most)
        if left_out:
            outcome = OPEN
        bounds = [
            text
            for value, text in (
                (self.at_least, f"at least {self.at_least:+.0%}"),
                (self.at_most, f"at most {self.at_most:+.0%}"),
            )
            if math.isfinite(value)
        ]
        steps = "the baseline's env steps" if self.up_to_baseline else "as many env steps"
        what = f"score after {steps}, {self.label} - {self.over or 'baseline'} on "
        what += f"{self.machine}, as a share of what the baseline has learned (holds if "
        what += f"{' and '.join(bounds)})"
        if self.left_out:
            what += f"; {_without(self.left_out)}"
        if unswitched:
            what += f"; left out: {unswitched} runs whose decision did not change before that"
        if left_out:
            what += f"; left out: {left_out} pairs whose baseline learned nothing or that have no "
            what += "score"
        return Verdict(
            claim=self.claim,
            outcome=outcome,
            what=what,
            estimate=finite_or_none(estimate),
            low=finite_or_none(low),
            high=finite_or_none(high),
            runs=sum(map(len, by_game.values())),
            over=over,
        )


def _without(games: Sequence[str]) -> str:
    """Say which games are left out, and that the choice was made with their first seed known."""
    return f"without {', '.join(games)}, which was chosen after seed 0 was seen"


def curves_of(curves: Curves, machine: str, label: str) -> dict[int, LearningCurve]:
    """Return a line's runs on a machine by seed."""
    return {
        seed: curve
        for (where, name, seed), curve in curves.items()
        if (where, name) == (machine, label)
    }


def _interval(by_game: Mapping[str, Sequence[Pair]]) -> tuple[float, float, float, str]:
    """Return estimate and 95% interval of the log of ratios, and what it is over."""
    return mean_over_games([Ratios.of(pairs).logs for pairs in by_game.values()])


def _exp(log: float) -> float | None:
    """Return e to the power of it; None where nothing is known."""
    return math.exp(log) if abs(log) < FARTHEST else None
