"""The section that comes first: the verdict in one sentence, and what was compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.formats import counted, listed, sentence
from analysis.records.load import StudyRecord
from analysis.report.blocks import Section, Text, section


def answer(study: StudyRecord, contest: Mapping[str, Any]) -> Section:
    """The verdict's headline and the size of the comparison."""
    return section(
        "Answer",
        "Which way of choosing the compression reaches a fixed return in the fewest seconds?",
        [Text(contest["verdict"][0], "headline"), Text(sentence(study_lead(study)))],
        ("contest.json",),
    )


def study_lead(study: StudyRecord) -> str:
    """Say in one sentence what a study compared on what, and in one more with how many seeds."""
    games = {game.game for game in study.games.values()}
    machines = {game.profile for game in study.games.values()}
    return (
        f"{study.labels[study.subject]} against "
        f"{counted(len(study.strategies) - 1, 'other strategy')} on "
        f"{counted(len(study.games), 'instance')} ({counted(len(games), 'game')} on "
        f"{counted(len(machines), 'machine')}), {study.tier} clock. {seeds_sentence(study)}"
    )


def seeds_sentence(study: StudyRecord) -> str:
    """Say how many test seeds each strategy has; the planned ones first."""
    counts = {item.name: len(item.test_seeds) for item in study.strategies}
    if len(set(counts.values())) == 1:
        return f"Every strategy has {counted(next(iter(counts.values())), 'test seed')}."
    planned = {study.subject, *study.primary_against}
    groups = (
        ("The planned comparison's", [count for name, count in counts.items() if name in planned]),
        ("the other", [count for name, count in counts.items() if name not in planned]),
    )
    parts = []
    for which, found in groups:
        if found:
            seeds = listed([str(count) for count in sorted(set(found), reverse=True)])
            have = "has" if len(found) == 1 else "have"
            what = f"{have} {seeds} test seed" + ("s" if max(found) > 1 else "")
            parts.append(f"{which} {counted(len(found), 'strategy')} {what} each")
    return f"{', '.join(parts)}."
