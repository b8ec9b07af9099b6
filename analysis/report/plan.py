"""The section of the plan that was fixed before the test runs, its metrics and its instances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from typing import Any

from analysis import formats
from analysis.comparison.contrasts import METRICS, PRIMARY
from analysis.records.load import StudyRecord
from analysis.report.blocks import Block, Definitions, Listing, Section, Text, fold, section
from analysis.report.contrasts import NAMES
from analysis.report.table import Cell, Table, number, pairs_table, rows_table

SPLITS = ("tune", "train", "validate", "candidates", "reference", "test")
PLAN_TEXTS = {
    "question": "Question",
    "primary": "Primary comparison",
    "co_primary": "Co-primary comparison",
    "secondary": "Secondary comparisons",
    "precision": "Precision",
    "target": "Target",
    "rule": "Rule of choosing instances",
    "seeds": "Seeds",
    "seed": "Seed of samplers, controller and action noise",
}
"""what of the plan is shown in words; all else is in tables that are closed at first"""


def plan(study: StudyRecord, contest: Mapping[str, Any]) -> Section:
    """The plan, the metrics and the instances."""
    fewest = min(len(item.test_seeds) for item in study.strategies)
    few = f" (some are tested on the first {fewest} alone)" * (fewest < len(study.test_seeds))
    blocks: list[Block | None] = [
        Text(
            f"The {len(study.strategies)} strategies "
            f"steer the same inner runs: same learner, same games, same seeds{few}. Runs are "
            f"paired by (instance, seed), and instances weigh the same."
        ),
        *plan_blocks(study.info["plan"]),
        Text(f"Plan hash: {study.info['plan_hash']}"),
        Text(
            f"Seeds of tuning, validation and test are disjoint, and nothing is chosen on test "
            f"seeds ({formats.ranges(study.test_seeds)}). A comparison has a winner only if its "
            f"95% interval excludes no difference and its Holm-corrected p value lies below 0.05."
        ),
        Definitions(
            {NAMES[name]: text for name, text in METRICS.items()}, (NAMES[PRIMARY],), "primary"
        ),
        Text(
            "Normalised return is (J - random) / (reference - random). J is the return of the "
            "learner's full-precision policy, measured off the clock. Curves start at the random "
            "return.",
            "small",
        ),
        game_table(study),
        Listing(tuple(study.info["notes"]), style="small"),
    ]
    lead = "What was fixed before the test seeds were used."
    return section("Plan", lead, blocks, ("study.json", "contest.json"))


def plan_blocks(plan: Mapping[str, Any]) -> list[Block | None]:
    """Return the plan: sentences first, lists and settings in tables that are closed at first."""
    own = {"primary": _primary_in_words, "seeds": _seeds_in_words}
    texts = {
        title: own.get(key, in_words)(plan[key]) for key, title in PLAN_TEXTS.items() if key in plan
    }
    tables: list[Block | None] = []
    for key, value in plan.items():
        if key in PLAN_TEXTS:
            continue
        title = f"Plan: {key.replace('_', ' ')}"
        if isinstance(value, Mapping):
            pairs = {name: in_words(item) for name, item in value.items()}
            tables.append(fold(pairs_table(title, pairs, length=600)))
        elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
            tables.append(fold(_plain(rows_table(title, value))))
        else:
            texts[key.replace("_", " ").capitalize()] = in_words(value)
    return [Definitions(texts), *tables]


def in_words(value: Any) -> str:
    """Return any JSON value without its punctuation; whole numbers in a row as a range."""
    if isinstance(value, Mapping):
        return "; ".join(
            f"{key.replace('_', ' ')}: {in_words(item)}" for key, item in value.items()
        )
    if isinstance(value, list | tuple):
        if len(value) > 2 and all(type(item) is int for item in value):
            return formats.ranges(value)
        return ", ".join(
            f"({in_words(item)})" if isinstance(item, list | tuple | Mapping) else in_words(item)
            for item in value
        )
    if value is None:
        return formats.NOTHING
    return f"{value:g}" if isinstance(value, float) else str(value)


def _primary_in_words(primary: Mapping[str, Any]) -> str:
    groups, against = (formats.listed(primary[key]) for key in ("groups", "against"))
    text = f"{primary['metric'].replace('_', ' ')}: {primary['contrast']}"
    return f"{text}, over the groups {groups}; against: {against}; {primary['correction']}"


def _seeds_in_words(seeds: Mapping[str, list[int]]) -> str:
    return "; ".join(f"{key}: {formats.ranges(seeds[key])}" for key in SPLITS if key in seeds)


def _plain(table: Table) -> Table:
    """Return the table with floats short and columns named in words."""
    rows = tuple(
        tuple(
            replace(cell, text=f"{cell.value:g}") if cell.value is not None else cell
            for cell in row
        )
        for row in table.rows
    )
    columns = tuple(name.replace("_", " ") for name in table.columns)
    return replace(table, columns=columns, rows=rows)


def game_table(study: StudyRecord) -> Table:
    """What was fixed before the test runs, per instance."""
    texts = {"game": "Game", "profile": "Machine", "limit": "Limited by", "group": "Group"}
    numbers = {
        "target_return": "#Target return",
        "horizon_seconds": "#Horizon (s)",
        "interval_seconds": "#Decision every (s)",
        "first_interval_seconds": "#Second decision after (s)",
        "random_return": "#Random return",
        "reference_return": "#Reference return",
    }
    if not any(game.first_interval_seconds for game in study.games.values()):
        del numbers["first_interval_seconds"]
    rows = []
    for game in study.games.values():
        middle = median(game.fp32_returns)
        returns = f"{formats.significant(middle)} ({len(game.fp32_returns)} runs)"
        plain = (getattr(game, key) for key in numbers)
        rows.append(
            (
                Cell(game.name),
                *(Cell(getattr(game, key)) for key in texts),
                *(number(value, formats.plain(value)) for value in plain),
                number(middle, returns),
            )
        )
    columns = ("Instance", *texts.values(), *numbers.values(), "#Median of fp32 runs")
    return Table("Games and machines", columns, tuple(rows))
