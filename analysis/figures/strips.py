"""Schedules: which specs acted when, and the reward and KL that went with them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from analysis.comparison import curves
from analysis.comparison.decisions import label_seconds
from analysis.figures.parts import (
    PLAIN_NUMBERS,
    make_figure,
    marks,
    only,
    panel_layout,
    values_of,
)
from analysis.figures.theme import (
    OTHER_COLOUR,
    RAMP,
    SUBJECT_COLOUR,
    Figure,
    compression_rank,
    ramp,
)
from analysis.records.load import RunRecord, StudyRecord
from analysis.records.plan import Game

OTHER = "other specs"
BINS = 40
"""of the traces of reward and KL"""
COLUMNS = 4
"""games side by side in one figure; more than these would leave no room for the strips"""
GAP, WAITING = 0.06, 0.14
"""between a strip and the band of what waits, and that band, as shares of the strip's height"""
ROW, LEAST_STRIP, MOST_STRIP = 860, 330, 620
"""px of a label with its strip, as wide as a page; and of a strip that is alone in its row"""
LETTER = 6.85
"""px that a letter of 13 px takes, about"""
PERCENT_AXIS: Mapping[str, Any] = {"values": [0, 25, 50, 75, 100], "grid": False}

Shares = Mapping[tuple[float, float], Mapping[str, float]]
"""share of actor seconds by spec label, by interval (start and end in percent of the run)"""


def study_strips(study: StudyRecord, names: Sequence[str], suffix: str = "") -> list[Figure]:
    """Which specs acted when: a row a strategy, a column a game, a few games a figure.

    `suffix` keeps the names of several such figures apart.
    """
    shares, order = _study_shares(study)
    games = list(study.games.values())
    figures = []
    for start in range(0, len(games), COLUMNS):
        part = {
            game.name: f"{game.name} ({game.horizon_seconds:g} s)"
            for game in games[start : start + COLUMNS]
        }
        table = [
            {"row": study.labels[name], "column": column, **item}
            for name in names
            for game, column in part.items()
            for item in stacked(shares.get((name, game), {}), order)
        ]
        title = f"Which compression acted when{suffix.replace('-', ', ')}"
        if len(games) > COLUMNS:
            title += f", instances {start + 1} to {start + len(part)}"
        name = f"schedules{suffix}" + (f"-{start // COLUMNS + 1}" if start else "")
        what = "mean over test seeds" + (", continued" if start else "")
        rows = [study.labels[name] for name in names]
        figures.append(_strips(name, title, what, table, rows, list(part.values()), order))
    return figures


def run_strips(labelled: Mapping[str, RunRecord]) -> Figure:
    """Which specs acted when, one row a run; above it what was decided and not admitted yet."""
    shares = {label: _run_shares(run) for label, run in labelled.items()}
    order = _shown_specs(shares.values(), labelled.values())
    column = "each run over its own length"
    table = [
        {"row": label, "column": column, **item}
        for label, share in shares.items()
        for item in (*stacked(share, order), *_waiting(labelled[label], order))
    ]
    title, what = "Which compression acted when", "one row a run"
    return _strips("strips", title, what, table, list(labelled), [column], order)


def _waiting(run: RunRecord, order: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield one rectangle above the strip for each interval and spec that waited at its end."""
    percent = 100.0 / run.reports[-1].total_seconds
    for report in run.reports:
        start = round(percent * (report.total_seconds - report.seconds), 4)
        end = round(percent * report.total_seconds, 4)
        height = WAITING / max(len(report.waiting_kl_nats), 1)
        for index, spec in enumerate(report.waiting_kl_nats):
            low = round(1.0 + GAP + index * height, 4)
            label = spec.label if spec.label in order else OTHER
            place = {"low": low, "high": round(low + height, 4)}
            yield {"start": start, "end": end, "spec": label, **place}


def _study_shares(study: StudyRecord) -> tuple[Mapping[tuple[str, str], Shares], list[str]]:
    """Return the shares of every (strategy, game), and the labels that all figures show.

    The order of these is one for the study, so that colours mean the same in all its figures.
    """
    runs: dict[tuple[str, str], list[RunRecord]] = defaultdict(list)
    for (strategy, game, _), run in study.runs.items():
        runs[strategy, game].append(run)
    shares = {
        key: _shares(found, game)
        for key, found in runs.items()
        if (game := study.games.get(key[1])) is not None
    }
    return shares, _shown_specs(shares.values(), study.runs.values())


def _shares(runs: Sequence[RunRecord], game: Game) -> Shares:
    """Return the share of actor seconds by interval and label, over runs."""
    seconds: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    # As if the first interval had begun so much before 0 that it is as long as the others.
    early = game.interval_seconds - (game.first_interval_seconds or game.interval_seconds)
    last = max(int((game.horizon_seconds + early) / game.interval_seconds - 0.5), 0)
    for run in runs:
        for report in run.reports:
            middle = report.total_seconds - report.seconds / 2.0 + early
            interval = min(int(middle / game.interval_seconds), last)
            for label, value in label_seconds(report).items():
                seconds[interval][label] += value
    percent = 100.0 * game.interval_seconds / game.horizon_seconds
    before = 100.0 * early / game.horizon_seconds
    return {
        (
            round(max(index * percent - before, 0.0), 4),
            round(min(index * percent - before + percent, 100), 4),
        ): normalised(found)
        for index, found in sorted(seconds.items())
        if sum(found.values()) > 0.0
    }


def _run_shares(run: RunRecord) -> Shares:
    """Return the share of actor seconds by interval and label, of one run as it was."""
    percent, shares = 100.0 / run.reports[-1].total_seconds, {}
    for report in run.reports:
        found = label_seconds(report)
        if sum(found.values()) > 0.0:
            start = percent * (report.total_seconds - report.seconds)
            place = (round(start, 4), round(percent * report.total_seconds, 4))
            shares[place] = normalised(found)
    return shares


def normalised(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return shares that sum to 1."""
    total = sum(seconds.values())
    return {label: value / total for label, value in seconds.items()}


def _shown_specs(shares: Iterable[Shares], runs: Iterable[RunRecord]) -> list[str]:
    """The most used labels, from no compression to the hardest; the rest become OTHER.

    What waited and never acted is one of them too.
    """
    runs = list(runs)
    waited = {spec.label for run in runs for each in run.reports for spec in each.waiting_kl_nats}
    specs = {
        spec.label: spec
        for run in runs
        for report in run.reports
        for spec in (*report.decision.specs, *report.spec_seconds, *report.waiting_kl_nats)
    }
    totals: dict[str, float] = defaultdict(float, dict.fromkeys(sorted(waited), 0.0))
    for intervals in shares:
        for share in intervals.values():
            for label, value in share.items():
                totals[label] += value
    most_used = sorted(totals, key=lambda label: -totals[label])
    shown = [label for label in most_used[: len(RAMP)] if label in specs]
    shown.sort(key=lambda label: compression_rank(specs[label]))
    return shown + [OTHER] * (len(totals) > len(shown))


def stacked(shares: Shares, order: Sequence[str]) -> list[dict[str, Any]]:
    """Return one rectangle {start, end, spec, low, high} an interval and spec."""
    result = []
    for (start, end), share in shares.items():
        merged: dict[str, float] = defaultdict(float)
        for label, value in share.items():
            merged[label if label in order else OTHER] += value
        low = 0.0
        for label in order:
            if merged[label] > 0.0:
                high = low + merged[label]
                place = {"low": round(low, 4), "high": round(high, 4)}
                result.append({"start": start, "end": end, "spec": label, **place})
                low = high
    return result


def _spec_colour(order: Sequence[str], table: Sequence[Mapping[str, Any]]) -> alt.Color:
    """Return the encoding of a spec's label by its place between no compression and the hardest.

    The legend names those of `order` that `table` has; their colours do not depend on it.
    """
    colours = [*ramp(len([label for label in order if label != OTHER])), OTHER_COLOUR]
    used = {row.get("spec") for row in table}
    shown = {label: colour for label, colour in zip(order, colours, strict=False) if label in used}
    colour = alt.Color("spec:N").scale(domain=list(shown), range=list(shown.values()))
    return colour.legend(title="Spec, light = hard", orient="bottom", columns=3)


def _strips(
    name: str,
    title: str,
    what: str,
    table: Sequence[Mapping[str, Any]],
    rows: Sequence[str],
    columns: Sequence[str],
    order: Sequence[str],
) -> Figure:
    header = alt.Header(
        labelAngle=0, labelAlign="left", labelFontWeight="normal", labelLimit=ROW - LEAST_STRIP
    )
    small = alt.Header(labelFontSize=11 if len(columns) > 3 else 13)
    time = alt.X("start:Q").title("Time (% of the run)").scale(domain=[0, 100], nice=False)
    strips = marks().mark_rect()
    top = max([1, *(row["high"] for row in table if row["high"] > 1.0 + GAP)])
    left = round(ROW - LETTER * max(map(len, rows), default=0))
    alone = min(max(left, LEAST_STRIP), MOST_STRIP)
    chart = strips.encode(
        row=alt.Row("row:N", sort=list(rows)).title(None).header(header).spacing(8),
        column=alt.Column("column:N", sort=list(columns)).title(None).header(small),
        x=time.axis(**PERCENT_AXIS),
        x2="end",
        y=alt.Y("low:Q").axis(None).scale(domain=[0, top]),
        y2="high",
        color=_spec_colour(order, table),
    ).properties(width={1: alone, 2: 330, 3: 220}.get(len(columns), 165), height=30)
    caption = f"Share of actor seconds by spec over the run, {what}. Full height is 100%."
    if top > 1.0:
        caption += " The thin band above is what was decided and had to wait to be admitted."
    return make_figure(name, title, caption, chart, table)


def schedule_story(study: StudyRecord) -> Figure:
    """Reward, KL and specs of the subject's test runs over time, one column a game."""
    shares, order = _study_shares(study)
    table: list[dict[str, Any]] = []
    for game in study.games:
        runs = [run for key, run in study.runs.items() if key[:2] == (study.subject, game)]
        if runs:
            table += _trace_rows(study, game, runs)
            strips = stacked(shares[study.subject, game], order)
            table += [{"panel": "specs", "game": game, **row} for row in strips]
    games = values_of(table, "game")
    columns, width = panel_layout(len(games))
    colour = _spec_colour(order, table)
    # One scale for all games: normalised returns and KL can be compared.
    y = {
        panel: alt.Y("value:Q")
        .title(title)
        .axis(tickCount=3, minExtent=34, **PLAIN_NUMBERS)
        .scale(domain=_domain(table, panel), nice=True)
        for panel, title in (("return", "Return"), ("kl", "KL"))
    }
    found = [_story_column(game, width - 20, colour, y) for game in games]
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
    traces: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {"return": [], "kl": []}
    for run in runs:
        curve = curves.learning_curve(run.reports, game.random_return)
        values = curves.normalise(curve.returns, game.random_return, game.reference_return)
        traces["return"].append((curve.seconds, values))
        times = np.array([report.total_seconds for report in run.reports])
        traces["kl"].append((times, np.array([report.kl_mean_nats for report in run.reports])))
    return [
        {"panel": panel, "game": name, "start": 100.0 * time / game.horizon_seconds}
        | {"value": round(float(value), 6)}
        for panel, pairs in traces.items()
        for time, value in zip(
            grid, curves.resample(pairs, grid, hold=True).mean(axis=0), strict=True
        )
        if np.isfinite(value)
    ]


def _domain(table: list[dict[str, Any]], panel: str) -> list[float]:
    values = [row["value"] for row in table if row["panel"] == panel]
    return [min(0.0, *values), max(values)]


def _story_column(
    game: str, width: int, colour: alt.Color, y: Mapping[str, alt.Y]
) -> alt.VConcatChart:
    time = alt.X("start:Q").scale(domain=[0, 100], nice=False)
    hidden = time.title(None).axis(labels=False, ticks=False, grid=False)
    shown = time.title("Time (% of the run)").axis(**PERCENT_AXIS)
    traces = [
        marks("panel", panel)
        .transform_filter(only("game", game))
        .mark_line(strokeWidth=2, color=SUBJECT_COLOUR)
        .encode(x=hidden, y=value)
        .properties(width=width, height=62)
        for panel, value in y.items()
    ]
    low = alt.Y("low:Q").title("Specs").scale(domain=[0, 1])
    low = low.axis(minExtent=34, labels=False, ticks=False, grid=False)
    strip = marks("panel", "specs").transform_filter(only("game", game)).mark_rect()
    strip = strip.encode(x=shown, x2="end", y=low, y2="high", color=colour)
    parts = alt.vconcat(*traces, strip.properties(width=width, height=36), spacing=6)
    title = alt.Title(game, anchor="middle")
    return parts.properties(title=title).resolve_scale(color="shared")
