"""Scores of single runs: which curve is shown, when a level was reached, what is written."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from accerl.spec import IDENTITY, Decision
from accerl.training.score import SCORED_EPISODES
from analysis.comparison.scores import (
    EPISODES,
    POINTS,
    Point,
    curves_json,
    default_levels,
    first_reached,
    score_curve,
)
from analysis.figures.export import write_run_figures
from analysis.records.load import RunRecord, load_run
from analysis.report.blocks import Text
from analysis.report.runs import run_sections, score_table, score_tables
from tests.fixtures.studies.synthetic_study import make_report, write_run

FP32 = Decision.of(IDENTITY)


def run_of(path: Path, episodes: list[tuple[float, ...]]) -> RunRecord:
    """A run without J whose intervals end with these episodes."""
    reports = [
        replace(make_report(index, 2.0, 1.0, FP32), learner_return=None, episode_returns=returns)
        for index, returns in enumerate(episodes)
    ]
    return load_run(write_run(path, reports))


def test_without_j_the_curve_is_the_mean_of_the_last_episodes(tmp_path: Path) -> None:
    ten = tuple(float(number) for number in range(10))
    run = run_of(tmp_path / "run", [ten, ten, (30.0,), ()])
    curve = score_curve(run)
    assert len(curve) == 3  # nothing is said before so many episodes have ended
    assert EPISODES == SCORED_EPISODES == 20
    assert [point.score for point in curve] == pytest.approx([4.5, 6.0, 6.0])
    assert curve[0].seconds == run.reports[1].total_seconds
    assert curve[0].env_steps == run.reports[1].total_env_steps


def test_with_j_the_curve_is_j(tmp_path: Path) -> None:
    reports = [make_report(index, 2.0, float(index), FP32) for index in range(4)]
    run = load_run(write_run(tmp_path / "run", reports))
    assert [point.score for point in score_curve(run)] == [r.learner_return for r in run.reports]


def test_levels_are_reached_once_or_never(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", [(0.0,) * 20, (10.0,) * 20, (4.0,) * 20])
    curve = score_curve(run)
    whole, half = first_reached(curve, 10.0), first_reached(curve, 5.0)
    assert whole is not None
    assert half is not None
    first, second = run.reports[:2]
    assert (whole.seconds, whole.env_steps) == (second.total_seconds, second.total_env_steps)
    assert half.seconds == pytest.approx((first.total_seconds + second.total_seconds) / 2)
    assert half.env_steps == (first.total_env_steps + second.total_env_steps) / 2
    assert first_reached(curve, 10.1) is None
    table = score_table({"mine": run}, [5.0, 11.0])
    ((label, five, eleven, best),) = table.rows
    assert label.text == "mine"
    assert five.value == half.seconds
    assert eleven.value is None
    assert best.value == 10.0
    chosen = score_table({"mine": run}).columns
    levels = ("#Score 2.5", "#Score 5", "#Score 7.5", "#Score 9")
    assert chosen == ("Run", *levels, "#Best of the curve")


@pytest.mark.parametrize(
    ("scores", "levels"),
    [
        ((0.0, 0.2), [0.05, 0.1, 0.15, 0.18]),
        ((0.0, 42.31), [10.6, 21.2, 31.7, 38.1]),
        ((3.14159, 3.14159), [3.14159]),
        ((), []),
    ],
)
def test_levels_have_digits_of_the_range(scores: tuple[float, ...], levels: list[float]) -> None:
    curve = [Point(float(place), place, score) for place, score in enumerate(scores)]
    assert default_levels([curve]) == pytest.approx(levels)


def test_the_best_of_a_curve_may_lie_below_the_best_twenty_episodes(tmp_path: Path) -> None:
    """The twenty best end within the second interval; a reader is told."""
    run = run_of(tmp_path / "run", [(0.0,) * 10, (8.0,) * 20 + (0.0,) * 10])
    assert max(point.score for point in score_curve(run)) == 4.0
    words = [block.text for block in run_sections({"a": run})[0].blocks if isinstance(block, Text)]
    assert "so the best of a curve may be lower" in words[0]


def test_a_run_without_scores_is_tabled_too(tmp_path: Path) -> None:
    table = score_table({"mine": run_of(tmp_path / "run", [(), ()])})
    assert [cell.value for cell in table.rows[0]] == [None, None]


def test_curves_are_thinned_and_keep_their_end(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", [(float(index),) * 20 for index in range(3 * POINTS + 1)])
    (row,) = curves_json({"mine": run})
    assert POINTS / 2 <= len(row["scores"]) <= POINTS
    assert row["scores"][-1] == 3.0 * POINTS
    assert len(row["seconds"]) == len(row["env_steps"]) == len(row["scores"])


def test_written_curves_are_small_files(tmp_path: Path) -> None:
    runs = [tmp_path / name for name in ("a", "b")]
    for number, path in enumerate(runs):
        run_of(path, [(float(index + number),) * 20 for index in range(30)])
    written = write_run_figures(runs, tmp_path / "figures")
    names = {path.name for path in written}
    assert names == {"curves.json", "curves-seconds.png", "curves-env-steps.png"}
    assert all(0 < path.stat().st_size < 200_000 for path in written)
    data = json.loads((tmp_path / "figures" / "curves.json").read_text())
    assert [max(row["scores"]) for row in data["runs"]] == [29.0, 30.0]
    assert all(math.isfinite(value) for row in data["runs"] for value in row["seconds"])


def test_curves_of_runs_without_scores_are_not_drawn(tmp_path: Path) -> None:
    run_of(tmp_path / "run", [(), ()])
    written = write_run_figures([tmp_path / "run"], tmp_path / "figures")
    assert [path.name for path in written] == ["curves.json"]


def test_runs_of_several_games_have_a_table_of_scores_each(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", [(1.0,) * 20, (9.0,) * 20])
    other = replace(run, summary={**run.summary, "env": "pong"})
    (alone,) = score_tables({"mine": run, "again": run})
    assert alone == score_table({"mine": run, "again": run})
    mine, theirs = score_tables({"mine": run, "theirs": other})
    assert [row[0].text for row in mine.rows] == ["mine"]
    assert theirs.title == "Time to score: pong"
