"""Figures of benchmarks: which compression is fastest at each KL budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from accerl.spec import CompressionSpec
from analysis.figures.parts import make_figure, marks, point_colour, points, rows_axis, values_of
from analysis.figures.theme import BASELINE_COLOUR, COLOURS, INK, SUBJECT_COLOUR, Figure

SIDES = ("real", "virtual")
START_NAMES = {"random": "random start", "learner": "learner's start"}
SHAPES = ("circle", "square", "triangle-up", "diamond")
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
    title = f"KL to Original (nats; what is below {KL_FLOOR_NATS:g} is drawn there)"
    x = alt.X("kl:Q").scale(type="log").title(title)
    y = alt.Y("time:Q").scale(type="log", nice=False, padding=20)
    y = y.title(f"Microseconds per state, batch {batch}")
    kinds = ["fastest at its KL budget", "beaten"]
    colour = point_colour("front", kinds, [SUBJECT_COLOUR, BASELINE_COLOUR])
    chosen = marks("front", kinds[0])
    line = chosen.mark_line(color=SUBJECT_COLOUR, strokeWidth=1.5, interpolate="step-after")
    text = chosen.mark_text(align="left", dx=6, dy=-8, fontSize=11, color=INK)
    layers = alt.layer(line, points(70).encode(color=colour), text.encode(text="label:N"))
    return make_figure(
        f"pareto-batch-{batch}",
        "Time against KL",
        "Left and below is better; what is beaten has no name. Students and pruned "
        "networks were distilled.",
        layers.encode(x=x, y=y).properties(width=640, height=380),
        table,
    )


def students_kl(result: Mapping[str, Any]) -> Figure:
    """KL of networks against their distillation updates, from a `bench students` result."""
    table = [
        {
            "panel": row["network"],
            "curve": f"{START_NAMES[row['start']]}, batch {row['batch']}",
            "updates": row["updates"],
            "kl": max(row["kl_mean"], KL_FLOOR_NATS),
        }
        for row in result["curves"]
    ]
    names = values_of(table, "curve")
    hues = [COLOURS[index % len(COLOURS)] for index in range(len(names))]
    y = alt.Y("kl:Q").scale(type="log").title("KL from the policy (nats)")
    panels = []
    for panel in values_of(table, "panel"):
        chart = marks("panel", panel).encode(
            x=alt.X("updates:Q").title("Distillation updates"),
            y=y,
            color=point_colour("curve", names, hues, orient="bottom", columns=2),
        )
        layers = alt.layer(chart.mark_line(strokeWidth=1.5), points(30, 1, chart))
        panels.append(layers.properties(title=panel, width=220, height=240))
    return make_figure(
        "students-kl",
        "Students of a policy that stands still",
        "On states that nothing was fitted to. A learner's start: its most important units, "
        "fitted by least squares.",
        alt.hconcat(*panels, spacing=24, data=marks().data),
        table,
    )


def clock_fidelity(result: Mapping[str, Any]) -> Figure:
    """What the virtual clock predicts against what the real one shows: speeds, and returns."""
    table = [
        {"panel": f"Env steps per second, {row['game']}", "label": row["label"]}
        | {"real": real, "virtual": virtual}
        for row in result["rows"]
        for real, virtual in zip(row["real_all"], row["virtual_all"], strict=True)
    ]
    table += [
        {"panel": f"Mean return over the run, {row['game']}", "label": row["label"]}
        | {side: float(np.median(row[f"return_{side}_all"])) for side in SIDES}
        for row in result["rows"]
        if "return_real_all" in row
    ]
    labels = values_of(result["rows"], "label")
    look = _many_points("label", labels)
    panels = []
    for panel in values_of(table, "panel"):
        values = [row[side] for row in table if row["panel"] == panel for side in SIDES]
        margin = 0.05 * (max(0.0, *values) - min(0.0, *values))
        domain = [min(0.0, min(values) - margin), max(0.0, max(values) + margin)]
        scale = {"domain": domain, "nice": False}
        axis = {"tickCount": 5, "format": "~s"}
        x = alt.X("real:Q").title("real clock").scale(**scale).axis(**axis)
        y = alt.Y("virtual:Q").title("virtual clock").scale(**scale).axis(**axis)
        layers = _diagonal(x, y, points(60, 0.85, marks("panel", panel)).encode(**look))
        panels.append(layers.properties(title=panel, width=250, height=250))
    return make_figure(
        "clock-fidelity",
        "The virtual clock against the real one",
        "On the diagonal both agree. Speeds: one point a run; returns: medians over seeds.",
        alt.hconcat(*panels, spacing=24, data=marks().data),
        table,
    )


def _many_points(field: str, labels: Sequence[str]) -> dict[str, Any]:
    """Return colour and shape of points by a field; what shares a colour has another shape."""
    places = range(len(labels))
    hues = [COLOURS[index % len(COLOURS)] for index in places]
    shapes = [SHAPES[index // len(COLOURS) % len(SHAPES)] for index in places]
    legend = alt.Legend(orient="right", columns=1)
    colour = alt.Color(f"{field}:N").scale(domain=labels, range=hues).legend(legend)
    return {
        "color": colour,
        "shape": alt.Shape(f"{field}:N").scale(domain=labels, range=shapes).legend(legend),
    }


def _diagonal(x: alt.X, y: alt.Y, shown: alt.Chart) -> alt.LayerChart:
    """Return points of two sides above the line on which both agree."""
    sides = [field["shorthand"].partition(":")[0] for field in (x, y)]
    ends = alt.Data(values=[dict.fromkeys(sides, value) for value in x["scale"]["domain"]])
    line = alt.Chart(ends).mark_line(color=INK, opacity=0.4, strokeDash=[4, 3])
    return alt.layer(line, shown).encode(x=x, y=y)


SCHEDULES = {
    "fp32": "no compression",
    "two_phase": "best of two phases",
    "oracle": "greedy-branch oracle",
    "placebo": "placebo: other random numbers",
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
    x = alt.X("ratio:Q").scale(domain=[-60, 60], clamp=True, nice=False)
    x = x.title("Discounted gain over the best static spec's, % (clipped at 60)")
    texts = list(SCHEDULES.values())
    colours = [BASELINE_COLOUR, COLOURS[0], SUBJECT_COLOUR, COLOURS[1]]
    place = {
        "y": rows_axis("pair", values_of(table, "pair"), grid=True),
        "yOffset": alt.YOffset("schedule:N").scale(domain=texts),
        "color": point_colour("schedule", texts, colours),
    }
    zero = alt.XDatum(0, type="quantitative")
    layers = alt.layer(
        marks().mark_rule(strokeDash=[4, 3], opacity=0.7).encode(x=zero),
        marks().mark_rule(strokeWidth=1.5).encode(x="low:Q", x2="high", **place),
        points(60).encode(x=x, **place),
    )
    return make_figure(
        "oracle-gap",
        "The oracle gap",
        "Mean over seeds with 95% interval (Student's t). A controller has room where the "
        "oracle is above the placebo, whose branches differ in the actors' random numbers alone.",
        layers.properties(width=560, height=alt.Step(13)),
        table,
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
    names = values_of(table, "strategy")
    values = [row[side] for row in table for side in ("real", "predicted")]
    domain = [0.9 * min(values), 1.1 * max(values)]
    scale = {"type": "log", "domain": domain, "nice": False}
    axis = {"format": "~s", "tickCount": 5, "grid": False}
    x = alt.X("real:Q").title("Real env steps per second").scale(**scale).axis(**axis)
    y = alt.Y("predicted:Q").title("Predicted").scale(**scale).axis(**axis)
    known = {labels[name]: colour for name, colour in colours.items()}
    colour = point_colour("strategy", names, [known[name] for name in names], orient="right")
    layers = _diagonal(x, y, points(70, 0.85).encode(color=colour))
    return make_figure(
        "real-clock",
        "Speed on the real clock against the prediction",
        "One point a run; on the diagonal the virtual clock was right.",
        layers.properties(width=420, height=300),
        table,
    )
