"""Runs on the real clock: is the subject faster than the others, by more than the interval?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.comparison import stats
from analysis.records.load import StudyRecord, finite_or_none

ALL_GAMES = "all games"
SPEED = "env_steps_per_second"


def speed_contrasts(
    rows: Sequence[Mapping[str, Any]], subject: str, rng: np.random.Generator
) -> list[dict[str, Any]]:
    """Return [{game, a, b, ratio, low, high, n}]: env steps per second of `subject` over others.

    Geometric means over pairs of one seed, a row a game and strategy, and one over all games where
    there are several; bounds are None below two pairs. Above 1 the subject was faster.
    """
    speeds = {(row["strategy"], row["game"], row["seed"]): float(row[SPEED]) for row in rows}
    games = list(dict.fromkeys(game for _, game, _ in speeds))
    others = dict.fromkeys(name for name, _, _ in speeds if name != subject)
    found = []
    for place in [*games, ALL_GAMES] if len(games) > 1 else games:
        for other in others:
            pairs = [
                (game, speed, speeds[other, game, seed])
                for (name, game, seed), speed in speeds.items()
                if name == subject and place in (game, ALL_GAMES) and (other, game, seed) in speeds
            ]
            if not pairs:
                continue
            ratio = stats.paired_log_ratio(
                np.array([pair[1] for pair in pairs]),
                np.array([pair[2] for pair in pairs]),
                [pair[0] for pair in pairs],
                rng,
            )
            row = {"game": place, "a": subject, "b": other, "ratio": ratio.estimate}
            bounds = {"low": finite_or_none(ratio.low), "high": finite_or_none(ratio.high)}
            found.append({**row, **bounds, "n": len(pairs)})
    return found


def speed_result(contrast: Mapping[str, Any]) -> str:
    """Return faster | slower | not distinguishable, by the interval alone."""
    if contrast["low"] is None or contrast["low"] <= 1.0 <= contrast["high"]:
        return "not distinguishable"
    return "faster" if contrast["low"] > 1.0 else "slower"


def speed_sentences(study: StudyRecord, contrasts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say of every game whether the subject is slower than fp32 by more than the interval."""
    subject = study.labels[study.subject]
    sentences = []
    for item in contrasts:
        if item["b"] not in study.of_kind("fp32") or item["game"] == ALL_GAMES:
            continue
        pairs = "1 pair" if item["n"] == 1 else f"{item['n']} pairs"
        text = f"{item['game']}: {subject} does {item['ratio']:.2f}x the env steps per second of "
        text += study.labels[item["b"]]
        if item["low"] is None:
            sentences.append(f"{text} ({pairs}, too few for an interval): not distinguishable.")
            continue
        text += f" (95% interval {item['low']:.2f} to {item['high']:.2f}, {pairs})"
        ending = {
            "slower": "slower by more than the interval",
            "faster": "faster by more than the interval",
            "not distinguishable": "neither slower nor faster by more than the interval",
        }[speed_result(item)]
        sentences.append(f"{text}: {ending}.")
    return sentences
