"""What came of a figure's runs, as plain JSON, and what it looks like on a terminal."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from accerl.presets import load_preset
from analysis import formats
from analysis.comparison.scores import reached
from studies.learning.curve import LearningCurve, Ratios
from studies.learning.interval import mean_interval
from studies.papers.figure import LEARNER, Curves, Panel, PaperFigure
from studies.papers.verdict import end_score, target_of
from studies.progress import numbers_table

POINTS = 50
"""of each curve that are kept"""
KEPT = ("seconds", "env_steps", "scores", "kl_nats", "kl_max_nats", "stages", "acting")
COSTS = ("seconds", "env_steps", "core_seconds")
"""of a score: what is compared with the baseline's"""


def figure_result(figure: PaperFigure, curves: Sequence[Curves]) -> dict[str, Any]:
    """Return all that a figure shows.

    Args:
        figure: of which paper.
        curves: of each of its panels; what is not done yet is missing.
    """
    panels = list(zip(figure.panels, curves, strict=True))
    return {
        "figure": figure.name,
        "key": figure.key,
        "title": figure.title,
        "claim": figure.claim,
        "bound_kl_max_nats": figure.bound_kl_max_nats,
        "shows_stages": figure.shows_stages,
        "shows_switches": figure.shows_switches,
        "shows_costs": figure.shows_costs,
        "panels": [_panel(panel, found) for panel, found in panels],
        "verdicts": [check(panels).to_json() for check in figure.checks],
    }


def _panel(panel: Panel, curves: Curves) -> dict[str, Any]:
    machines = dict.fromkeys(machine for machine, _, _ in curves)
    return {
        "game": panel.game,
        "network": LEARNER,
        "corrector": load_preset(panel.game).learner.corrector,
        "baseline": panel.baseline,
        "env_steps": panel.env_steps,
        "seeds": panel.seeds,
        "rules": [run.label for run in panel.runs if run.is_rule],
        "machines": {machine: _lines(panel, curves, machine) for machine in machines},
    }


def _lines(panel: Panel, curves: Curves, machine: str) -> dict[str, Any]:
    by_label = {
        run.label: {
            seed: curve
            for (where, label, seed), curve in curves.items()
            if (where, label) == (machine, run.label)
        }
        for run in panel.runs
    }
    base = by_label[panel.baseline]
    target = target_of(panel, list(base.values()))
    made = {label: own for label, own in by_label.items() if own}
    shared = set.intersection(*map(set, made.values())) if made else set()
    return {
        "target": target,
        "seeds_of_means": sorted(shared),
        "lines": [
            {"label": label, **_line(own, base, target, shared)} for label, own in made.items()
        ],
    }


def _line(
    own: Mapping[int, LearningCurve],
    base: Mapping[int, LearningCurve],
    target: float | None,
    shared: Collection[int],
) -> dict[str, Any]:
    # Means are held against those of other lines, so they are of seeds that all of them have.
    alike = [curve for seed, curve in own.items() if seed in shared or not shared]
    ends = [score for curve in alike if (score := end_score(curve)) is not None]
    seconds = sum(curve.seconds[-1] for curve in alike)
    steps = sum(curve.env_steps[-1] for curve in alike)
    return {
        "end_score": float(np.mean(ends)) if ends else None,
        "env_steps_per_second": steps / seconds,
        **{f"{by}_ratio": _ratio(own, base, target, by) for by in COSTS},
        "processor_seconds": _processor_seconds(alike, target),
        "missed": _missed(own.values(), target),
        "missed_of_means": _missed(alike, target),
        "curves": [{"seed": seed, **curve.thinned(POINTS, KEPT)} for seed, curve in own.items()],
    }


def _ratio(
    own: Mapping[int, LearningCurve],
    base: Mapping[int, LearningCurve],
    target: float | None,
    by: str,
) -> dict[str, Any] | None:
    """Return the geometric mean over seeds of what it takes to the target, over the baseline's."""
    pairs = []
    for seed in own.keys() & base.keys():
        if target is None or not getattr(own[seed], by) or not getattr(base[seed], by):
            continue
        first = reached(getattr(base[seed], by), base[seed].scores, target)
        pairs.append((reached(getattr(own[seed], by), own[seed].scores, target), first))
    found = Ratios.of(pairs)
    if not found.logs:
        return None
    mean, low, high = mean_interval(found.logs)
    bounds = [math.exp(value) if abs(value) < 100.0 else None for value in (low, high)]
    return {
        "estimate": math.exp(mean),
        "low": bounds[0],
        "high": bounds[1],
        "bound": found.bound,
        "reached": sum(is_there for (_, is_there), _ in pairs),
        "runs": len(pairs),
    }


def _missed(curves: Iterable[LearningCurve], target: float | None) -> int:
    """Return how many runs ended before they reached the target."""
    if target is None:
        return 0
    return sum(not reached(curve.seconds, curve.scores, target)[1] for curve in curves)


def _processor_seconds(
    curves: Sequence[LearningCurve], target: float | None
) -> dict[str, float] | None:
    """Return the processor seconds to the target by process, means over runs.

    A run that does not reach it counts whole.
    """
    known = [curve for curve in curves if curve.processor_seconds]
    if target is None or not known:
        return None
    return {
        name: float(
            np.mean(
                [reached(curve.processor_seconds[name], curve.scores, target)[0] for curve in known]
            )
        )
        for name in known[0].processor_seconds
    }


def figure_tables(result: Mapping[str, Any]) -> list[Table]:
    """Return a figure's numbers and verdicts as tables."""
    columns = ("last score", "to", "reached", "env steps", "seconds", "processor s", "env steps/s")
    found = []
    if "inference" in result:
        table = numbers_table(
            "Inference of one state", "network", "paper, ms", "here, ms", "+-", "x"
        )
        for row in result["inference"]:
            paper = "-" if row["published_ms"] is None else f"{row['published_ms']:.1f}"
            here = (f"{row[name]:.3g}" for name in ("here_ms", "here_spread_ms", "here_speedup"))
            table.add_row(row["label"], paper, *here)
        found.append(table)
    for panel in result["panels"]:
        for machine, known in panel["machines"].items():
            title = f"{result['figure']}: {panel['game']} on {machine}, learner {panel['network']}"
            table = numbers_table(title, "actors", *columns)
            for line in known["lines"]:
                table.add_row(
                    line["label"],
                    _number(line["end_score"]),
                    _number(known["target"]),
                    reached_text(line, known["target"]),
                    ratio_text(line["env_steps_ratio"]),
                    ratio_text(line["seconds_ratio"]),
                    ratio_text(line["core_seconds_ratio"]),
                    f"{line['env_steps_per_second']:,.0f}",
                )
            found.append(table)
    if result["verdicts"]:
        table = numbers_table("Claims", "claim", "verdict", "estimate", "n")
        for verdict in result["verdicts"]:
            table.add_row(
                verdict["claim"],
                verdict["outcome"],
                interval_text(verdict),
                str(verdict["runs"] or "-"),
            )
        found.append(table)
    return found


def interval_text(found: Mapping[str, Any] | None) -> str:
    """Return an estimate with its interval, such as ``0.71 (0.60 to 0.83)``; bounds are marked.

    Of a bound it is the limit that bounds it too, such as ``<0.71 (up to 0.83)``.
    """
    if found is None or found["estimate"] is None:
        return "-"
    bound = found.get("bound", "")
    text = f"{bound}{found['estimate']:.2f}"
    if found["low"] is None or found["high"] is None:
        return text
    limits = formats.limits(found["low"], found["high"], bound)
    return f"{text} ({limits})" if limits else text


def ratio_text(found: Mapping[str, Any] | None) -> str:
    """Return `interval_text` of a ratio; in place of an interval that says nothing, why."""
    if found is None or None in (found["low"], found["high"]):
        return interval_text(found)
    if formats.is_of_use(found["low"], found["high"]):
        return interval_text(found)
    return f"{interval_text({**found, 'low': None})} (too few seeds)"


def reached_text(line: Mapping[str, Any], target: float | None) -> str:
    """Return how many of a line's runs reached the score, such as ``2/3``; -: there is none."""
    runs = len(line["curves"])
    return "-" if target is None else f"{runs - line['missed']}/{runs}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
