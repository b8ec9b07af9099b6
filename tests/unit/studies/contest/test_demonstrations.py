"""Demonstrations: the best static spec of each machine, where specs clearly differ."""

from __future__ import annotations

import numpy as np

from accerl.spec import CompressionSpec
from studies.contest.demonstrations import best_of_machines, fastest_of_machines

SPECS = (
    CompressionSpec(),
    CompressionSpec(bits=8),
    CompressionSpec(student="net3", bits=8),
)
MACHINES = ("slow", "fast", "slow", "fast")
"""of four instances: two games, of very different scales"""


def values(slow: list[float], fast: list[float], noise: float) -> np.ndarray:
    """Return values [4 instances, 3 seeds, 3 specs]: the second game's are a hundred times less."""
    rng = np.random.default_rng(0)
    found = np.array([slow, fast, slow, fast])[:, None] + noise * rng.normal(size=(4, 3, 3))
    found[2:] *= 0.01
    return found


def test_every_machine_has_its_own_best_spec_over_games_of_different_scales() -> None:
    found = best_of_machines(MACHINES, values([0.2, 0.3, 0.5], [0.2, 0.4, 0.1], 0.01), SPECS)
    assert found == {"slow": SPECS[2], "fast": SPECS[1]}


def test_a_small_game_counts_as_much_as_a_large_one() -> None:
    grid = values([0.2, 0.3, 0.5], [0.2, 0.4, 0.1], 0.0)
    grid[2] = 0.01 * np.array([0.9, 0.3, 0.1])  # the second game disagrees, and by more
    assert best_of_machines(MACHINES, grid, SPECS)["slow"] == SPECS[0]


def test_where_specs_hardly_differ_the_mildest_is_imitated() -> None:
    runs = [[0.20, 0.30, 0.42], [0.30, 0.40, 0.20], [0.40, 0.20, 0.31]]  # [seeds, specs]
    grid = np.array([runs] * len(MACHINES))
    assert best_of_machines(MACHINES, grid, SPECS) == {"slow": SPECS[0], "fast": SPECS[0]}


def test_a_single_run_each_is_taken_at_its_word() -> None:
    grid = np.array([[[0.1, 0.3, 0.2]]])
    assert best_of_machines(["slow"], grid, SPECS) == {"slow": SPECS[1]}


def test_the_best_is_taken_at_its_word_where_asked() -> None:
    runs = [[0.20, 0.30, 0.42], [0.30, 0.40, 0.20], [0.40, 0.20, 0.31]]  # [seeds, specs]
    grid = np.array([runs] * len(MACHINES))
    assert best_of_machines(MACHINES, grid, SPECS, 0.0) == {"slow": SPECS[2], "fast": SPECS[2]}


def test_the_rule_is_left_only_where_another_spec_is_clearly_faster() -> None:
    rng = np.random.default_rng(1)
    speeds = np.array([[100.0, 400.0, 401.0], [100.0, 101.0, 99.0]] * 2)[:, None]
    speeds = speeds * rng.uniform(0.5, 2.0, size=(4, 3, 1))  # other games, other machines' pace
    assert fastest_of_machines(MACHINES, speeds, SPECS, SPECS[0]) == {
        "slow": SPECS[1],  # the mildest of those that are as fast as the fastest
        "fast": SPECS[0],
    }
    kept = fastest_of_machines(MACHINES, speeds, SPECS, SPECS[2])
    assert kept == {"slow": SPECS[2], "fast": SPECS[2]}


def test_where_nothing_moves_the_rule_is_kept() -> None:
    still = np.zeros((1, 2, 3))
    assert fastest_of_machines(["slow"], still, SPECS, SPECS[1]) == {"slow": SPECS[1]}
