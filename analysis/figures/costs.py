"""Figures of what things cost: latency, phases, meta-training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from accerl.runtime.run import PHASES
from accerl.spec import CompressionSpec
from analysis.figures.theme import (
    RAMP,
    SUBJECT_COLOUR,
    Figure,
    compression_rank,
    ramp,
    strategy_colours,
)
from analysis.formats import significant
from analysis.records.load import RunRecord

META_TITLES = {
    "gain": "Normalised gain of the inner runs",
    "entropy_nats": "Policy entropy (nats)",
}
SPECS = (
    CompressionSpec(),
    CompressionSpec(bits=8),
    CompressionSpec(student="net3", bits=8),
)
"""none, the paper's INT8, and the hardest that every profile lists"""
ONE, MANY = "one state at a time", "largest batch measured"


def infer_rows(profile: Mapping[str, Any]) -> list[tuple[CompressionSpec, int, float]]:
    """Return (spec, batch, microseconds a state) of everything that a latency profile holds."""
    return [
        (CompressionSpec.from_json(row["spec"]), int(batch), float(us))
        for row in profile["specs"]
        for batch, us in row["infer_us"].items()
    ]


def acting_costs(profile: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return microseconds a state by spec label and batch (ONE, MANY), of SPECS."""
    by_batch: dict[str, dict[int, float]] = {}
    for spec, batch, us in infer_rows(profile):
        if spec in SPECS:
            by_batch.setdefault(spec.label, {})[batch] = us
    return {
        label: {ONE: costs[min(costs)], MANY: costs[max(costs)]}
        for label, costs in by_batch.items()
    }


def machine_figure(profiles: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Microseconds a state on every machine, for no compression, INT8 and the smallest network."""
    table = [
        {"machine": name, "spec": label, "batch": batch, "us": us}
        for name, profile in profiles.items()
        for label, costs in acting_costs(profile).items()
        for batch, us in costs.items()
    ]
    labels = [spec.label for spec in SPECS]
    y: dict[str, Any] = {"field": "machine", "type": "nominal", "sort": list(profiles)}
    y |= {"title": None, "axis": {"labelLimit": 220, "grid": True, "ticks": False}}
    x: dict[str, Any] = {"field": "us", "type": "quantitative", "title": "µs a state (log)"}
    x |= {"scale": {"type": "log", "nice": False, "padding": 12}}
    x["axis"] = {"format": "~s", "tickCount": 4, "grid": False}
    colour: dict[str, Any] = {"field": "spec", "type": "nominal", "title": None}
    shape = {**colour, "scale": {"domain": labels, "range": ["circle", "square", "diamond"]}}
    colour["scale"] = {"domain": labels, "range": ramp(4)[:3]}
    legend = {"orient": "top", "symbolSize": 80}
    ends = {"x": {**x, "aggregate": "min"}, "x2": {"field": "us", "aggregate": "max"}, "y": y}
    point = {"type": "point", "filled": True, "size": 80, "opacity": 1}
    return Figure(
        name="machines",
        title="Acting latency on every machine",
        caption="What the clock charges the actors for one state, without compression, in INT8 and "
        "with the smallest network in INT8. The longer a line, the more compression saves there.",
        spec={
            "facet": {"field": "batch", "type": "nominal", "title": None, "sort": [ONE, MANY]},
            "columns": 2,
            "spec": {
                "width": 330,
                "height": {"step": 28},
                "layer": [
                    {
                        "mark": {"type": "rule", "strokeWidth": 1.5, "opacity": 0.5},
                        "encoding": ends,
                    },
                    {
                        "mark": point,
                        "encoding": {
                            "x": x,
                            "y": y,
                            "color": {**colour, "legend": legend},
                            "shape": {**shape, "legend": legend},
                        },
                    },
                ],
            },
        },
        table=table,
    )


def latency_bars(profile: Mapping[str, Any]) -> Figure:
    """Microseconds a state of acting, by spec, one panel a batch size."""
    infer = sorted(infer_rows(profile), key=lambda row: compression_rank(row[0]))
    table = [
        {"spec": spec.label, "batch": f"batch {batch}", "us": us, "text": significant(us)}
        for spec, batch, us in infer
    ]
    order = list(dict.fromkeys(row["spec"] for row in table))
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
