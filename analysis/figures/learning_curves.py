"""Learning curves of a contest, and the share of its runs that had reached the target by when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from analysis.comparison import curves, stats
from analysis.figures.parts import (
    COUNT_AXIS,
    PLAIN_NUMBERS,
    make_figure,
    marks,
    panel_layout,
    panels,
    rows_axis,
    strategy_colour,
    strategy_lines,
)
from analysis.figures.theme import Figure
from analysis.records.load import StudyRecord

GRID_POINTS = 80
"""of a learning curve, where that many fit"""
MOST_ROWS = 9_000
"""of a figure's table: W&B keeps 10,000 and would drop the rest"""
WHOLE = "all games"


def learning_curves(
    study: StudyRecord, axis: str, names: Sequence[str], suffix: str = ""
) -> Figure:
    """Learning curves over `axis` ("seconds" or "env_steps"), one panel a game.

    Lines are interquartile means over test seeds, bands reach from quartile to quartile.
    `suffix` keeps the names of several such figures apart.
    """
    table = _curve_rows(study, axis, names)
    over_seconds = axis == "seconds"
    x = alt.X("x:Q").title(f"Seconds ({study.tier} clock)" if over_seconds else "Environment steps")
    x = x.axis(**COUNT_AXIS)
    y = alt.Y("iqm:Q").title("Learner's return (game score)").scale(zero=False, nice=False)
    lines = strategy_lines(study, names)
    curve = marks("kind", "curve")
    target = marks("kind", "target").mark_rule(strokeDash=[5, 4], opacity=0.6)
    columns, width = panel_layout(len(study.games))
    layers = alt.layer(
        target.encode(y="value:Q"),
        curve.mark_area(opacity=0.13).encode(x=x, y="low:Q", y2="high", color=lines["color"]),
        curve.mark_line().encode(x=x, y=y, **lines),
    ).properties(width=width, height=210)
    return make_figure(
        "learning-curves" if over_seconds else "learning-curves-env-steps",
        f"Learning curves over {axis.replace('env_steps', 'environment steps')}",
        "Return of the learner's full-precision policy, measured off the clock. Line: "
        "interquartile mean over test seeds; band: quartiles. Dashed rule: the target.",
        panels(layers, "game", list(study.games), columns),
        table,
        suffix,
    )


def _curve_rows(study: StudyRecord, axis: str, names: Sequence[str]) -> list[dict[str, Any]]:
    table: list[dict[str, Any]] = []
    points = min(GRID_POINTS, MOST_ROWS // (len(study.games) * len(names)))
    for game in study.games.values():
        found: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
        for (strategy, env, _), run in study.runs.items():
            if env == game.name and strategy in names:
                curve = curves.learning_curve(run.reports, game.random_return)
                x = curve.seconds if axis == "seconds" else curve.env_steps
                found.setdefault(strategy, []).append((x, curve.returns))
        if not found:
            continue
        end = max(float(x[-1]) for group in found.values() for x, _ in group)
        grid = np.linspace(0.0, game.horizon_seconds if axis == "seconds" else end, points)
        for strategy, group in found.items():
            # Clocks may stop a rounding error before the horizon: hold the last value there.
            band = curves.band(curves.resample(group, grid, hold=axis == "seconds"))
            row = {"kind": "curve", "game": game.name, "strategy": study.labels[strategy]}
            table += [
                {**row, "x": round(x, 4)}
                | {key: round(float(band[key][i]), 5) for key in ("low", "iqm", "high")}
                for i, x in enumerate(grid.tolist())
                if not np.isnan(band["iqm"][i])
            ]
        table.append({"kind": "target", "game": game.name, "value": game.target_return})
    return table


def reach_curves(
    study: StudyRecord,
    contest: Mapping[str, Any],
    names: Sequence[str],
    suffix: str = "",
) -> Figure:
    """Share of runs that had reached the target by each time, all games together.

    Kaplan and Meier's estimate: a run that ended without the target was censored there. Games have
    horizons of their own, so that their common axis is the share of the horizon. `suffix` keeps
    the names of several such figures apart.
    """
    chart = _steps(study, names, "Time (share of the horizon)", {"format": ".0%"})
    return make_figure(
        "reach",
        "Share of runs that have reached the target",
        "Kaplan-Meier step curves; instances weigh the same. Runs that ended without reaching the "
        "target are censored at their end.",
        chart.properties(width=800, height=260),
        _reach_rows(study, contest, None, names),
        suffix,
    )


def reach_by_game(
    study: StudyRecord,
    contest: Mapping[str, Any],
    names: Sequence[str],
    suffix: str = "",
) -> Figure:
    """Share of runs that had reached the target over seconds, one panel a game."""
    columns, width = panel_layout(len(study.games))
    chart = _steps(study, names, f"Seconds ({study.tier} clock)", PLAIN_NUMBERS)
    chart = chart.properties(width=width, height=150)
    return make_figure(
        "reach-by-game",
        "Share of runs that have reached the target, instance by instance",
        "The same step curves over the seconds of each instance's own clock.",
        panels(chart, "game", list(study.games), columns, independent=("x",)),
        [row for game in study.games for row in _reach_rows(study, contest, game, names)],
        suffix,
    )


def _reach_rows(
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


def _steps(
    study: StudyRecord, names: Sequence[str], x_title: str, labels: Mapping[str, Any]
) -> alt.Chart:
    x = alt.X("x:Q").title(x_title).axis(grid=False, tickCount=5, **labels).scale(nice=False)
    y = alt.Y("share:Q").title("Reached").scale(domain=[0, 1]).axis(format=".0%", tickCount=5)
    steps = marks().mark_line(interpolate="step-after")
    return steps.encode(x=x, y=y, **strategy_lines(study, names))


def time_strip(
    study: StudyRecord,
    contest: Mapping[str, Any],
    names: Sequence[str],
    suffix: str = "",
) -> Figure:
    """Seconds to target of every test run; hollow triangles at the horizon never reached it."""
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
    y = rows_axis("strategy", [study.labels[name] for name in names], labelLimit=200, grid=True)
    x = alt.X("seconds:Q").title("Seconds to target").scale(zero=False, padding=12)
    x = x.axis(tickCount=4, **PLAIN_NUMBERS)
    shape = alt.Shape("reached:N").legend(symbolSize=60)
    shape = shape.scale(domain=["reached", "not reached"], range=["circle", "triangle-right"])
    layers = alt.layer(
        marks().mark_point(size=46, strokeWidth=1.5, opacity=0.75).encode(x=x, shape=shape),
        marks().mark_tick(thickness=3, size=18, opacity=0.9).encode(x="median(seconds):Q"),
    ).encode(y=y, color=strategy_colour(study, "strategy", names))
    chart = layers.properties(width=width - 30, height=alt.Step(22))
    return make_figure(
        "time-to-target",
        "Seconds to target of every test run",
        "One mark a run (instance, seed); the bar is the median. Triangles were censored.",
        panels(chart, "game", list(study.games), columns, independent=("x",)),
        table,
        suffix,
    )
