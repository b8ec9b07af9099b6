"""What the page of a comparison says: headline, cautions, tables and figures."""

from __future__ import annotations

import json
from typing import Any

import pytest

from accerl.spec import IDENTITY, CompressionSpec, Decision
from analysis.figures.studies.comparison import comparison_figures
from analysis.report.studies.comparison import (
    acted_table,
    cautions,
    comparison_tables,
    headline,
)
from studies.compare.run import served, strategy_rows
from studies.learning.curve import LearningCurve
from tests.fixtures.reports.reports import interval_report
from tests.fixtures.studies.comparisons import curve, curves, result_of, with_score

LATER = {"seconds_ratio": 1.5, "seconds_interval": [1.2, 1.9]}


def test_what_did_not_act_as_it_was_decided_for_is_a_caution() -> None:
    decision = Decision.of(CompressionSpec(bits=8))
    reports = [
        interval_report(decision=decision, total_seconds=2.0 * count, spec_seconds=seconds)
        for count, seconds in enumerate(({IDENTITY: 3.0}, {decision.main: 1.0}, {}), start=1)
    ]
    half = LearningCurve.of(reports)
    assert half.served == [0.0, 1.0, None]
    assert served([half, half]) == {"original INT8": 0.5}
    result = result_of((5.0,))
    result["strategies"][1]["served"] = {"quick": 0.42, "slow": 0.95}
    (caution,) = cautions(result)
    assert "quick acted in 42% of the seconds that it was decided for" in caution
    assert "slow" not in caution


def test_a_page_says_what_acted_most_of_a_file_whose_keys_are_sorted() -> None:
    result = json.loads(json.dumps(result_of((5.0,)), sort_keys=True))
    for row in result["strategies"]:
        row["acted"] = {"a: seldom": 0.1, "b: most": 0.7, "c: now and then": 0.2}
    runs, *_ = comparison_tables(result)
    assert runs.headings[-1] == ("Decided most for", False)
    assert [row[-1].text for row in runs.rows] == ["b: most"] * 2
    assert [row[1].text[0] for row in acted_table(result).rows] == ["b", "c", "a"] * 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "sooner than slow: quick (0.51)"),
        (LATER, "later than slow: quick (1.50)"),
        ({"seconds_interval": None}, "cannot be told from slow: quick (0.51)"),
        # At least so much may be any amount more, and at most so much any less.
        ({"bound": ">"}, "cannot be told from slow: quick (>0.51)"),
        ({"bound": "<"}, "sooner than slow: quick (<0.51)"),
        ({**LATER, "bound": ">"}, "later than slow: quick (>1.50)"),
        ({"bound": "~"}, "cannot be told from slow: quick (~0.51)"),
        ({"reached": 0}, "cannot be told from slow: quick (0.51)"),
        ({"pairs": 2}, "sooner than slow: quick (0.51, 2 of 3 pairs)"),
    ],
)
def test_the_headline_says_what_intervals_tell(changes: dict[str, Any], said: str) -> None:
    assert said in headline(with_score(result_of((5.0,)), **changes))


def test_the_headline_says_so_where_nothing_was_compared() -> None:
    assert "cannot be told from slow: quick" in headline(result_of((99.0,)))
    assert headline(result_of(())) == "Nothing was timed."


def test_cautions_name_what_makes_numbers_weak() -> None:
    assert cautions(result_of((5.0,))) == []
    assert "few seeds (1)" in cautions(result_of((5.0,), seeds=[0]))[0]
    (chosen,) = cautions(result_of((5.0,), scores_given=False))
    assert "--scores" in chosen
    assert "ended no higher" in cautions(result_of(()))[0]
    unscored = result_of(())
    unscored["strategies"][0]["last_score"] = None
    assert "Too few episodes" in cautions(unscored)[0]
    (few,) = cautions(with_score(result_of((5.0,)), pairs=1))
    assert "quick to 5: 1 of 3" in few
    cut = result_of((5.0,))
    cut["strategies"][1]["learner_cut_off"] = 4
    assert "4 of quick" in cautions(cut)[0]


def test_tables_show_a_dash_for_what_others_are_compared_with() -> None:
    runs, to_score = comparison_tables(result_of((5.0,)))
    assert [cell.text for cell in to_score.rows[0]][3] == "\N{EN DASH}"
    assert [cell.text for cell in to_score.rows[1]][3].startswith("0.51 (0.")
    assert runs.rows[1][5].text == "+1 (+1 to +1)"
    (unreached,) = comparison_tables(result_of((99.0,)))[1:]
    assert unreached.rows[1][1].text == "0 of 3"
    assert unreached.rows[1][2].text.startswith(">")


def test_figures_leave_out_what_could_not_be_compared() -> None:
    names = [figure.name for figure in comparison_figures(result_of((5.0, 99.0)))]
    assert names == ["seconds-to-score-1", "scores-by-seconds", "scores-by-env-steps"]


def test_runs_that_had_reached_a_score_at_once_are_a_caution() -> None:
    (caution,) = cautions(result_of((0.0, 5.0)))
    assert "say nothing of learning: 3 of 3 of slow to 0; 3 of 3 of quick to 0. Give" in caution
    slow_rise = [0.01 * step for step in range(200)]  # more points than a file keeps
    made = {(label, 0): curve([None, *slow_rise], 1.0) for label in ("slow", "quick")}
    rows = strategy_rows(["slow", "quick"], made, (0.02,))
    assert not any("of learning" in each for each in cautions(result_of((0.02,), strategies=rows)))


def test_an_interval_that_two_seeds_leave_open_is_not_shown() -> None:
    wide = with_score(result_of((5.0,)), seconds_interval=[1e-4, 2290.0])
    (_, to_score) = comparison_tables(wide)
    assert to_score.rows[1][3].text == "0.51 (too few seeds)"
    (forest, *_) = comparison_figures(wide)
    (row,) = forest.table
    assert (row["low"], row["high"], row["text"]) == (None, None, "0.51")


def test_lines_are_drawn_where_all_seeds_have_a_score_and_the_caption_says_of_how_many() -> None:
    made = curves()
    made["slow", 0] = curve([None, None, None], 2.0)  # ended too few episodes
    made["quick", 0] = curve([0.0, 5.0, 10.0], 100.0)  # begins behind the others' end
    result = result_of((5.0,), strategies=strategy_rows(["slow", "quick"], made, (5.0,)))
    by_seconds = comparison_figures(result)[1]
    assert {row["strategy"] for row in by_seconds.table if row["kind"] == "curve"} == {"slow"}
    assert "slow has scores of 2 of 3 seeds; quick is not drawn" in by_seconds.caption
    made["quick", 0] = curve([0.0, 5.0], 1.0)
    result = result_of((5.0,), strategies=strategy_rows(["slow", "quick"], made, (5.0,)))
    drawn = [
        row["x"] for row in comparison_figures(result)[1].table if row.get("strategy") == "quick"
    ]
    assert (drawn[0], drawn[-1]) == pytest.approx((1.04, 2.0))
