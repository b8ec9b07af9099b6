"""Figures of what things cost: latency, phases, meta-training."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from accerl.runtime.run import PHASES
from accerl.spec import CompressionSpec
from analysis.figures.theme import (
    RAMP,
    SUBJECT_COLOUR,
    Figure,
    compression_rank,
    strategy_colours,
)
from analysis.records.load import RunRecord
from analysis.report.formats import significant

META_TITLES = {
    "mean_return": "Outer return (normalised)",
    "mean_gain": "Gain over the baseline",
    "gain": "Normalised gain of the inner runs",
    "entropy": "Policy entropy (nats)",
    "entropy_nats": "Policy entropy (nats)",
}


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


def phase_bars(
    labelled: Mapping[str, RunRecord], subject: str | None = None, name: str = "phases"
) -> Figure:
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
    colour["scale"] = {"domain": runs, "range": palette}
    colour["legend"] = {"orient": "top", "columns": 4}
    return Figure(
        name=name,
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
        {"iteration": row["iteration"], "game": row.get("game", "all games")}
        | {"metric": key, "value": row[key]}
        for row in rows
        for key in shown
        if isinstance(row.get(key), int | float)
    ]
    games = list(dict.fromkeys(row["game"] for row in table))
    dash = {"field": "game", "type": "nominal", "sort": games}
    dash["legend"] = {"title": None, "orient": "top"} if len(games) > 1 else None
    panels = [
        {
            "width": 235,
            "height": 170,
            "transform": [{"filter": {"field": "metric", "equal": key}}],
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
                "strokeDash": dash,
            },
        }
        for key in shown
    ]
    return Figure(
        name="meta-training",
        title="Meta-training of the controller",
        caption="Means over the inner runs of an iteration; where games take turns, a line each.",
        spec={"hconcat": panels, "spacing": 20},
        table=table,
    )
