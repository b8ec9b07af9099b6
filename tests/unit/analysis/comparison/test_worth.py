"""The plan's family, groups of instances, break-even, the oracle gap: plain arithmetic."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accerl.errors import UserError
from analysis import formats
from analysis.comparison import curves, stats
from analysis.comparison.contest import build_contest
from analysis.comparison.contrasts import METRICS, PRIMARY
from analysis.comparison.verdict import outcome
from analysis.records.load import StudyRecord, load_study
from analysis.report.blocks import Text
from analysis.report.contrasts import contrast_table
from analysis.report.cost import break_even_table, pays_table
from analysis.report.study import study_sections
from controller.objective import default_beta, discounted_gain
from tests.fixtures.studies import synthetic_contest
from tests.fixtures.studies.synthetic_contest import write_contest_study
from tests.fixtures.studies.synthetic_study import write_study

SEEDS = (100, 101, 102)
PLANNED = synthetic_contest.PRIMARY


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> StudyRecord:
    return load_study(write_contest_study(tmp_path_factory.mktemp("contest"), seeds=SEEDS))


@pytest.fixture(scope="module")
def contest(study: StudyRecord) -> dict[str, Any]:
    return build_contest(study)


@pytest.fixture(scope="module")
def times(contest: dict[str, Any]) -> dict[tuple[str, str, int], float]:
    return {(row["strategy"], row["env"], row["seed"]): row[PRIMARY] for row in contest["rows"]}


def test_holm_corrects_over_the_planned_family_alone(contest: dict[str, Any]) -> None:
    for metric in METRICS:
        family = [item for item in contest["contrasts"] if item["metric"] == metric]
        planned = [item for item in family if item["b"] in PLANNED]
        assert [item["b"] for item in planned] == list(PLANNED)
        if metric == "gain_per_second":  # the plan does not name it
            assert {(item["family"], item["p_holm"]) for item in family} == {("exploratory", None)}
            continue
        assert [item["p_holm"] for item in planned] == stats.holm([item["p"] for item in planned])
        kind = "primary" if metric == PRIMARY else "secondary"
        assert {item["family"] for item in planned} == {kind}
        others = [item for item in family if item["b"] not in PLANNED]
        assert len(others) == 5
        assert {(item["family"], item["p_holm"]) for item in others} == {("exploratory", None)}


def test_what_is_exploratory_wins_nothing(study: StudyRecord, contest: dict[str, Any]) -> None:
    found = [c for c in contest["contrasts"] if c["metric"] == PRIMARY]
    fp32 = next(item for item in found if item["b"] == "fp32")
    assert fp32["high"] < 0.9
    assert outcome(fp32) == "undecided"
    assert any("no winner claimed: 5 comparisons" in s for s in contest["verdict"])
    told = [text for text in contest["verdict"] if "fp32" in text]
    assert all(text.endswith("no such comparator is in the plan.") for text in told)
    table = contrast_table(study, contest, PRIMARY, exploratory=True)
    row = next(row for row in table.rows if row[0].text == "fp32 only")
    assert row[4].text == formats.NOTHING
    assert row[-1].text == "no claim (faster in this sample)"


def test_costs_are_compared_where_runs_recorded_them(contest: dict[str, Any]) -> None:
    found = next(
        c for c in contest["contrasts"] if (c["metric"], c["b"]) == ("cpu_seconds", "static")
    )
    spent = {
        name: [row["cpu_seconds"] for row in contest["rows"] if row["strategy"] == name]
        for name in ("controller", "static")
    }
    logs = np.log(np.array(spent["controller"]) / np.array(spent["static"]))
    assert found["ratio"] == pytest.approx(np.exp(logs.mean()))


def test_groups_are_compared_by_themselves(
    study: StudyRecord, contest: dict[str, Any], times: dict[tuple[str, str, int], float]
) -> None:
    assert list(study.groups) == ["trained", "new machine", "new game", "new game and machine"]
    assert [item["group"] for item in contest["transfer"][::3]] == list(study.groups)
    for item in contest["transfer"]:
        logs = [
            math.log(times["controller", game, seed] / times[item["b"], game, seed])
            for game in study.groups[item["group"]]
            for seed in SEEDS
        ]
        assert item["n"] == len(logs)
        assert item["ratio"] == pytest.approx(math.exp(sum(logs) / len(logs)))
        assert item["low"] <= item["ratio"] <= item["high"]


def test_break_even_divides_the_training_by_what_a_run_saves(
    study: StudyRecord, contest: dict[str, Any], times: dict[tuple[str, str, int], float]
) -> None:
    found = contest["break_even"]
    assert found["meta_wall_seconds"] == 2900.0
    assert {row["b"] for row in found["rows"]} == {"fp32", *PLANNED}
    for row in found["rows"]:
        games = [row["env"]] if row["env"] else list(study.games)
        saved = np.mean(
            [times[row["b"], g, s] - times["controller", g, s] for g in games for s in SEEDS]
        )
        assert row["saved_seconds"] == pytest.approx(saved)
        assert row["runs"] == (math.ceil(2900.0 / saved) if saved > 0.0 else None)
        assert (row["runs_high"] is None) == (row["low"] <= 0.0)
    table = break_even_table(study, contest, by_game=True)
    assert len(table.rows) == 4 * len(study.games)


def test_a_slower_subject_never_pays(study: StudyRecord) -> None:
    lost = StudyRecord(**{**study.__dict__, "info": {**study.info, "subject": "random"}})
    contest = build_contest(lost)
    rows = [row for row in contest["break_even"]["rows"] if row["b"] == "static"]
    assert all(row["saved_seconds"] < 0.0 and row["runs"] is None for row in rows)
    first = break_even_table(lost, contest).rows[1]
    assert {cell.text for cell in first} >= {"never"}


def test_where_no_run_arrives_nothing_is_said_of_paying(
    study: StudyRecord, contest: dict[str, Any]
) -> None:
    rows = contest["break_even"]["rows"]
    assert all(row["tells"] for row in rows)
    silent = [{**row, "tells": False, "saved_seconds": 0.0, "runs": None} for row in rows]
    nobody = {**contest, "break_even": {**contest["break_even"], "rows": silent}}
    for table in (break_even_table(study, nobody), pays_table(study, nobody)):
        texts = {cell.text for row in table.rows for cell in row}
        assert "cannot be told" in texts
        assert "never" not in texts


def test_the_gap_says_where_there_is_room(contest: dict[str, Any]) -> None:
    rooms = {row["env"]: row["room"] for row in contest["oracle_gap"]}
    assert rooms == {
        "acrobot-paper-1080ti": "unknown",
        "cartpole-learner-bound": "none",
        "catch-edge": "some",
        "catch-paper-1080ti": "some",
    }
    (sentence,) = [s for s in contest["verdict"] if "found nothing to win" in s]
    assert sentence.startswith("On cartpole-learner-bound the oracle, which looks one interval")
    assert contest["oracle_gap_missing"] == [
        "acrobot-paper-1080ti",
        "minatar-freeway-edge",
        "minatar-freeway-gpu-learner",
    ]
    assert any("gap was measured on 3 of the 6 instances" in s for s in contest["verdict"])


def test_the_share_of_the_gap_that_was_closed(study: StudyRecord, contest: dict[str, Any]) -> None:
    row = next(row for row in contest["oracle_gap"] if row["env"] == "catch-paper-1080ti")
    game = study.games[row["env"]]
    values = {}
    for name in ("controller", "static"):
        found = []
        for seed in SEEDS:
            reports = study.runs[name, game.name, seed].reports
            seconds = [0.0, *(report.total_seconds for report in reports)]
            returns = [game.random_return, *(float(r.learner_return or 0.0) for r in reports)]
            gain = discounted_gain(seconds, returns, default_beta(60.0))
            found.append(gain / (game.reference_return - game.random_return))
        values[name] = np.mean(found)
    places = [(row["game"], row["profile"]) for row in study.oracle_gap]
    oracle = study.oracle_gap[places.index(("catch", game.profile))]
    gap = np.mean(oracle["oracle"]["values"]) / np.mean(oracle["statics"]["original INT8"]) - 1.0
    expected = (values["controller"] / values["static"] - 1.0) / gap
    assert row["gap"] == pytest.approx(gap)
    assert row["static"] == "static"
    assert row["closed"] == pytest.approx(expected)
    assert row["closed_low"] < row["closed"] < row["closed_high"]
    none = next(row for row in contest["oracle_gap"] if row["room"] == "none")
    assert none["closed"] is None


def test_a_gap_over_another_length_of_the_run_is_not_held_against_the_contest(
    tmp_path: Path,
) -> None:
    folder = write_contest_study(tmp_path, seeds=(100, 101))
    data = json.loads((folder / "oracle-gap.json").read_text())
    lengths = {"catch-paper-1080ti": 40.0, "catch-edge": 100.9}
    for row in data["rows"]:
        name = f"{row['game']}-{row['profile']}"
        row["horizon_seconds"] = lengths.get(name, row["horizon_seconds"])
    (folder / "oracle-gap.json").write_text(json.dumps(data))
    contest = build_contest(load_study(folder))
    rows = {row["env"]: row for row in contest["oracle_gap"]}
    other, same = rows["catch-paper-1080ti"], rows["catch-edge"]
    assert (other["horizon_seconds"], other["oracle_horizon_seconds"]) == (60.0, 40.0)
    assert other["gap"] > 0.2
    assert other["closed"] is None
    assert (same["horizon_seconds"], same["oracle_horizon_seconds"]) == (100.0, 100.9)
    assert same["closed"] is not None


def test_an_uncertain_gap_has_no_interval(tmp_path: Path) -> None:
    folder = write_contest_study(tmp_path, seeds=(100, 101))
    data = json.loads((folder / "oracle-gap.json").read_text())
    for row in data["rows"]:
        if (row["game"], row["profile"]) == ("catch", "edge"):
            row["oracle"]["values"] = [0.9, 0.4, 0.5]  # one of three seeds gains, the others lose
    (folder / "oracle-gap.json").write_text(json.dumps(data))
    rows = build_contest(load_study(folder))["oracle_gap"]
    row = next(row for row in rows if row["env"] == "catch-edge")
    assert row["closed"] is not None
    assert (row["closed_low"], row["closed_high"]) == (None, None)


def test_discounted_gain_is_the_controllers_objective() -> None:
    seconds = np.array([0.0, 4.0, 9.0, 15.0, 30.0])
    values = np.array([0.0, 0.3, 0.2, 0.7, 1.0])
    ours = curves.discounted_gain(seconds, values, 30.0)
    assert ours == pytest.approx(discounted_gain(seconds, values, default_beta(30.0)))
    cut = curves.discounted_gain(seconds, values, 20.0)
    assert cut == pytest.approx(discounted_gain(seconds[:4], values[:4], default_beta(20.0)))


def test_reach_curve_of_a_worked_example() -> None:
    """Six runs reach the target at 6 (three) and 13, and were last seen at 6, 9 and 10."""
    seconds = np.array([6.0, 6.0, 6.0, 6.0, 9.0, 10.0, 13.0])
    censored = np.array([False, False, False, True, True, True, False])
    times, shares = stats.reach_curve(seconds, censored, np.full(7, 1 / 7))
    assert times.tolist() == [0.0, 6.0, 13.0]
    assert shares == pytest.approx([0.0, 3 / 7, 1.0])
    halves, _ = stats.reach_curve(seconds[:4], censored[:4], np.full(4, 0.25))
    assert halves.tolist() == [0.0, 6.0]


def test_without_censoring_the_reach_curve_is_the_share_of_runs() -> None:
    seconds = np.random.default_rng(0).uniform(1.0, 9.0, size=20)
    times, shares = stats.reach_curve(seconds, np.zeros(20, bool), np.full(20, 0.05))
    assert times[1:] == pytest.approx(np.sort(seconds))
    assert shares == pytest.approx(np.arange(21) / 20)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"primary_against": ["statik"]}, "did you mean 'static'"),
        ({"primary_against": ["controller"]}, "primary_against: 'controller'"),
    ],
)
def test_an_impossible_family_is_a_user_error(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    folder = write_contest_study(tmp_path, seeds=(100,), **changes)
    with pytest.raises(UserError, match=message):
        build_contest(load_study(folder))


def test_sections_without_data_say_what_would_fill_them(tmp_path: Path) -> None:
    folder = write_study(tmp_path, strategies=("learned",), games=("freeway",), seeds=(100, 101))
    (folder / "replay").rename(tmp_path / "gone")
    study = load_study(folder)
    empty = {
        part.id: block.text
        for part in study_sections(study, build_contest(study))
        for block in part.blocks
        if len(part.blocks) == 1 and isinstance(block, Text)
    }
    assert set(empty) == {
        "oracle-gap",
        "contrasts",
        "policy",
        "transfer",
        "limits-of-the-evidence",
    }
    for name in ("oracle-gap", "contrasts", "policy", "transfer"):
        assert "would fill this section" in empty[name]
    assert "no evidence to limit" in empty["limits-of-the-evidence"]


def test_what_knowing_the_machine_is_worth_and_how_much_of_it_was_won(
    study: StudyRecord,
    contest: dict[str, Any],
    times: dict[tuple[str, str, int], float],
) -> None:
    rows = {row["env"]: row for row in contest["machine_gap"]}
    assert list(rows) == [*study.games, "held out"]
    for game in study.games:
        logs = {
            name: np.mean([np.log(times[name, game, seed]) for seed in SEEDS])
            for name in ("static_all", "static", "controller")
        }
        row = rows[game]
        own, subject = (logs[name] - logs["static_all"] for name in ("static", "controller"))
        assert (row["own"], row["subject"]) == pytest.approx((np.exp(own), np.exp(subject)))
        has_room = own <= -math.log(1.05)
        assert row["closed"] == (pytest.approx(subject / own) if has_room else None)
        assert row["own_low"] <= row["own"] <= row["own_high"]
    assert any(row["closed"] is not None for row in rows.values())
    assert rows["held out"]["n"] == len(study.primary_games) * len(SEEDS)


def test_without_a_static_spec_of_each_instance_there_is_no_such_gap(tmp_path: Path) -> None:
    folder = write_contest_study(tmp_path, seeds=SEEDS)
    info = json.loads((folder / "study.json").read_text())
    kept = [item for item in info["strategies"] if item["name"] != "static"]
    changed = {**info, "strategies": kept, "primary_against": ["static_all"]}
    (folder / "study.json").write_text(json.dumps(changed))
    assert build_contest(load_study(folder))["machine_gap"] == []


def test_a_gap_of_another_machine_of_that_name_is_not_this_contests(tmp_path: Path) -> None:
    folder = write_contest_study(tmp_path, seeds=(100, 101))
    data = json.loads((folder / "oracle-gap.json").read_text())
    for row in data["rows"]:
        if row["profile"] == "edge":
            row["profile_hash"] = "another"
    (folder / "oracle-gap.json").write_text(json.dumps(data))
    contest = build_contest(load_study(folder))
    assert "catch-edge" not in {row["env"] for row in contest["oracle_gap"]}
    assert "catch-edge" in contest["oracle_gap_missing"]


def test_without_a_best_static_of_each_instance_nothing_is_closed(tmp_path: Path) -> None:
    """One spec for all would count knowing the game and the machine as closing the gap."""
    folder = write_contest_study(tmp_path, seeds=(100, 101))
    study = json.loads((folder / "study.json").read_text())
    next(row for row in study["strategies"] if row["name"] == "static")["scope"] = "one for all"
    (folder / "study.json").write_text(json.dumps(study))
    rows = build_contest(load_study(folder))["oracle_gap"]
    assert max(row["gap"] or 0.0 for row in rows) > 0.2
    assert all((row["static"], row["closed"]) == (None, None) for row in rows)
