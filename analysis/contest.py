"""The contest of a study: one row a test run, one contrast a planned comparison, and the verdict.

Contrasts compare the study's subject (the learned controller) with every other strategy, paired by
(game, seed). p values are corrected by Holm over the comparisons of one metric; seconds to target
is the primary metric, the others are secondary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from accerl.errors import UserError
from accerl.records import write_json
from analysis import curves, stats
from analysis.load import RunRecord, StudyRecord, finite_or_none, load_study
from analysis.verdict import verdict_sentences

CONTEST = "contest.json"
PRIMARY = "seconds_to_target"
METRICS: Mapping[str, str] = {
    "seconds_to_target": (
        "First time at which the learning curve (running mean of two evaluations, joined by "
        "straight lines) reaches the game's target return, censored at the horizon. Contrast: "
        "geometric mean over pairs of a / b; below 1 is faster."
    ),
    "gain_per_second": (
        "Normalised return gained until the target or the horizon, divided by the seconds that "
        "took (the paper's equation 6). Contrast: ratio of means, each game's rate multiplied by "
        "its horizon so that games count the same; above 1 is better."
    ),
    "auc": (
        "Mean normalised return over [0, horizon], trapezoid rule. Contrast: difference a - b; "
        "above 0 is better."
    ),
    "final_return": (
        "Mean return over the last 10% of the horizon. Contrast: difference a - b of normalised "
        "returns; above 0 is better; above -0.05 in the whole interval is non-inferior."
    ),
}
"""Every number of a contest in words; normalised = (J - random) / (reference - random)."""


def contest_rows(study: StudyRecord) -> list[dict[str, Any]]:
    """Return one row a test run: {strategy, env, profile, seed, seconds_to_target, censored, ...}.

    `seconds_to_target` and `final_return` are in seconds and raw game score; `auc` is normalised
    and `gain_per_second` is normalised return a second; `final_normalised` is added.
    """
    default = str(study.info.get("profile", study.profile.get("name", "")))
    described = study.info.get("games", {})
    return [
        {
            "strategy": strategy,
            "env": game,
            "profile": str(described.get(game, {}).get("profile", default)),
            "seed": seed,
        }
        | _measure(study, game, run)
        for (strategy, game, seed), run in study.runs.items()
    ]


def _measure(study: StudyRecord, name: str, run: RunRecord) -> dict[str, Any]:
    game = study.games[name]
    curve = curves.learning_curve(run.reports, game.random_return)
    levels = {"random_return": game.random_return, "reference_return": game.reference_return}
    reached = curves.seconds_to_target(
        curve.seconds, curve.returns, game.target_return, game.horizon_seconds
    )
    final = curves.final_return(curve.seconds, curve.returns, game.horizon_seconds)
    return {
        "seconds_to_target": reached.seconds,
        "censored": reached.censored,
        "auc": curves.area_under_curve(
            curve.seconds, curves.normalise(curve.returns, **levels), game.horizon_seconds
        ),
        "gain_per_second": curves.gain_per_second(
            curve.seconds, curve.returns, game.target_return, game.horizon_seconds, **levels
        ),
        "final_return": final,
        "final_normalised": float(curves.normalise(final, **levels)),
    }


def contest_contrasts(
    study: StudyRecord, rows: Sequence[Mapping[str, Any]], rng: np.random.Generator
) -> list[dict[str, Any]]:
    """Return the contrasts [{a, b, metric, ratio, difference, low, high, p, p_holm, n, ...}].

    One of `ratio` and `difference` is None, by the metric. Bounds are None below two pairs.
    """
    known = [item.name for item in study.strategies]
    if study.subject not in known:
        raise UserError(f"study.json: subject {study.subject!r} is not one of its strategies")
    result: list[dict[str, Any]] = []
    for metric in METRICS:
        family = []
        for other in known:
            pairs = _pairs(rows, study.subject, other) if other != study.subject else []
            if pairs:
                family.append(_contrast(study, metric, other, pairs, rng))
        for item, corrected in zip(family, stats.holm([c["p"] for c in family]), strict=True):
            item["p_holm"] = corrected
        result += family
    return result


def _pairs(
    rows: Sequence[Mapping[str, Any]], a: str, b: str
) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    of_b = {(row["env"], row["seed"]): row for row in rows if row["strategy"] == b}
    return [
        (row, of_b[row["env"], row["seed"]])
        for row in rows
        if row["strategy"] == a and (row["env"], row["seed"]) in of_b
    ]


def _contrast(
    study: StudyRecord,
    metric: str,
    other: str,
    pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
    rng: np.random.Generator,
) -> dict[str, Any]:
    games = [a["env"] for a, _ in pairs]
    key = "final_normalised" if metric == "final_return" else metric
    a, b = (np.array([pair[side][key] for pair in pairs], dtype=float) for side in (0, 1))
    interval, scale, differences = None, "ratio", a - b
    if metric == PRIMARY:
        interval = stats.paired_log_ratio(a, b, games, rng)
        differences = np.log(a / b)
    elif metric == "gain_per_second":
        horizons = np.array([study.games[name].horizon_seconds for name in games])
        a, b = a * horizons, b * horizons
        differences = a - b
        interval = stats.paired_ratio_of_means(a, b, games, rng)
    if interval is None:
        interval, scale = stats.paired_mean(differences, games, rng), "difference"
    contrast: dict[str, Any] = {
        "a": study.subject,
        "b": other,
        "metric": metric,
        "ratio": finite_or_none(interval.estimate) if scale == "ratio" else None,
        "difference": finite_or_none(interval.estimate) if scale == "difference" else None,
        "low": finite_or_none(interval.low),
        "high": finite_or_none(interval.high),
        "p": stats.sign_flip_p(differences, games, rng),
        "n": len(pairs),
        "probability_of_improvement": stats.probability_of_improvement(
            a, games, b, games, lower_is_better=metric == PRIMARY
        ),
    }
    if metric == PRIMARY:
        contrast["censored_a"] = sum(bool(pair[0]["censored"]) for pair in pairs)
        contrast["censored_b"] = sum(bool(pair[1]["censored"]) for pair in pairs)
        labels = np.array(games)
        contrast["ratio_by_game"] = {
            name: float(np.exp(np.mean(differences[labels == name])))
            for name in dict.fromkeys(games)
        }
    return contrast


def strategy_levels(
    study: StudyRecord, rows: Sequence[Mapping[str, Any]], rng: np.random.Generator
) -> list[dict[str, Any]]:
    """Return how each strategy did by itself: IQM over runs with bootstrap intervals.

    `time_fraction` is seconds to target over the game's horizon, which games can share.
    """
    levels = []
    for strategy in study.strategies:
        own = [row for row in rows if row["strategy"] == strategy.name]
        if not own:
            continue
        games = [row["env"] for row in own]
        level: dict[str, Any] = {
            "strategy": strategy.name,
            "label": strategy.label,
            "runs": len(own),
            "reached": sum(not row["censored"] for row in own),
        }
        columns = {
            "time_fraction": [
                row["seconds_to_target"] / study.games[row["env"]].horizon_seconds for row in own
            ],
            "auc": [row["auc"] for row in own],
            "final_normalised": [row["final_normalised"] for row in own],
        }
        for name, values in columns.items():
            interval = stats.iqm_interval(np.array(values), games, rng)
            level[name] = interval.estimate
            level[f"{name}_low"] = finite_or_none(interval.low)
            level[f"{name}_high"] = finite_or_none(interval.high)
        levels.append(level)
    return levels


def build_contest(study: StudyRecord) -> dict[str, Any]:
    """Return the whole contest of a study; the same records give the same numbers."""
    rng = np.random.default_rng(int(study.info.get("seed", 0)))
    rows = contest_rows(study)
    contrasts = contest_contrasts(study, rows, rng)
    contest: dict[str, Any] = {
        "study": study.name,
        "subject": study.subject,
        "tier": study.tier,
        "primary_metric": PRIMARY,
        "metrics": dict(METRICS),
        "rows": rows,
        "contrasts": contrasts,
        "levels": strategy_levels(study, rows, rng),
        "warnings": list(study.warnings),
        "fingerprint": study.info.get("fingerprint"),
        "versions": study.info.get("versions"),
    }
    contest["verdict"] = verdict_sentences(study, contest)
    return contest


def verdict(study: StudyRecord) -> list[str]:
    """Return who won, by how much and with which uncertainty, in plain words."""
    return build_contest(study)["verdict"]


def write_contest(study_dir: Path) -> Path:
    """Compute the contest of a study directory and write its contest.json."""
    path = Path(study_dir) / CONTEST
    write_json(path, build_contest(load_study(Path(study_dir))))
    return path
