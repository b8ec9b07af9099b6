"""Runs on the real clock: is the subject faster than the others, by more than the interval?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.comparison import stats
from analysis.comparison.contrasts import find_pairs, paired_values
from analysis.formats import counted, interval
from analysis.records.load import StudyRecord

ALL_GAMES = "all games"
SPEED = "env_steps_per_second"


def speed_contrasts(
    rows: Sequence[Mapping[str, Any]], subject: str, rng: np.random.Generator
) -> list[dict[str, Any]]:
    """Return [{game, a, b, ratio, low, high, n}]: env steps per second of `subject` over others.

    Geometric means over pairs of one seed, a row a game and strategy, and one over all games where
    there are several; bounds are None below three clusters. Above 1 the subject was faster.
    """
    runs = [{**row, "env": row["game"]} for row in rows]
    games = list(dict.fromkeys(row["env"] for row in runs))
    others = dict.fromkeys(row["strategy"] for row in runs if row["strategy"] != subject)
    found = []
    for place in [*games, ALL_GAMES] if len(games) > 1 else games:
        own = [row for row in runs if place in (row["env"], ALL_GAMES)]
        for other in others:
            if pairs := find_pairs(own, subject, other, SPEED):
                ratio = stats.paired_log_ratio(*paired_values(pairs, SPEED), rng)
                row = {"game": place, "a": subject, "b": other, "ratio": ratio.estimate}
                found.append({**row, **ratio.bounds(), "n": len(pairs)})
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
        pairs, result = counted(item["n"], "pair"), speed_result(item)
        text = f"{item['game']}: {subject} does {item['ratio']:.2f}x the env steps per second of "
        text += study.labels[item["b"]]
        if item["low"] is None:
            sentences.append(f"{text} ({pairs}, too few for an interval): {result}.")
            continue
        text += f" (95% interval {interval(item['low'], item['high'])}, {pairs})"
        how = "neither slower nor faster" if result == "not distinguishable" else result
        sentences.append(f"{text}: {how} by more than the interval.")
    return sentences
