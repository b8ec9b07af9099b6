"""Figures of single runs side by side: learning curves, indicators and speed over the run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import altair as alt

from accerl.runtime.run import IntervalReport
from analysis.comparison.scores import EPISODES, is_measured, score_curve
from analysis.figures.parts import (
    COUNT_AXIS,
    PLAIN_NUMBERS,
    lines_by,
    make_figure,
    marks,
    panel_layout,
    panels,
    values_of,
)
from analysis.figures.theme import Figure, strategy_colours, strategy_dashes
from analysis.records.load import RunRecord


def _mean_episode(report: IntervalReport) -> float:
    returns = report.episode_returns
    return sum(returns) / len(returns) if returns else math.nan


INDICATORS: Mapping[str, Callable[[IntervalReport], float]] = {
    "Episodic return, compressed actors": _mean_episode,
    "KL of the actors to the learner, mean (nats)": lambda report: report.kl_mean_nats,
    "KL of compression alone, same weights (nats)": lambda report: report.indicators.get(
        "compression_kl_nats", math.nan
    ),
    "KL of staleness alone (nats)": lambda report: report.indicators.get(
        "staleness_kl_nats", math.nan
    ),
    "Actors and learner find the same action best": lambda report: report.losses.get(
        "argmax_agreement", math.nan
    ),
    "Effective sample size of the importance weights": lambda report: report.losses.get(
        "ess_fraction", math.nan
    ),
    "Share of the ratios that are clipped": lambda report: report.losses.get(
        "clipped_share", math.nan
    ),
    "Training stage (0 exploration, 1 improving, 2 convergence)": lambda report: (
        report.indicators.get("stage", math.nan)
    ),
    "Entropy of the learner (nats)": lambda report: report.entropy_nats,
    "Env steps per second": lambda report: report.env_steps / max(report.seconds, 1e-9),
    "Policy lag (learner updates)": lambda report: report.policy_lag,
    "Queue fill": lambda report: report.queue_fill,
    "Sent to each actor (MB per second)": lambda report: (
        report.publication_bytes / 1e6 / max(report.seconds, 1e-9)
    ),
    "Resident memory of the learner (MB)": lambda report: (
        report.rss_bytes.get("learner", math.nan) / 1e6
    ),
}


def run_curves(labelled: Mapping[str, RunRecord], axis: str) -> Figure:
    """Scores of every run over `axis` ("seconds" or "env_steps"), one panel an environment."""
    table = [
        {"panel": run.env, "run": label, "value": point.score}
        | {"x": point.seconds if axis == "seconds" else point.env_steps}
        for label, run in labelled.items()
        for point in score_curve(run)
    ]
    title = "Seconds" if axis == "seconds" else "Environment steps"
    captions = {
        True: "Return of the learner's full-precision policy, measured off the clock.",
        False: f"Mean raw score of the last {EPISODES} episodes, acted by the compressed policy.",
    }
    kinds = sorted({is_measured(run) for run in labelled.values()}, reverse=True)
    return make_figure(
        f"curves-{axis.replace('_', '-')}",
        f"Learning curves over {title.lower()}",
        " Elsewhere: ".join(captions[kind] for kind in kinds),
        _panels(labelled, table, title, "Game score"),
        table,
    )


def run_indicators(labelled: Mapping[str, RunRecord]) -> Figure:
    """What the monitor measured over seconds, one panel an indicator."""
    table = [
        {"panel": name, "run": label, "x": report.total_seconds, "value": value}
        for name, read in INDICATORS.items()
        for label, run in labelled.items()
        for report in run.reports
        if math.isfinite(value := float(read(report)))
    ]
    return make_figure(
        "indicators",
        "Indicators over the run",
        "One point an interval.",
        _panels(labelled, table, "Seconds", None),
        table,
    )


def _panels(
    labelled: Mapping[str, RunRecord],
    table: Sequence[Mapping[str, Any]],
    x_title: str,
    y_title: str | None,
) -> alt.FacetChart:
    order = values_of(table, "panel")
    colours, dashes = strategy_colours(list(labelled)), strategy_dashes(list(labelled))
    columns, width = panel_layout(len(order))
    x = alt.X("x:Q").title(x_title).axis(**COUNT_AXIS)
    y = alt.Y("value:Q").title(y_title).scale(zero=False, nice=False).axis(**PLAIN_NUMBERS)
    lines = lines_by("run", colours, list(dashes.values()), columns=3)
    chart = marks().mark_line(strokeWidth=1.9).encode(x=x, y=y, **lines)
    return panels(chart.properties(width=width, height=190), "panel", order, columns)
