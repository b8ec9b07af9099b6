"""The scores that runs are timed to, by game: fixed by what first seeds were seen to reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from studies.learning.curve import LearningCurve

TARGETS: Mapping[str, float] = {
    "pong": 8.0,
    "breakout": 13.5,
    "space_invaders": 300.0,
    "road_runner": 3_250.0,
    "alien": 540.0,
    "amidar": 100.0,
    "bank_heist": 21.5,
    "beam_rider": 465.0,
    "hero": 5_300.0,
    "name_this_game": 2_750.0,
    "riverraid": 2_250.0,
    "seaquest": 480.0,
    "minatar-breakout": 6.5,
    "minatar-space-invaders": 38.0,
    "minatar-freeway": 33.0,
    "minatar-asterix": 3.0,
}
"""80% of the way from the first score of actors without compression to their best, as it was seen
in half a million env steps of seed 0, rounded; of MinAtar's games, in seeds 0 to 2"""
HARDLY_LEARNED = ("bank_heist", "beam_rider", "name_this_game")
"""games of Atari in which actors without compression, with seed 0, scored less than a fifth more
in the last tenth of the scores that its figure keeps than in the first: there the time to a
score is that of a lucky hour. Chosen after that was seen"""
FIXED_BY_SEEDS = {"atari": 1, "minatar": 3}
"""how many seeds, from 0 on, scores were taken from"""
TARGET_SHARE = 0.8


def fixed_by(game: str, seed: int) -> bool:
    """Whether a game's score was taken from the run of this seed, which so reaches it."""
    suite = "minatar" if game.startswith("minatar-") else "atari"
    return game in TARGETS and seed < FIXED_BY_SEEDS[suite]


def target_score(game: str, baseline: Sequence[LearningCurve]) -> float | None:
    """Return the score that runs of a game are timed to.

    Of a game without a fixed one it lies `TARGET_SHARE` of the way from the first score of the
    baseline's runs to their best, median over runs; None where none of them scored at all.
    """
    if game in TARGETS:
        return TARGETS[game]
    found = []
    for curve in baseline:
        known = [score for score in curve.scores if score is not None]
        if known:
            found.append(known[0] + TARGET_SHARE * (max(known) - known[0]))
    return float(np.median(found)) if found else None
