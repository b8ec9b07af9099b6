"""Paired comparisons of the subject with the other strategies: over all games, and by group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from accerl.errors import UserError
from analysis.comparison import stats
from analysis.records.load import StudyRecord

PRIMARY = "seconds_to_target"
METRICS: Mapping[str, str] = {
    "seconds_to_target": (
        "First time at which the learning curve (running mean of two evaluations, joined by "
        "straight lines) reaches the instance's target return, censored at the horizon. Contrast: "
        "geometric mean over pairs of a / b; below 1 is faster."
    ),
    "gain_per_second": (
        "Normalised return gained until the target or the horizon, divided by the seconds that "
        "took (the paper's equation 6). Contrast: ratio of means, each instance's rate multiplied "
        "by its horizon so that instances count the same; above 1 is better."
    ),
    "auc": (
        "Mean normalised return over [0, horizon], trapezoid rule. Contrast: difference a - b; "
        "above 0 is better."
    ),
    "final_return": (
        "Mean return over the last 10% of the horizon. Contrast: difference a - b of normalised "
        "returns; above 0 is better; above -0.05 in the whole interval is non-inferior."
    ),
    "cpu_seconds": (
        "Processor seconds of the whole run, all its processes. On the virtual clock these are the "
        "seconds in which modelled processes occupy cores: environment steps, inference, writing, "
        "learning, distilling, compressing and publishing, summed over the actors; waiting for a "
        "core and sending are not counted. Contrast: geometric mean over pairs of a / b; below 1 "
        "is less."
    ),
    "publication_bytes": (
        "Bytes of compressed weights sent to each actor over the whole run. Contrast: geometric "
        "mean over pairs of a / b, without those in which one side sent none; below 1 is less."
    ),
}
"""Every number of a contest in words; normalised = (J - random) / (reference - random)."""
CO_PRIMARY = "co_primary"
"""what a plan asks for beside the primary metric: both must hold, so neither needs correcting"""
LOWER_IS_BETTER = (PRIMARY, "cpu_seconds", "publication_bytes")
"""positive, and therefore compared by their geometric mean ratio"""
PLAN_WORDS: Mapping[str, str] = {
    "area_under_the_curve": "auc",
    "bytes": "publication_bytes",
}
"""what a plan may call a metric, where it is not the metric's own name"""

Pairs = Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]


def contest_contrasts(
    study: StudyRecord, rows: Sequence[Mapping[str, Any]], rng: np.random.Generator
) -> list[dict[str, Any]]:
    """Return the contrasts [{a, b, metric, ratio, difference, low, high, p, p_holm, n, ...}].

    One of `ratio` and `difference` is None, by the metric. Bounds are None below three clusters,
    and where no run of either side reached its target. They are over the games that the plan names
    (`StudyRecord.primary_games`), such as those that training did not use. `family` is primary,
    co-primary, secondary or exploratory; an exploratory contrast, whose comparator or metric the
    plan does not name, has no `p_holm`. Of the `n` pairs, `clusters` are independent: those of one
    game and seed on several machines share their dice.
    `same_policy` says that both sides are one network.
    """
    known = study.names
    if study.subject not in known:
        raise UserError(f"study.json: subject {study.subject!r} is not one of its strategies")
    planned = study.primary_against
    families = {PRIMARY: "primary"}
    for family in ("secondary", CO_PRIMARY):
        families |= dict.fromkeys(planned_metrics(study, family)[0], family.replace("_", "-"))
    rows = [row for row in rows if row["env"] in study.primary_games]
    result: list[dict[str, Any]] = []
    for metric in METRICS:
        found = {
            other: [
                pair
                for pair in find_pairs(rows, study.subject, other, metric)
                if _compares(pair, metric)
            ]
            for other in known
            if other != study.subject
        }
        found = {other: pairs for other, pairs in found.items() if pairs}
        family = [_contrast(study, metric, other, pairs, rng) for other, pairs in found.items()]
        if len({item["ratio"] is None for item in family}) > 1:  # one scale for all comparators
            family = [
                _contrast(study, metric, other, pairs, rng, may_divide=False)
                for other, pairs in found.items()
            ]
        corrected = [item for item in family if metric in families and item["b"] in planned]
        for item, p in zip(corrected, stats.holm([c["p"] for c in corrected]), strict=True):
            item["p_holm"] = p
            item["family"] = families[metric]
        result += family
    return result


def _compares(pair: tuple[Mapping[str, Any], Mapping[str, Any]], metric: str) -> bool:
    """Return whether both sides have what a metric compares: there is no ratio to nothing."""
    return metric not in LOWER_IS_BETTER or min(row[metric] for row in pair) > 0.0


def silent_pairs(study: StudyRecord, rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return a sentence for every planned contrast of bytes that lacks runs which sent none."""
    metric, texts = "publication_bytes", []
    if metric not in planned_metrics(study, "secondary")[0]:
        return ()
    rows = [row for row in rows if row["env"] in study.primary_games]
    for other in study.primary_against:
        pairs = find_pairs(rows, study.subject, other, metric)
        silent = [pair for pair in pairs if not _compares(pair, metric)]
        if silent:
            names = sorted({a["env"] for a, _ in silent})
            texts.append(
                f"Bytes against {study.labels[other]}: {len(silent)} of {len(pairs)} pairs are "
                f"left out, in which one side sent none ({', '.join(names)})"
            )
    return tuple(texts)


def planned_metrics(study: StudyRecord, family: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the metrics that the plan names in a family, and its words that name none known here.

    A plan writes them for people, such as "final_return (non-inferior within 5%)".

    Args:
        study: with a plan.
        family: secondary or co_primary.
    """
    known, unknown = [], []
    for text in study.info["plan"].get(family, ()):
        word = str(text).partition("(")[0].strip().lower().replace(" ", "_").replace("-", "_")
        name = PLAN_WORDS.get(word, word)
        (known if name in METRICS else unknown).append(name if name in METRICS else str(text))
    return tuple(known), tuple(unknown)


def missing_metrics(study: StudyRecord, contrasts: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return a sentence for every metric that is planned and has no planned contrast."""
    if not study.primary_against:
        return ()
    beside = [planned_metrics(study, family) for family in (CO_PRIMARY, "secondary")]
    planned = [metric for known, _ in beside for metric in known]
    found = {item["metric"] for item in contrasts if item["family"] != "exploratory"}
    return tuple(
        f"Planned metric {metric}: no pair of runs has it, so there is no contrast"
        for metric in (PRIMARY, *planned)
        if metric not in found
    ) + tuple(
        f"Planned metric {text!r} is not known: there is no contrast"
        for _, unknown in beside
        for text in unknown
    )


def transfer_rows(
    study: StudyRecord, rows: Sequence[Mapping[str, Any]], rng: np.random.Generator
) -> list[dict[str, Any]]:
    """Return the primary contrasts within each group of games: {group, b, ratio, low, high, ...}.

    They say how well training carries over; their p values are not corrected.
    """
    result = []
    for group, games in study.groups.items():
        own = [row for row in rows if row["env"] in games]
        for other in study.primary_against:
            pairs = find_pairs(own, study.subject, other, PRIMARY)
            if pairs:
                found = _contrast(study, PRIMARY, other, pairs, rng)
                kept = ("a", "b", "ratio", "low", "high", "p", "n", "clusters", "ratio_by_game")
                result.append({"group": group} | {key: found[key] for key in kept})
    return result


def find_pairs(rows: Sequence[Mapping[str, Any]], a: str, b: str, metric: str = PRIMARY) -> Pairs:
    """Return the pairs of runs of a and b on the same game and seed that both have a number."""
    known = [row for row in rows if row[metric] is not None]
    of_b = {(row["env"], row["seed"]): row for row in known if row["strategy"] == b}
    return [
        (row, of_b[row["env"], row["seed"]])
        for row in known
        if row["strategy"] == a and (row["env"], row["seed"]) in of_b
    ]


def _contrast(
    study: StudyRecord,
    metric: str,
    other: str,
    pairs: Pairs,
    rng: np.random.Generator,
    *,
    may_divide: bool = True,
) -> dict[str, Any]:
    a, b, games = paired_values(pairs, "final_normalised" if metric == "final_return" else metric)
    clusters = study.clusters([a for a, _ in pairs])
    interval, scale, differences = None, "ratio", a - b
    if metric in LOWER_IS_BETTER:
        interval = stats.paired_log_ratio(a, b, games, rng, clusters=clusters)
        differences = np.log(a / b)
    elif metric == "gain_per_second":
        horizons = np.array([study.games[name].horizon_seconds for name in games])
        a, b = a * horizons, b * horizons
        differences = a - b
        if may_divide:
            interval = stats.paired_ratio_of_means(a, b, games, rng, clusters=clusters)
    if interval is None:
        interval = stats.paired_mean(differences, games, rng, clusters=clusters)
        scale = "difference"
    contrast: dict[str, Any] = {
        "a": study.subject,
        "b": other,
        "metric": metric,
        "family": "exploratory",
        "ratio": stats.finite_or_none(interval.estimate) if scale == "ratio" else None,
        "difference": stats.finite_or_none(interval.estimate) if scale == "difference" else None,
        **interval.bounds(),
        "p": stats.sign_flip_p(differences, games, rng, clusters=clusters),
        "p_holm": None,
        "n": len(pairs),
        "clusters": len(set(clusters)),
        "same_policy": study.shares_policy(other),
        "probability_of_improvement": stats.probability_of_improvement(
            a, games, b, games, lower_is_better=metric in LOWER_IS_BETTER
        ),
    }
    if metric == PRIMARY:
        contrast["censored_a"] = sum(bool(pair[0]["censored"]) for pair in pairs)
        contrast["censored_b"] = sum(bool(pair[1]["censored"]) for pair in pairs)
        if nobody_arrived(contrast):  # ties of runs that missed tell nothing, however many
            contrast |= {"low": None, "high": None}
        labels = np.array(games)
        contrast["ratio_by_game"] = {
            name: float(np.exp(np.mean(differences[labels == name])))
            for name in dict.fromkeys(games)
        }
    return contrast


def nobody_arrived(contrast: Mapping[str, Any]) -> bool:
    """Whether no run of either side of a primary contrast reached its target."""
    return contrast["censored_a"] == contrast["censored_b"] == contrast["n"]


def paired_values(pairs: Pairs, metric: str = PRIMARY) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return the values of side a [N], those of side b [N], and the games of the pairs [N]."""
    a, b = (np.array([pair[side][metric] for pair in pairs], dtype=float) for side in (0, 1))
    return a, b, [row["env"] for row, _ in pairs]
