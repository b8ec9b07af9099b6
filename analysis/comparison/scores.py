"""Scores of single runs: the curve over seconds and env steps, and when it reached each level."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.records.load import RunRecord

EPISODES = 20
"""in the running mean, as the paper's comparisons use, and `accerl.training.score`"""
LEVELS = (0.25, 0.5, 0.75, 0.9)
"""default levels, as shares of the way from the first point of all runs to the best one"""
POINTS = 120
"""points of a curve that is written to a file: small enough for a repository"""


@dataclass(frozen=True)
class Point:
    """One point of a learning curve."""

    seconds: float
    env_steps: int
    score: float


def is_measured(run: RunRecord) -> bool:
    """Whether the learner's policy was evaluated in this run."""
    return any(report.learner_return is not None for report in run.reports)


def score_curve(run: RunRecord) -> list[Point]:
    """Return J where it was measured; else the mean raw score of the last episodes.

    The mean starts once `EPISODES` have ended; they were acted by the compressed policy.
    """
    points = []
    latest: deque[float] = deque(maxlen=EPISODES)
    measured = is_measured(run)
    for report in run.reports:
        latest.extend(report.episode_returns)
        score = report.learner_return
        if not measured and len(latest) == EPISODES:
            score = math.fsum(latest) / EPISODES
        if score is not None and math.isfinite(score):
            points.append(Point(report.total_seconds, report.total_env_steps, score))
    return points


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
            if before is None:
                return float(point), True
            share = (score - before[1]) / (value - before[1])
            return float(before[0] + share * (point - before[0])), True
        before = float(point), value
    return float(points[-1]), False


def first_reached(curve: Sequence[Point], level: float) -> Point | None:
    """Return where `curve` first reaches `level`; None if it never does."""
    if not curve:
        return None
    scores = [point.score for point in curve]
    seconds, is_reached = reached([point.seconds for point in curve], scores, level)
    env_steps, _ = reached([point.env_steps for point in curve], scores, level)
    return Point(seconds, round(env_steps), level) if is_reached else None


def default_levels(curves: Sequence[Sequence[Point]]) -> list[float]:
    """Return levels between the lowest start and the best score of all curves.

    They are rounded to three digits of that range: small scores need levels of their own too.
    """
    starts = [curve[0].score for curve in curves if curve]
    if not starts:
        return []
    low, high = min(starts), max(point.score for curve in curves for point in curve)
    if low == high:
        return [low]
    decimals = 2 - math.floor(math.log10(high - low))
    return sorted({round(low + share * (high - low), decimals) for share in LEVELS})


def curves_json(labelled: Mapping[str, RunRecord]) -> list[dict[str, Any]]:
    """Return every run's curve, thinned to `POINTS`, with what it takes to run it again."""
    rows = []
    for label, run in labelled.items():
        curve = score_curve(run)
        every = max(1, math.ceil(len(curve) / POINTS))
        kept = curve[::-1][::every][::-1]  # the last point always stays
        rows.append(
            {
                "label": label,
                "env": run.env,
                "network": run.config.get("network"),
                "strategy": run.strategy,
                "seed": run.seed,
                "clock": run.clock,
                "config_hash": run.summary.get("config_hash"),
                "env_steps_per_second": run.summary.get("env_steps_per_second"),
                "machine": (run.summary.get("fingerprint") or {}).get("cpu"),
                "versions": run.summary.get("versions"),
                "seconds": [round(point.seconds, 1) for point in kept],
                "env_steps": [point.env_steps for point in kept],
                "scores": [round(point.score, 3) for point in kept],
            }
        )
    return rows
