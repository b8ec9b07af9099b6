"""Schedules: which specs acted when, and the reward and KL that went with them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from accerl.runtime.run import IntervalReport
from accerl.spec import by_label
from analysis.comparison import curves
from analysis.figures.parts import PLAIN_NUMBERS, make_figure, marks, only, panel_layout
from analysis.figures.theme import (
    OTHER_COLOUR,
    RAMP,
    SUBJECT_COLOUR,
    Figure,
    compression_rank,
    ramp,
)
from analysis.records.load import RunRecord, StudyRecord

OTHER = "other specs"
BINS = 40
"""of the traces of reward and KL"""
ALL_RUNS = "each run over its own length"
COLUMNS = 4
"""games side by side in one figure; more than these would leave no room for the strips"""

Shares = Mapping[int, Mapping[str, float]]
"""share of actor seconds by spec label, by index of the interval"""
Group = tuple[Sequence[RunRecord], float, float]
"""runs, seconds of an interval, seconds of the whole"""


def study_strips(
    study: StudyRecord, shown: Sequence[str] | None = None, suffix: str = ""
) -> list[Figure]:
    """Which specs acted when: a row a strategy, a column a game, a few games a figure.

    `shown` names the strategies (default: all); figures of some have names of their own, by
    `suffix`.
    """
    names = [item.name for item in study.strategies if shown is None or item.name in shown]
    groups: dict[tuple[str, str], Group] = {
        (study.labels[name], _column(game.name, game.horizon_seconds)): (
            [run for key, run in study.runs.items() if key[:2] == (name, game.name)],
            game.interval_seconds,
            game.horizon_seconds,
        )
        for name in names
        for game in study.games.values()
    }
    rows = [study.labels[name] for name in names]
    columns = [_column(game.name, game.horizon_seconds) for game in study.games.values()]
    order = study_specs(study)
    figures = []
    for start in range(0, len(columns), COLUMNS):
        part = columns[start : start + COLUMNS]
        name = f"schedules{suffix}" + (f"-{start // COLUMNS + 1}" if start else "")
        own = {key: group for key, group in groups.items() if key[1] in part}
        what = "mean over test seeds" + (", continued" if start else "")
        title = f"Which compression acted when{suffix.replace('-', ', ')}"
        if len(columns) > COLUMNS:
            title += f", instances {start + 1} to {start + len(part)}"
        figures.append(_strips(name, own, rows, part, order, what, title))
    return figures


def run_strips(labelled: Mapping[str, RunRecord]) -> Figure:
    """Which specs acted when, one row a run."""
    groups: dict[tuple[str, str], Group] = {}
    for label, run in labelled.items():
        longest = max(report.seconds for report in run.reports)
        groups[label, ALL_RUNS] = ([run], longest, run.reports[-1].total_seconds)
    shares = [shares_over_time(*group) for group in groups.values()]
    order = shown_specs(shares, labelled.values())
    return _strips("strips", groups, list(labelled), [ALL_RUNS], order, "one row a run")


def study_specs(study: StudyRecord) -> list[str]:
    """Return the labels that figures of a study show: one order, so that colours mean the same."""
    by_place: dict[tuple[str, str], list[RunRecord]] = defaultdict(list)
    for (strategy, game, _), run in study.runs.items():
        by_place[strategy, game].append(run)
    shares = [
        shares_over_time(runs, game.interval_seconds, game.horizon_seconds)
        for (_, name), runs in by_place.items()
        if (game := study.games.get(name)) is not None
    ]
    return shown_specs(shares, study.runs.values())


def shares_over_time(
    runs: Sequence[RunRecord], interval_seconds: float, horizon_seconds: float
) -> Shares:
    """Return the share of actor seconds by label and interval index, over runs."""
    seconds: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    last = max(int(horizon_seconds / interval_seconds - 0.5), 0)
    for run in runs:
        for report in run.reports:
            middle = report.total_seconds - report.seconds / 2.0
            bin_ = min(int(middle / interval_seconds), last)
            for label, value in _label_seconds(report).items():
                seconds[bin_][label] += value
    return {
        index: {label: value / total for label, value in found.items()}
        for index, found in sorted(seconds.items())
        if (total := sum(found.values())) > 0.0
    }


def shown_specs(shares: Iterable[Shares], runs: Iterable[RunRecord]) -> list[str]:
    """The most used labels, from no compression to the hardest; the rest become OTHER."""
    specs = {
        spec.label: spec for run in runs for report in run.reports for spec in report.decision.specs
    }
    totals: dict[str, float] = defaultdict(float)
    for bins in shares:
        for share in bins.values():
            for label, value in share.items():
                totals[label] += value
    most_used = sorted(totals, key=lambda label: -totals[label])
    shown = [label for label in most_used[: len(RAMP)] if label in specs]
    shown.sort(key=lambda label: compression_rank(specs[label]))
    return shown + [OTHER] * (len(totals) > len(shown))


def stacked(shares: Shares, interval_percent: float, order: Sequence[str]) -> list[dict[str, Any]]:
    """Return one rectangle {start, end, spec, low, high} an interval and spec; start in percent."""
    result = []
    for index, share in shares.items():
        start = index * interval_percent
        merged: dict[str, float] = defaultdict(float)
        for label, value in share.items():
            merged[label if label in order else OTHER] += value
        low = 0.0
        for label in order:
            if merged[label] > 0.0:
                high = low + merged[label]
                result.append(
                    {"start": round(start, 4), "end": round(min(start + interval_percent, 100), 4)}
                    | {"spec": label, "low": round(low, 4), "high": round(high, 4)}
                )
                low = high
    return result


def spec_colour(order: Sequence[str], table: Sequence[Mapping[str, Any]]) -> alt.Color:
    """Return the encoding of a spec's label by its place between no compression and the hardest.

    The legend names those of `order` that `table` has; their colours do not depend on it.
    """
    colours = ramp(len([label for label in order if label != OTHER]))
    all_colours = dict(zip(order, [*colours, OTHER_COLOUR], strict=False))
    used = {row["spec"] for row in table if "spec" in row}
    shown = {label: colour for label, colour in all_colours.items() if label in used}
    return (
        alt.Color("spec:N")
        .scale(domain=list(shown), range=list(shown.values()))
        .legend(title="Spec, light = hard", orient="bottom", columns=3)
    )


def _column(game: str, horizon_seconds: float) -> str:
    return f"{game} ({horizon_seconds:g} s)"


def _strips(
    name: str,
    groups: Mapping[tuple[str, str], Group],
    rows: Sequence[str],
    columns: Sequence[str],
    order: Sequence[str],
    what: str,
    title: str = "Which compression acted when",
) -> Figure:
    table = [
        {"row": row, "column": column, **item}
        for (row, column), (runs, interval, horizon) in groups.items()
        for item in stacked(
            shares_over_time(runs, interval, horizon), 100.0 * interval / horizon, order
        )
    ]
    header = alt.Header(labelAngle=0, labelAlign="left", labelFontWeight="normal")
    small = alt.Header(labelFontSize=11 if len(columns) > 3 else 13)
    time = alt.X("start:Q").title("Time (% of the run)").scale(domain=[0, 100], nice=False)
    chart = (
        marks()
        .mark_rect()
        .encode(
            row=alt.Row("row:N", sort=list(rows)).title(None).header(header).spacing(8),
            column=alt.Column("column:N", sort=list(columns)).title(None).header(small),
            x=time.axis(values=[0, 25, 50, 75, 100], grid=False),
            x2="end",
            y=alt.Y("low:Q").axis(None).scale(domain=[0, 1]),
            y2="high",
            color=spec_colour(order, table),
        )
        .properties(width={1: 620, 2: 330, 3: 220}.get(len(columns), 165), height=30)
    )
    caption = f"Share of actor seconds by spec over the run, {what}. Full height is 100%."
    return make_figure(name, title, caption, chart, table)


def _label_seconds(report: IntervalReport) -> Mapping[str, float]:
    if any(report.spec_seconds.values()):
        return by_label(report.spec_seconds)
    # An interval in which no rollout began: what was asked for is the best account there is.
    return {spec.label: share * report.seconds for spec, share in report.decision.mix}


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
    colour = spec_colour(order, table)
    # One scale for all games: normalised returns and KL can be compared.
    domains = {panel: _domain(table, panel) for panel in ("return", "kl")}
    found = [_story_column(game, width - 20, colour, domains) for game in games]
    chart = alt.concat(*found, columns=columns, spacing=26, data=marks().data)
    return make_figure(
        "schedule-story",
        f"Reward and KL above the choices of {study.labels[study.subject]}",
        "Means over test seeds. Top: normalised return of the learner; middle: KL of the "
        "actors to the learner (nats); bottom: share of actor seconds by spec.",
        chart.resolve_scale(color="shared"),
        table,
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


def _story_column(
    game: str, width: int, colour: alt.Color, domains: Mapping[str, list[float]]
) -> alt.VConcatChart:
    time = alt.X("start:Q").scale(domain=[0, 100], nice=False)
    hidden = time.title(None).axis(labels=False, ticks=False, grid=False)
    shown = time.title("Time (% of the run)").axis(values=[0, 25, 50, 75, 100], grid=False)

    def of(panel: str) -> alt.Chart:
        chart = marks().transform_filter(only("panel", panel))
        return chart.transform_filter(only("game", game))

    def trace(panel: str, title: str) -> alt.Chart:
        y = alt.Y("value:Q").title(title).axis(tickCount=3, minExtent=34, **PLAIN_NUMBERS)
        line = of(panel).mark_line(strokeWidth=2, color=SUBJECT_COLOUR)
        encoded = line.encode(x=hidden, y=y.scale(domain=domains[panel], nice=True))
        return encoded.properties(width=width, height=62)

    specs = alt.Y("low:Q").title("Specs").scale(domain=[0, 1])
    strip = (
        of("specs")
        .mark_rect()
        .encode(
            x=shown,
            x2="end",
            y=specs.axis(minExtent=34, labels=False, ticks=False, grid=False),
            y2="high",
            color=colour,
        )
        .properties(width=width, height=36)
    )
    parts = alt.vconcat(trace("return", "Return"), trace("kl", "KL"), strip, spacing=6)
    title = alt.Title(game, anchor="middle")
    return parts.properties(title=title).resolve_scale(color="shared")
