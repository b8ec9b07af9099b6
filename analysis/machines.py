"""The machines of a study side by side: what acting costs on each, by its latency profile."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from accerl.spec import CompressionSpec
from analysis import formats
from analysis.figures_costs import infer_rows
from analysis.load import StudyRecord
from analysis.tables import Cell, Table, number
from analysis.theme import Figure, ramp

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


def machine_table(study: StudyRecord, profiles: Profiles) -> Table:
    """A row a machine: what acting, emulating and learning cost, and what limits its instances."""
    limits: dict[str, list[str]] = {}
    for game in study.games.values():
        told = f"{game.game or game.name}: {game.limit}" if game.limit else game.game or game.name
        limits.setdefault(game.profile, []).append(told)
    rows = []
    for name in dict.fromkeys([*profiles, *(name for name in limits if name)]):
        profile = profiles.get(name, {})
        costs = acting_costs(profile)
        acting = [
            number(costs.get(spec.label, {}).get(batch)) for spec in SPECS for batch in (ONE, MANY)
        ]
        wiring = [_wiring_cell(key, profile.get(key)) for key in WIRING]
        rows.append((Cell(name), *acting, *wiring, Cell("; ".join(limits.get(name, ["none"])))))
    batches = [f"#{spec.label} (µs{end})" for spec in SPECS for end in ("", ", batch")]
    columns = ("Machine", *batches, *WIRING.values(), "Instances, and what limits them")
    return Table(
        "Machines: µs a state, one at a time and in the largest batch", columns, tuple(rows)
    )


def _wiring_cell(key: str, value: float | None) -> Cell:
    if value is None:
        return Cell(formats.NOTHING)
    if not value and key in FREE:
        return Cell(FREE[key], value)
    return number(value / 1e6 if key == "network_bytes_per_second" else value)


def _spec(value: Any) -> CompressionSpec | None:
    """A spec however the profile spells it; None for a name of the user's own."""
    if isinstance(value, str):
        if not value.lstrip().startswith("{"):
            return None
        value = json.loads(value)
    return CompressionSpec.from_json(value)
