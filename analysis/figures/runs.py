"""Figures of single runs side by side: learning curves, indicators and speed over the run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from textwrap import wrap
from typing import Any

import altair as alt

from accerl.runtime.run import IntervalReport
from analysis.comparison.scores import EPISODES, is_measured, score_curve
from analysis.figures.parts import (
    COUNT_AXIS,
    PLAIN_NUMBERS,
    few_points,
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


def _loss(name: str) -> Callable[[IntervalReport], float]:
    return lambda report: report.losses.get(name, math.nan)


def _indicator(name: str) -> Callable[[IntervalReport], float]:
    return lambda report: report.indicators.get(name, math.nan)


def _compression_kl(report: IntervalReport) -> float:
    """NaN where the indicator is what was known before; an exact copy is off by rounding alone."""
    known = report.indicators
    if not known.get("compression_kl_is_new", 1.0):
        return math.nan
    kl_nats = known.get("compression_kl_nats", math.nan)
    return 0.0 if abs(kl_nats) < ROUNDING_NATS else kl_nats


def _staleness_kl(report: IntervalReport) -> float:
    """What was sampled in the interval itself: the indicator keeps it until the next sample."""
    return math.nan if report.staleness_kl_nats is None else report.staleness_kl_nats


OWN: Mapping[str, Any] = {"zero": False, "nice": False}
"""scale of what zero says nothing about"""
FROM_ZERO: Mapping[str, Any] = {"zero": True, "nice": True}
"""scale of amounts: from elsewhere, noise would look like growth"""
SHARE: Mapping[str, Any] = {"domain": [0, 1]}
INDICATORS: Mapping[str, tuple[Callable[[IntervalReport], float], Mapping[str, Any]]] = {
    "Episodic return, actors": (_mean_episode, OWN),
    "KL of the actors to the learner, mean (nats)": (
        lambda report: report.kl_mean_nats,
        FROM_ZERO,
    ),
    "KL of compression alone, same weights (nats)": (_compression_kl, FROM_ZERO),
    "KL of staleness alone (nats)": (_staleness_kl, FROM_ZERO),
    "Actors and learner find the same action best": (_loss("argmax_agreement"), SHARE),
    "Effective sample size of the importance weights": (_loss("ess_fraction"), SHARE),
    "Share of the ratios that are clipped": (_loss("clipped_share"), SHARE),
    "Training stage (0 exploration, 1 improving, 2 convergence)": (
        _indicator("stage"),
        {"domain": [0, 2]},
    ),
    "Entropy of the learner (nats)": (lambda report: report.entropy_nats, FROM_ZERO),
    "Env steps per second": (
        lambda report: report.env_steps / max(report.seconds, 1e-9),
        FROM_ZERO,
    ),
    "Policy lag (learner updates)": (lambda report: report.policy_lag, FROM_ZERO),
    "Queue fill": (lambda report: report.queue_fill, SHARE),
    "Sent to each actor (MB per second)": (
        lambda report: report.publication_bytes / 1e6 / max(report.seconds, 1e-9),
        FROM_ZERO,
    ),
    "Resident memory of the learner (MB)": (
        lambda report: report.rss_bytes.get("learner", math.nan) / 1e6,
        FROM_ZERO,
    ),
}
"""what is read of an interval, and on what scale, by the title of its panel"""
ROUNDING_NATS = 1e-9
LETTER = 7
"""px that a letter of a panel's title takes, about"""


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
    order = values_of(table, "panel")
    columns, width = panel_layout(len(order))
    chart = _lines(labelled, labelled, marks(), title, OWN, "Game score")
    return make_figure(
        f"curves-{axis.replace('_', '-')}",
        f"Learning curves over {title.lower()}",
        " Elsewhere: ".join(captions[kind] for kind in kinds),
        panels(chart.properties(width=width, height=190), "panel", order, columns),
        table,
    )


def run_indicators(labelled: Mapping[str, RunRecord]) -> list[Figure]:
    """What the monitor measured over seconds: a figure a game, in it one panel an indicator.

    Games differ in scale: on a common axis the one would be a line at the bottom of the other's.
    """
    games = list(dict.fromkeys(run.env for run in labelled.values()))
    return [
        _indicators(labelled, game, f": {game}" * (len(games) > 1), f"-{place}" * (place > 1))
        for place, game in enumerate(games, start=1)
    ]


def _indicators(labelled: Mapping[str, RunRecord], game: str, what: str, suffix: str) -> Figure:
    shown = {label: run for label, run in labelled.items() if run.env == game}
    table = [
        {"panel": name, "run": label, "x": report.total_seconds, "value": value}
        for name, (read, _) in INDICATORS.items()
        for label, run in shown.items()
        for report in run.reports
        if math.isfinite(value := float(read(report)))
    ]
    names = values_of(table, "panel")
    columns, width = panel_layout(len(names))
    charts = []
    for name in names:
        is_flat = not any(row["value"] for row in table if row["panel"] == name)
        scale = SHARE if is_flat else INDICATORS[name][1]  # an axis needs more than one value
        title = alt.TitleParams(wrap(name, width // LETTER), fontSize=12, frame="group")
        lines = _lines(labelled, shown, marks("panel", name), "Seconds", scale, None)
        charts.append(lines.properties(width=width, height=190, title=title))
    return make_figure(
        f"indicators{suffix}",
        f"Indicators over the run{what}",
        "One point an interval in which it was measured.",
        alt.concat(*charts, columns=columns, data=marks().data),
        table,
    )


def _lines(
    labelled: Mapping[str, RunRecord],
    shown: Iterable[str],
    rows: alt.Chart,
    x_title: str,
    scale: Mapping[str, Any],
    y_title: str | None,
) -> Any:
    """Return the lines of the runs in `shown`, which look alike in all figures of `labelled`."""
    colours, dashes = strategy_colours(list(labelled)), strategy_dashes(list(labelled))
    x = alt.X("x:Q").title(x_title).axis(**COUNT_AXIS)
    y = alt.Y("value:Q").title(y_title).scale(**scale).axis(tickCount=5, **PLAIN_NUMBERS)
    looks = lines_by(
        "run", {label: colours[label] for label in shown}, [dashes[label] for label in shown], 2
    )
    return alt.layer(
        rows.mark_line(strokeWidth=1.9).encode(x=x, y=y, **looks),
        few_points(rows, 22, "panel", "run").encode(x=x, y=y, color=looks["color"]),
    )
