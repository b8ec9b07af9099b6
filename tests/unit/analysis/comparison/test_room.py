"""Room: matrices whose room is known, and what naive choices would claim of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.comparison.room.matrix import (
    CHOICES,
    ELSEWHERE,
    SINGLE,
    VIRTUAL,
    Bootstrap,
    Matrix,
    best_each,
    best_for_all,
    best_pooled,
    cross_fit,
    expected_steps,
    fill,
    gate,
    missing_runs,
    naive_room,
    room_of,
    taken,
)

GAMES, MACHINES, SPECS, SEEDS = 4, 6, 5, 4
NOISE = 0.3


def matrix(
    speed: np.ndarray | float = 0.0, steps: np.ndarray | float = 0.0, *, dice: int = 0
) -> Matrix:
    """Return runs with known log speeds and env steps [games, machines, specs].

    Seeds of a game are hard or easy on all machines, as are its specs with one seed: their dice
    are the same.
    """
    rng = np.random.default_rng(dice)
    shape = (GAMES, MACHINES, SPECS, SEEDS)
    shared = rng.normal(0.0, NOISE, (GAMES, 1, 1, SEEDS)) + rng.normal(
        0.0, NOISE / 2, (GAMES, 1, SPECS, SEEDS)
    )
    own = rng.normal(0.0, NOISE, shape)
    log_steps = np.broadcast_to(np.asarray(steps)[..., None], shape) + shared + own
    log_seconds = log_steps + np.broadcast_to(np.asarray(speed)[..., None], shape)
    flat = (GAMES * MACHINES, SPECS, SEEDS)
    names = [(f"game{g}", f"machine{m}") for g in range(GAMES) for m in range(MACHINES)]
    return Matrix(
        instances=tuple("-".join(name) for name in names),
        games=tuple(game for game, _ in names),
        machines=tuple(machine for _, machine in names),
        specs=tuple(f"spec{s}" for s in range(SPECS)),
        seeds=tuple(range(SEEDS)),
        log_seconds=log_seconds.reshape(flat).copy(),
        log_steps=log_steps.reshape(flat).copy(),
        is_bound=np.zeros(flat, dtype=bool),
    )


def test_a_gap_is_filled_with_the_horizon_at_most() -> None:
    found = matrix()
    seconds = found.log_seconds.copy()
    seconds[0, 0, 0] = np.nan
    gap = replace(found, log_seconds=seconds)
    free = gap.filled().log_seconds[0, 0, 0]
    horizon = np.full(len(found.games), free - 0.1)
    assert replace(gap, log_horizon=horizon).filled().log_seconds[0, 0, 0] == free - 0.1
    assert replace(gap, log_horizon=horizon + 1.0).filled().log_seconds[0, 0, 0] == free


def zeros(*extra: int) -> np.ndarray:
    return np.zeros((GAMES, MACHINES, SPECS, *extra))


def logs(found: Matrix, name: str) -> float:
    """Return the log room of a choice, without an interval."""
    single = taken(found.log_seconds, cross_fit(found, best_for_all))
    return float(np.mean(single - taken(found.log_seconds, cross_fit(found, CHOICES[name]))))


@pytest.mark.parametrize("name", CHOICES)
def test_equal_specs_leave_no_room_on_average(name: str) -> None:
    """Over many matrices the mean lies within three standard errors of zero."""
    rooms = [logs(matrix(dice=dice), name) for dice in range(30)]
    assert abs(np.mean(rooms)) < 3.0 * np.std(rooms) / np.sqrt(len(rooms)) + 1e-12


def test_a_choice_by_other_games_knows_nothing_of_the_game_itself() -> None:
    speed = zeros()
    speed[0, :, 0] = -9.0  # in the first game alone
    speed[1:, :, 1] = -1.0
    found = matrix(speed)
    picks = CHOICES[ELSEWHERE](found).reshape(GAMES, MACHINES)
    assert (picks[0] == 1).all()
    assert (picks[1:] == 0).all()  # so much faster in one of their other games


def test_the_naive_minimum_finds_room_where_there_is_none() -> None:
    """Chosen on the runs that are reported, the best of five equal specs seems much faster."""
    assert min(naive_room(matrix(dice=dice)) for dice in range(20)) > 1.05


def test_the_interval_of_no_room_holds_zero_mostly() -> None:
    rng = np.random.default_rng(1)
    found = [room_of(matrix(dice=dice), rng, resamples=500) for dice in range(12)]
    assert sum(each["low"] <= 1.0 <= each["high"] for each in found) >= 10


def test_a_room_of_speed_is_found_and_named_speed() -> None:
    """On half of the machines spec 0 is 30% faster, on the others spec 1: room is 15%, by speed."""
    speed = zeros()
    speed[:, ::2, 0] = speed[:, 1::2, 1] = -0.3
    found = room_of(matrix(speed), np.random.default_rng(0), resamples=500)
    assert found["ratio"] == pytest.approx(np.exp(0.15), abs=0.06)
    assert found["speed"]["ratio"] == pytest.approx(np.exp(0.15), abs=0.06)
    assert found["fidelity"]["low"] <= 1.0 <= found["fidelity"]["high"]
    assert found["low"] > 1.0
    machine = found["choices"]["one for each machine"]
    assert machine["ratio"] == pytest.approx(np.exp(0.15), abs=0.06)
    assert found["choices"][SINGLE]["ratio"] == 1.0


def test_a_room_of_fidelity_is_found_and_named_fidelity() -> None:
    steps = zeros()
    steps[::2, :, 0] = steps[1::2, :, 1] = -0.6
    found = room_of(matrix(steps=steps), np.random.default_rng(0), resamples=500)
    assert found["fidelity"]["low"] > 1.0
    assert found["speed"]["ratio"] == pytest.approx(1.0)
    for name in ("one for each game", VIRTUAL):
        rooms = [logs(matrix(steps=steps, dice=dice), name) for dice in range(12)]
        assert np.mean(rooms) == pytest.approx(0.3, abs=0.06)


def test_speed_and_fidelity_multiply_to_the_room() -> None:
    rng = np.random.default_rng(3)
    speed, steps = rng.normal(0.0, 0.2, (2, *zeros().shape))
    found = room_of(matrix(speed, steps), np.random.default_rng(0), resamples=100)
    parts = found["speed"]["ratio"] * found["fidelity"]["ratio"]
    assert found["ratio"] == pytest.approx(parts)


def test_what_made_no_env_step_is_neither_slow_nor_fast_per_step() -> None:
    """Spec 0 is the one for all, and on one machine it makes no step until the horizon."""
    speed = zeros()
    speed[:, :, 0] = -0.5
    found = matrix(speed)
    found.log_steps[0, 0] = np.nan
    found.log_seconds[0, 0] = found.log_seconds.max() + 1.0
    room = room_of(found, np.random.default_rng(0), resamples=100)
    assert (room["pairs"], room["parts_pairs"]) == (24 * SEEDS, 23 * SEEDS)
    assert room["speed"]["ratio"] == pytest.approx(1.0, abs=0.1)
    assert np.all(best_pooled(found.filled())[1:] == best_pooled(matrix(speed))[1:])
    assert best_pooled(found.filled())[0] != 0


def test_pooling_chooses_better_than_an_instance_s_own_few_runs() -> None:
    """What instances share is known from more runs than any of them has."""
    speed = zeros()
    speed[:, ::2, 0] = speed[:, 1::2, 1] = -0.15
    gains = [
        logs(matrix(speed, dice=dice), VIRTUAL)
        - logs(matrix(speed, dice=dice), "one for each instance")
        for dice in range(10)
    ]
    assert np.mean(gains) > 0.05


def test_what_is_slow_does_not_look_faithful_for_missing_the_target() -> None:
    """At the horizon a slow run has made few env steps: that is no sign of needing few."""
    speed = zeros()
    speed[:, :, 0] = -0.5
    speed[:, ::2, 1] = 2.0  # slow on every other machine, and no better than the others elsewhere
    right, naive = [], []
    for dice in range(4):
        free = matrix(speed, dice=dice)
        horizon = np.quantile(free.log_seconds[:, 0], 0.5)
        is_bound = free.log_seconds > horizon
        seconds = np.minimum(free.log_seconds, horizon)
        steps = free.log_steps - (free.log_seconds - seconds)
        cut = replace(free, log_seconds=seconds, log_steps=steps, is_bound=is_bound)
        right.append(np.mean(best_pooled(cut) == 0))
        naive.append(np.mean(best_pooled(replace(cut, is_bound=np.zeros_like(is_bound))) == 0))
    assert np.mean(right) > 0.97
    assert np.mean(naive) < 0.9


def test_what_was_stopped_for_being_slow_does_not_look_faithful_either() -> None:
    """Its gaps are filled from runs that the horizon has cut: they are bounds as these are."""
    speed = zeros()
    speed[:, ::2, 1] = 1.0
    found, naive = [], []
    for dice in range(4):
        free = matrix(speed, dice=dice)
        horizon = np.quantile(free.log_seconds[:, 0], 0.9)
        seconds = np.minimum(free.log_seconds, horizon)
        steps = free.log_steps - (free.log_seconds - seconds)
        is_bound = free.log_seconds > horizon
        for values, empty in ((seconds, np.nan), (steps, np.nan), (is_bound, False)):
            values[::2, 1, 2:] = empty
        cut = replace(free, log_seconds=seconds, log_steps=steps, is_bound=is_bound)
        filled = cut.filled()
        assert not cut.is_bound[::2, 1, 2:].any()
        as_made = replace(filled, is_bound=cut.is_bound)
        for results, known in ((found, filled), (naive, as_made)):
            own = expected_steps(known).mean(axis=2)
            results.append(np.mean(own[::2, 1] - own[::2, 2:].mean(axis=1)))
    assert abs(np.mean(found)) < 0.5 * abs(np.mean(naive))
    assert np.mean(naive) < -0.05


def test_what_differs_by_instance_is_found_where_noise_is_small() -> None:
    """Drawn together by as much as it is noise: without noise, not at all."""
    rng = np.random.default_rng(4)
    known = matrix()
    steps = rng.normal(0.0, 1.0, known.log_steps.shape[:2])
    exact = np.repeat(steps[:, :, None], SEEDS, axis=2)
    clear = Matrix(**{**vars(known), "log_steps": exact, "log_seconds": exact})
    assert np.array_equal(best_pooled(clear), steps.argmin(axis=1))
    assert np.array_equal(best_each(clear), steps.argmin(axis=1))


def test_no_choice_sees_the_seed_that_it_is_reported_on() -> None:
    known = matrix(dice=5)
    other = Matrix(**{**vars(known), "log_seconds": known.log_seconds.copy()})
    other.log_seconds[:, :, 2] += np.random.default_rng(0).normal(0.0, 9.0, (24, SPECS))
    for choose in CHOICES.values():
        assert np.array_equal(cross_fit(known, choose)[:, 2], cross_fit(other, choose)[:, 2])


def test_gaps_are_filled_with_the_effects_of_spec_and_seed() -> None:
    cells = np.array([[[1.0, 2.0, 4.0], [3.0, 4.0, np.nan], [0.0, 1.0, 3.0]]])
    assert fill(cells)[0, 1].tolist() == pytest.approx([3.0, 4.0, 6.0])
    assert np.isnan(cells[0, 1, 2])
    assert np.array_equal(fill(cells[:, ::2]), cells[:, ::2])


def test_runs_that_a_choice_needs_are_asked_for() -> None:
    """Spec 0 was stopped where it is slow, and is the best for all others."""
    speed = zeros()
    speed[:, :, 0] = -1.0
    speed[0, 0, 0] = 1.0
    found = matrix(speed)
    found.log_seconds[0, 0, 2:] = found.log_steps[0, 0, 2:] = np.nan
    assert missing_runs(found, {SINGLE: best_for_all}) == [(0, 0, 2), (0, 0, 3)]
    assert missing_runs(found, {VIRTUAL: best_pooled}) == []


def test_pairs_of_one_game_and_seed_are_one_cluster() -> None:
    """Twelve machines that roll the same dice are no more evidence than one."""
    found = matrix()
    once = np.random.default_rng(0).normal(0.1, 0.2, (GAMES, 1, SEEDS))
    differences = np.repeat(once, MACHINES, axis=1).reshape(GAMES * MACHINES, SEEDS)
    first = np.repeat(np.arange(len(found.instances)) % MACHINES == 0, SEEDS).reshape(-1, SEEDS)
    widths = []
    for counted in (np.ones_like(first), first):
        ratio = Bootstrap(found, counted, np.random.default_rng(0), 2000).ratio(differences)
        assert ratio["low"] is not None
        assert ratio["high"] is not None
        widths.append(np.log(ratio["high"] / ratio["low"]))
    assert widths[0] == pytest.approx(widths[1], rel=0.1)


def test_a_single_cluster_has_no_interval_and_no_pair_no_ratio() -> None:
    found = matrix()
    counted = np.zeros((GAMES * MACHINES, SEEDS), dtype=bool)
    rng = np.random.default_rng(0)
    nothing = {"ratio": None, "low": None, "high": None}
    assert Bootstrap(found, counted, rng).ratio(0.0 * counted) == nothing
    counted[0, 0] = True
    assert Bootstrap(found, counted, rng).ratio(0.0 * counted) == {**nothing, "ratio": 1.0}


@pytest.mark.parametrize(
    ("overall", "changing", "is_open", "words"),
    [
        ((1.2, 1.1, 1.3), (1.3, 1.2, 1.4), True, "The gate is open"),
        ((1.2, 1.04, 1.3), (1.3, 1.2, 1.4), False, "lower bound above 5%"),
        ((1.09, 1.08, 1.1), (1.3, 1.2, 1.4), False, "not enough"),
        ((1.2, 1.1, 1.3), (1.16, 1.05, 1.3), False, "under changing conditions"),
        ((1.2, 1.1, 1.3), None, False, "too little was measured"),
        ((1.2, None, None), (1.3, 1.2, 1.4), False, "too little was measured"),
    ],
)
def test_the_gate_needs_both_its_conditions(
    overall: tuple[float | None, ...],
    changing: tuple[float | None, ...] | None,
    is_open: bool,
    words: str,
) -> None:
    names = ("ratio", "low", "high")
    found = gate(
        dict(zip(names, overall, strict=True)),
        None if changing is None else dict(zip(names, changing, strict=True)),
    )
    assert found["open"] is is_open
    assert words in found["reason"]
