"""What learning curves say: KL, env steps and seconds to a score, cost of distilling."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.comparison.scores import reached
from studies.learning.curve import LearningCurve, Ratios
from studies.learning.interval import mean_interval
from studies.students.plan import Case

POINTS = 25
"""of each curve that are kept beside the table"""
KEPT = ("seconds", "env_steps", "scores", "compression_kl_nats", "kl_nats")


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
        "learner_score": curve.learner_score,
        "learner_cut_off": curve.learner_cut_off,
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
    length: `bound` says on which side of the truth a ratio is then (see `Ratios`).
    """

    def mean(name: str) -> float | None:
        known = [row[name] for row in rows if row[name] is not None]
        return float(np.mean(known)) if known else None

    seconds = sum(row["seconds"] for row in rows)
    return {
        "seeds": len(rows),
        "to_score": [_to_score(rows, base, index, score) for index, score in enumerate(scores)],
        "last_score": mean("last_score"),
        "learner_score": mean("learner_score"),
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

    def ratios(name: str) -> Ratios:
        return Ratios.of(
            [
                ((mine[name], mine["reached"]), (first[name], first["reached"]))
                for mine, first in pairs
            ]
        )

    env_steps, seconds = ratios("env_steps"), ratios("seconds")
    by_step, by_second = ratio_of(env_steps.logs), ratio_of(seconds.logs)
    return {
        "score": score,
        "reached": sum(each["reached"] for each in own),
        "env_steps": float(np.mean([each["env_steps"] for each in own])),
        "seconds": float(np.mean([each["seconds"] for each in own])),
        "env_steps_ratio": by_step["ratio"],
        "env_steps_interval": by_step["interval"],
        "seconds_ratio": by_second["ratio"],
        "seconds_interval": by_second["interval"],
        "bound": seconds.bound,  # env steps miss the same scores
        "pairs": len(seconds.logs),
    }


def ratio_of(logs: Sequence[float]) -> dict[str, Any]:
    """Return the geometric mean of ratios, whose logs are given, and its 95% t interval.

    The interval is None where fewer than two ratios tell nothing of their spread.
    """
    mean, low, high = mean_interval(logs)
    known = math.isfinite(low)
    return {
        "ratio": math.exp(mean) if len(logs) else None,
        "interval": [math.exp(low), math.exp(high)] if known else None,
    }


def case_result(
    case: Case,
    curves: Mapping[tuple[str, int], LearningCurve],
    profile: str = "",
    *,
    starts: Mapping[int, LearningCurve] | None = None,
    paces: Mapping[str, Mapping[str, float]] | None = None,
) -> dict[str, Any]:
    """Return what is known of a case as plain JSON, curves included.

    Args:
        case: what is compared.
        curves: by label of the variant, and seed.
        profile: what took the place of the case's machine.
        starts: by seed, the runs that its variants went on from; empty if they began untrained.
        paces: predicted env steps a second, by label of the variant and machine, where they are
            of use: the clock is virtual.
    """
    labels = [variant.label for variant in case.variants]
    rows = {row["label"]: row for row in compared_rows(labels, curves, case.scores)}
    return {
        "title": case.title(profile),
        "game": case.game,
        "profile": profile or case.profile,
        "network": case.network,
        "scores": list(case.scores),
        "env_steps": case.env_steps,
        "baseline": labels[0],
        "starts": [
            {"seed": seed, "env_steps": curve.env_steps[-1], "score": curve.scores[-1]}
            for seed, curve in (starts or {}).items()
        ],
        "variants": [
            {
                "spec": variant.spec.to_json(),
                "settings": {**case.settings, **variant.settings},
                "predicted_pace": dict((paces or {}).get(variant.label, {})),
                **rows[variant.label],
            }
            for variant in case.variants
            if variant.label in rows
        ],
    }


def compared_rows(
    labels: Sequence[str],
    curves: Mapping[tuple[str, int], LearningCurve],
    scores: Sequence[float],
) -> list[dict[str, Any]]:
    """Return what is known of each of several ways to act, as plain JSON, curves included.

    Args:
        labels: of all; the first is what the others are compared with. Those without runs have no
            row.
        curves: by label and seed.
        scores: that they are timed to.
    """
    found = {
        label: {each: curve for (name, each), curve in curves.items() if name == label}
        for label in labels
    }
    rows = {
        label: [row_of(curve, scores, each) for each, curve in own.items()]
        for label, own in found.items()
    }
    return [
        {
            "label": label,
            **compare(rows[label], rows[labels[0]], scores),
            "runs": rows[label],
            "curves": [
                {"seed": each, **curve.thinned(POINTS, KEPT)}
                for each, curve in found[label].items()
            ],
        }
        for label in labels
        if rows[label]
    ]
