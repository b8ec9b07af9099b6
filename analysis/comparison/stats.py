"""Paired statistics with a passed numpy Generator: intervals, p values, corrections.

Runs are paired by (instance, seed) on common random numbers; instances of the contest, here called
games, count the same however many seeds each has. Pairs that share their dice, such as those of
one game and seed on several machines, are no independent evidence: they form a cluster, which is
resampled and flipped as a whole. Without `clusters` every pair is one of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

CONFIDENCE = 0.95
RESAMPLES = 10_000
MIN_CLUSTERS = 3
"""with fewer nothing is known of how much independent pairs differ: there is no interval"""
EXACT_CLUSTERS = 14
"""up to this many clusters all 2^n sign flips are counted instead of sampled"""


@dataclass(frozen=True)
class Interval:
    """An estimate and its confidence interval; NaN bounds say that there is too little data."""

    estimate: float
    low: float
    high: float

    def within(self, low: float, high: float) -> Interval:
        """Return the interval without what lies outside of a possible range."""
        found = np.clip((self.estimate, self.low, self.high), low, high)
        return Interval(*found.tolist())

    def bounds(self, name: str = "") -> dict[str, float | None]:
        """Return {"low": ..., "high": ...} for JSON, None for NaN; or NAME_low and NAME_high."""
        sides = {"low": self.low, "high": self.high}
        before = f"{name}_" if name else ""
        return {f"{before}{side}": finite_or_none(value) for side, value in sides.items()}


def finite_or_none(value: float) -> float | None:
    """Return `value`, or None where JSON has no number for it."""
    return float(value) if np.isfinite(value) else None


def iqm(values: np.ndarray) -> np.ndarray:
    """Return the interquartile mean over the first axis: a quarter is trimmed at each end.

    Agarwal et al. 2021; equal to ``scipy.stats.trim_mean(values, 0.25)``.
    """
    cut = int(0.25 * len(values))
    return np.sort(np.asarray(values, dtype=float), axis=0)[cut : len(values) - cut].mean(axis=0)


def game_weights(games: Sequence[str]) -> np.ndarray:
    """Return one weight a pair [N], summing to 1, such that every game weighs the same."""
    names, inverse, counts = np.unique(np.asarray(games), return_inverse=True, return_counts=True)
    return 1.0 / (len(names) * counts[inverse])


def _numbered(labels: Sequence[Hashable]) -> np.ndarray:
    """Number labels [N] from 0 in order of appearance; unlike numpy's, they may be tuples."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(label, len(numbers)) for label in labels], dtype=int)


def _strata(games: np.ndarray, clusters: np.ndarray) -> tuple[list[np.ndarray], bool]:
    """Return the clusters within which to resample, and whether those of all games were pooled.

    A stratum is all clusters of games that share clusters. A single cluster cannot be resampled
    within its stratum, nor does the only one that a game has vary while the game keeps its weight;
    so where there is one, all clusters are pooled.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = int(clusters.max()) + 1
    shape = (count + int(games.max()) + 1,) * 2
    links = coo_array((np.ones(len(games)), (clusters, count + games)), shape=shape)
    labels = connected_components(links, directed=False)[1][:count]
    strata = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    of_games = np.unique(np.stack([games, clusters]), axis=1)[0]  # each cluster of a game once
    pooled = min(map(len, strata)) < 2 or np.bincount(of_games).min() < 2
    return [np.arange(count)] if pooled else strata, pooled


def _draw(
    strata: Sequence[np.ndarray], rng: np.random.Generator, resamples: int, fewer: int
) -> np.ndarray:
    """Draw clusters with replacement, in each stratum `fewer` than it has: times [resamples, C]."""
    drawn = np.zeros((resamples, sum(map(len, strata))))
    for stratum in strata:
        count = len(stratum)
        draws = max(count - fewer, 1)
        drawn[:, stratum] = rng.multinomial(draws, np.full(count, 1.0 / count), size=resamples)
    return drawn


def bootstrap_weights(
    games: Sequence[str],
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
    *,
    clusters: Sequence[Hashable] | None = None,
) -> np.ndarray:
    """Return random weights [resamples, N] of a stratified cluster bootstrap; rows sum to 1.

    A stratum is all clusters of games that share clusters: without `clusters` that is a game, and
    where several instances of a game share seeds, all of these. Within a stratum of n clusters,
    n - 1 are drawn with replacement: drawing n would understate the variance of a mean by
    (n - 1) / n, half of it at two seeds (Rao and Wu 1988). Every game keeps its weight; one none
    of whose pairs were drawn, which missing runs make possible, keeps all of its pairs. Where a
    stratum or a game has a single cluster nothing can be resampled within it, so all form one
    stratum.
    """
    labels = _numbered(games)
    members = np.arange(len(labels)) if clusters is None else _numbered(clusters)
    strata, pooled = _strata(labels, members)
    base = game_weights(games)
    weights = base * _draw(strata, rng, resamples, fewer=1)[:, members]
    if pooled:
        return weights / weights.sum(axis=1, keepdims=True)
    for game in range(int(labels.max()) + 1):
        own = labels == game
        sums = weights[:, own].sum(axis=1, keepdims=True)
        scaled = base[own].sum() * weights[:, own] / np.where(sums > 0.0, sums, 1.0)
        weights[:, own] = np.where(sums > 0.0, scaled, base[own])
    return weights


def degrees_of_freedom(games: Sequence[str], clusters: Sequence[Hashable] | None = None) -> int:
    """Return clusters minus strata: what an interval of bootstrap samples may lean on.

    0 where there are fewer than MIN_CLUSTERS: then there is no interval. It is never 1, with which
    an interval would be 13 standard deviations to each side: every stratum has two clusters, or all
    are one.
    """
    labels = _numbered(games)
    members = np.arange(len(labels)) if clusters is None else _numbered(clusters)
    if len(set(members.tolist())) < MIN_CLUSTERS:
        return 0
    strata, _ = _strata(labels, members)
    return sum(map(len, strata)) - len(strata)


def bootstrap_interval(
    estimate: float, samples: np.ndarray, freedom: int, *, of_logs: bool = False
) -> Interval:
    """Return estimate +- t(freedom) times the standard deviation of bootstrap samples [resamples].

    The samples' own percentiles are too narrow with few clusters: of intervals that say 95%, 75%
    cover the truth at three clusters and 86% at six in two games. Student's t mends that.

    Args:
        estimate: from all pairs.
        samples: the same from resampled pairs.
        freedom: as `degrees_of_freedom` says; at 0 both bounds are NaN.
        of_logs: estimate and samples are logs, the interval is of their exponentials.
    """
    half = np.nan
    if freedom > 0:
        half = float(stdtrit(freedom, (1.0 + CONFIDENCE) / 2.0) * np.std(samples))
    found = (float(estimate), float(estimate) - half, float(estimate) + half)
    return Interval(*(np.exp(found).tolist() if of_logs else found))


def paired_mean(
    differences: np.ndarray,
    games: Sequence[str],
    rng: np.random.Generator,
    *,
    clusters: Sequence[Hashable] | None = None,
    of_logs: bool = False,
) -> Interval:
    """Return the mean of paired differences [N], games weighing the same, and its interval.

    With `of_logs`, exp of both: the geometric mean of ratios whose logs the differences are.
    """
    estimate = float(game_weights(games) @ differences)
    drawn = bootstrap_weights(games, rng, clusters=clusters)
    freedom = degrees_of_freedom(games, clusters)
    return bootstrap_interval(estimate, drawn @ differences, freedom, of_logs=of_logs)


def paired_log_ratio(
    times_a: np.ndarray,
    times_b: np.ndarray,
    games: Sequence[str],
    rng: np.random.Generator,
    *,
    clusters: Sequence[Hashable] | None = None,
) -> Interval:
    """Return the geometric mean of a / b over pairs [N] of restricted times to target.

    Both are censored at the game's horizon: a pair that both miss counts as a tie, a pair that
    one misses counts as if it had arrived at the horizon, which understates the difference.
    """
    return paired_mean(np.log(times_a / times_b), games, rng, clusters=clusters, of_logs=True)


def paired_ratio_of_means(
    values_a: np.ndarray,
    values_b: np.ndarray,
    games: Sequence[str],
    rng: np.random.Generator,
    *,
    clusters: Sequence[Hashable] | None = None,
) -> Interval | None:
    """Return mean(a) / mean(b) over pairs [N] and its interval.

    None when the denominator is not safely positive: a ratio would then mean nothing.
    """
    weights = game_weights(games)
    below = float(weights @ values_b)
    drawn = bootstrap_weights(games, rng, clusters=clusters)
    denominators = drawn @ values_b
    if below <= 0.0 or denominators.min() <= 0.0:
        return None
    ratios = (drawn @ values_a) / denominators
    estimate = float(weights @ values_a) / below
    return bootstrap_interval(estimate, ratios, degrees_of_freedom(games, clusters))


def iqm_interval(
    values: np.ndarray,
    games: Sequence[str],
    rng: np.random.Generator,
    resamples: int = 2_000,
    *,
    clusters: Sequence[Hashable] | None = None,
) -> Interval:
    """Return the IQM over runs [N] and its interval, resampling clusters in strata."""
    values = np.asarray(values, dtype=float)
    members = np.arange(len(values)) if clusters is None else _numbered(clusters)
    strata, _ = _strata(_numbered(games), members)
    # As many as there are: with fewer, other shares of the runs would be trimmed. What that leaves
    # out of the variance (see `bootstrap_weights`) is put back.
    times = _draw(strata, rng, resamples, fewer=0)[:, members]
    estimate, samples = float(iqm(values)), _iqm_of_repeated(values, times)
    freedom = degrees_of_freedom(games, clusters)
    if freedom > 0:
        samples = estimate + (samples - estimate) * np.sqrt(sum(map(len, strata)) / freedom)
    return bootstrap_interval(estimate, samples, freedom)


def _iqm_of_repeated(values: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return the IQM of values [N] that are each there so many `times` [resamples, N]."""
    order = np.argsort(values)
    ends = np.cumsum(times[:, order], axis=1)
    counts = ends[:, -1:]
    cut = np.floor(0.25 * counts)
    kept = np.diff(np.clip(ends, cut, counts - cut), axis=1, prepend=cut)
    return (kept @ values[order]) / (counts - 2.0 * cut)[:, 0]


def sign_flip_p(
    differences: np.ndarray,
    games: Sequence[str],
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
    *,
    clusters: Sequence[Hashable] | None = None,
) -> float:
    """Return the two-sided p value of "paired differences [N] are symmetric around zero".

    The pairs of a cluster change their sign together. Exact up to EXACT_CLUSTERS clusters; sampled
    beyond, with the observed labelling counted in, so that p is never 0.
    """
    terms = game_weights(games) * differences
    if clusters is not None:
        terms = np.bincount(_numbered(clusters), weights=terms)
    observed = abs(terms.sum())
    tolerance = 1e-12 * max(float(np.abs(terms).sum()), 1e-300)
    count = len(terms)
    if count <= EXACT_CLUSTERS:
        bits = (np.arange(2**count)[:, None] >> np.arange(count)) & 1
        return float(np.mean(np.abs((2 * bits - 1) @ terms) >= observed - tolerance))
    signs = rng.choice([-1.0, 1.0], size=(resamples, count))
    hits = int(np.sum(np.abs(signs @ terms) >= observed - tolerance))
    return (1 + hits) / (1 + resamples)


def smallest_p(clusters: int) -> float:
    """Return the smallest two-sided sign-flip p value that so many clusters can give."""
    return min(1.0, 2.0 ** (1 - clusters))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's step-down adjusted p values, in the given order."""
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    factors = len(p) - np.arange(len(p))
    adjusted = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    result = np.empty(len(p))
    result[order] = adjusted
    return result.tolist()


def probability_of_improvement(
    values_a: np.ndarray,
    games_a: Sequence[str],
    values_b: np.ndarray,
    games_b: Sequence[str],
    *,
    lower_is_better: bool = False,
) -> float:
    """Return P(a run of A beats a run of B on a random game); ties count half.

    Mann-Whitney within each game, averaged over games (Agarwal et al. 2021).
    """
    a, b = np.asarray(values_a, dtype=float), np.asarray(values_b, dtype=float)
    if lower_is_better:
        a, b = -a, -b
    labels_a, labels_b = np.asarray(games_a), np.asarray(games_b)
    shares = []
    for game in np.intersect1d(labels_a, labels_b):
        left, right = a[labels_a == game][:, None], b[labels_b == game][None, :]
        shares.append(np.mean((left > right) + 0.5 * (left == right)))
    return float(np.mean(shares)) if shares else float("nan")


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Return Spearman's rank correlation, ties sharing their mean rank; NaN if a side is flat."""
    from scipy.stats import rankdata  # takes a second to import, in every process of a study

    if len(set(a)) < 2 or len(set(b)) < 2:
        return float("nan")
    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])


def reach_curve(
    seconds: np.ndarray, censored: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps of P(target reached by t), Kaplan and Meier's estimate for weighted runs.

    Args:
        seconds: when each run [N] reached the target, or was last seen without it.
        censored: which runs [N] were last seen without it.
        weights: of the runs [N]; equal games get equal sums.

    Returns:
        times [K], ascending from 0, and the estimate from each on [K].
    """
    times, shares, missing = [0.0], [0.0], 1.0
    for time in np.unique(seconds[~censored]):
        at_risk = weights[seconds >= time].sum()
        arrived = weights[(seconds == time) & ~censored].sum()
        missing *= 1.0 - arrived / at_risk
        times.append(float(time))
        shares.append(float(1.0 - missing))
    return np.array(times), np.array(shares)
