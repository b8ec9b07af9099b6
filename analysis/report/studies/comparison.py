"""The page of a comparison of strategies on one game and machine, and its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis import formats
from analysis.figures.costs import phase_bars
from analysis.figures.strips import run_strips
from analysis.figures.studies.comparison import ratio_forest, score_curves
from analysis.records.load import COMPARISON, RunRecord
from analysis.report.blocks import Block, Section, Text, fold, listing, section
from analysis.report.provenance import provenance_tables
from analysis.report.runs import why_section
from analysis.report.table import Cell, Table, number, share_cell

FILES = (COMPARISON, "runs/")
ENOUGH_SEEDS = 3


def comparison_sections(result: Mapping[str, Any], runs: Mapping[str, RunRecord]) -> list[Section]:
    """Return the sections of a comparison.json.

    Args:
        result: comparison.json.
        runs: the first run of every strategy, by its label.
    """
    places = range(len(result["scores"]))
    answer: list[Block | None] = [
        Text(headline(result), "headline"),
        listing(cautions(result), warning=True),
        *(ratio_forest(result, at) for at in places),
        *comparison_tables(result),
        Text(
            "Scores are means of the last 20 episodes that compressed actors played, those of the "
            "learner of episodes that its own policy played in the end. Intervals are t intervals "
            "over seeds, of pairs with equal seeds, and not corrected for how many they are.",
            "small",
        ),
    ]
    curves: list[Block | None] = [score_curves(result, axis) for axis in ("seconds", "env_steps")]
    acted: list[Block | None] = [run_strips(runs), acted_table(result)]
    provenance: list[Block | None] = [
        Text(f"Seeds {formats.ranges(result['seeds'])}; {_where(result)}."),
        *map(fold, provenance_tables(result)),
    ]
    why = why_section(runs)
    return [
        section("Answer", "What every strategy takes, over the first of them.", answer, FILES),
        section("Curves", "How scores rise.", curves, FILES),
        section(
            "Schedules",
            f"What acted when, seed {result['seeds'][0]}; the table is over all seeds.",
            acted,
            FILES,
        ),
        *([] if why is None else [why]),
        section("Phases", "Where the seconds go, same seed.", [phase_bars(runs)], FILES),
        section("Provenance", "Machine, versions, seeds.", provenance, FILES),
    ]


def headline(result: Mapping[str, Any]) -> str:
    """Return what the intervals say of the last score, in a sentence."""
    if not result["scores"]:
        return f"{result['baseline']} ended no higher than it began: nothing was timed."
    score, over = result["scores"][-1], result["baseline"]
    sooner, later, open_ = [], [], []
    for row in result["strategies"][1:]:
        found = row["to_score"][-1]
        low, high = found["seconds_interval"] or (0.0, float("inf"))
        told = found["seconds_ratio"] is not None
        kind = sooner if told and high < 1.0 else later if told and low > 1.0 else open_
        ratio = "" if not told else f" ({found['bound']}{found['seconds_ratio']:.2f})"
        kind.append(f"{row['label']}{ratio}")
    parts = [
        f"{name} than {over}: {'; '.join(found)}"
        for name, found in (("sooner", sooner), ("later", later))
        if found
    ]
    if open_:
        parts.append(f"cannot be told from {over}: {'; '.join(open_)}")
    return f"To a score of {score:g}, by 95% intervals of seconds, {', '.join(parts)}."


def cautions(result: Mapping[str, Any]) -> list[str]:
    """Return what is to be known before the numbers are believed."""
    notes = []
    if len(result["seeds"]) < ENOUGH_SEEDS:
        notes.append(
            f"Too few seeds ({len(result['seeds'])}) say little: what differs may be luck. From "
            f"{ENOUGH_SEEDS} on intervals are of use (--seeds)."
        )
    if not result["scores"]:
        notes.append(
            f"{result['baseline']} ended no higher than it began: give --scores, or longer runs "
            "(--seconds)."
        )
    elif not result["scores_given"]:
        notes.append(
            f"Scores were chosen from what {result['baseline']} reached in these runs; a score "
            "that was fixed before (--scores) favours nobody."
        )
    return notes


def comparison_tables(result: Mapping[str, Any]) -> list[Table]:
    """Return how runs went, and what they took to each score: the same cells for every view."""
    return [_runs(result), *(_to_score(result, at) for at in range(len(result["scores"])))]


def acted_table(result: Mapping[str, Any]) -> Table:
    """Return the share of the seconds that each decision held."""
    rows = tuple(
        (Cell(row["label"]), Cell(label), number(share, formats.percent(share)))
        for row in result["strategies"]
        for label, share in row["acted"].items()
    )
    return Table("What was decided for", ("Strategy", "Spec", "#Share of the seconds"), rows)


def _where(result: Mapping[str, Any]) -> str:
    """Return the machine that seconds are of."""
    return result["profile"] or "this machine"


def _runs(result: Mapping[str, Any]) -> Table:
    over, seeds = result["baseline"], len(result["seeds"])
    rows = []
    for row in result["strategies"]:
        gain = row["learner_score_gain"]
        speed = _compared(row, result, row["speed"]["ratio"], row["speed"]["interval"])
        more = _compared(row, result, gain["difference"], gain["interval"], "+.3g")
        rows.append(
            (
                Cell(row["label"]),
                number(row["env_steps_per_second"]),
                speed,
                number(row["compression_kl_nats"]),
                number(row["learner_score"]),
                more,
                number(row["core_seconds"]),
                Cell(next(iter(row["acted"]), formats.NOTHING)),
            )
        )
    columns = ("Strategy", "#Steps / s", f"#over {over}", "#KL (nats)", "#Learner scores")
    columns += (f"#more than {over}", "#Core seconds", "Acted most with")
    where = f"{result['game']} on {_where(result)}, {result['network']} learns"
    title = f"{where}: {formats.counted(seeds, 'run')} of {result['seconds']:g} s each"
    return Table(title, columns, tuple(rows))


def _to_score(result: Mapping[str, Any], at: int) -> Table:
    rows = []
    for row in result["strategies"]:
        found, missed = row["to_score"][at], row["seeds"] - row["to_score"][at]["reached"]
        cells = [Cell(row["label"]), share_cell(found["reached"], row["seeds"])]
        for name in ("seconds", "env_steps"):
            text = (">" if missed else "") + formats.rounded(found[name])
            cells.append(number(found[name], text))
            ratio, interval = found[f"{name}_ratio"], found[f"{name}_interval"]
            cells.append(_compared(row, result, ratio, interval, mark=found["bound"]))
        rows.append(tuple(cells))
    over = f"#over {result['baseline']}"
    columns = ("Strategy", "#Reached", "#Seconds", over, "#Env steps", over)
    return Table(f"To a score of {result['scores'][at]:g}", columns, tuple(rows))


def _compared(
    row: Mapping[str, Any],
    result: Mapping[str, Any],
    value: float | None,
    interval: Sequence[float] | None,
    digits: str = ".2f",
    mark: str = "",
) -> Cell:
    """Return a number with its interval; a dash for what others are compared with."""
    if row["label"] == result["baseline"] or value is None:
        return Cell(formats.NOTHING)
    text = f"{mark}{value:{digits}}"
    if interval is not None:
        text += f" ({interval[0]:{digits}} to {interval[1]:{digits}})"
    return Cell(text, value)
