"""Unseen games: choices that know nothing of their own game, in matrices whose truth is known."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from accerl.spec import IDENTITY
from analysis.comparison.room.matrix import best_elsewhere, best_for_all, cross_fit, taken
from analysis.comparison.room.unseen import (
    BY_KL,
    OTHERS,
    SPEED,
    by_kl,
    by_other_games,
    fastest,
    kl_of_games,
    unseen_games,
)
from tests.unit.analysis.comparison.test_room import GAMES, MACHINES, SPECS, matrix, zeros

RNG = np.random.default_rng


def by_machine() -> np.ndarray:
    """Log seconds per env step: on every machine another spec is 20% faster than the others."""
    slowness = zeros()
    for machine in range(MACHINES):
        slowness[:, machine, machine % SPECS] = -0.2
    return slowness


def kl_rows(kl: np.ndarray) -> list[dict[str, object]]:
    """Return rows of means with a KL [games, specs]."""
    return [
        {"game": f"game{g}", "label": f"spec{s}", "compression_kl_nats": float(kl[g, s])}
        for g in range(GAMES)
        for s in range(SPECS)
    ]


def test_where_specs_differ_in_speed_alone_the_fastest_gains_all_of_it() -> None:
    found = matrix(by_machine())
    rows = {row["name"]: row for row in unseen_games(found, [], RNG(0))}
    assert set(rows) == {SPEED, OTHERS}  # nothing is known of KL
    picks = cross_fit(found, fastest)
    assert (picks == np.arange(GAMES * MACHINES)[:, None] % MACHINES % SPECS).all()
    # One spec suits two machines of six at best.
    gain = rows[SPEED]["over_single"]
    assert gain["low"] < np.exp(0.2 * 4 / 6) < gain["high"]
    assert rows[SPEED]["filled"] == 0.0


def test_what_specs_cost_in_other_games_helps_where_it_is_the_same_in_all() -> None:
    steps = zeros()
    steps[..., 1] = 0.6
    speed = zeros()
    speed[..., 1] = -0.3  # fast, and not worth it
    found = matrix(speed, steps)
    assert (cross_fit(found, fastest) == 1).all()
    assert not (cross_fit(found, by_other_games) == 1).any()


def test_a_game_does_not_choose_by_what_it_needed_itself() -> None:
    steps = zeros()
    steps[0, :, 2] = -2.0  # the first game alone is learned at once with it
    found = matrix(0.0, steps)
    first = np.asarray(found.games) == "game0"
    assert not (by_other_games(found)[first] == 2).any()
    assert (by_other_games(found)[~first] == 2).all()
    kl = np.ones((GAMES * MACHINES, SPECS))
    kl[:, 2] = 0.0  # and what is nearest to the learner is worth it everywhere but there
    steps[:, :, 2], steps[0, :, 2] = -1.0, 9.0
    assert (by_kl(kl, matrix(0.0, steps))[first] == 2).all()


def test_a_price_of_kl_is_found_in_other_games() -> None:
    """Costs are 0.5 times the KL, which differs from game to game; the cheapest is the slowest."""
    kl = RNG(1).uniform(0.1, 2.0, (GAMES, SPECS))
    kl[:, 0] = 0.0
    speed = np.zeros((GAMES, MACHINES, SPECS))
    speed[..., 1:] = -0.4
    found = matrix(speed, np.broadcast_to(0.8 * kl[:, None, :], speed.shape))
    rows = {row["name"]: row for row in unseen_games(found, kl_rows(kl), RNG(0))}
    assert rows[BY_KL]["over_elsewhere"]["ratio"] > rows[SPEED]["over_elsewhere"]["ratio"] + 0.05
    known = kl_of_games(found, kl_rows(kl))
    assert known is not None
    assert known[MACHINES, 3] == pytest.approx(kl[1, 3])  # the second game's first machine
    seconds = found.log_seconds
    picks, single = (cross_fit(found, choose) for choose in (partial(by_kl, known), best_for_all))
    gain = np.exp(np.mean(taken(seconds, single) - taken(seconds, picks)))
    assert rows[BY_KL]["over_single"]["ratio"] == pytest.approx(gain)


def test_equal_specs_gain_nothing_on_average() -> None:
    kl = np.tile(RNG(2).uniform(0.0, 1.0, (1, SPECS)), (GAMES * MACHINES, 1))
    for choose in (fastest, by_other_games, partial(by_kl, kl)):
        gains = []
        for dice in range(30):
            found = matrix(dice=dice)
            picks = (cross_fit(found, each) for each in (best_elsewhere, choose))
            before, after = (taken(found.log_seconds, own) for own in picks)
            gains.append(float(np.mean(before - after)))
        assert abs(np.mean(gains)) < 3.0 * np.std(gains) / np.sqrt(len(gains)) + 1e-12


def test_what_was_stopped_is_filled_and_counted() -> None:
    found = matrix(by_machine())
    found.log_seconds[0, 0, 2:] = found.log_steps[0, 0, 2:] = np.nan  # the fastest there
    row = unseen_games(found, [], RNG(0))[0]
    assert row["filled"] == pytest.approx(2 / (GAMES * MACHINES * 4))
    assert np.isfinite(row["over_single"]["ratio"])


def test_one_game_alone_says_nothing() -> None:
    found = matrix()
    object.__setattr__(found, "games", ("game0",) * len(found.games))
    assert unseen_games(found, [], RNG(0)) == []


def test_no_compression_has_no_kl() -> None:
    found = matrix()
    object.__setattr__(found, "specs", (IDENTITY.label, *found.specs[1:]))
    kl = kl_of_games(found, kl_rows(np.full((GAMES, SPECS), 0.1)))
    assert kl is not None
    assert (kl[:, 0] == 0.0).all()
    assert kl_of_games(found, kl_rows(np.full((GAMES, SPECS), 0.1))[:-1]) is None
