"""Figures of what things cost: latency, phases, meta-training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from accerl.runtime.run import PHASES
from accerl.spec import CompressionSpec
from analysis.figures.parts import make_figure, marks, panels, points, rows_axis, values_of
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
    "gain": "Reward (log gain over fp32)",
    "spread": "Its spread within instances",
}
SPECS = (CompressionSpec(), CompressionSpec(bits=8), CompressionSpec(student="net3", bits=8))
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
    """Return microseconds a state by spec label and batch (ONE, MANY) of SPECS, as measured.

    Where single states alone were measured there is no MANY.
    """
    by_batch: dict[str, dict[int, float]] = {}
    for spec, batch, us in infer_rows(profile):
        if spec in SPECS:
            by_batch.setdefault(spec.label, {})[batch] = us
    return {
        label: {
            name: costs[batch]
            for name, batch in ((ONE, 1), (MANY, max(costs)))
            if batch in costs and (name == ONE or batch > 1)
        }
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
    x = alt.X("us:Q").title("µs a state (log)").axis(format="~s", tickCount=4, grid=False)
    shape = alt.Shape("spec:N").scale(domain=labels, range=["circle", "square", "diamond"])
    colour = alt.Color("spec:N").scale(domain=labels, range=ramp(4)[:3])
    points_by_spec = points(80).encode(
        x=x.scale(type="log", nice=False, padding=12),
        color=colour.legend(symbolSize=80),
        shape=shape.legend(symbolSize=80),
    )
    rule = marks().mark_rule(strokeWidth=1.5, opacity=0.5)
    layers = alt.layer(rule.encode(x="min(us):Q", x2="max(us):Q"), points_by_spec)
    layers = layers.encode(y=rows_axis("machine", list(profiles), grid=True))
    chart = layers.properties(width=330, height=alt.Step(28))
    return make_figure(
        "machines",
        "Acting latency on every machine",
        "What the clock charges the actors for one state, without compression, in INT8 and "
        "with the smallest network in INT8. The longer a line, the more compression saves there. "
        "Machines of which single states alone are known are left out on the right.",
        panels(chart, "batch", [ONE, MANY], 2, independent=()),
        table,
    )


def latency_bars(profile: Mapping[str, Any]) -> Figure:
    """Microseconds a state of acting, by spec, one panel a batch size."""
    infer = sorted(infer_rows(profile), key=lambda row: compression_rank(row[0]))
    table = [
        {"spec": spec.label, "batch": f"batch {batch}", "us": us, "text": significant(us)}
        for spec, batch, us in infer
    ]
    batches = [f"batch {number}" for number in sorted({batch for _, batch, _ in infer})]
    x = alt.X("us:Q").title("µs a state").axis(tickCount=4, format=",~f")
    bars = _with_values(marks().mark_bar(color=RAMP[2], height={"band": 0.7}))
    bars = bars.encode(x=x, y=rows_axis("spec", values_of(table, "spec")))
    width = {1: 600, 2: 300, 3: 190}.get(len(batches), 140)
    chart = bars.properties(width=width, height=alt.Step(17))
    return make_figure(
        "latency",
        "Acting latency of each variant",
        "What the clock charges the actors for one state. Top: none, bottom: hardest.",
        panels(chart, "batch", batches, len(batches), independent=("x",)),
        table,
    )


def _with_values(bars: alt.Chart) -> Any:
    """Return bars with their values, which the column `text` holds, at their ends."""
    text = marks().mark_text(align="left", dx=4, fontSize=10)
    return alt.layer(bars, text.encode(text="text:N"))


def phase_bars(
    labelled: Mapping[str, RunRecord], subject: str | None = None, name: str = "phases"
) -> Figure:
    """Microseconds an env step, by phase and run: where the seconds go."""
    table: list[dict[str, Any]] = []
    acted = {label: run for label, run in labelled.items() if run.summary.get("env_steps")}
    for label, run in acted.items():
        steps = float(run.summary["env_steps"])
        phases = run.summary.get("phases") or {}
        for phase in [*PHASES, *(name for name in phases if name not in PHASES)]:
            us = 1e6 * float(phases.get(phase, 0.0)) / steps
            table.append({"run": label, "phase": phase, "us": us, "text": significant(us)})
    runs = list(acted)
    colour = alt.Color("run:N", sort=runs).legend(columns=4)
    coloured = strategy_colours(list(labelled), subject)
    colours = [coloured[label] for label in runs]
    bars = marks().mark_bar().encode(color=colour.scale(domain=runs, range=colours))
    layers = _with_values(bars).encode(
        x=alt.X("us:Q").title("µs per environment step"),
        y=rows_axis("phase", values_of(table, "phase")),
        yOffset=alt.YOffset("run:N", sort=runs),
    )
    return make_figure(
        name,
        "Where the seconds go",
        "Time of each phase divided by the run's env steps; wait is the learner without work. env, "
        "infer and write add up over actors, which overlap with learn and wait."
        + (" Runs without env steps are left out." if len(acted) < len(labelled) else ""),
        layers.properties(width=760, height=alt.Step(13)),
        table,
    )


def meta_training_curves(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Reward and its spread over the iterations of meta-training, one panel each."""
    table = [
        {"iteration": row["iteration"], "game": row["game"], "metric": key, "value": row[key]}
        for row in rows
        for key in META_TITLES
    ]
    games = values_of(table, "game")
    game = alt.StrokeDash("game:N", sort=games)
    point = {"size": 30, "filled": True, "color": SUBJECT_COLOUR}
    found = [
        marks("metric", key)
        .mark_line(color=SUBJECT_COLOUR, point=point)
        .encode(
            x=alt.X("iteration:Q").title("Iteration").axis(tickMinStep=1, grid=False),
            y=alt.Y("value:Q").title(title).scale(zero=False),
            strokeDash=game if len(games) > 1 else game.legend(None),
        )
        .properties(width=235, height=170)
        for key, title in META_TITLES.items()
    ]
    return make_figure(
        "meta-training",
        "Meta-training of the controller",
        "Means over the episodes of an iteration. Drawn games are analytic, others are learned for "
        "real; where games take turns, a line each.",
        alt.hconcat(*found, spacing=20, data=marks().data),
        table,
    )
