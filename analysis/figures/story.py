"""How a schedule came about: reward and KL over a run, above the specs that acted."""

from __future__ import annotations

from typing import Any

import numpy as np

from analysis.comparison import curves
from analysis.figures.learning_curves import PLAIN_NUMBERS, panel_layout
from analysis.figures.strips import shares_over_time, spec_colour, stacked, study_specs
from analysis.figures.theme import SUBJECT_COLOUR, Figure
from analysis.records.load import RunRecord, StudyRecord

BINS = 40


def schedule_story(study: StudyRecord) -> Figure:
    """Reward, KL and specs of the subject's test runs over time, one column a game."""
    runs_by_game = {
        game: [run for key, run in study.runs.items() if key[:2] == (study.subject, game)]
        for game in study.games
    }
    games = [game for game, runs in runs_by_game.items() if runs]
    lengths = {
        game: (study.games[game].interval_seconds, study.games[game].horizon_seconds)
        for game in games
    }
    shares = {game: shares_over_time(runs_by_game[game], *lengths[game]) for game in games}
    order = study_specs(study)
    table: list[dict[str, Any]] = []
    for game in games:
        table += _trace_rows(study, game, runs_by_game[game])
        percent = 100.0 * lengths[game][0] / lengths[game][1]
        strips = stacked(shares[game], percent, order)
        table += [{"panel": "specs", "game": game, **row} for row in strips]
    columns, width = panel_layout(len(games))
    shared = {"resolve": {"scale": {"color": "shared"}}}
    # One scale for all games: normalised returns and KL can be compared.
    domains = {panel: _domain(table, panel) for panel in ("return", "kl")}
    colour = spec_colour(order, table)
    panels = [{**_column(game, width - 20, colour, domains), **shared} for game in games]
    return Figure(
        name="schedule-story",
        title=f"Reward and KL above what {study.labels[study.subject]} chose",
        caption=(
            "Means over test seeds. Top: normalised return of the learner; middle: KL of the "
            "actors to the learner (nats); bottom: share of actor seconds by spec."
        ),
        spec={"concat": panels, "columns": columns, "spacing": 26, **shared},
        table=table,
    )


def _trace_rows(study: StudyRecord, name: str, runs: list[RunRecord]) -> list[dict[str, Any]]:
    game = study.games[name]
    grid = np.linspace(0.0, game.horizon_seconds, BINS + 1)
    returns, divergence = [], []
    for run in runs:
        curve = curves.learning_curve(run.reports, game.random_return)
        values = curves.normalise(curve.returns, game.random_return, game.reference_return)
        returns.append((curve.seconds, values))
        times = np.array([report.total_seconds for report in run.reports])
        divergence.append((times, np.array([report.kl_mean_nats for report in run.reports])))
    result = []
    for panel, pairs in (("return", returns), ("kl", divergence)):
        means = curves.resample(pairs, grid, hold=True).mean(axis=0)
        result += [
            {"panel": panel, "game": name, "start": 100.0 * time / game.horizon_seconds}
            | {"value": round(float(value), 6)}
            for time, value in zip(grid, means, strict=True)
            if np.isfinite(value)
        ]
    return result


def _domain(table: list[dict[str, Any]], panel: str) -> list[float]:
    values = [row["value"] for row in table if row["panel"] == panel]
    return [min(0.0, *values), max(values)]


def _column(
    game: str, width: int, colour: dict[str, Any], domains: dict[str, list[float]]
) -> dict[str, Any]:
    time: dict[str, Any] = {"field": "start", "type": "quantitative"}
    time["scale"] = {"domain": [0, 100], "nice": False}
    hidden = {**time, "axis": {"labels": False, "ticks": False, "grid": False}, "title": None}
    ticks = {"values": [0, 25, 50, 75, 100], "grid": False}
    shown = {**time, "axis": ticks, "title": "Time (% of the run)"}
    line = {"type": "line", "strokeWidth": 2, "color": SUBJECT_COLOUR}

    def of(panel: str) -> list[dict[str, Any]]:
        return [{"filter": {"field": "panel", "equal": panel}}, _only(game)]

    def trace(panel: str, title: str) -> dict[str, Any]:
        value = {"field": "value", "type": "quantitative", "title": title}
        axis = {"tickCount": 3, "minExtent": 34, **PLAIN_NUMBERS}
        return {
            "width": width,
            "height": 62,
            "transform": of(panel),
            "mark": line,
            "encoding": {
                "x": hidden,
                "y": {**value, "axis": axis, "scale": {"domain": domains[panel], "nice": True}},
            },
        }

    strip = {
        "width": width,
        "height": 36,
        "transform": of("specs"),
        "mark": {"type": "rect"},
        "encoding": {
            "x": shown,
            "x2": {"field": "end"},
            "y": {"field": "low", "type": "quantitative", "axis": {"minExtent": 34}}
            | {"scale": {"domain": [0, 1]}, "title": "Specs"},
            "y2": {"field": "high"},
            "color": colour,
        },
    }
    strip["encoding"]["y"]["axis"] |= {"labels": False, "ticks": False, "grid": False}
    parts = [trace("return", "Return"), trace("kl", "KL"), strip]
    return {"title": {"text": game, "anchor": "middle"}, "vconcat": parts, "spacing": 6}


def _only(game: str) -> dict[str, Any]:
    return {"filter": {"field": "game", "equal": game}}
