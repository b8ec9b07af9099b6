"""Bandits that pick a spec, or a level per head, and learn within the run which ones pay.

Returns rise fast at first and slowly at the end, and what pays changes on the way: both bandits
forget. Rewards are gains per second, standardised over what is remembered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from accerl.errors import UserError
from accerl.monitor.features import Features
from accerl.monitor.strategies import Levels
from accerl.monitor.strategies.checks import require_flag, require_number, require_whole
from accerl.spec import BITS, STUDENTS, CompressionSpec
from controller.actions import Actions, ActionSpace, PresetActions
from controller.comparators.credit import Credit, RunLearner, highest, standardised

if TYPE_CHECKING:
    import optuna

UNTRIED = 1e6
"""score of a level that was not tried, beside the scores of other heads"""


@dataclass(frozen=True)
class _Bandit(RunLearner):
    """Scores every arm by its recent credits, and takes the best.

    Factored, there is a bandit for each of bits, sparsity and student. Gains are split by
    least squares: each head learns from what the other heads' levels do not explain. One head,
    drawn at random, chooses at a time and the others stay: the merits of heads that always explore
    together could not be separated. Where no spec has the level that it chose beside theirs, they
    move with it.
    """

    factored: bool = False
    """one bandit a head (bits, sparsity, student) instead of one over all specs"""
    _grid: Actions = field(init=False, repr=False, compare=False)
    """the arms of every head"""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_flag(self.name, "factored", self.factored)
        grid = _grid(self.name, self.specs) if self.factored else PresetActions(self.specs)
        object.__setattr__(self, "_grid", grid)

    def weights(self, ages: np.ndarray) -> np.ndarray:
        """Return the weights of credits, in [0, 1], after so many later stretches."""
        raise NotImplementedError

    def scores(self, means: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return a score for each arm of one head, of which the highest is chosen.

        Args:
            means: of its standardised gains, 0 where there are none.
            counts: of its credits, by their weight; 0: untried.
            rng: the strategy's own.
        """
        raise NotImplementedError

    def choose(
        self, features: Features, credits: Sequence[Credit], rng: np.random.Generator
    ) -> CompressionSpec:
        """See `RunLearner.choose`."""
        # A switch leaves two credits of one stretch: no more evidence than the one of a rest.
        stretches = np.array([credit.stretch for credit in credits], dtype=int)
        ages = stretches.max(initial=0) - stretches
        weights = self.weights(ages) * np.array([credit.share for credit in credits])
        recent = [credits[place] for place in np.flatnonzero(weights).tolist()]
        weights = weights[weights > 0.0]
        gains = standardised(np.array([credit.gain_per_second for credit in recent]), weights)
        grid = self._grid
        heads = range(len(grid.sizes))
        acted = np.array([grid.indices(credit.spec) for credit in recent], dtype=int)
        acted = acted.reshape(len(recent), len(heads))
        last = self._memory.assignment.chosen

        def score(head: int) -> np.ndarray:
            size, levels = grid.sizes[head], acted[:, head]
            own = _unexplained(gains, weights, acted, head)
            counts = np.bincount(levels, weights, size)
            sums = np.bincount(levels, weights * own, size)
            means = sums / np.where(counts > 0.0, counts, 1.0)
            return self.scores(means, counts, rng)

        return self._of_levels(score, None if last is None else grid.indices(last), rng)

    def _of_levels(
        self,
        score: Callable[[int], np.ndarray],
        last: Sequence[int] | None,
        rng: np.random.Generator,
    ) -> CompressionSpec:
        """Return a spec by the scores of each head's levels.

        After the first, one head moves at a time. Where no spec has its best level beside the
        levels of the others, the others move too: of the specs that have it, the best acts.

        Args:
            score: of the levels of a head.
            last: levels of the spec that acts; None: the first is chosen.
            rng: the strategy's own.
        """
        levels = np.array([self._grid.indices(spec) for spec in self.specs])
        heads = list(range(levels.shape[1]))
        allowed = np.ones(len(self.specs), dtype=bool)
        if last is not None:
            moved = heads.pop(int(rng.integers(len(heads))))
            allowed = levels[:, moved] == highest(score(moved), rng)
            beside = (levels[:, heads] == np.array(last)[heads]).all(axis=1)
            if (allowed & beside).any():
                heads, allowed = [], allowed & beside
        worth = np.zeros(len(self.specs))
        for head in heads:
            worth += np.nan_to_num(score(head), posinf=UNTRIED)[levels[:, head]]
        return self.specs[highest(np.where(allowed, worth, -np.inf), rng)]


def _unexplained(
    gains: np.ndarray, weights: np.ndarray, levels: np.ndarray, head: int
) -> np.ndarray:
    """Return gains [N] without what levels [N, heads] of the other heads are worth.

    Worth is by weighted least squares over the levels of all heads; what heads share alike is
    split between them (the solution of least norm).
    """
    tried = [(each[:, None] == np.unique(each)).astype(float) for each in levels.T]
    root = np.sqrt(weights)
    worth = np.linalg.lstsq(np.hstack(tried) * root[:, None], gains * root)[0]
    tried[head] = np.zeros_like(tried[head])
    return gains - np.hstack(tried) @ worth


def _grid(name: str, specs: Sequence[CompressionSpec]) -> ActionSpace:
    """Return the smallest grid of levels that holds all specs."""
    graphs = {spec.graph for spec in specs}
    if len(graphs) > 1 or any(s.rank < 1.0 or s.student not in STUDENTS for s in specs):
        raise UserError(
            f"strategy {name}: factored needs specs that differ in bits, sparsity and student of "
            f"the policy family alone, got {', '.join(spec.label for spec in specs)}"
        )
    return ActionSpace(
        bits=tuple(sorted({spec.bits for spec in specs}, key=BITS.index)),
        sparsities=tuple(sorted({spec.sparsity for spec in specs})),
        students=tuple(sorted({spec.student for spec in specs}, key=STUDENTS.index)),
        graph=graphs.pop(),
    )


@dataclass(frozen=True)
class SlidingWindowUCB(_Bandit):
    """Upper confidence bounds over the last `window` stretches (Garivier & Moulines, 2011).

    score = mean + exploration * sqrt(ln N / n) with n of the window's N stretches; an arm that is
    not in the window comes first. Each credit counts as its share of a stretch.

    Raises:
        UserError: a parameter lies outside what is allowed.
    """

    name: ClassVar[str] = "sw-ucb"
    window: int = 30
    """stretches that are remembered; with fewer than there are arms, it only cycles through them"""
    exploration: float = 0.7
    """weight of the bound, in standard deviations of the remembered gains"""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole(self.name, "window", self.window, at_least=2)
        require_number(self.name, "exploration", self.exploration, at_least=0.0)

    def weights(self, ages: np.ndarray) -> np.ndarray:
        """Return 1 within the window and 0 outside."""
        return (ages < self.window).astype(float)

    def scores(self, means: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the upper bounds; infinite for untried arms."""
        tried = counts > 0.0
        log_total = math.log(max(float(counts.sum()), 1.0))
        bounds = means + self.exploration * np.sqrt(log_total / np.where(tried, counts, 1.0))
        return np.where(tried, bounds, np.inf)

    @classmethod
    def suggest(cls, trial: optuna.Trial, actions: Levels) -> dict[str, Any]:
        """Return arms, how far to look back, how much to explore, and whether by head.

        The window holds some choices of every arm: with less it would only cycle through them.
        """
        held = super().suggest(trial, actions)
        each = len(held["specs"]) * held["hold_intervals"]
        return {
            **held,
            "window": each * trial.suggest_int("choices_remembered", 2, 8, log=True),
            "exploration": trial.suggest_float("exploration", 0.05, 2.0, log=True),
            "factored": trial.suggest_categorical("factored", [False, True]),
        }


@dataclass(frozen=True)
class ThompsonBandit(_Bandit):
    """Draws each arm's mean from its posterior and takes the highest (discounted Gaussian).

    Standardised gains have the arm's mean, with prior N(0, prior^2), and a standard deviation of
    `noise`. Credits count their share of a stretch times discount^age: with n of them, counted so,
    about their mean m, and k = (noise / prior)^2, the posterior is N(n m / (n + k),
    noise^2 / (n + k)). An arm that is not tried drifts back to the prior, so that it will be.

    Raises:
        UserError: a parameter lies outside what is allowed.
    """

    name: ClassVar[str] = "thompson"
    discount: float = 0.95
    """factor on the weight of a credit after each later stretch, in (0, 1]; 1 never forgets"""
    noise: float = 1.0
    """standard deviation of one credit, in standard deviations of all that are remembered"""
    prior: float = 1.0
    """standard deviation of the arms' means, in the same; small: an arm that is not tried promises
    little"""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number(self.name, "discount", self.discount, above=0.0, at_most=1.0)
        require_number(self.name, "noise", self.noise, above=0.0)
        require_number(self.name, "prior", self.prior, above=0.0)

    def weights(self, ages: np.ndarray) -> np.ndarray:
        """Return discount^age."""
        return self.discount**ages

    def scores(self, means: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return one draw of every arm's posterior."""
        precision = counts + np.square(np.float64(self.noise) / self.prior)
        return rng.normal(counts * means / precision, self.noise / np.sqrt(precision))

    @classmethod
    def suggest(cls, trial: optuna.Trial, actions: Levels) -> dict[str, Any]:
        """Return arms, how fast to forget, how noisy gains and how far apart, whether by head."""
        return {
            **super().suggest(trial, actions),
            "discount": trial.suggest_float("discount", 0.8, 1.0),
            "noise": trial.suggest_float("noise", 0.2, 3.0, log=True),
            "prior": trial.suggest_float("prior", 0.1, 1.0, log=True),
            "factored": trial.suggest_categorical("factored", [False, True]),
        }
