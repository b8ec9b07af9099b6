"""A run's score, and runs that end at one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.monitor.strategies import FixedStrategy
from accerl.records import read_metrics
from accerl.runtime.run import IntervalReport
from accerl.spec import IDENTITY, Decision
from accerl.training.run import RunResult, run_training
from accerl.training.score import SCORED_EPISODES, Score
from tests.fixtures.runs.inner_runs import fast_profile, tiny_catch
from tests.fixtures.studies.synthetic_study import make_report


def played(returns: Sequence[float], measured: float | None = None) -> IntervalReport:
    report = make_report(0, 1.0, 0.0, Decision.of(IDENTITY))
    return replace(report, episode_returns=tuple(returns), learner_return=measured)


def test_the_score_is_the_mean_of_the_last_episodes() -> None:
    score = Score(goal=3.0)
    assert score.update(played([9.0] * (SCORED_EPISODES - 1))) is None
    assert not score.is_reached
    assert score.update(played([0.0] * SCORED_EPISODES)) == 0.0
    assert not score.is_reached
    assert score.update(played([6.0] * (SCORED_EPISODES // 2))) == 3.0
    assert score.is_reached
    assert score.update(played([])) == 3.0  # an interval in which none ended
    assert score.update(played([6.0], measured=1.0)) == 1.0
    assert not score.is_reached


def test_without_a_goal_none_is_reached() -> None:
    score = Score()
    score.update(played([], measured=1e9))
    assert not score.is_reached


def config(until_score: float | None, seconds: float = 0.06) -> RunConfig:
    short = tiny_catch(0, seconds=seconds, interval_seconds=0.002, eval_episodes=0)
    return replace(short, until_score=until_score)


def run(config: RunConfig, out: Path | None = None, resume: bool = False) -> RunResult:
    return run_training(config, FixedStrategy(), out=out, profile=fast_profile(), resume=resume)


def test_a_run_ends_at_the_first_interval_that_reaches_its_score(tmp_path: Path) -> None:
    whole = run(config(None))
    score = Score()
    scores = [score.update(report) for report in whole.reports]
    goal = sorted(each for each in scores if each is not None)[len(scores) // 3]
    first = next(i for i, each in enumerate(scores) if each is not None and each >= goal)
    assert first + 1 < len(scores)
    ended = run(config(goal), tmp_path / "run")
    assert ended.reports == whole.reports[: first + 1]
    assert ended.summary["seconds"] == whole.reports[first].total_seconds

    # It is over: to resume it changes nothing, unless it is to go on to another score.
    assert run(config(goal), tmp_path / "run", resume=True).reports == ended.reports
    assert run(config(None), tmp_path / "run", resume=True).reports == whole.reports
    assert len(list(read_metrics(tmp_path / "run"))) == len(whole.reports)


def test_a_score_out_of_reach_changes_nothing_but_the_hash() -> None:
    reports = [run(config(goal)).reports for goal in (None, 1e9)]
    assert reports[0] == reports[1]
    assert config(1e9).hash != config(None).hash


@pytest.mark.parametrize("goal", [float("nan"), float("inf")])
def test_a_score_must_be_a_number(goal: float) -> None:
    with pytest.raises(UserError, match="--until-score must be finite"):
        config(goal)


@pytest.mark.parametrize("best", [0.1, 0.3, 0.7, 2.3, -0.1])
def test_a_game_that_is_solved_reaches_its_best_score(best: float) -> None:
    """Twenty times such a number, added up one by one, is less than twenty times the number."""
    score = Score(best)
    score.update(played([best] * SCORED_EPISODES))
    assert (score.value, score.is_reached) == (best, True)
