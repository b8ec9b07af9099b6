"""Figures of benchmarks: which compression is fastest at each KL budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from accerl.spec import CompressionSpec
from analysis.theme import BASELINE_COLOUR, INK, SUBJECT_COLOUR, Figure

KL_FLOOR_NATS = 1e-6  # what is exact needs a place on a logarithmic axis


def pareto_front(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows that no other row beats in both time and KL, slowest first.

    Args:
        rows: of one batch size, each with `us_per_state` and `kl_mean`.
    """
    front: list[Mapping[str, Any]] = []
    for row in sorted(rows, key=lambda item: (item["us_per_state"], item["kl_mean"])):
        if not front or _drawn(row) < _drawn(front[-1]):
            front.append(row)
    return front[::-1]


def _drawn(row: Mapping[str, Any]) -> float:
    """Return a row's KL, at least the floor: rounding is no difference between two policies."""
    return max(row["kl_mean"], KL_FLOOR_NATS)


def pareto(result: Mapping[str, Any], batch: int) -> Figure:
    """Time against KL of every compression of a `bench infer` result at one batch size.

    Raises:
        ValueError: that batch size was not measured.
    """
    rows = [row for row in result["rows"] if row["batch"] == batch]
    if not rows:
        raise ValueError(f"batch {batch} was not measured")
    best = [id(row) for row in pareto_front(rows)]
    table = [
        {
            "label": CompressionSpec.from_json(row["spec"]).label,
            "kl": _drawn(row),
            "time": row["us_per_state"],
            "front": "fastest at its KL budget" if id(row) in best else "beaten",
        }
        for row in rows
    ]
    x = {
        "field": "kl",
        "type": "quantitative",
        "scale": {"type": "log"},
        "title": f"KL to Original (nats; what is below {KL_FLOOR_NATS:g} is drawn there)",
    }
    y = {
        "field": "time",
        "type": "quantitative",
        "scale": {"type": "log", "nice": False, "padding": 20},
        "title": f"Microseconds per state, batch {batch}",
    }
    kinds = {
        "field": "front",
        "type": "nominal",
        "scale": {
            "domain": ["fastest at its KL budget", "beaten"],
            "range": [SUBJECT_COLOUR, BASELINE_COLOUR],
        },
        "legend": {"orient": "top", "title": None, "symbolType": "circle"},
    }
    chosen = [{"filter": "datum.front != 'beaten'"}]
    line = {
        "type": "line",
        "color": SUBJECT_COLOUR,
        "strokeWidth": 1.5,
        "interpolate": "step-after",
    }
    text = {"type": "text", "align": "left", "dx": 6, "dy": -8, "fontSize": 11, "color": INK}
    return Figure(
        name=f"pareto-batch-{batch}",
        title="Time against KL",
        caption="Left and below is better; what is beaten has no name. Students and pruned "
        "networks were distilled.",
        spec={
            "width": 640,
            "height": 380,
            "layer": [
                {"transform": chosen, "mark": line, "encoding": {"x": x, "y": y}},
                {
                    "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
                    "encoding": {"x": x, "y": y, "color": kinds},
                },
                {
                    "transform": chosen,
                    "mark": text,
                    "encoding": {"x": x, "y": y, "text": {"field": "label", "type": "nominal"}},
                },
            ],
        },
        table=table,
    )
