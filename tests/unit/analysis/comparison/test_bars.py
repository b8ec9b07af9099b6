"""The bars of a plan, and what the verdict says of policies, seeds and metrics, met or missed."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accerl.records import write_json
from analysis.comparison import stats
from analysis.comparison.bars import _is_met, bar_sentences, find_bars, find_instances, found_words
from analysis.comparison.contest import build_contest
from analysis.comparison.contrasts import PRIMARY, missing_metrics, planned_metrics
from analysis.comparison.verdict import verdict_sentences
from analysis.records.load import StudyRecord, load_study
from analysis.report.contrasts import bar_table, instance_table
from studies.contest.bars import planned_bars
from tests.fixtures.studies.synthetic_contest import CHANGING, write_contest_study

SEEDS = (100, 101, 102)
HELD_OUT = ("new machine", "new game", "new game and machine")
SURE = "with the interval below 1 and a corrected p below 0.05"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("contest")
    against = ["fp32", "static", "kl_max", "bandit"]
    groups = list(HELD_OUT)
    return write_contest_study(path, seeds=SEEDS, primary_groups=groups, primary_against=against)


@pytest.fixture(scope="module")
def study(folder: Path) -> StudyRecord:
    return load_study(folder)


@pytest.fixture(scope="module")
def contest(study: StudyRecord) -> dict[str, Any]:
    return build_contest(study)


def changed(study: StudyRecord, folder: Path, tmp_path: Path, **changes: Any) -> StudyRecord:
    """The same runs under another study.json."""
    (tmp_path / "runs").symlink_to(folder / "runs")
    write_json(tmp_path / "study.json", {**study.info, **changes})
    return load_study(tmp_path)


def with_times(
    contest: Mapping[str, Any], factors: Mapping[str, float], *, against: str
) -> list[dict[str, Any]]:
    """The contest's rows, the subject taking these multiples of another's seconds, by game."""
    times = {(r["env"], r["seed"]): r[PRIMARY] for r in contest["rows"] if r["strategy"] == against}
    return [
        {**row, PRIMARY: factors[row["env"]] * times[row["env"], row["seed"]]}
        if row["strategy"] == "controller"
        else dict(row)
        for row in contest["rows"]
    ]


def found_bar(contest: Mapping[str, Any], kind: str, where: str) -> dict[str, Any]:
    """The one bar against a kind of comparator at a place."""
    (bar,) = (bar for bar in contest["bars"] if (bar["kind"], bar["where"]) == (kind, where))
    return bar


def told(contest: Mapping[str, Any], bar: Mapping[str, Any], study: StudyRecord) -> str:
    """What the verdict says of a bar."""
    (text,) = bar_sentences({**contest, "bars": [bar], "weak_rules": {}}, study.labels)
    return text


def log_ratios(contest: Mapping[str, Any], other: str, games: Sequence[str]) -> list[float]:
    """Logs of the subject's seconds over another's, worked out from the rows."""
    times = {(r["strategy"], r["env"], r["seed"]): r[PRIMARY] for r in contest["rows"]}
    return [
        float(np.log(times["controller", game, seed] / times[other, game, seed]))
        for game in games
        for seed in SEEDS
    ]


def test_a_bar_is_held_against_the_planned_contrast(
    study: StudyRecord, contest: dict[str, Any]
) -> None:
    found = next(c for c in contest["contrasts"] if (c["b"], c["metric"]) == ("kl_max", PRIMARY))
    assert found["n"] == 4 * len(SEEDS)
    bar = found_bar(contest, "threshold", "held out")
    assert bar["name"] == "kl_max"
    assert {key: bar[key] for key in ("low", "high", "n", "clusters")} == {
        key: found[key] for key in ("low", "high", "n", "clusters")
    }
    assert (bar["found"], bar["p"]) == (found["ratio"], found["p_holm"])
    assert bar["found"] == pytest.approx(
        np.exp(np.mean(log_ratios(contest, "kl_max", study.primary_games)))
    )
    assert bar["met"] is True


def test_a_bar_under_changing_conditions_looks_at_those_instances_alone(
    study: StudyRecord, contest: dict[str, Any]
) -> None:
    bar = found_bar(contest, "threshold", "changing conditions")
    assert bar["found"] == pytest.approx(np.exp(np.mean(log_ratios(contest, "kl_max", CHANGING))))
    assert (bar["n"], bar["met"], bar["p"]) == (2 * len(SEEDS), False, None)
    assert told(contest, bar, study).startswith(
        "Bar, at most 0.80x the seconds of KL threshold under changing conditions: missed, 0.83x ("
    )
    nowhere = found_bar(contest, "threshold", "laptop")
    assert nowhere["met"] is None
    assert told(contest, nowhere, study).endswith(
        "on laptop machines: cannot be told, no test runs in common."
    )


def test_bars_on_machines_of_a_family_know_them_by_their_names(
    study: StudyRecord, folder: Path, tmp_path: Path
) -> None:
    games = copy.deepcopy(study.info["games"])
    games["catch-edge"]["profile"] = "laptop-9000"
    found = build_contest(changed(study, folder, tmp_path, games=games))
    bar = found_bar(found, "threshold", "laptop")
    logs = log_ratios(found, "kl_max", ["catch-edge"])
    assert bar["found"] == pytest.approx(np.exp(np.mean(logs)))


@pytest.mark.parametrize(
    ("slowest", "spread", "met"), [(1.02, 0.0, True), (1.04, 0.0, False), (1.02, 0.05, None)]
)
def test_a_bar_on_every_instance_asks_for_the_worst_and_its_interval(
    study: StudyRecord, contest: dict[str, Any], slowest: float, spread: float, met: bool | None
) -> None:
    factors = dict.fromkeys(study.games, 0.5) | {"catch-edge": slowest}
    rows = with_times(contest, factors, against="fp32")
    for row in rows:
        if (row["strategy"], row["env"]) == ("controller", "catch-edge"):
            row[PRIMARY] *= np.exp(spread * (row["seed"] - SEEDS[1]))
    found = find_bars(study, {**contest, "rows": rows}, np.random.default_rng(0))
    bar = found_bar({"bars": found}, "fp32", "every instance")
    assert (bar["env"], bar["met"]) == ("catch-edge", met)
    assert bar["found"] == pytest.approx(slowest)


@pytest.mark.parametrize("silent", [1, 4])
def test_where_nobody_reached_the_target_no_bar_is_met(
    study: StudyRecord, contest: dict[str, Any], silent: int
) -> None:
    """Two runs that end at the horizon took the same time, which says nothing of either."""
    missed = study.primary_games[-silent:]
    factors = {**dict.fromkeys(study.games, 0.5), "catch-edge": 0.6} | dict.fromkeys(missed, 1.0)
    rows = [
        {**row, "censored": row["env"] in missed}
        for row in with_times(contest, factors, against="fp32")
    ]
    found = find_bars(study, {**contest, "rows": rows}, np.random.default_rng(0))
    bar = found_bar({"bars": found}, "fp32", "every instance")
    expected = (0.6, "catch-edge", True) if silent == 1 else (None, None, None)
    assert bar["silent"] == silent
    assert (bar["found"] and round(bar["found"], 6), bar["env"], bar["met"]) == expected
    end = "0.60x (0.60 to 0.60) on catch-edge, the worst; no run reached its target on 1 other."
    assert told(contest, bar, study).endswith(
        end if silent == 1 else "cannot be told, no run reached its target."
    )
    by_instance = find_instances(study, {"rows": rows, "bars": found}, np.random.default_rng(0))
    assert {row["env"] for row in by_instance["fp32"] if not row["tells"]} == set(missed)


def test_a_contrast_of_runs_that_all_missed_says_nothing(
    study: StudyRecord, contest: dict[str, Any]
) -> None:
    turned = copy.deepcopy(contest)
    for item in turned["contrasts"]:
        item |= {"censored_a": item["n"], "censored_b": item["n"], "ratio": 1.0}
    found = find_bars(study, turned, np.random.default_rng(0))
    assert found_bar({"bars": found}, "threshold", "held out")["met"] is None


@pytest.mark.parametrize(
    ("ratio", "low", "high", "p", "end"),
    [
        (0.80, 0.73, 0.88, 0.01, "met, 0.80x (0.73 to 0.88), corrected p 0.010."),
        (0.90, 0.70, 0.99, 0.04, "met, 0.90x (0.70 to 0.99), corrected p 0.040."),
        (0.91, 0.80, 0.92, 0.01, "missed, 0.91x (0.80 to 0.92), corrected p 0.010."),
        (0.80, 0.60, 1.00, 0.01, "missed, 0.80x (0.60 to 1.00), corrected p 0.010."),
        (0.80, 0.70, 0.90, 0.06, "missed, 0.80x (0.70 to 0.90), corrected p 0.060."),
        (0.80, None, None, 0.5, "missed, 0.80x, corrected p 0.50."),
    ],
)
def test_being_faster_needs_the_ratio_the_interval_and_the_corrected_p(
    study: StudyRecord,
    contest: dict[str, Any],
    ratio: float,
    low: float | None,
    high: float | None,
    p: float,
    end: str,
) -> None:
    turned = copy.deepcopy(contest)
    for item in turned["contrasts"]:
        if (item["b"], item["metric"]) == ("kl_max", PRIMARY):
            item |= {"ratio": ratio, "low": low, "high": high, "p_holm": p}
    found = find_bars(study, turned, np.random.default_rng(0))
    bar = found_bar({"bars": found}, "threshold", "held out")
    text = f"Bar, at most 0.90x the seconds of KL threshold, {SURE}: "
    assert told(contest, bar, study) == text + end


def test_the_share_of_the_room_is_of_the_static_spec_for_all(
    study: StudyRecord, folder: Path, tmp_path: Path
) -> None:
    against = [*study.primary_against, "static_all"]
    bars = planned_bars(["best static spec, one for all"])
    room = dict.fromkeys(("room", "room_low", "room_high"), 0.5)
    plan = {**study.info["plan"], "bars": [{**bars[-1], **room}]}
    found = build_contest(changed(study, folder, tmp_path, primary_against=against, plan=plan))
    (bar,) = found["bars"]
    gain = -np.mean(log_ratios(found, "static_all", study.primary_games))
    assert bar["found"] == pytest.approx(gain / np.log(1.5))
    assert bar["low"] < bar["found"] < bar["high"]
    assert bar["met"] == (bar["found"] >= 0.7)
    for share, low, met in ((0.9, -0.1, None), (0.9, 0.1, True), (0.6, -0.1, False)):
        assert _is_met(bar, {**bar, "found": share, "low": low}) is met  # noise is no share
    wide = {**bar, "room_low": 0.1, "room_high": 0.8}
    for share, met in ((0.9, None), (1.1, True), (0.2, None), (0.1, False), (-0.1, False)):
        assert _is_met(wide, {**wide, "found": share, "low": 0.1}) is met
    told_room = (
        "70% of the room (50.0% (50.0% to 50.0%) over Best static, one for all, as the study"
    )
    assert told_room in told(found, bar, study)


def test_a_bar_whose_comparator_does_not_take_part_cannot_be_told(
    study: StudyRecord, folder: Path, tmp_path: Path
) -> None:
    found = build_contest(changed(study, folder, tmp_path, primary_against=["static", "bandit"]))
    bar = found_bar(found, "threshold", "held out")
    assert (bar["name"], bar["met"]) == (None, None)
    assert told(found, bar, study) == (
        f"Bar, at most 0.90x the seconds of best threshold rule, one for all, {SURE}: "
        "cannot be told, no such comparator is in the plan."
    )
    assert "kl_max" not in found["by_instance"]


def test_a_plan_without_bars_says_nothing_of_them(
    study: StudyRecord, folder: Path, tmp_path: Path
) -> None:
    found = build_contest(changed(study, folder, tmp_path, plan=dict(study.info["plan"], bars=[])))
    assert (found["bars"], found["by_instance"]) == ([], {})
    assert not any(text.startswith("Bar") for text in found["verdict"])


def test_a_row_of_the_table_says_what_was_found(
    study: StudyRecord, contest: dict[str, Any]
) -> None:
    table = bar_table(study, contest)
    assert len(table.rows) == len(contest["bars"])
    row = [cell.text for cell in table.rows[0]]
    bar = contest["bars"][0]
    assert row == [
        f"at most 0.90x the seconds of KL threshold, {SURE}",
        f"{found_words(bar)}, 12 pairs, 9 of them independent",
        "met",
    ]
    rows = contest["by_instance"]["kl_max"]
    assert {row["env"] for row in rows} == set(study.games)
    cells = [cell.text for cell in instance_table(study, "kl_max", rows).rows[0]]
    env = rows[0]["env"]
    assert cells[:3] == [env, study.games[env].group, study.games[env].limit]
    assert cells[3] == f"{rows[0]['ratio']:.2f}"


def test_a_rule_that_was_tuned_too_little_is_said_to_be(
    study: StudyRecord, folder: Path, tmp_path: Path
) -> None:
    """The static spec that counts is the one for all, as the rule is."""
    scores = {"kl_max": 1.25, "static_all": 1.375, "static": 2.0}
    strategies = [{**item, "score": scores.get(item["name"])} for item in study.info["strategies"]]
    scopes = {item.name: item.scope for item in study.strategies}
    assert (scopes["static_all"], scopes["kl_max"]) == ("one for all", "one for all")
    contest = build_contest(changed(study, folder, tmp_path, strategies=strategies))
    assert contest["weak_rules"] == {"kl_max": "static_all"}
    label, static = study.labels["kl_max"], study.labels["static_all"]
    text = f"{label} took longer to the target on the validation seeds than {static}. A rule that"
    assert any(line.startswith(text) for line in contest["verdict"])
    assert build_contest(study)["weak_rules"] == {}


def test_pairs_of_one_game_and_seed_are_one_cluster(
    study: StudyRecord, contest: dict[str, Any]
) -> None:
    """Of the four planned instances two are minatar-freeway on other machines."""
    times = {(r["strategy"], r["env"], r["seed"]): r[PRIMARY] for r in contest["rows"]}
    pairs = [(env, seed) for env in study.primary_games for seed in SEEDS]
    logs = np.array([np.log(times["controller", *p] / times["static", *p]) for p in pairs])
    clusters = [(study.games[env].game, seed) for env, seed in pairs]
    found = next(c for c in contest["contrasts"] if (c["b"], c["metric"]) == ("static", PRIMARY))
    assert (found["n"], found["clusters"]) == (12, 9)
    rng = np.random.default_rng(0)
    p = stats.sign_flip_p(logs, [env for env, _ in pairs], rng, clusters=clusters)
    assert found["p"] == pytest.approx(p)  # 9 clusters: all flips are counted
    assert found["p"] >= stats.smallest_p(9)
    held = next(row for row in contest["machine_gap"] if row["env"] == "held out")
    assert (held["n"], held["clusters"]) == (12, 9)
    both = next(
        row
        for row in contest["transfer"]
        if (row["group"], row["b"]) == ("new game and machine", "static")
    )
    assert (both["n"], both["clusters"]) == (6, 3)
    assert any(
        "(95% interval" in s and "12 pairs, 9 of them indep" in s for s in contest["verdict"]
    )
    assert any("resampled together" in s for s in contest["verdict"])


def test_the_same_policy_is_no_contrast(study: StudyRecord, folder: Path, tmp_path: Path) -> None:
    hashes = {"controller": "ab12", "static": "ab12", "bandit": "cd34"}
    strategies = [
        {**item, "tuned_params": {"policy_hash": hashes.get(item["name"])}}
        for item in study.info["strategies"]
    ]
    found = build_contest(changed(study, folder, tmp_path, strategies=strategies))
    same = {item["b"] for item in found["contrasts"] if item["same_policy"]}
    assert same == {"static"}
    label = study.labels["static"]
    first, *bars = [s for s in found["verdict"] if label in s]
    assert first == f"{label} is the same policy: no contrast."
    assert [text.rpartition(": ")[2] for text in bars] == [
        "cannot be told, it is the same policy."
    ] * 2
    holm = [c["p_holm"] for c in found["contrasts"] if (c["b"], c["metric"]) == ("static", PRIMARY)]
    assert holm[0] is not None  # the family stays what the plan says


def test_the_verdict_names_what_was_accepted_and_what_intervals_are_about(
    contest: dict[str, Any],
) -> None:
    accepted = "trained on tier 0"
    assert f"Meta-training ended with: {accepted}." in contest["verdict"]
    assert (
        "Intervals resample seeds of these instances; they do not cover games and machines that "
        "are not in the contest." in contest["verdict"]
    )


def test_fewer_seeds_of_the_exploratory_are_told(
    study: StudyRecord, folder: Path, tmp_path: Path
) -> None:
    named = {"controller", *study.primary_against}
    fewer = [
        item if item["name"] in named else {**item, "test_seeds": [100, 101]}
        for item in study.info["strategies"]
    ]
    found = changed(study, folder, tmp_path, strategies=fewer)
    contest = build_contest(found)
    assert contest["verdict"][-1].endswith("and 3 test seeds (2 for the exploratory ones).")
    counts = {c["b"]: c["n"] for c in contest["contrasts"] if c["metric"] == PRIMARY}
    assert (counts["kl_max"], counts["static_all"]) == (12, 8)
    some = [
        {**item, "test_seeds": list(SEEDS)} if item["name"] == "random" else item for item in fewer
    ]
    write_json(tmp_path / "study.json", {**study.info, "strategies": some})
    last = build_contest(load_study(tmp_path))["verdict"][-1]
    assert "(2 for Best static, one for all, Evolution strategy and" in last


def test_only_metrics_that_the_plan_names_are_secondary(
    study: StudyRecord, folder: Path, tmp_path: Path
) -> None:
    words = ["Area under the curve", "final return (within 5%)", "CPU-seconds", "bytes", "joy"]
    plan = {**study.info["plan"], "secondary": words}
    found = changed(study, folder, tmp_path, plan=plan)
    known, unknown = planned_metrics(found, "secondary")
    assert known == ("auc", "final_return", "cpu_seconds", "publication_bytes")
    assert unknown == ("joy",)
    contrasts = [c for c in build_contest(found)["contrasts"] if c["metric"] != "cpu_seconds"]
    assert missing_metrics(found, contrasts) == (
        "Planned metric cpu_seconds: no pair of runs has it, so there is no contrast",
        "Planned metric 'joy' is not known: there is no contrast",
    )


def test_a_planned_metric_without_pairs_is_a_warning(tmp_path: Path) -> None:
    folder = write_contest_study(tmp_path, seeds=(100, 101))
    for path in folder.glob("runs/*/*/*/metrics.jsonl"):
        lines = [json.loads(line) | {"cpu_seconds": {}} for line in path.read_text().splitlines()]
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    contest = build_contest(found := load_study(folder))
    text = "Planned metric cpu_seconds: no pair of runs has it, so there is no contrast"
    assert contest["warnings"] == [*found.warnings, text]
    told = f"See {len(contest['warnings'])} warning"
    assert told in " ".join(verdict_sentences(found, contest))
