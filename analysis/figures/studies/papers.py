"""The papers' figures, drawn again: scores by env steps and by seconds, and KL."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import altair as alt

from analysis.figures.parts import COUNT_AXIS, lines_by, make_figure, marks, values_of
from analysis.figures.studies.paper_costs import Picture, costs, split
from analysis.figures.theme import BASELINE_COLOUR, COLOURS, DASHES, Figure

STAGES = ("exploration", "improving", "convergence")
SHAPES = dict(zip(STAGES, ("circle", "triangle-up", "square"), strict=True))
MANY = 4
"""panels, above which they are small"""
LEAST_KL_NATS = 1e-3
"""that is drawn"""
AXES = {"env_steps": "Env steps", "seconds": "Seconds of the machine's clock"}


def paper_figures(result: Mapping[str, Any]) -> list[Figure]:
    """Return the pictures of a figure's result: one for each axis, and what else it shows.

    Args:
        result: of one figure.
    """
    return [
        make_figure(each.name, result["title"], each.caption, each.draw(), each.table)
        for each in _pictures(result)
    ]


def paper_captions(result: Mapping[str, Any]) -> dict[str, str]:
    """Return what is to be said below each of these pictures, by their names."""
    return {each.name: each.caption for each in _pictures(result)}


def _pictures(result: Mapping[str, Any]) -> list[Picture]:
    if "split" in result:
        return [split(result)]
    table = _compared(_table(result), _baselines(result))
    if not table:
        return []
    found = [_curves(result, table, axis) for axis in AXES]
    if result["bound_kl_max_nats"]:
        found.append(_kl(result, table))
    if result["shows_costs"] and (drawn := costs(result)):
        found.append(drawn)
    return found


def _table(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for panel in result["panels"]:
        for machine, known in panel["machines"].items():
            shared = known.get("seeds_of_means", ())
            for line in known["lines"]:
                counted = [
                    curve for curve in line["curves"] if not shared or curve["seed"] in shared
                ]
                scored = _scored(counted)
                for curve in line["curves"]:
                    counts = curve in counted
                    points = _points(result, panel["game"], machine, line["label"], curve)
                    rows += [
                        {**row, "counts": counts, "is_meant": counts and row["index"] in scored}
                        for row in points
                    ]
    return rows


def _scored(curves: Sequence[Mapping[str, Any]]) -> set[int]:
    """Return at which points all curves have a score: a mean of fewer would jump where one ends."""
    known = [
        {index for index, score in enumerate(curve["scores"]) if score is not None}
        for curve in curves
    ]
    return set.intersection(*known) if known else set()


def _compared(table: list[dict[str, Any]], baselines: set[str]) -> list[dict[str, Any]]:
    """Leave out panels with nothing but a baseline, where others have more to show."""
    more = {row["panel"] for row in table if row["label"] not in baselines}
    return [row for row in table if row["panel"] in more] if more else table


def _points(
    result: Mapping[str, Any], game: str, machine: str, label: str, curve: Mapping[str, Any]
) -> list[dict[str, Any]]:
    before: int | None = None
    acting = curve["acting"] if result["shows_switches"] else [None] * len(curve["scores"])
    switches = False
    rows = []
    for index, score in enumerate(curve["scores"]):
        stage: int | None = curve["stages"][index]
        acts = acting[min(index + 1, len(acting) - 1)]  # from here on
        kl_max = curve["kl_max_nats"][index]  # of a network that has diverged no number
        switches |= acts != acting[index]
        # What happens before there is a score is marked where the curve begins.
        is_drawn = score is not None
        begins = stage if is_drawn and result["shows_stages"] and stage != before else None
        before = stage if is_drawn else before
        rows.append(
            {
                "panel": f"{game} on {machine}",
                "game": game,
                "machine": machine,
                "label": label,
                "run": f"{label} {curve['seed']}",
                "index": index,
                "env_steps": curve["env_steps"][index],
                "seconds": curve["seconds"][index],
                "score": score,
                "kl_max": max(kl_max, LEAST_KL_NATS) if math.isfinite(kl_max) else None,
                "acts": acts if switches and is_drawn else None,
                "stage": None if begins is None else STAGES[begins],
            }
        )
        switches = switches and not is_drawn
    return rows


def _lines(result: Mapping[str, Any], table: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how lines look: as in the whole figure, while some of them are not run yet."""
    labels = values_of(table, "label")
    hues = [BASELINE_COLOUR, *COLOURS]
    first = int(labels[0] not in _baselines(result))
    places = range(first, first + len(labels))
    colours = {label: hues[n % len(hues)] for label, n in zip(labels, places, strict=True)}
    return lines_by("label", colours, [DASHES[n % len(DASHES)] for n in places], names_one=True)


def _baselines(result: Mapping[str, Any]) -> set[str]:
    return {panel["baseline"] for panel in result["panels"]}


def _curves(result: Mapping[str, Any], table: Sequence[Mapping[str, Any]], axis: str) -> Picture:
    lines = _lines(result, table)
    targets = _targets(result)
    scores: dict[str, list[float | None]] = {}
    for row in table:
        scores.setdefault(row["game"], []).extend([row["score"], targets.get(row["panel"])])
    found = [
        _Panel(name, _domain(scores[game]), title) for (name, game), title in _titles(table).items()
    ]
    begun = values_of(table, "stage")
    stages = {stage: mark for stage, mark in SHAPES.items() if stage in begun}
    ticks = COUNT_AXIS if len(found) <= MANY else {**COUNT_AXIS, "tickCount": 3}

    def draw(panel: _Panel, y_title: str | None) -> Any:
        longest = max(row[axis] for row in table if row["panel"] == panel.name)
        x = alt.X(f"{axis}:Q").title(AXES[axis]).axis(**ticks).scale(domain=[0, longest])
        y = alt.Y("score:Q").title(y_title).scale(domain=panel.domain, nice=False)
        rows = marks("panel", panel.name).transform_filter("datum.score != null")
        shown = _runs_and_mean(rows, x, y, axis, "score", lines)
        if panel.name in targets:
            once = marks().transform_aggregate(n="count()")  # not for every row
            rule = once.mark_rule(strokeDash=[2, 3], strokeWidth=1, opacity=0.6)
            score = alt.YDatum(targets[panel.name]).scale(domain=panel.domain, nice=False)
            shown = alt.layer(rule.encode(y=score), shown)
        if stages:
            begins = rows.transform_filter("datum.stage != null")
            shapes = alt.Scale(domain=[*stages], range=[*stages.values()])
            stage = alt.Shape("stage:N").scale(shapes).title("begins")
            dots = begins.mark_point(filled=True, size=60, opacity=1).encode(x=x, y=y, shape=stage)
            shown = alt.layer(shown, dots.encode(color=alt.value(COLOURS[4])))
        if result["shows_switches"]:
            changes = rows.transform_filter("datum.acts != null")
            dots = changes.mark_point(filled=True, size=60, opacity=1, shape="triangle-down")
            shown = alt.layer(shown, dots.encode(x=x, y=y, color=alt.value(COLOURS[4])))
        return shown

    caption = f"{_means_caption(table)} A score is a mean of 20 episodes.{_machine_caption(table)}"
    if targets:
        caption += " Dotted: the score that runs are timed to."
    if result["shows_stages"]:
        caption += " Marks: where the stage detector says that a stage begins."
    if result["shows_switches"]:
        caption += _switches_caption(result, table)
    name = f"{result['figure']}-by-{axis.replace('_', '-')}"
    return Picture(name, caption, table, partial(_grid, found, draw, "Score of the actors"))


def _targets(result: Mapping[str, Any]) -> dict[str, float]:
    """Return the scores that runs are timed to, by panel; none where nothing is compared."""
    return {
        f"{panel['game']} on {machine}": known["target"]
        for panel in result["panels"]
        for machine, known in panel["machines"].items()
        if known["target"] is not None and len(known["lines"]) > 1
    }


def _switches_caption(result: Mapping[str, Any], table: Sequence[Mapping[str, Any]]) -> str:
    rules = {label for panel in result["panels"] for label in panel["rules"]}
    if not rules & {row["label"] for row in table}:
        return " Its rule was not run yet."
    if any(row["acts"] is not None for row in table):
        return " Triangles: where the rule changes its decision; until then it is as what it holds."
    return (
        " The rule never changes its decision here. Where its line is not that of what it holds, "
        "other code or another processor made one of the two."
    )


def _kl(result: Mapping[str, Any], table: Sequence[Mapping[str, Any]]) -> Picture:
    bound = result["bound_kl_max_nats"]
    values = [*(row["kl_max"] for row in table if row["kl_max"] is not None), bound]
    domain = [10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(math.log10(max(values)))]
    lines = _lines(result, table)

    def draw(panel: _Panel, y_title: str | None) -> Any:
        x = alt.X("env_steps:Q").title("Env steps").axis(**COUNT_AXIS)
        axis = alt.Axis(tickCount=4, format="~g", gridOpacity=0.1)
        y = alt.Y("kl_max:Q").title(y_title).scale(type="log", domain=domain).axis(axis)
        shown = _runs_and_mean(marks("panel", panel.name), x, y, "env_steps", "kl_max", lines)
        rule = marks().mark_rule(strokeDash=[4, 3]).encode(y=alt.datum(bound))
        return alt.layer(shown, rule)

    found = [_Panel(name, domain, title) for (name, _), title in _titles(table).items()]
    caption = f"{_means_caption(table)} Dashed: the bound of {bound:g} nats. "
    caption += "What is not finite is not drawn. " * any(row["kl_max"] is None for row in table)
    caption += f"A KL below {LEAST_KL_NATS:g} nats is drawn as that.{_machine_caption(table)}"
    chart = partial(_grid, found, draw, "Largest KL, nats")
    return Picture(f"{result['figure']}-kl-max", caption, table, chart)


class _Panel(NamedTuple):
    name: str
    domain: list[float]
    """of what it shows, the same on all machines"""
    title: str


def _titles(table: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], str]:
    """Return titles by panel and game: where there is one machine, the caption names it."""
    names = dict.fromkeys((row["panel"], row["game"]) for row in table)
    alone = len({row["machine"] for row in table}) == 1
    return {(name, game): game if alone else name for name, game in names}


def _machine_caption(table: Sequence[Mapping[str, Any]]) -> str:
    machines = {row["machine"] for row in table}
    return f" On {machines.pop()}." if len(machines) == 1 else ""


def _means_caption(table: Sequence[Mapping[str, Any]]) -> str:
    whose = "their means" if all(row["counts"] for row in table) else "means over seeds all have"
    return f"Thin lines are runs, thick ones {whose}."


def _domain(scores: Sequence[float | None]) -> list[float]:
    """Return bounds with a margin of a twentieth on each side."""
    known = [score for score in scores if score is not None] or [0.0]
    margin = 0.05 * (max(known) - min(known)) or 0.5
    return [min(known) - margin, max(known) + margin]


def _runs_and_mean(rows: Any, x: Any, y: Any, axis: str, value: str, lines: dict[str, Any]) -> Any:
    """Return a thin line for each run and a thick one for the means of their points."""
    hue = {"color": lines["color"]}  # dashes of many thin lines run into each other
    runs = rows.mark_line(strokeWidth=1, opacity=0.25).encode(x=x, y=y, detail="run:N", **hue)
    means = rows.transform_filter("datum.is_meant").transform_aggregate(
        groupby=["label", "index"], **{axis: f"mean({axis})", value: f"mean({value})"}
    )
    thick = means.mark_line(strokeWidth=2.2).encode(x=x, y=y, order="index:Q", **lines)
    return alt.layer(runs, thick)


def _grid(panels: Sequence[_Panel], draw: Callable[[_Panel, str | None], Any], y: str) -> Any:
    """Return panels in rows of two, or of four where there are many."""
    columns, width, height = (2, 380, 220) if len(panels) <= MANY else (4, 172, 120)
    rows = []
    for start in range(0, len(panels), columns):
        shown = [
            draw(panel, None if index else y).properties(
                title=_title(panel.title, is_small=columns > 2), width=width, height=height
            )
            for index, panel in enumerate(panels[start : start + columns])
        ]
        rows.append(alt.hconcat(*shown, spacing=18))
    return alt.vconcat(*rows, data=marks().data)


def _title(name: str, *, is_small: bool) -> alt.Title:
    """Return a panel's title, in two lines where one would run into the next panel's."""
    if not is_small:
        return alt.Title(name, fontSize=13)
    game, _, machine = name.partition(" on ")
    if not machine:
        return alt.Title(game, fontSize=11)
    return alt.Title(game, subtitle=f"on {machine}", fontSize=11, subtitleFontSize=10)
