"""Figures of what was chosen and what it costs: schedules, latency, phases, meta-training."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from accerl.runtime.run import PHASES, IntervalReport
from accerl.spec import CompressionSpec
from analysis.formats import significant
from analysis.load import RunRecord, StudyRecord
from analysis.theme import (
    OTHER_COLOUR,
    RAMP,
    SUBJECT_COLOUR,
    Figure,
    compression_rank,
    ramp,
    strategy_colours,
)

OTHER = "other specs"
META_TITLES = {
    "mean_return": "Outer return (normalised)",
    "mean_gain": "Gain over the baseline",
    "gain": "Normalised gain of the inner runs",
    "entropy": "Policy entropy (nats)",
}
ALL_RUNS = "each run over its own length"


def study_strips(study: StudyRecord) -> Figure:
    """Which specs acted when: share of actor seconds, a row a strategy, a column a game."""
    groups = {
        (study.labels[strategy.name], _column(game.name, game.horizon_seconds)): (
            [
                run
                for (name, env, _), run in study.runs.items()
                if name == strategy.name and env == game.name
            ],
            game.interval_seconds,
            game.horizon_seconds,
        )
        for strategy in study.strategies
        for game in study.games.values()
    }
    rows = [study.labels[item.name] for item in study.strategies]
    columns = [_column(game.name, game.horizon_seconds) for game in study.games.values()]
    return _strips(groups, rows, columns, "mean over test seeds")


def run_strips(labelled: Mapping[str, RunRecord]) -> Figure:
    """Which specs acted when, one row a run."""
    groups = {}
    for label, run in labelled.items():
        longest = max(report.seconds for report in run.reports)
        groups[label, ALL_RUNS] = ([run], longest, run.reports[-1].total_seconds)
    return _strips(groups, list(labelled), [ALL_RUNS], "one row a run")


def _column(game: str, horizon_seconds: float) -> str:
    return f"{game} ({horizon_seconds:g} s)"


def _strips(
    groups: Mapping[tuple[str, str], tuple[Sequence[RunRecord], float, float]],
    rows: Sequence[str],
    columns: Sequence[str],
    what: str,
) -> Figure:
    shares = {
        key: _shares(runs, interval, horizon) for key, (runs, interval, horizon) in groups.items()
    }
    specs = _specs_by_label(run for runs, _, _ in groups.values() for run in runs)
    order = _shown_specs(shares.values(), specs)
    table: list[dict[str, Any]] = []
    for (row, column), bins in shares.items():
        _, interval, horizon = groups[row, column]
        percent = 100.0 * interval / horizon
        for index, share in bins.items():
            table += _stack(row, column, index * percent, percent, share, order)
    colours = ramp(len([label for label in order if label != OTHER]))
    colours += [OTHER_COLOUR] * (OTHER in order)
    width = {1: 620, 2: 330, 3: 220}.get(len(columns), max(560 // len(columns), 90))
    time = {"type": "quantitative", "title": "Time (% of the run)"}
    time |= {"axis": {"values": [0, 25, 50, 75, 100], "grid": False}}
    spec = {
        "width": width,
        "height": 30,
        "mark": {"type": "rect"},
        "encoding": {
            "row": {
                "field": "row",
                "type": "nominal",
                "sort": list(rows),
                "title": None,
                "header": {"labelAngle": 0, "labelAlign": "left", "labelFontWeight": "normal"},
                "spacing": 8,
            },
            "column": {"field": "column", "type": "nominal", "sort": list(columns), "title": None},
            "x": {"field": "start", "scale": {"domain": [0, 100], "nice": False}, **time},
            "x2": {"field": "end"},
            "y": {
                "field": "low",
                "type": "quantitative",
                "axis": None,
                "scale": {"domain": [0, 1]},
            },
            "y2": {"field": "high"},
            "color": {
                "field": "spec",
                "type": "nominal",
                "scale": {"domain": order, "range": colours},
                "legend": {"title": "Spec, light = hard", "orient": "bottom", "columns": 3},
            },
        },
    }
    return Figure(
        name="strips",
        title="Which compression acted when",
        caption=f"Share of actor seconds by spec over the run, {what}. Full height is 100%.",
        spec=spec,
        table=table,
    )


def _shares(
    runs: Sequence[RunRecord], interval_seconds: float, horizon_seconds: float
) -> dict[int, dict[str, float]]:
    """Share of actor seconds by label and interval index, over runs."""
    seconds: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    last = max(int(horizon_seconds / interval_seconds - 0.5), 0)
    for run in runs:
        for report in run.reports:
            middle = report.total_seconds - report.seconds / 2.0
            bin_ = min(int(middle / interval_seconds), last)
            for label, value in _label_seconds(report).items():
                seconds[bin_][label] += value
    return {
        index: {label: value / total for label, value in found.items()}
        for index, found in sorted(seconds.items())
        if (total := sum(found.values())) > 0.0
    }


def _label_seconds(report: IntervalReport) -> Mapping[str, float]:
    if any(report.spec_seconds.values()):
        return report.spec_seconds
    # An interval in which no rollout began: what was asked for is the best account there is.
    return {spec.label: share * report.seconds for spec, share in report.decision.mix}


def _specs_by_label(runs: Iterable[RunRecord]) -> dict[str, CompressionSpec]:
    return {
        spec.label: spec for run in runs for report in run.reports for spec in report.decision.specs
    }


def _shown_specs(
    shares: Iterable[Mapping[int, Mapping[str, float]]], specs: Mapping[str, CompressionSpec]
) -> list[str]:
    """The most used labels, from no compression to the hardest; the rest become OTHER."""
    totals: dict[str, float] = defaultdict(float)
    for bins in shares:
        for share in bins.values():
            for label, value in share.items():
                totals[label] += value
    most_used = sorted(totals, key=lambda label: -totals[label])
    shown = [label for label in most_used[: len(RAMP)] if label in specs]
    shown.sort(key=lambda label: compression_rank(specs[label]))
    return shown + [OTHER] * (len(totals) > len(shown))


def _stack(
    row: str,
    column: str,
    start: float,
    length: float,
    share: Mapping[str, float],
    order: Sequence[str],
) -> list[dict[str, Any]]:
    merged: dict[str, float] = defaultdict(float)
    for label, value in share.items():
        merged[label if label in order else OTHER] += value
    result, low = [], 0.0
    for label in order:
        if merged[label] > 0.0:
            high = low + merged[label]
            result.append(
                {"row": row, "column": column, "start": round(start, 4)}
                | {"end": round(min(start + length, 100.0), 4), "spec": label}
                | {"low": round(low, 4), "high": round(high, 4)}
            )
            low = high
    return result


def spec_label(value: Any) -> str:
    """Return the label of a spec given as a JSON object, a JSON text or already a label."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = json.loads(value)
    return CompressionSpec.from_json(value).label if isinstance(value, Mapping) else str(value)


def infer_rows(profile: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return [{spec, batch, us_per_state}] of a latency profile, whichever way it nests them."""
    if profile.get("infer"):
        return list(profile["infer"])
    return [
        {"spec": row["spec"], "batch": int(batch), "us_per_state": us}
        for row in profile.get("specs") or ()
        for batch, us in row.get("infer_us", {}).items()
    ]


def latency_bars(infer: Sequence[Mapping[str, Any]]) -> Figure:
    """Microseconds a state of acting, by spec, one panel a batch size."""
    table = [
        {
            "spec": spec_label(row["spec"]),
            "batch": f"batch {row['batch']}",
            "us": float(row["us_per_state"]),
            "text": significant(float(row["us_per_state"])),
        }
        for row in infer
    ]
    objects = {
        spec_label(row["spec"]): CompressionSpec.from_json(row["spec"])
        for row in infer
        if isinstance(row["spec"], Mapping)
    }
    order = list(dict.fromkeys(row["spec"] for row in table))
    if len(objects) == len(order):
        order.sort(key=lambda label: compression_rank(objects[label]))
    batches = list(dict.fromkeys(row["batch"] for row in table))
    batches.sort(key=lambda name: float(name.split()[1]))
    y: dict[str, Any] = {"field": "spec", "type": "nominal", "sort": order, "title": None}
    y["axis"] = {"labelLimit": 220, "ticks": False}
    x: dict[str, Any] = {"field": "us", "type": "quantitative", "title": "µs a state"}
    x["axis"] = {"tickCount": 4, "format": ",~f"}
    inner = {
        "width": {1: 600, 2: 300, 3: 190}.get(len(batches), 140),
        "height": {"step": 17},
        "layer": [
            {
                "mark": {"type": "bar", "color": RAMP[2], "height": {"band": 0.7}},
                "encoding": {"x": x, "y": y},
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 4, "fontSize": 10},
                "encoding": {"x": x, "y": y, "text": {"field": "text"}},
            },
        ],
    }
    return Figure(
        name="latency",
        title="Acting latency of each variant",
        caption="What the clock charges the actors for one state. Top: none, bottom: hardest.",
        spec={
            "facet": {
                "column": {"field": "batch", "type": "nominal", "sort": batches, "title": None}
            },
            "spec": inner,
            "resolve": {"scale": {"x": "independent"}},
        },
        table=table,
    )


def phase_bars(labelled: Mapping[str, RunRecord], subject: str | None = None) -> Figure:
    """Busy microseconds an env step, by phase and run: where the seconds go."""
    table: list[dict[str, Any]] = []
    for label, run in labelled.items():
        steps = max(float(run.summary.get("env_steps") or 0.0), 1.0)
        phases = run.summary.get("phases") or {}
        for phase in [*PHASES, *(name for name in phases if name not in PHASES)]:
            us = 1e6 * float(phases.get(phase, 0.0)) / steps
            table.append({"run": label, "phase": phase, "us": us, "text": significant(us)})
    runs = list(labelled)
    palette = list(strategy_colours(runs, subject).values())
    y: dict[str, Any] = {
        "field": "phase",
        "type": "nominal",
        "title": None,
        "axis": {"ticks": False},
    }
    y["sort"] = list(dict.fromkeys(row["phase"] for row in table))
    offset = {"field": "run", "type": "nominal", "sort": runs}
    x: dict[str, Any] = {
        "field": "us",
        "type": "quantitative",
        "title": "Busy µs per environment step",
    }
    colour = {"field": "run", "type": "nominal", "sort": runs, "title": None}
    colour |= {"scale": {"domain": runs, "range": palette}, "legend": {"orient": "top"}}
    return Figure(
        name="phases",
        title="Where the seconds go",
        caption=(
            "Busy time of each phase divided by the run's env steps. env, infer and write add up "
            "over actors, which overlap with learn and wait."
        ),
        spec={
            "width": 760,
            "height": {"step": 13},
            "layer": [
                {
                    "mark": {"type": "bar"},
                    "encoding": {"x": x, "y": y, "yOffset": offset, "color": colour},
                },
                {
                    "mark": {"type": "text", "align": "left", "dx": 4, "fontSize": 10},
                    "encoding": {"x": x, "y": y, "yOffset": offset, "text": {"field": "text"}},
                },
            ],
        },
        table=table,
    )


def meta_training_curves(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """What meta-training improved, one panel a recorded number, over iterations."""
    numeric = list(
        dict.fromkeys(key for r in rows for key, v in r.items() if isinstance(v, int | float))
    )
    shown = [key for key in META_TITLES if key in numeric]
    shown = shown or [key for key in numeric if key not in ("iteration", "inner_runs")][:3]
    table = [
        {"iteration": row["iteration"], "metric": key, "value": row[key]}
        for row in rows
        for key in shown
        if isinstance(row.get(key), int | float)
    ]
    panels = [
        {
            "width": 235,
            "height": 170,
            "transform": [{"filter": f"datum.metric === '{key}'"}],
            "mark": {
                "type": "line",
                "point": {"size": 30, "filled": True, "color": SUBJECT_COLOUR},
                "color": SUBJECT_COLOUR,
            },
            "encoding": {
                "x": {"field": "iteration", "type": "quantitative", "title": "Iteration"}
                | {"axis": {"tickMinStep": 1, "grid": False}},
                "y": {"field": "value", "type": "quantitative", "title": META_TITLES.get(key, key)}
                | {"scale": {"zero": False}},
            },
        }
        for key in shown
    ]
    return Figure(
        name="meta-training",
        title="Meta-training of the controller",
        caption="Means over the inner runs of an iteration.",
        spec={"hconcat": panels, "spacing": 20},
        table=table,
    )
