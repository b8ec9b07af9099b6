"""The machines of a study side by side: what acting costs on each, by its latency profile."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from accerl.spec import CompressionSpec
from analysis.figures.costs import infer_rows
from analysis.figures.theme import Figure, ramp
from analysis.records.load import StudyRecord
from analysis.report import formats
from analysis.report.tables import Cell, Table, number, object_tables, rows_table

SPECS = (
    CompressionSpec(),
    CompressionSpec(bits=8),
    CompressionSpec(student="net3", bits=8),
)
"""none, the paper's INT8, and the hardest that every profile lists"""
ONE, MANY = "one state at a time", "largest batch measured"
WIRING = {
    "env_step_us": "#Env step (µs)",
    "learner_us_per_sample": "#Learner (µs a sample)",
    "num_actors": "#Actors",
    "cores": "#Cores shared",
    "network_bytes_per_second": "#Network (MB/s)",
}
FREE = {"cores": "one each", "network_bytes_per_second": "no limit"}
"""what 0 means"""

COUNTS = ("num_actors", "cores")

Profiles = Mapping[str, Mapping[str, Any]]


def acting_costs(profile: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return microseconds a state by spec label and batch (ONE, MANY), of SPECS."""
    wanted = {(spec.student, spec.bits): spec.label for spec in SPECS}
    by_batch: dict[str, dict[int, float]] = {}
    for row in infer_rows(profile):
        spec = _spec(row["spec"])
        if spec is None or spec.sparsity or spec.rank != 1.0:
            continue
        label = wanted.get((spec.student, spec.bits))
        if label is not None:
            by_batch.setdefault(label, {})[int(row["batch"])] = float(row["us_per_state"])
    return {
        label: {ONE: costs[min(costs)], MANY: costs[max(costs)]}
        for label, costs in by_batch.items()
    }


def machine_figure(profiles: Profiles) -> Figure:
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


def machine_table(profiles: Profiles) -> Table:
    """A row a machine: what acting, emulating and learning cost there."""
    rows = []
    for name, profile in profiles.items():
        costs = acting_costs(profile)
        acting = [
            number(costs.get(spec.label, {}).get(batch)) for spec in SPECS for batch in (ONE, MANY)
        ]
        rows.append((Cell(name), *acting, *(_wiring_cell(key, profile.get(key)) for key in WIRING)))
    short = [spec.label.removeprefix("original ") for spec in SPECS]
    batches = [f"#{label}{end}" for label in short for end in ("", ", batch")]
    title = "Machines: acting in µs a state, one at a time and in the largest batch measured"
    return Table(title, ("Machine", *batches, *WIRING.values()), tuple(rows))


def limit_table(study: StudyRecord) -> Table:
    """Which instances each machine has, and what limits them."""
    found: dict[tuple[str, str], list[str]] = {}
    for game in study.games.values():
        found.setdefault((game.profile, game.limit), []).append(game.game or game.name)
    rows = tuple(
        (Cell(machine or formats.NOTHING), Cell(limit or formats.NOTHING), Cell(", ".join(games)))
        for (machine, limit), games in found.items()
    )
    return Table("What limits each machine", ("Machine", "Limited by", "Games"), rows)


def profile_tables(profiles: Profiles) -> list[Table]:
    """Everything that the profiles tell: a table of all their settings, then those of each."""
    if len(profiles) == 1:
        return object_tables(next(iter(profiles.values())))
    plain = [
        {"machine": name}
        | {key: value for key, value in profile.items() if not isinstance(value, list | Mapping)}
        for name, profile in profiles.items()
    ]
    return [rows_table("Settings of the latency profiles", plain)] + [
        replace(table, title=f"{name}: {table.title}")
        for name, profile in profiles.items()
        for table in object_tables(profile)
        if table.columns != ("Name", "Value")
    ]


def _wiring_cell(key: str, value: float | None) -> Cell:
    if value is None:
        return Cell(formats.NOTHING)
    if not value and key in FREE:
        return Cell(FREE[key], value)
    if key == "network_bytes_per_second":
        value /= 1e6
    return number(value, formats.plain(value) if key in COUNTS else None)


def _spec(value: Any) -> CompressionSpec | None:
    """A spec however the profile spells it; None for a name of the user's own."""
    if isinstance(value, str):
        if not value.lstrip().startswith("{"):
            return None
        value = json.loads(value)
    return CompressionSpec.from_json(value)
