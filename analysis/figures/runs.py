"""Figures of single runs side by side: learning curves, indicators and speed over the run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from accerl.runtime.run import IntervalReport
from analysis.comparison.scores import EPISODES, is_measured, score_curve
from analysis.figures.learning_curves import COUNT_AXIS, PLAIN_NUMBERS, facet, panel_layout
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
    return Figure(
        name=f"curves-{axis.replace('_', '-')}",
        title=f"Learning curves over {title.lower()}",
        caption=" Elsewhere: ".join(captions[kind] for kind in kinds),
        spec=_panels(labelled, table, title, "Game score"),
        table=table,
    )


def run_indicators(labelled: Mapping[str, RunRecord]) -> Figure:
    """What the monitor saw over seconds, one panel an indicator."""
    table = [
        {"panel": name, "run": label, "x": report.total_seconds, "value": value}
        for name, read in INDICATORS.items()
        for label, run in labelled.items()
        for report in run.reports
        if math.isfinite(value := float(read(report)))
    ]
    return Figure(
        name="indicators",
        title="Indicators over the run",
        caption="One point an interval.",
        spec=_panels(labelled, table, "Seconds", None),
        table=table,
    )


def _panels(
    labelled: Mapping[str, RunRecord],
    table: Sequence[Mapping[str, Any]],
    x_title: str,
    y_title: str | None,
) -> dict[str, Any]:
    names = list(labelled)
    panels = list(dict.fromkeys(str(row["panel"]) for row in table))
    colours, dashes = strategy_colours(names), strategy_dashes(names)
    legend = {"orient": "top", "columns": 3, "title": None, "symbolType": "stroke"}
    colour = {
        "field": "run",
        "type": "nominal",
        "scale": {"domain": names, "range": [colours[name] for name in names]},
        "legend": legend if len(names) > 1 else None,
    }
    dash = {**colour, "scale": {"domain": names, "range": [dashes[name] for name in names]}}
    columns, width = panel_layout(len(panels))
    inner = {
        "width": width,
        "height": 190,
        "mark": {"type": "line", "strokeWidth": 1.9},
        "encoding": {
            "x": {"field": "x", "type": "quantitative", "title": x_title, "axis": COUNT_AXIS},
            "y": {"field": "value", "type": "quantitative", "title": y_title}
            | {"scale": {"zero": False, "nice": False}, "axis": PLAIN_NUMBERS},
            "color": colour,
            "strokeDash": dash,
        },
    }
    return facet("panel", panels, inner, columns)
