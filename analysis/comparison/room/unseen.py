"""Choices in an unseen game: speeds are known, fidelity comes from other games or from KL.

The virtual best of `matrix` knows what every spec costs in its game. In a game that is new, three
things are known: every spec's speed, which profiles predict and phase times correct; what specs
cost in other games; and every spec's KL, which is measured at once. Choices by these show what is
left to a rule whose beliefs do not change with the return.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from accerl.spec import IDENTITY
from analysis.comparison.room.kl_cost import FLOOR_NATS
from analysis.comparison.room.matrix import (
    Bootstrap,
    Choose,
    Matrix,
    best_elsewhere,
    best_for_all,
    cross_fit,
    expected_steps,
    taken,
)

SPEED = "the fastest spec"
OTHERS = "speed, and what specs cost in other games"
BY_KL = "speed, and KL at the price of other games"
PRICES = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
POWERS = (0.25, 0.5, 1.0)
"""c and h: an env step that is acted with a KL of D nats counts exp(-c D^h)"""


def unseen_games(
    matrix: Matrix, means: Sequence[Mapping[str, Any]], rng: np.random.Generator
) -> list[dict[str, Any]]:
    """Return what choices gain that know nothing of the game that they are made in.

    They are cross-fitted over games and seeds. Where a spec was stopped before a seed, its seconds
    are what `matrix.fill` says.

    Args:
        matrix: of at least two games; with fewer nothing is returned.
        means: of a room.json, which have the KL.
        rng: draws the bootstrap.

    Returns:
        rows with the choice's `name`, its gain over the one spec for all, which was chosen with
        the game (`over_single`), and over that which was chosen without (`over_elsewhere`), both
        as {"ratio", "low", "high"}, and the share of pairs that are filled (`filled`). Without a
        KL of every spec in every game the choice by it is left out.
    """
    if len(set(matrix.games)) < 2:
        return []
    choices: dict[str, Choose] = {SPEED: fastest, OTHERS: by_other_games}
    if (kl := kl_of_games(matrix, means)) is not None:
        choices[BY_KL] = partial(by_kl, kl)
    seconds, gap = matrix.filled().log_seconds, np.isnan(matrix.log_seconds)
    counted = np.logical_not(np.logical_and.reduce(gap, axis=1))
    bootstrap = Bootstrap(matrix, counted, rng)
    beside = {
        "over_single": taken(seconds, cross_fit(matrix, best_for_all)),
        "over_elsewhere": taken(seconds, cross_fit(matrix, best_elsewhere)),
    }
    rows = []
    for name, choose in choices.items():
        picks = cross_fit(matrix, choose)
        own = taken(seconds, picks)
        gains = {key: bootstrap.ratio(values - own) for key, values in beside.items()}
        filled = float(taken(gap, picks)[counted].mean())
        rows.append({"name": name, **gains, "filled": filled})
    return rows


def kl_of_games(matrix: Matrix, means: Sequence[Mapping[str, Any]]) -> np.ndarray | None:
    """Return the KL of every spec [N, S] in nats, one number for all instances of a game.

    It is the geometric mean over the machines on which it was sampled, and 0 without compression.
    None: in some game that of a spec was not.
    """
    logs: dict[tuple[str, str], list[float]] = {}
    for row in means:
        if row.get("compression_kl_nats") is not None:
            kl_nats = max(row["compression_kl_nats"], FLOOR_NATS)
            logs.setdefault((row["game"], row["label"]), []).append(math.log(kl_nats))
    found = np.zeros((len(matrix.games), len(matrix.specs)))
    for (n, game), (s, spec) in product(enumerate(matrix.games), enumerate(matrix.specs)):
        if spec == IDENTITY.label:
            continue
        if (game, spec) not in logs:
            return None
        found[n, s] = math.exp(np.mean(logs[game, spec]))
    return found


def fastest(known: Matrix) -> np.ndarray:
    """Choose for every instance the spec with the most env steps a second."""
    return _slowness(known).argmin(axis=1)


def by_other_games(known: Matrix) -> np.ndarray:
    """Choose for every instance by its own speed, and env steps to target in other games."""
    steps = expected_steps(known)
    steps = (steps - steps.mean(axis=1, keepdims=True)).mean(axis=2)
    return _without_own_game(
        known, lambda others: (_slowness(known) + steps[others].mean(axis=0)).argmin(axis=1)
    )


def by_kl(kl: np.ndarray, known: Matrix) -> np.ndarray:
    """Choose for every instance by its own speed and KL, at the price that suits other games.

    Args:
        kl: [N, S], nats.
        known: what the price is found with.
    """
    slowness, seconds = _slowness(known), known.log_seconds.mean(axis=2)
    picks = [
        (slowness + price * kl**power).argmin(axis=1) for price, power in product(PRICES, POWERS)
    ]
    costs = np.stack([np.take_along_axis(seconds, own[:, None], axis=1)[:, 0] for own in picks])
    return _without_own_game(
        known, lambda others: picks[int(costs[:, others].mean(axis=1).argmin())]
    )


def _slowness(known: Matrix) -> np.ndarray:
    """Return log seconds per env step [N, S]."""
    return (known.log_seconds - known.log_steps).mean(axis=2)


def _without_own_game(known: Matrix, choose: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Choose for every game with what only other games say.

    Args:
        known: names the games.
        choose: mask of the instances of other games -> chosen specs of all instances [N].
    """
    games = np.asarray(known.games)
    found = np.zeros(len(games), dtype=int)
    for game in np.unique(games):
        own = games == game
        found[own] = choose(~own)[own]
    return found
