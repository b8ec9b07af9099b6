"""The page of a comparison of strategies on one game and machine, and its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis import formats
from analysis.figures.conditions import run_conditions
from analysis.figures.costs import phase_bars
from analysis.figures.strips import run_strips
from analysis.figures.studies.comparison import ratio_forest, score_curves
from analysis.records.comparison import COMPARISON
from analysis.records.load import RunRecord
from analysis.report.blocks import Block, Section, Text, fold, listing, section
from analysis.report.provenance import provenance_tables
from analysis.report.runs import why_section
from analysis.report.table import Cell, Table, number, share_cell

FILES = (COMPARISON, "runs/")
ENOUGH_SEEDS = 3
SERVED = 0.9
"""share of its seconds below which a decision has not acted as it should"""
SELDOM = 0.05
"""share of the run; a decision that held for less of it is not named"""


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
    acted: list[Block | None] = [
        run_strips(runs),
        run_conditions(runs),
        acted_table(result),
    ]
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
            f"What acted when in seed {result['seeds'][0]}, and what was decided for in all seeds.",
            acted,
            FILES,
        ),
        *([] if why is None else [why]),
        section("Phases", "Where the seconds go, same seed.", [phase_bars(runs)], FILES),
        section("Provenance", "Machine, versions, seeds.", provenance, FILES),
    ]


def headline(result: Mapping[str, Any]) -> str:
    """Return what the intervals say of the last score, in a sentence.

    A ratio that is a bound tells only what it bounds, runs that never arrived tell nothing, and
    the pairs of which one arrived do not speak for those of which neither did.
    """
    if not result["scores"]:
        return "Nothing was timed."
    score, over = result["scores"][-1], result["baseline"]
    kinds: dict[str, list[str]] = {"sooner": [], "later": [], "open": []}
    for row in result["strategies"][1:]:
        found = row["to_score"][-1]
        low, high = found["seconds_interval"] or (0.0, float("inf"))
        pairs, seeds = found["pairs"], len(result["seeds"])
        arrived = found["reached"] > 0
        kind = "open"
        if arrived and high < 1.0 and found["bound"] in ("", "<"):
            kind = "sooner"
        elif low > 1.0 and found["bound"] in ("", ">"):
            kind = "later"
        ratio = found["seconds_ratio"]
        few = f", {pairs} of {seeds} pairs" if pairs < seeds else ""
        shown = "" if ratio is None else f" ({found['bound']}{ratio:.2f}{few})"
        kinds[kind].append(f"{row['label']}{shown}")
    parts = [
        f"{name} than {over}: {', '.join(kinds[name])}"
        for name in ("sooner", "later")
        if kinds[name]
    ]
    if kinds["open"]:
        parts.append(f"cannot be told from {over}: {', '.join(kinds['open'])}")
    return f"To a score of {score:g}, by 95% intervals of seconds, {'; '.join(parts)}."


def cautions(result: Mapping[str, Any]) -> list[str]:
    """Return what is to be known before the numbers are believed."""
    over, seeds = result["baseline"], len(result["seeds"])
    notes = [f"{note[0].upper()}{note[1:]}." for note in result.get("notes", ())]
    if missed := _not_served(result):
        notes.append(
            f"Not all that was decided for acted: {'; '.join(missed)}. Something else acts while a "
            "student waits to be admitted, and where a spec cannot be built: see the events in the "
            "metrics.jsonl of the runs."
        )
    if seeds < ENOUGH_SEEDS:
        notes.append(
            f"Too few seeds ({seeds}) say little: what differs may be luck. From {ENOUGH_SEEDS} on "
            "intervals are of use (--seeds)."
        )
    if result.get("apart"):
        notes.append(
            f"The runs of seeds {formats.ranges(result['apart'])} were not made one after another: "
            "machines drift, so their ratios may be those of the hour."
        )
    if not result["scores"] and result["strategies"][0]["last_score"] is None:
        notes.append(
            f"Too few episodes of {over} have ended for a score: give longer runs (--seconds)."
        )
    elif not result["scores"]:
        notes.append(
            f"{over} ended no higher than it began: give --scores, or longer runs (--seconds)."
        )
    elif not result["scores_given"]:
        notes.append(
            f"Scores were chosen from what {over} reached in these runs; a score that was fixed "
            "before (--scores) favours nobody."
        )
    if early := _there_at_once(result):
        notes.append(
            f"Runs that had reached a score as soon as they had one say nothing of learning: "
            f"{'; '.join(early)}. Give higher --scores, or longer runs (--seconds)."
        )
    few = [
        f"{row['label']} to {found['score']:g}: {found['pairs']} of {seeds}"
        for row in result["strategies"][1:]
        for found in row["to_score"]
        if found["pairs"] < seeds
    ]
    if few:
        notes.append(
            "Where neither of two runs with the same seed reached a score, their ratio leaves them "
            f"out. Pairs that are left: {'; '.join(few)}."
        )
    cut = {row["label"]: row["learner_cut_off"] for row in result["strategies"]}
    if any(cut.values()):
        told = "; ".join(f"{count} of {label}" for label, count in cut.items() if count)
        notes.append(
            f"Episodes of learners in the end that had not ended were cut off, and count with "
            f"their scores so far: {told}."
        )
    return notes


def _there_at_once(result: Mapping[str, Any]) -> list[str]:
    """Return which strategies have runs whose first score is as high as one to be timed to."""
    return [
        f"{at_once} of {row['seeds']} of {row['label']} to {found['score']:g}"
        for row in result["strategies"]
        for found in row["to_score"]
        if (at_once := found.get("at_once"))
    ]


def _not_served(result: Mapping[str, Any]) -> list[str]:
    """Return which decisions acted in few of their seconds, strategy by strategy."""
    found = []
    for row in result["strategies"]:
        for label, share in sorted(row.get("served", {}).items()):
            if share < SERVED and row["acted"].get(label, 0.0) >= SELDOM:
                whose = "" if label == row["label"] else f" of {row['label']}"
                found.append(
                    f"{label}{whose} acted in {share:.0%} of the seconds that it was decided for"
                )
    return found


def comparison_tables(result: Mapping[str, Any]) -> list[Table]:
    """Return how runs went, and what they took to each score: the same cells for every view."""
    return [_runs(result), *(_to_score(result, at) for at in range(len(result["scores"])))]


def acted_table(result: Mapping[str, Any]) -> Table:
    """Return the share of the seconds that each decision held."""
    rows = tuple(
        (Cell(row["label"]), Cell(label), number(share, formats.percent(share)))
        for row in result["strategies"]
        for label, share in sorted(row["acted"].items(), key=lambda each: -each[1])
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
        more = _compared(row, result, gain["difference"], gain["interval"], is_ratio=False)
        rows.append(
            (
                Cell(row["label"]),
                number(row["env_steps_per_second"]),
                speed,
                number(row["compression_kl_nats"]),
                number(row["learner_score"]),
                more,
                number(row["core_seconds"]),
                number(row["distill_cores"]),
                Cell(max(row["acted"], key=row["acted"].__getitem__, default=formats.NOTHING)),
            )
        )
    cores = "#Core seconds" if result["profile"] is None else "#Core seconds (modelled)"
    columns = ("Strategy", "#Steps / s", f"#over {over}", "#KL (nats)", "#Learner scores")
    columns += (f"#more than {over}", cores, "#Distilling cores", "Decided most for")
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
    mark: str = "",
    is_ratio: bool = True,
) -> Cell:
    """Return a number with its interval; a dash for what others are compared with."""
    if row["label"] == result["baseline"] or value is None:
        return Cell(formats.NOTHING)
    digits = ".2f" if is_ratio else "+.3g"
    text = f"{mark}{value:{digits}}"
    if interval is not None:
        low, high = interval
        bounds = formats.limits(low, high, mark, digits)
        is_narrow = not is_ratio or formats.is_of_use(low, high)
        text += f" ({bounds if is_narrow else 'too few seeds'})" if bounds else ""
    return Cell(text, value)
