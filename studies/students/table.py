"""What learning curves say: KL, env steps and seconds to a score, cost of distilling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from studies.students.job import LearningCurve


def reached(
    points: Sequence[float], scores: Sequence[float | None], score: float
) -> tuple[float, bool]:
    """Return where a curve first reaches a score, and whether it does; else its last point.

    Args:
        points: env steps or seconds [K].
        scores: [K]; between two of them the curve is a straight line.
        score: to reach.
    """
    before: tuple[float, float] | None = None
    for point, value in zip(points, scores, strict=True):
        if value is None:
            continue
        if value >= score:
            if before is None or value == before[1]:
                return float(point), True
            share = (score - before[1]) / (value - before[1])
            return float(before[0] + share * (point - before[0])), True
        before = float(point), value
    return float(points[-1]), False


def row_of(curve: LearningCurve, scores: Sequence[float], seed: int) -> dict[str, Any]:
    """Return the numbers of one run; `to_score` has an entry for each of `scores`."""
    half = len(curve.seconds) // 2
    sampled = [kl for kl in curve.compression_kl_nats[half:] if kl is not None]
    last = [value for value in curve.scores if value is not None]
    to_score = []
    for score in scores:
        env_steps, is_reached = reached(curve.env_steps, curve.scores, score)
        seconds, _ = reached(curve.seconds, curve.scores, score)
        to_score.append({"reached": is_reached, "env_steps": env_steps, "seconds": seconds})
    return {
        "seed": seed,
        "to_score": to_score,
        "last_score": last[-1] if last else None,
        "compression_kl_nats": float(np.mean(sampled)) if sampled else None,
        "kl_nats": float(np.mean(curve.kl_nats[half:])),
        "env_steps": curve.env_steps[-1],
        "seconds": curve.seconds[-1],
        "distill_core_seconds": curve.distill_core_seconds,
    }


def compare(
    rows: Sequence[dict[str, Any]], base: Sequence[dict[str, Any]], scores: Sequence[float]
) -> dict[str, Any]:
    """Return what a variant's runs say together, over the first variant's on the same seeds.

    Ratios are geometric means over seeds. A run that did not reach a score counts with its whole
    length: `is_bound` says that a ratio is then a bound, not a measurement.
    """

    def mean(name: str) -> float | None:
        known = [row[name] for row in rows if row[name] is not None]
        return float(np.mean(known)) if known else None

    seconds = sum(row["seconds"] for row in rows)
    return {
        "seeds": len(rows),
        "to_score": [_to_score(rows, base, index, score) for index, score in enumerate(scores)],
        "last_score": mean("last_score"),
        "compression_kl_nats": mean("compression_kl_nats"),
        "kl_nats": mean("kl_nats"),
        "env_steps_per_second": sum(row["env_steps"] for row in rows) / seconds,
        "distill_core_seconds": mean("distill_core_seconds"),
        "distill_cores": sum(row["distill_core_seconds"] for row in rows) / seconds,
    }


def _to_score(
    rows: Sequence[dict[str, Any]], base: Sequence[dict[str, Any]], index: int, score: float
) -> dict[str, Any]:
    own = [row["to_score"][index] for row in rows]
    firsts = {row["seed"]: row["to_score"][index] for row in base}
    pairs = [
        (mine, firsts[row["seed"]])
        for mine, row in zip(own, rows, strict=True)
        if row["seed"] in firsts
    ]

    def ratio(name: str) -> float | None:
        logs = [math.log(mine[name] / first[name]) for mine, first in pairs]
        return math.exp(sum(logs) / len(logs)) if logs else None

    return {
        "score": score,
        "reached": sum(each["reached"] for each in own),
        "env_steps": float(np.mean([each["env_steps"] for each in own])),
        "seconds": float(np.mean([each["seconds"] for each in own])),
        "env_steps_ratio": ratio("env_steps"),
        "seconds_ratio": ratio("seconds"),
        "is_bound": not all(mine["reached"] and first["reached"] for mine, first in pairs),
    }
