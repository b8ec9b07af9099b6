"""Room: how much faster a run is whose spec suits its instance than with one spec for all.

Log seconds to target of spec s on instance i = (game, machine) with seed k are the sum of

    speed    log(seconds / env steps), known almost without noise, and
    fidelity log(env steps to target), noisy, and mostly the game's and the spec's own.

What is chosen on the very runs that it is reported on looks better than it is: the best of eight
equal specs over four seeds seems some percent faster than each of them. So every choice here is
cross-fitted: for each seed it is made on the other seeds of all instances, and only the seed that
was left out is reported. A choice made on so few seeds is not always the right one, which costs
the choice for each instance more than the one for all: on average the room is understated. The
naive minimum, which is reported beside it, overstates it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from analysis.comparison import stats

IMPUTATIONS = 50
"""turns after which effects hardly move"""
Choose = Callable[["Matrix"], np.ndarray]
"""what was measured -> the number of the chosen spec for each instance [N]"""


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """Runs of every spec on every instance; N instances, S specs, K seeds.

    NaN marks what was not run: a spec that is clearly last is stopped. Of every spec on every
    instance at least two seeds are there.
    """

    instances: tuple[str, ...]
    games: tuple[str, ...]
    """of the instances, [N]"""
    machines: tuple[str, ...]
    """[N]"""
    specs: tuple[str, ...]
    seeds: tuple[int, ...]
    log_seconds: np.ndarray
    """[N, S, K]: mean over the targets of log restricted seconds"""
    log_steps: np.ndarray
    """[N, S, K]: likewise of env steps; also NaN where a run had not made any"""
    is_bound: np.ndarray
    """[N, S, K]: whether a run missed a target, so that it would have taken more than is said"""
    log_horizon: np.ndarray = field(default_factory=lambda: np.array([np.inf]))
    """[N], or [1] of all: what no run takes more than"""

    def filled(self) -> Matrix:
        """Return the same without gaps, for choosing; see `fill`.

        A run without env steps counts as if it had made one: how slow it is has no other number,
        and it must not be chosen for what others needed. A gap is a bound where one of the runs
        that it is filled from is: those missed a target, and it would have missed it too.
        """
        steps = np.where(self.made_none, 0.0, self.log_steps)
        gap = np.isnan(self.log_seconds)
        return replace(
            self,
            log_seconds=np.minimum(fill(self.log_seconds), self.log_horizon[:, None, None]),
            log_steps=fill(steps),
            is_bound=self.is_bound | (gap & self.is_bound.any(axis=2, keepdims=True)),
        )

    @property
    def made_none(self) -> np.ndarray:
        """[N, S, K]: whether a run was made and has no env steps."""
        return np.isfinite(self.log_seconds) & np.isnan(self.log_steps)

    def without(self, seed: int) -> Matrix:
        """Return all but the seed of a place: what a choice for it may know."""
        others = [place for place in range(len(self.seeds)) if place != seed]
        return replace(
            self,
            seeds=tuple(self.seeds[place] for place in others),
            log_seconds=self.log_seconds[:, :, others],
            log_steps=self.log_steps[:, :, others],
            is_bound=self.is_bound[:, :, others],
        )


def fill(values: np.ndarray) -> np.ndarray:
    """Return values [N, S, K] with NaN replaced by additive effects of spec and seed.

    A seed's effect is read from the specs that have all seeds, a spec's from the seeds that it has:
    a spec that was stopped must not look better for having been spared a slow seed.
    """
    found = values.copy()
    for cells in found:  # [S, K] of an instance
        missing = np.isnan(cells)
        whole = ~missing.any(axis=1)
        if missing.all(axis=1).any() or not missing.any():
            continue
        effects = cells[whole].mean(axis=0) if whole.any() else np.nanmean(cells, axis=0)
        levels = np.nanmean(cells - effects, axis=1, keepdims=True)
        cells[missing] = (levels + effects)[missing]
    return found


def best_for_all(known: Matrix) -> np.ndarray:
    """Choose one spec: the lowest mean log seconds over all instances."""
    means = known.log_seconds.mean(axis=(0, 2))
    return np.full(len(known.instances), int(np.argmin(means)))


def best_elsewhere(known: Matrix) -> np.ndarray:
    """Choose one spec for each game by all others, known before it is run; by itself if alone."""
    games = np.asarray(known.games)
    found = np.zeros(len(games), dtype=int)
    for game in np.unique(games):
        own = games == game
        others = known.log_seconds[~own] if not own.all() else known.log_seconds
        found[own] = int(np.argmin(others.mean(axis=(0, 2))))
    return found


def best_by(labels: Callable[[Matrix], Sequence[str]]) -> Choose:
    """Return what chooses a spec for all instances that share a label: a game, or a machine."""

    def choose(known: Matrix) -> np.ndarray:
        found = np.zeros(len(known.instances), dtype=int)
        own = np.asarray(labels(known))
        for label in np.unique(own):
            means = known.log_seconds[own == label].mean(axis=(0, 2))
            found[own == label] = int(np.argmin(means))
        return found

    return choose


def best_each(known: Matrix) -> np.ndarray:
    """Choose for every instance by its own runs alone."""
    return known.log_seconds.mean(axis=2).argmin(axis=1)


def best_pooled(known: Matrix) -> np.ndarray:
    """Choose for every instance by its own speed, and by fidelity that instances share.

    Fidelity differs by spec, by game and spec, and by instance. Each of these is drawn towards the
    one before it by as much as its differences are noise (empirical Bayes): with few seeds an
    instance's own runs say little of it that those of its game on other machines do not.
    """
    speed = (known.log_seconds - known.log_steps).mean(axis=2)
    names, own = np.unique(np.asarray(known.games), return_inverse=True)
    steps = expected_steps(known)
    steps = steps - steps.mean(axis=1, keepdims=True)
    by_game = np.stack([steps[own == place].mean(axis=0) for place in range(len(names))])
    everywhere = by_game.mean(axis=(0, 2))
    of_game = _drawn(by_game, np.broadcast_to(everywhere, by_game.shape[:2]))
    return (speed + _drawn(steps, of_game[own])).argmin(axis=1)


def expected_steps(known: Matrix) -> np.ndarray:
    """Return log env steps [N, S, K] with bounds raised to what an additive model expects.

    The slower a run that missed a target, the fewer env steps it has made by the horizon: taken as
    they are, they would look like fidelity. Effects are those of instance and seed, and of game and
    spec; they and what they say of the bounds are worked out in turns. There must be no gaps.
    """
    games = np.asarray(known.games)
    found = known.log_steps
    for _ in range(IMPUTATIONS):
        level = found.mean(axis=1, keepdims=True)
        own = (found - level).mean(axis=2)
        effect = np.stack([own[games == game].mean(axis=0) for game in games])
        expected = np.maximum(known.log_steps, level + effect[:, :, None])
        found = np.where(known.is_bound, expected, known.log_steps)
    return found


def _drawn(values: np.ndarray, towards: np.ndarray) -> np.ndarray:
    """Return the means of values [A, S, K] over K, drawn towards [A, S] by their share of noise."""
    seeds = values.shape[2]
    distances = values.mean(axis=2) - towards
    spread = float(np.mean(distances**2))
    if seeds < 2 or spread == 0.0:
        return towards + 0.0 * distances
    noise = float(np.mean(values.var(axis=2, ddof=1))) / seeds
    return towards + max(0.0, 1.0 - noise / spread) * distances


ELSEWHERE = "one for all other games"
CHOICES: Mapping[str, Choose] = {
    ELSEWHERE: best_elsewhere,
    "one for all": best_for_all,
    "one for each game": best_by(lambda known: known.games),
    "one for each machine": best_by(lambda known: known.machines),
    "one for each instance": best_each,
    "virtual best": best_pooled,
}
"""by what is known of an instance; the last one is what room is measured with"""
SINGLE, VIRTUAL = "one for all", "virtual best"


def cross_fit(matrix: Matrix, choose: Choose) -> np.ndarray:
    """Return the spec chosen for every instance and seed [N, K] on the other seeds."""
    seeds = range(len(matrix.seeds))
    return np.stack([choose(matrix.without(k).filled()) for k in seeds], axis=1)


def taken(values: np.ndarray, picks: np.ndarray) -> np.ndarray:
    """Return the values [N, S, K] of the chosen specs, [N, K]."""
    return np.take_along_axis(values, picks[:, None, :], axis=1)[:, 0, :]


def missing_runs(matrix: Matrix, choices: Mapping[str, Choose]) -> list[tuple[int, int, int]]:
    """Return (instance, spec, seed) of what choices need to be reported on and was not run."""
    found: dict[tuple[int, int, int], None] = {}
    for choose in choices.values():
        picks = cross_fit(matrix, choose)
        for n, k in np.argwhere(np.isnan(taken(matrix.log_seconds, picks))):
            found[int(n), int(picks[n, k]), int(k)] = None
    return list(found)


class Bootstrap:
    """One set of resamples for all that is compared on the same pairs of instance and seed.

    Runs of one game and seed share their dice on all machines: they are one cluster.

    Args:
        matrix: names the instances and seeds.
        counted: which pairs count, [N, K].
        rng: draws the resamples.
        resamples: how many.
    """

    def __init__(
        self,
        matrix: Matrix,
        counted: np.ndarray,
        rng: np.random.Generator,
        resamples: int = stats.RESAMPLES,
    ) -> None:
        self._counted = counted
        places = np.argwhere(counted)
        games = [matrix.instances[n] for n, _ in places]
        clusters = [(matrix.games[n], matrix.seeds[k]) for n, k in places]
        self.pairs = len(places)
        self._base = stats.game_weights(games) if self.pairs else np.zeros(0)
        self._freedom = stats.degrees_of_freedom(games, clusters)
        if self.pairs:
            self._drawn = stats.bootstrap_weights(games, rng, resamples, clusters=clusters)

    def ratio(self, differences: np.ndarray) -> dict[str, float | None]:
        """Return exp of the mean of log differences [N, K] as {"ratio", "low", "high"}.

        Without pairs all are None; with fewer clusters than `stats.MIN_CLUSTERS` bounds are None.
        """
        if not self.pairs:
            return dict.fromkeys(("ratio", "low", "high"))
        values = differences[self._counted]
        mean, samples = float(self._base @ values), self._drawn @ values
        found = stats.bootstrap_interval(mean, samples, self._freedom, of_logs=True)
        return {"ratio": found.estimate, **found.bounds()}


def room_of(
    matrix: Matrix,
    rng: np.random.Generator,
    keep: np.ndarray | None = None,
    *,
    resamples: int = stats.RESAMPLES,
) -> dict[str, Any]:
    """Return the room of a matrix: for every choice, and apart for speed and fidelity.

    All ratios are those of the one spec for all over the choice's: above 1, the choice is faster.
    Speed and fidelity multiply to the room where all runs reach their targets; elsewhere the
    horizon hides a part of it, and fidelity is what `expected_steps` says. Of a run without env
    steps neither is known: they are those of the other pairs, of the virtual best `parts_pairs`.

    Args:
        matrix: all instances that the one spec is chosen for.
        rng: draws the bootstrap.
        keep: mask of the instances that count; choices are made on all.
        resamples: of the bootstrap.
    """
    kept = np.ones(len(matrix.instances), dtype=bool) if keep is None else keep
    counted: np.ndarray = np.isfinite(matrix.log_seconds).any(axis=1) & kept[:, None]
    bootstrap = Bootstrap(matrix, counted, rng, resamples)
    single = cross_fit(matrix, best_for_all)
    log_speed, steps = matrix.log_seconds - matrix.log_steps, expected_steps(matrix.filled())
    choices, parts = {}, bootstrap
    for name, choose in CHOICES.items():
        picks = cross_fit(matrix, choose)
        gain = taken(matrix.log_seconds, single) - taken(matrix.log_seconds, picks)
        unknown = taken(matrix.made_none, single) | taken(matrix.made_none, picks)
        apart = (counted & unknown).any()
        parts = Bootstrap(matrix, counted & ~unknown, rng, resamples) if apart else bootstrap
        choices[name] = {
            **bootstrap.ratio(gain),
            "speed": parts.ratio(taken(log_speed, single) - taken(log_speed, picks)),
            "fidelity": parts.ratio(taken(steps, single) - taken(steps, picks)),
        }
    return {
        **{key: choices[VIRTUAL][key] for key in ("ratio", "low", "high", "speed", "fidelity")},
        "choices": choices,
        "naive": naive_room(matrix, keep),
        "instances": int(counted.any(axis=1).sum()),
        "pairs": bootstrap.pairs,
        "parts_pairs": parts.pairs,
    }


def naive_room(matrix: Matrix, keep: np.ndarray | None = None) -> float:
    """Return what choosing on the very runs that are reported would claim: more than the truth."""
    means = matrix.filled().log_seconds.mean(axis=2)
    gain = means[:, means.mean(axis=0).argmin()] - means.min(axis=1)
    return float(np.exp((gain if keep is None else gain[keep]).mean()))


ROOM_RATIO, ROOM_LOW = 1.10, 1.05
CHANGING_RATIO, CHANGING_LOW = 1.15, 1.08
GATE = (
    f"The gate opens if the room is at least {ROOM_RATIO - 1:.0%} with the lower bound above "
    f"{ROOM_LOW - 1:.0%}, and on the instances with changing conditions at least "
    f"{CHANGING_RATIO - 1:.0%} with the lower bound above {CHANGING_LOW - 1:.0%}."
)


def gate(overall: Mapping[str, Any], changing: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return whether the gate is open and why, in one sentence for each condition.

    Args:
        overall: ratio, low and high over all drawn instances.
        changing: the same of those with changing conditions; None: there are none.
    """
    checks = [
        ("in all", overall, ROOM_RATIO, ROOM_LOW),
        ("under changing conditions", changing, CHANGING_RATIO, CHANGING_LOW),
    ]
    reasons, is_open = [], True
    for where, found, ratio, low in checks:
        if found is None or found["ratio"] is None or found["low"] is None:
            is_open = False
            reasons.append(f"{where}, too little was measured to say")
            continue
        met = found["ratio"] >= ratio and found["low"] > low
        is_open = is_open and met
        reasons.append(
            f"{where}, the room is {found['ratio'] - 1:+.1%} ({found['low'] - 1:+.1%} to "
            f"{found['high'] - 1:+.1%}), {'enough' if met else 'not enough'}: asked is "
            f"{ratio - 1:.0%} with the lower bound above {low - 1:.0%}"
        )
    word = "open" if is_open else "closed"
    return {"open": is_open, "reason": f"The gate is {word}: {'; '.join(reasons)}."}
