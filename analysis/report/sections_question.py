"""The section that comes first: the answer, then the plan that was fixed before the test runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from analysis.comparison.contrasts import METRICS, PRIMARY
from analysis.comparison.verdict import listed
from analysis.records.entrants import test_seeds
from analysis.records.load import StudyRecord
from analysis.report import formats, tables
from analysis.report.blocks import (
    Block,
    Definitions,
    Folded,
    Listing,
    Section,
    Text,
    listing,
    section,
)

SPLITS = ("tune", "validate", "candidates", "test")
PLAN_TEXTS = {
    "question": "Question",
    "primary": "Primary comparison",
    "secondary": "Secondary comparisons",
    "target": "Target",
    "rule": "Rule of choosing instances",
    "seeds": "Seeds",
    "seed": "Seed of samplers, controller and action noise",
    "budgets": "Budgets",
}
"""what of the plan is told in words; all else is in tables that are closed at first"""


def question(study: StudyRecord, contest: Mapping[str, Any]) -> Section:
    """The verdict, every strategy by itself, the plan, the metrics and the instances."""
    headline, *rest = contest["verdict"]
    subject = study.labels[study.subject]
    unit = "instance" if any(game.profile for game in study.games.values()) else "game"
    blocks: list[Block | None] = [
        Text(headline, "headline"),
        Listing(tuple(rest)),
        _warnings(len(contest["warnings"])),
        tables.level_table(study, contest),
        Text(
            f"Which way of choosing the actors' compression reaches a fixed return in the fewest "
            f"seconds? {subject} and {len(study.strategies) - 1} other strategies steer the same "
            f"inner runs: same learner, same games, same seeds. Runs are paired by ({unit}, seed), "
            f"and {unit}s weigh the same. {_seeds(study)}"
        ),
        *plan_blocks(study.info.get("plan") or {}),
        Text(f"Plan hash: {study.info['plan_hash']}") if study.info.get("plan_hash") else None,
        Text(
            f"Seeds of tuning, validation and test are disjoint, and test seeds "
            f"({formats.ranges(study.test_seeds)}) choose nothing. A comparison has a winner only "
            f"if its 95% interval excludes no difference and its Holm-corrected p value lies below "
            f"0.05."
        ),
        Definitions(
            {tables.NAMES[name]: text for name, text in METRICS.items()},
            (tables.NAMES[PRIMARY],),
            "primary",
        ),
        Text(
            "Normalised return is (J - random) / (reference - random) with J the return of the "
            "learner's full-precision policy, measured off the clock. Curves start at the random "
            "return.",
            "small",
        ),
        tables.game_table(study),
        listing(study.info.get("notes"), style="small"),
    ]
    files = ("study.json", "contest.json")
    return section("Question", "The answer first, then the fixed plan.", blocks, files, empty="")


def study_lead(study: StudyRecord) -> str:
    """Say in one sentence what a study compared on what, and in one more with how many seeds."""
    games = {game.game for game in study.games.values() if game.game}
    machines = {game.profile for game in study.games.values() if game.profile}
    what = f"{len(study.games)} {'game' if len(study.games) == 1 else 'games'}"
    if games and machines:
        what = f"{_count(len(study.games), 'instance')} ({_count(len(games), 'game')} on "
        what += f"{_count(len(machines), 'machine')})"
    others = len(study.strategies) - 1
    against = "1 other strategy" if others == 1 else f"{others} other strategies"
    return (
        f"{study.labels[study.subject]} against {against} on {what}, {study.tier} clock. "
        f"{_seeds(study)}"
    )


def plan_blocks(plan: Mapping[str, Any]) -> list[Block | None]:
    """Return the plan: sentences first, lists and settings in tables that are closed at first."""
    told = {
        title: IN_OWN_WORDS.get(key, in_words)(plan[key])
        for key, title in PLAN_TEXTS.items()
        if key in plan
    }
    rest = {key: value for key, value in plan.items() if key not in PLAN_TEXTS}
    plain = {
        key.replace("_", " ").capitalize(): value
        for key, value in rest.items()
        if not _nested(value)
    }
    blocks: list[Block | None] = [Definitions(told | {k: in_words(v) for k, v in plain.items()})]
    for key, value in rest.items():
        title = f"Plan: {key.replace('_', ' ')}"
        if isinstance(value, Mapping):
            pairs = {name: in_words(item) for name, item in value.items()}
            blocks.append(Folded(tables.pairs_table(title, pairs, length=600)))
        elif _nested(value):
            named = [{"name": item["name"], **item} if "name" in item else item for item in value]
            blocks.append(Folded(_without_signs(tables.rows_table(title, named))))
    return blocks if told or rest else []


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


def _primary_in_words(primary: Any) -> str:
    if not isinstance(primary, Mapping) or not {"metric", "contrast"} <= primary.keys():
        return in_words(primary)
    text = f"{in_words(primary['metric']).replace('_', ' ')}: {in_words(primary['contrast'])}"
    for key, before in (("groups", "over the groups"), ("against", "against")):
        if primary.get(key):
            named = listed([str(item) for item in primary[key]])
            text += f", {before} {named}" if key == "groups" else f"; {before}: {named}"
    return text + (f"; {in_words(primary['correction'])}" if primary.get("correction") else "")


def _seeds_in_words(seeds: Any) -> str:
    if not isinstance(seeds, Mapping):
        return in_words(seeds)
    return "; ".join(
        f"{key}: {formats.ranges(item) if isinstance(item, list) else item}"
        for key, item in sorted(seeds.items(), key=lambda pair: _place(pair[0]))
    )


def _place(split: str) -> int:
    return SPLITS.index(split) if split in SPLITS else len(SPLITS)


IN_OWN_WORDS = {"primary": _primary_in_words, "seeds": _seeds_in_words}


def _nested(value: Any) -> bool:
    return isinstance(value, Mapping) or (
        isinstance(value, list) and any(isinstance(item, Mapping) for item in value)
    )


def _without_signs(table: tables.Table) -> tables.Table:
    """Return the table with floats short and columns named in words."""
    rows = tuple(
        tuple(
            replace(cell, text=f"{cell.value:g}") if cell.value is not None else cell
            for cell in row
        )
        for row in table.rows
    )
    return replace(
        table, columns=tuple(name.replace("_", " ") for name in table.columns), rows=rows
    )


def _seeds(study: StudyRecord) -> str:
    """Say how many test seeds everybody had; the plan's entrants first."""
    planned = {study.subject, *study.primary_against}
    counts = {item.name: len(test_seeds(study, item.name)) for item in study.strategies}
    if len(set(counts.values())) == 1:
        return f"Everybody has {_count(next(iter(counts.values())), 'test seed')}."
    groups = (
        ("The planned comparison's", [count for name, count in counts.items() if name in planned]),
        ("the other", [count for name, count in counts.items() if name not in planned]),
    )
    parts = []
    for who, found in groups:
        if found:
            seeds = listed([str(count) for count in sorted(set(found), reverse=True)])
            have = "has" if len(found) == 1 else "have"
            what = f"{have} {seeds} test seed" + ("s" if max(found) > 1 else "")
            parts.append(f"{who} {_count(len(found), 'strategy')} {what} each")
    return f"{', '.join(parts)}."


def _count(number: int, noun: str) -> str:
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun.removesuffix('y') + 'ies' if noun.endswith('y') else noun + 's'}"


def _warnings(count: int) -> Block | None:
    if not count:
        return None
    what = "1 run is" if count == 1 else f"{count} runs or files are"
    return Listing((f"{what} missing, cut short or not comparable: see Failures.",), warning=True)
