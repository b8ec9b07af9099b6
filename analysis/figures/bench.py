"""Figures of benchmarks: which compression is fastest at each KL budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from accerl.spec import CompressionSpec
from analysis.figures.theme import BASELINE_COLOUR, COLOURS, INK, SUBJECT_COLOUR, Figure

SIDES = ("real", "virtual")
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


def clock_fidelity(result: Mapping[str, Any]) -> Figure:
    """What the virtual clock predicts against what the real one shows: speeds, and returns."""
    table = [
        {
            "panel": f"Env steps per second, {row['game']}",
            "label": row["label"],
            "real": real,
            "virtual": virtual,
        }
        for row in result["rows"]
        for real, virtual in zip(row["real_all"], row["virtual_all"], strict=True)
    ]
    table += [
        {
            "panel": f"Mean return over the run, {row['game']}",
            "label": row["label"],
            "real": float(np.median(row["return_real_all"])),
            "virtual": float(np.median(row["return_virtual_all"])),
        }
        for row in result["rows"]
        if "return_real_all" in row
    ]
    labels = list(dict.fromkeys(row["label"] for row in result["rows"]))
    panels = []
    for panel in dict.fromkeys(row["panel"] for row in table):
        values = [row[side] for row in table if row["panel"] == panel for side in SIDES]
        scale = {"domain": [min(0.0, *values), 1.05 * max(values)], "nice": False}
        axis = {"tickCount": 5, "format": "~s"}

        def position(side: str, title: str, scale: dict = scale, axis: dict = axis) -> dict:
            field = {"field": side, "type": "quantitative", "title": title}
            return {**field, "scale": scale, "axis": axis}

        ends = [{"real": value, "virtual": value} for value in scale["domain"]]
        place = {"x": position("real", "real clock"), "y": position("virtual", "virtual clock")}
        colour = {
            "field": "label",
            "type": "nominal",
            "scale": {"domain": labels, "range": _hues(len(labels))},
            "legend": {"title": None, "symbolType": "circle", "columns": 1},
        }
        diagonal = {"type": "line", "color": INK, "opacity": 0.4, "strokeDash": [4, 3]}
        point = {"type": "point", "filled": True, "size": 60, "opacity": 0.85}
        panels.append(
            {
                "title": panel,
                "width": 250,
                "height": 250,
                "layer": [
                    {"data": {"values": ends}, "mark": diagonal, "encoding": place},
                    {
                        "transform": [{"filter": f"datum.panel === '{panel}'"}],
                        "mark": point,
                        "encoding": {**place, "color": colour},
                    },
                ],
            }
        )
    return Figure(
        name="clock-fidelity",
        title="The virtual clock against the real one",
        caption="On the diagonal both agree. Speeds: one point a run; returns: medians over seeds.",
        spec={"hconcat": panels, "spacing": 24},
        table=table,
    )


def _hues(count: int) -> list[str]:
    return [COLOURS[index % len(COLOURS)] for index in range(count)]


SCHEDULES = {
    "fp32": "no compression",
    "two_phase": "best of two phases",
    "oracle": "greedy-branch oracle",
    "placebo": "placebo: other dice only",
}


def oracle_gap(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """What each schedule gains over the best static spec, for every game and machine."""
    table = [
        {
            "pair": f"{row['game']}, {row['profile']}",
            "schedule": text,
            **{
                end: None if row[name][end] is None else 100.0 * (row[name][end] - 1.0)
                for end in ("ratio", "low", "high")
            },
        }
        for row in rows
        for name, text in SCHEDULES.items()
    ]
    table = [row for row in table if row["ratio"] is not None]
    scale = {"domain": [-60, 60], "clamp": True, "nice": False}
    x = {
        "field": "ratio",
        "type": "quantitative",
        "scale": scale,
        "title": "Discounted gain over the best static spec's, % (clipped at 60)",
    }
    y = {
        "field": "pair",
        "type": "nominal",
        "sort": list(dict.fromkeys(row["pair"] for row in table)),
        "title": None,
        "axis": {"labelLimit": 260, "grid": True, "ticks": False, "domain": False},
    }
    texts = list(SCHEDULES.values())
    colour = {
        "field": "schedule",
        "type": "nominal",
        "scale": {
            "domain": texts,
            "range": [BASELINE_COLOUR, COLOURS[0], SUBJECT_COLOUR, COLOURS[1]],
        },
        "legend": {"orient": "top", "title": None, "symbolType": "circle"},
    }
    offset = {"field": "schedule", "type": "nominal", "scale": {"domain": texts}}
    place = {"y": y, "yOffset": offset, "color": colour}
    zero = {"type": "rule", "strokeDash": [4, 3], "opacity": 0.7}
    point = {"type": "point", "filled": True, "size": 60, "opacity": 1}
    return Figure(
        name="oracle-gap",
        title="The oracle gap",
        caption="Mean over seeds with 95% interval (Student's t). A controller has room where the "
        "oracle is above the placebo, whose branches differ in the actors' dice alone.",
        spec={
            "width": 560,
            "height": {"step": 13},
            "layer": [
                {"data": {"values": [{"ratio": 0}]}, "mark": zero, "encoding": {"x": x}},
                {
                    "mark": {"type": "rule", "strokeWidth": 1.5},
                    "encoding": {**place, "x": {**x, "field": "low"}, "x2": {"field": "high"}},
                },
                {"mark": point, "encoding": {**place, "x": x}},
            ],
        },
        table=table,
    )


def real_against_predicted(
    rows: Sequence[Mapping[str, Any]], labels: Mapping[str, str], colours: Mapping[str, str]
) -> Figure:
    """Env steps a second on the real clock beside what the virtual clock predicts for them.

    `labels` and `colours` are of the study's strategies, by name.
    """
    table: list[dict[str, Any]] = [
        {"strategy": labels[row["strategy"]], "game": row["game"], "seed": row["seed"]}
        | {"real": row["env_steps_per_second"]}
        | {"predicted": row["predicted_env_steps_per_second"]}
        for row in rows
    ]
    names = list(dict.fromkeys(row["strategy"] for row in table))
    ends = [
        edge(row[side] for row in table for side in ("real", "predicted")) for edge in (min, max)
    ]
    scale = {"type": "log", "domain": [0.9 * ends[0], 1.1 * ends[1]], "nice": False}
    axis = {"format": "~s", "tickCount": 5, "grid": False}
    place = {
        "x": {"field": "real", "type": "quantitative", "title": "Real env steps per second"},
        "y": {"field": "predicted", "type": "quantitative", "title": "Predicted"},
    }
    place = {side: {**item, "scale": scale, "axis": axis} for side, item in place.items()}
    legend = {"title": None, "symbolType": "circle", "orient": "right"}
    colour = {"field": "strategy", "type": "nominal", "legend": legend}
    known = {labels[name]: colour for name, colour in colours.items()}
    hues = dict(zip(names, _hues(len(names)), strict=True)) | known
    colour["scale"] = {"domain": names, "range": [hues[name] for name in names]}
    line = [{"real": value, "predicted": value} for value in scale["domain"]]
    dashed = {"type": "line", "color": INK, "opacity": 0.4, "strokeDash": [4, 3]}
    point = {"type": "point", "filled": True, "size": 70, "opacity": 0.85}
    return Figure(
        name="real-clock",
        title="Speed on the real clock against the prediction",
        caption="One point a run; on the diagonal the virtual clock was right.",
        spec={
            "width": 420,
            "height": 300,
            "layer": [
                {"data": {"values": line}, "mark": dashed, "encoding": place},
                {"mark": point, "encoding": {**place, "color": colour}},
            ],
        },
        table=table,
    )
