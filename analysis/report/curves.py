"""The sections of the learning curves: returns over time, and when runs reach the target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis import formats
from analysis.figures import learning_curves as figures
from analysis.records.load import StudyRecord
from analysis.report.blocks import Block, Section, Text, fold, section
from analysis.report.provenance import RUN_FILES
from analysis.report.table import Cell, Table, count, fixed, number, share_cell, strategy_cell

EXPLORATORY = "-exploratory"
"""ends the names of figures of the strategies that the plan does not name"""


def curves(study: StudyRecord, contest: Mapping[str, Any]) -> Section:
    """Learning curves over seconds and over environment steps."""
    seconds, steps = (
        figures.learning_curves(study, axis, study.planned) for axis in ("seconds", "env_steps")
    )
    others = study.exploratory
    more = figures.learning_curves(study, "seconds", others, EXPLORATORY) if others else None
    blocks: list[Block | None] = [
        seconds,
        Text(
            "Where actors limit, compressed ones collect more experience per second, and their "
            "curves can rise sooner over seconds. They act with a less exact copy of the policy, "
            "which can make them rise later over environment steps."
        ),
        steps,
        fold(more) if more else None,
    ]
    lead = "How fast each strategy learns: a curve further to the left is faster."
    return section("Curves", lead, blocks, (RUN_FILES,))


def reach(study: StudyRecord, contest: Mapping[str, Any]) -> Section:
    """How many runs had reached the target by when."""
    several = len(study.games) > 1

    def drawn(names: list[str], suffix: str = "") -> list[Block | None]:
        by_game = figures.reach_by_game(study, contest, names, suffix) if several else None
        together = figures.reach_curves(study, contest, names, suffix)
        return [together, by_game, figures.time_strip(study, contest, names, suffix)]

    others = study.exploratory
    blocks: list[Block | None] = [
        *drawn(study.planned),
        reach_table(study, contest),
        fold(*drawn(others, EXPLORATORY), title="Exploratory strategies") if others else None,
        fold(test_run_table(study, contest)),
    ]
    lead = "How many runs have reached the target after how many seconds."
    return section("Reach", lead, blocks, (RUN_FILES,))


def reach_table(study: StudyRecord, contest: Mapping[str, Any]) -> Table:
    """How many runs reached the target: a row a strategy, a column an instance."""
    rows = []
    for strategy in study.strategies:
        cells = [strategy_cell(study, strategy.name)]
        for game in (None, *study.games):
            missed = [
                row["censored"]
                for row in contest["rows"]
                if row["strategy"] == strategy.name and game in (None, row["env"])
            ]
            cells.append(share_cell(len(missed) - sum(missed), len(missed)))
        rows.append(tuple(cells))
    columns = ("Strategy", "#All instances", *(f"#{game}" for game in study.games))
    return Table("Runs that reached the target before the horizon", columns, tuple(rows))


def test_run_table(study: StudyRecord, contest: Mapping[str, Any]) -> Table:
    """Every test run with its four numbers."""
    rows = []
    for row in contest["rows"]:
        seconds = formats.significant(row["seconds_to_target"])
        rows.append(
            (
                strategy_cell(study, row["strategy"]),
                Cell(row["env"]),
                count(row["seed"]),
                number(row["seconds_to_target"], f"{'> ' if row['censored'] else ''}{seconds}"),
                fixed(row["auc"], 3),
                number(row["gain_per_second"]),
                number(row["final_return"]),
            )
        )
    title = "All test runs (> marks runs that did not reach the target before the horizon)"
    columns = ("Strategy", "Instance", "#Seed", "#Seconds to target", "#Curve area")
    return Table(title, (*columns, "#Gain per second", "#Final return"), tuple(rows))
