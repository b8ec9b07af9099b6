"""The goal of a contest: which rule it is held against, and what is said where there is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.comparison.contest import build_contest
from analysis.comparison.contrasts import PRIMARY
from analysis.comparison.goal import UNKNOWN, find_goal
from analysis.records.load import StudyRecord, load_study
from tests.fixtures.studies.synthetic_contest import write_contest_study


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> StudyRecord:
    return load_study(write_contest_study(tmp_path_factory.mktemp("contest"), seeds=(100, 101)))


def test_the_goal_is_the_planned_contrast_with_the_threshold_rule(study: StudyRecord) -> None:
    contest = build_contest(study)
    (contrast,) = (
        item for item in contest["contrasts"] if (item["b"], item["metric"]) == ("kl_max", PRIMARY)
    )
    held_out = {key: contrast[key] for key in ("ratio", "low", "high", "n")}
    assert contest["goal"] == {"against": "kl_max", "is_held_out": True, "held_out": held_out}
    assert held_out["low"] < held_out["ratio"] < held_out["high"]


def test_of_several_rules_the_hardest_counts(study: StudyRecord) -> None:
    contest = build_contest(study)
    strategies = tuple(
        replace(item, kind="threshold", scope="one for all") if item.name == "static" else item
        for item in study.strategies
    )
    ratios = {
        item["b"]: item["ratio"] for item in contest["contrasts"] if item["metric"] == PRIMARY
    }
    hardest = max(("static", "kl_max"), key=lambda name: ratios[name])
    goal = find_goal(replace(study, strategies=strategies), contest)
    assert (goal["against"], goal["held_out"]["ratio"]) == (hardest, ratios[hardest])


def test_without_such_a_rule_nothing_is_known(study: StudyRecord) -> None:
    contest = build_contest(study)
    none = replace(study, strategies=tuple(s for s in study.strategies if s.kind != "threshold"))
    nothing = {"is_held_out": True, "held_out": UNKNOWN}
    assert find_goal(none, contest) == {"against": None, **nothing}
    assert find_goal(study, {"contrasts": []}) == {"against": "kl_max", **nothing}


def test_where_nothing_is_held_out_it_says_so(study: StudyRecord) -> None:
    games = {name: replace(game, group="trained") for name, game in study.games.items()}
    assert not find_goal(replace(study, games=games), {"contrasts": []})["is_held_out"]
