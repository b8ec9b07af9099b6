"""Figures of when runs reach the target: shares of runs over time, and every run's time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.comparison import stats
from analysis.figures.learning_curves import (
    PLAIN_NUMBERS,
    facet,
    panel_layout,
    strategy_colour,
    strategy_scale,
    study_dashes,
)
from analysis.figures.theme import Figure
from analysis.records.load import StudyRecord

WHOLE = "all games"


def reach_curves(
    study: StudyRecord,
    contest: Mapping[str, Any],
    shown: Sequence[str] | None = None,
    suffix: str = "",
) -> Figure:
    """Share of runs that had reached the target by each time, all games together.

    Kaplan and Meier's estimate: a run that ended without the target was censored there. Games have
    horizons of their own, so that their common axis is the share of the horizon. `shown` names the
    strategies (default: all); a figure of some has a name of its own, by `suffix`.
    """
    names = _names(study, shown)
    table = _steps(study, contest, None, names)
    return Figure(
        name=f"reach{suffix}",
        title="Share of runs that have reached the target" + suffix.replace("-", ", "),
        caption=(
            "Kaplan-Meier step curves; games weigh the same. Runs that ended without reaching the "
            "target are censored at their end."
        ),
        spec={
            "width": 800,
            "height": 260,
            **_lines(study, names, "Time (share of the horizon)", {"format": ".0%"}),
        },
        table=table,
    )


def reach_by_game(
    study: StudyRecord,
    contest: Mapping[str, Any],
    shown: Sequence[str] | None = None,
    suffix: str = "",
) -> Figure:
    """Share of runs that had reached the target over seconds, one panel a game."""
    names = _names(study, shown)
    table = [row for game in study.games for row in _steps(study, contest, game, names)]
    columns, width = panel_layout(len(study.games))
    lines = _lines(study, names, f"Seconds ({study.tier} clock)")
    inner = {"width": width, "height": 150, **lines}
    return Figure(
        name=f"reach-by-game{suffix}",
        title="Share of runs that have reached the target, game by game"
        + suffix.replace("-", ", "),
        caption="The same step curves over the seconds of each game's own clock.",
        spec=facet("game", list(study.games), inner, columns, independent=("x",)),
        table=table,
    )


def _names(study: StudyRecord, shown: Sequence[str] | None) -> list[str]:
    """Return the strategies of a figure in the study's order."""
    return [item.name for item in study.strategies if shown is None or item.name in shown]


def _steps(
    study: StudyRecord, contest: Mapping[str, Any], game: str | None, names: Sequence[str]
) -> list[dict[str, Any]]:
    table = []
    for name in names:
        rows = [
            row for row in contest["rows"] if row["strategy"] == name and game in (None, row["env"])
        ]
        if not rows:
            continue
        horizons = np.array([study.games[row["env"]].horizon_seconds for row in rows])
        censored = np.array([row["censored"] for row in rows])
        seen = [row["observed_seconds" if row["censored"] else "seconds_to_target"] for row in rows]
        unit = horizons if game is None else np.ones(len(rows))
        weights = stats.game_weights([row["env"] for row in rows])
        times, shares = stats.reach_curve(np.array(seen) / unit, censored, weights)
        end = float((horizons / unit).max())
        table += [
            {"game": game or WHOLE, "strategy": study.labels[name], "x": time, "share": share}
            for time, share in zip([*times, end], [*shares, shares[-1]], strict=True)
        ]
    return table


def _lines(
    study: StudyRecord,
    names: Sequence[str],
    x_title: str,
    labels: Mapping[str, Any] = PLAIN_NUMBERS,
) -> dict[str, Any]:
    dashes = study_dashes(study)
    legend = {"orient": "top", "columns": 4, "title": None, "symbolType": "stroke"}
    colour = {**strategy_colour(study, "strategy", names), "legend": legend}
    dash = {
        **colour,
        "scale": {
            "domain": strategy_scale(study, names)["domain"],
            "range": [dashes[name] for name in names],
        },
    }
    subject = {"field": "strategy", "equal": study.labels[study.subject]}
    x: dict[str, Any] = {"field": "x", "type": "quantitative", "title": x_title}
    x["axis"] = {"grid": False, "tickCount": 5, **labels}
    y: dict[str, Any] = {"field": "share", "type": "quantitative", "title": "Reached"}
    y |= {"scale": {"domain": [0, 1]}, "axis": {"format": ".0%", "tickCount": 5}}
    return {
        "mark": {"type": "line", "interpolate": "step-after"},
        "encoding": {
            "x": {**x, "scale": {"nice": False}},
            "y": y,
            "color": colour,
            "strokeDash": dash,
            "strokeWidth": {"condition": {"test": subject, "value": 3}, "value": 1.7},
        },
    }


def time_strip(
    study: StudyRecord,
    contest: Mapping[str, Any],
    shown: Sequence[str] | None = None,
    suffix: str = "",
) -> Figure:
    """Seconds to target of every test run; hollow triangles at the horizon never reached it."""
    names = _names(study, shown)
    table = [
        {
            "strategy": study.labels[row["strategy"]],
            "game": row["env"],
            "seed": row["seed"],
            "seconds": row["seconds_to_target"],
            "reached": "not reached" if row["censored"] else "reached",
        }
        for row in contest["rows"]
        if row["strategy"] in names
    ]
    columns, width = panel_layout(len(study.games))
    labels = [study.labels[name] for name in names]
    y: dict[str, Any] = {"field": "strategy", "type": "nominal", "sort": labels, "title": None}
    y["axis"] = {"labelLimit": 200, "grid": True, "ticks": False, "domain": False}
    x: dict[str, Any] = {"field": "seconds", "type": "quantitative", "title": "Seconds to target"}
    x["scale"] = {"zero": False, "padding": 12}
    shape = {
        "field": "reached",
        "type": "nominal",
        "title": None,
        "scale": {"domain": ["reached", "not reached"], "range": ["circle", "triangle-right"]},
        "legend": {"orient": "top", "symbolSize": 60},
    }
    layers = [
        {
            "mark": {"type": "point", "size": 46, "strokeWidth": 1.5, "opacity": 0.75},
            "encoding": {
                "x": x,
                "y": y,
                "color": strategy_colour(study, "strategy", names),
                "shape": shape,
            },
        },
        {
            "mark": {"type": "tick", "thickness": 3, "size": 18, "opacity": 0.9},
            "encoding": {
                "x": {**x, "aggregate": "median"},
                "y": y,
                "color": strategy_colour(study, "strategy", names),
            },
        },
    ]
    inner = {"width": width - 30, "height": {"step": 22}, "layer": layers}
    return Figure(
        name=f"time-to-target{suffix}",
        title="Seconds to target of every test run" + suffix.replace("-", ", "),
        caption="One mark a run (game, seed); the bar is the median. Triangles were censored.",
        spec=facet("game", list(study.games), inner, columns, independent=("x",)),
        table=table,
    )
