"""The contest of a study: one row a test run, one contrast a planned comparison, and the verdict.

Contrasts compare the study's subject (the learned controller) with every other strategy, paired by
(instance, seed). p values are corrected by Holm over the comparisons that the plan names, metric by
metric; the others are exploratory. Seconds to target is the primary metric; secondary are those
that the plan names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.comparison import curves, stats
from analysis.comparison.bars import find_bars, find_instances, weak_rules
from analysis.comparison.contrasts import (
    METRICS,
    PRIMARY,
    contest_contrasts,
    missing_metrics,
    silent_pairs,
    transfer_rows,
)
from analysis.comparison.goal import find_goal
from analysis.comparison.machine_gap import machine_gap
from analysis.comparison.verdict import verdict_sentences
from analysis.comparison.worth import break_even, gap_missing, gap_rows
from analysis.records.load import RunRecord, StudyRecord
from analysis.records.plan import Game

CONTEST = "contest.json"


def contest_rows(study: StudyRecord) -> list[dict[str, Any]]:
    """Return one row a test run: {strategy, env, profile, seed, seconds_to_target, censored, ...}.

    `env` is the instance, a game on a machine; `game` and `profile` are these apart.
    `seconds_to_target` and `final_return` are in seconds and raw game score; `auc` is normalised
    and `gain_per_second` is normalised return a second; `final_normalised` is added. A run that
    was censored had not reached its target at `observed_seconds`. `cpu_seconds`, on the virtual
    clock modelled ones, is None where the run did not record it.
    """
    return [
        {"strategy": strategy, "env": name, "game": study.games[name].game}
        | {"profile": study.games[name].profile, "seed": seed}
        | _measure(study.games[name], run)
        for (strategy, name, seed), run in study.runs.items()
    ]


def _measure(game: Game, run: RunRecord) -> dict[str, Any]:
    curve = curves.learning_curve(run.reports, game.random_return)
    levels = {"random_return": game.random_return, "reference_return": game.reference_return}
    reached = curves.seconds_to_target(
        curve.seconds, curve.returns, game.target_return, game.horizon_seconds
    )
    final = curves.final_return(curve.seconds, curve.returns, game.horizon_seconds)
    sent = sum(report.publication_bytes for report in run.reports)
    return {
        "seconds_to_target": reached.seconds,
        "censored": reached.censored,
        "observed_seconds": min(game.horizon_seconds, run.reports[-1].total_seconds),
        "auc": curves.area_under_curve(
            curve.seconds, curves.normalise(curve.returns, **levels), game.horizon_seconds
        ),
        "gain_per_second": curves.gain_per_second(
            curve.seconds, curve.returns, game.target_return, game.horizon_seconds, **levels
        ),
        "final_return": final,
        "final_normalised": float(curves.normalise(final, **levels)),
        "cpu_seconds": _cpu_seconds(run),
        "publication_bytes": sent,
    }


def _cpu_seconds(run: RunRecord) -> float | None:
    """Return the processor seconds of a run's processes, of modelled ones on a virtual clock."""
    return sum(sum(report.cpu_seconds.values()) for report in run.reports) or None


def strategy_levels(
    study: StudyRecord, rows: Sequence[Mapping[str, Any]], rng: np.random.Generator
) -> list[dict[str, Any]]:
    """Return how each strategy did by itself: IQM over runs with intervals.

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
        clusters = study.clusters(own)
        for name, values in columns.items():
            interval = stats.iqm_interval(np.array(values), games, rng, clusters=clusters)
            if name == "time_fraction":
                interval = interval.within(0.0, 1.0)
            level[name] = interval.estimate
            level |= interval.bounds(name)
        levels.append(level)
    return levels


def build_contest(study: StudyRecord) -> dict[str, Any]:
    """Return the whole contest of a study; the same records give the same numbers."""
    rng = np.random.default_rng(study.info["seed"])
    rows = contest_rows(study)
    contrasts = contest_contrasts(study, rows, rng)
    contest: dict[str, Any] = {
        "study": study.name,
        "subject": study.subject,
        "tier": study.tier,
        "plan_hash": study.info["plan_hash"],
        "primary_metric": PRIMARY,
        "primary_against": list(study.primary_against),
        "metrics": dict(METRICS),
        "groups": {group: list(games) for group, games in study.groups.items()},
        "rows": rows,
        "contrasts": contrasts,
        "levels": strategy_levels(study, rows, rng),
        "transfer": transfer_rows(study, rows, rng),
        "break_even": break_even(study, rows, rng),
        "oracle_gap": gap_rows(study, rng),
        "machine_gap": machine_gap(study, rows, rng),
        "warnings": [
            *study.warnings,
            *missing_metrics(study, contrasts),
            *silent_pairs(study, rows),
        ],
        "fingerprint": study.info["fingerprint"],
        "versions": study.info["versions"],
    }
    contest["oracle_gap_missing"] = gap_missing(study, contest["oracle_gap"])
    contest["goal"] = find_goal(study, contest)
    contest["bars"] = find_bars(study, contest, rng)
    contest["by_instance"] = find_instances(study, contest, rng)
    contest["weak_rules"] = weak_rules(study, contest)
    contest["verdict"] = verdict_sentences(study, contest)
    return contest
