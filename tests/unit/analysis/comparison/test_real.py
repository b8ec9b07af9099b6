"""Speeds on the real clock: paired by seed, a row a game, and a sentence about fp32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from analysis.comparison.real import speed_contrasts, speed_result, speed_sentences
from analysis.records.load import StudyRecord, load_study
from analysis.report.transfer import spec_shares
from tests.fixtures.studies.synthetic_study import write_study


def rows(speeds: dict[str, tuple[float, ...]], game: str = "pong") -> list[dict[str, Any]]:
    return [
        {"game": game, "strategy": name, "seed": seed, "env_steps_per_second": speed}
        for name, found in speeds.items()
        for seed, speed in enumerate(found)
    ]


def contrasts(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return speed_contrasts(found, "learned", np.random.default_rng(0))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> StudyRecord:
    folder = tmp_path_factory.mktemp("study")
    return load_study(
        write_study(folder, strategies=("fp32", "learned"), games=("freeway",), seeds=(100,))
    )


def test_ratios_are_geometric_means_of_pairs() -> None:
    speeds = {"learned": (100.0, 400.0, 300.0, 90.0), "fp32": (50.0, 100.0, 100.0)}
    (found,) = contrasts(rows(speeds))
    assert found["ratio"] == pytest.approx(24.0 ** (1 / 3))
    assert found["n"] == 3
    assert 1.0 < found["low"] < 2.0 < found["ratio"] < 4.0 < found["high"] < 8.0


def test_games_are_told_apart_and_together() -> None:
    speeds = {"learned": (100.0, 100.0), "fp32": (50.0, 50.0)}
    found = contrasts(rows(speeds) + rows({"learned": (50.0,), "fp32": (100.0,)}, "breakout"))
    assert {item["game"]: item["ratio"] for item in found} == {
        "pong": pytest.approx(2.0),
        "breakout": pytest.approx(0.5),
        "all games": pytest.approx(1.0),  # games weigh the same
    }


@pytest.mark.parametrize(
    ("speeds", "ending"),
    [
        ((80.0, 82.0, 81.0), "slower by more than the interval."),
        ((120.0, 122.0, 125.0), "faster by more than the interval."),
        ((80.0, 125.0, 101.0), "neither slower nor faster by more than the interval."),
        ((80.0,), "(1 pair, too few for an interval): not distinguishable."),
    ],
)
def test_a_sentence_says_whether_it_is_slower_than_fp32(
    study: StudyRecord, speeds: tuple[float, ...], ending: str
) -> None:
    found = contrasts(rows({"learned": speeds, "fp32": (100.0,) * len(speeds)}))
    (sentence,) = speed_sentences(study, found)
    assert sentence.startswith("pong: Learned controller does ")
    assert sentence.endswith(ending)
    assert (speed_result(found[0]) == "slower") == (ending.startswith("slower"))


def test_shares_of_specs_are_ranked_and_none_is_lost() -> None:
    assert spec_shares({"a": 1.0, "b": 6.0, "c": 2.0, "d": 0.5, "e": 0.5}) == (
        "b 60%, c 20%, a 10%, others 10%"
    )
    assert spec_shares({}) == "\N{EN DASH}"
