"""Strips: which specs acted when, as shares of actor seconds over a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from accerl.runtime.run import IntervalReport
from accerl.spec import by_label
from analysis.figures.theme import OTHER_COLOUR, RAMP, Figure, compression_rank, ramp
from analysis.records.load import RunRecord, StudyRecord

OTHER = "other specs"
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


def spec_colour(order: Sequence[str], table: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the encoding of a spec's label by its place between no compression and the hardest.

    The legend names those of `order` that `table` has; their colours do not depend on it.
    """
    colours = ramp(len([label for label in order if label != OTHER]))
    by_label = dict(zip(order, [*colours, OTHER_COLOUR], strict=False))
    used = {row["spec"] for row in table if "spec" in row}
    shown = {label: colour for label, colour in by_label.items() if label in used}
    return {
        "field": "spec",
        "type": "nominal",
        "scale": {"domain": list(shown), "range": list(shown.values())},
        "legend": {"title": "Spec, light = hard", "orient": "bottom", "columns": 3},
    }


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
    width = {1: 620, 2: 330, 3: 220}.get(len(columns), 165)
    time = {"type": "quantitative", "title": "Time (% of the run)"}
    time |= {"axis": {"values": [0, 25, 50, 75, 100], "grid": False}}
    spec = {
        "width": width,
        "height": 30,
        "mark": {"type": "rect"},
        "encoding": {
            "row": {
                "field": "row",
                "type": "nominal",
                "sort": list(rows),
                "title": None,
                "header": {"labelAngle": 0, "labelAlign": "left", "labelFontWeight": "normal"},
                "spacing": 8,
            },
            "column": {
                "field": "column",
                "type": "nominal",
                "sort": list(columns),
                "title": None,
                "header": {"labelFontSize": 11 if len(columns) > 3 else 13},
            },
            "x": {"field": "start", "scale": {"domain": [0, 100], "nice": False}, **time},
            "x2": {"field": "end"},
            "y": {
                "field": "low",
                "type": "quantitative",
                "axis": None,
                "scale": {"domain": [0, 1]},
            },
            "y2": {"field": "high"},
            "color": spec_colour(order, table),
        },
    }
    return Figure(
        name=name,
        title=title,
        caption=f"Share of actor seconds by spec over the run, {what}. Full height is 100%.",
        spec=spec,
        table=table,
    )


def _label_seconds(report: IntervalReport) -> Mapping[str, float]:
    if any(report.spec_seconds.values()):
        return by_label(report.spec_seconds)
    # An interval in which no rollout began: what was asked for is the best account there is.
    return {spec.label: share * report.seconds for spec, share in report.decision.mix}
