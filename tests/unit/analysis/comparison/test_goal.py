"""The goal, and what the verdict says of policies, seeds and metrics, met or missed."""

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
from analysis.comparison.contest import build_contest
from analysis.comparison.contrasts import PRIMARY, missing_metrics, planned_secondary
from analysis.comparison.goal import find_goal, goal_sentences
from analysis.comparison.verdict import room_sentences, verdict_sentences
from analysis.records.load import StudyRecord, load_study
from analysis.report.contrasts import goal_table
from tests.fixtures.studies.synthetic_contest import write_contest_study

SEEDS = (100, 101, 102)
HELD_OUT = ("new machine", "new game", "new game and machine")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("contest")
    return write_contest_study(path, seeds=SEEDS, primary_groups=list(HELD_OUT))


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


def with_times(contest: Mapping[str, Any], factors: Mapping[str, float]) -> list[dict[str, Any]]:
    """The contest's rows, the subject taking these multiples of the rule's seconds, by game."""
    times = {
        (r["env"], r["seed"]): r[PRIMARY] for r in contest["rows"] if r["strategy"] == "kl_max"
    }
    return [
        {**row, PRIMARY: factors[row["env"]] * times[row["env"], row["seed"]]}
        if row["strategy"] == "controller"
        else row
        for row in contest["rows"]
    ]


def test_the_goal_is_held_against_the_planned_contrast_with_the_rule(
    study: StudyRecord, contest: dict[str, Any]
) -> None:
    goal = contest["goal"]
    assert goal["against"] == "kl_max"
    found = next(c for c in contest["contrasts"] if (c["b"], c["metric"]) == ("kl_max", PRIMARY))
    assert found["n"] == 4 * len(SEEDS)
    assert goal["held_out"] == {
        **{key: found[key] for key in ("ratio", "low", "high", "p", "n", "clusters")},
        "trained": False,
        "met": found["ratio"] <= 0.85 and found["high"] < 1.0,
    }
    assert [row["env"] for row in goal["by_instance"]] == list(study.games)
    groups = {name: game.group for name, game in study.games.items()}
    assert {row["env"]: row["group"] for row in goal["by_instance"]} == groups
    times = {(r["strategy"], r["env"], r["seed"]): r[PRIMARY] for r in contest["rows"]}
    for row in goal["by_instance"]:
        logs = [
            np.log(times["controller", row["env"], s] / times["kl_max", row["env"], s])
            for s in SEEDS
        ]
        assert row["ratio"] == pytest.approx(np.exp(np.mean(logs)))
        assert row["n"] == len(SEEDS)
    assert goal["worst"]["ratio"] == max(row["ratio"] for row in goal["by_instance"])
    shares = [row["closed"] for row in contest["oracle_gap"] if row["closed"] is not None]
    assert goal["gap_closed"] == {
        "instances": 2,
        "measured": 3,
        "known": 2,
        "closed": pytest.approx(np.median(shares)),
        "met": bool(np.median(shares) >= 0.7),
    }


@pytest.mark.parametrize(("slowest", "word"), [(1.03, "met, at most"), (1.04, "missed,")])
def test_nowhere_worse_looks_at_every_instance(
    study: StudyRecord, contest: dict[str, Any], slowest: float, word: str
) -> None:
    factors = dict.fromkeys(study.games, 0.5) | {"cartpole-learner-bound": slowest * (1 - 1e-12)}
    turned = {**contest, "rows": with_times(contest, factors)}
    goal = find_goal(study, turned, np.random.default_rng(0))
    assert goal["worst"]["env"] == "cartpole-learner-bound"
    assert goal["worst"]["ratio"] == pytest.approx(slowest)
    assert goal["nowhere_worse"] == (slowest <= 1.03)
    last = goal_sentences({**contest, "goal": goal}, study.labels)[-1]
    told = f"{word} {slowest:.2f}x on cartpole-learner-bound ({slowest:.2f} to {slowest:.2f})."
    rule = study.labels["kl_max"]
    assert last == f"Goal, never more than 3% slower than {rule} anywhere: {told}"


@pytest.mark.parametrize(
    ("silent", "told"),
    [
        (
            1,
            "met, at most 0.60x on catch-paper-1080ti (0.60 to 0.60); no run reached its target "
            "on 1 other instance.",
        ),
        (6, "unknown, no run reached its target."),
    ],
)
def test_where_nobody_reached_the_target_no_goal_is_met(
    study: StudyRecord, contest: dict[str, Any], silent: int, told: str
) -> None:
    """Two runs that end at the horizon took the same time, which says nothing of either."""
    missed = list(study.games)[-silent:]
    factors = {**dict.fromkeys(study.games, 0.5), "catch-paper-1080ti": 0.6}
    rows = with_times(contest, factors | dict.fromkeys(missed, 1.0))
    rows = [{**row, "censored": row["env"] in missed} for row in rows]
    goal = find_goal(study, {**contest, "rows": rows}, np.random.default_rng(0))
    assert [row["env"] for row in goal["by_instance"] if not row["tells"]] == missed
    last = goal_sentences({**contest, "goal": goal}, study.labels)[-1]
    assert last.partition("anywhere: ")[2] == told
    assert goal_table(study, goal).rows[-1][2].text == told.partition(",")[0]


def test_a_contrast_of_runs_that_all_missed_says_nothing_of_the_goal(
    study: StudyRecord, contest: dict[str, Any]
) -> None:
    turned = copy.deepcopy(contest)
    for item in turned["contrasts"]:
        item |= {"censored_a": item["n"], "censored_b": item["n"], "ratio": 1.0}
    turned["goal"] = find_goal(study, turned, np.random.default_rng(0))
    assert turned["goal"]["held_out"]["met"] is None
    assert "unknown, no run reached its target (1.00x" in goal_sentences(turned, study.labels)[0]


@pytest.mark.parametrize(
    ("ratio", "low", "high", "told"),
    [
        (0.80, 0.73, 0.88, "met (0.80x, 0.73 to 0.88)."),
        (0.85, 0.70, 0.99, "met (0.85x, 0.70 to 0.99)."),
        (0.86, 0.80, 0.92, "missed (0.86x, 0.80 to 0.92)."),
        (0.80, 0.60, 1.00, "missed (0.80x, 0.60 to 1.00)."),
        (0.80, None, None, "missed (0.80x)."),
    ],
)
def test_faster_needs_the_ratio_and_the_interval(
    study: StudyRecord,
    contest: dict[str, Any],
    ratio: float,
    low: float | None,
    high: float | None,
    told: str,
) -> None:
    turned = copy.deepcopy(contest)
    for item in turned["contrasts"]:
        if (item["b"], item["metric"]) == ("kl_max", PRIMARY):
            item |= {"ratio": ratio, "low": low, "high": high}
    turned["goal"] = find_goal(study, turned, np.random.default_rng(0))
    first = goal_sentences(turned, study.labels)[0]
    text = "Goal, at most 0.85x the seconds of the best threshold rule with the interval below 1: "
    assert first == text + told


def test_instances_that_were_trained_on_meet_no_goal(
    study: StudyRecord, folder: Path, tmp_path: Path
) -> None:
    own = changed(study, folder, tmp_path, primary_groups=["trained"])
    contest = build_contest(own)
    held = contest["goal"]["held_out"]
    assert (held["trained"], held["met"]) == (True, None)
    told = f"({held['ratio']:.2f}x, {held['low']:.2f} to {held['high']:.2f} here)"
    first = goal_sentences(contest, own.labels)[0]
    assert first.endswith(f"unknown, all instances were used in training {told}.")
    found = goal_table(own, contest["goal"]).rows[0]
    assert found[1].text.endswith("all on instances that were used in training")
    assert found[2].text == "unknown"


def test_a_rule_that_was_tuned_too_little_is_said_to_be(
    study: StudyRecord, folder: Path, tmp_path: Path
) -> None:
    """The static spec that counts is the one for all, as the rule is."""
    scores = {"kl_max": 1.25, "static_all": 1.375, "static": 2.0}
    strategies = [{**item, "score": scores.get(item["name"])} for item in study.info["strategies"]]
    scopes = {item.name: item.scope for item in study.strategies}
    assert (scopes["static_all"], scopes["kl_max"]) == ("one for all", "one for all")
    contest = build_contest(changed(study, folder, tmp_path, strategies=strategies))
    assert contest["goal"]["stronger_static"] == "static_all"
    label, static = study.labels["kl_max"], study.labels["static_all"]
    told = f"{label} gained less on the validation seeds than {static}. A rule that never switches"
    assert any(line.startswith(told) for line in contest["verdict"])
    assert build_contest(study)["goal"]["stronger_static"] is None


@pytest.mark.parametrize(
    ("gaps", "told"),
    [
        ([], "unknown, the gap was not measured."),
        ([(0.04, None)], "unknown, the gap is smaller wherever it was measured."),
        (
            [(0.2, None), (0.01, None)],
            "unknown, where the gap is that large it was not measured over the contest's length "
            "of the run.",
        ),
        (
            [(0.2, 0.5), (0.3, 0.8), (0.1, 0.9), (0.2, None)],
            "met (median 80% over 3 of 4 such instances; measured on 4 of 6).",
        ),
        ([(0.2, 0.69)], "missed (median 69% over 1 of 1 such instances; measured on 1 of 6)."),
    ],
)
def test_the_gap_counts_where_there_is_room(
    study: StudyRecord,
    contest: dict[str, Any],
    gaps: Sequence[tuple[float, float | None]],
    told: str,
) -> None:
    names = list(study.games)
    rows = [
        {"env": name, "gap": gap, "closed": closed, "room": "some"}
        for name, (gap, closed) in zip(names, gaps, strict=False)
    ]
    turned = {**contest, "oracle_gap": rows, "oracle_gap_missing": names[len(rows) :]}
    turned["goal"] = find_goal(study, turned, np.random.default_rng(0))
    text = "Goal, 70% of the oracle gap closed where it is at least 5%: "
    assert goal_sentences(turned, study.labels)[1] == text + told


def test_without_a_rule_for_all_the_goal_cannot_be_told(
    study: StudyRecord, folder: Path, tmp_path: Path
) -> None:
    found = build_contest(changed(study, folder, tmp_path, primary_against=["static", "bandit"]))
    goal = found["goal"]
    assert (goal["against"], goal["by_instance"], goal["worst"]) == (None, [], None)
    assert (goal["held_out"]["met"], goal["nowhere_worse"]) == (None, None)
    assert any("unknown, no such rule" in line for line in found["verdict"])
    assert "The oracle gap was measured on none of the 6 instances" in room_sentences(found)[0]


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
    assert [s for s in found["verdict"] if label in s] == [
        f"{label} is the same policy: no contrast."
    ]
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
    assert (counts["kl_max"], counts["fp32"]) == (12, 8)
    some = [
        {**item, "test_seeds": list(SEEDS)} if item["name"] == "random" else item for item in fewer
    ]
    write_json(tmp_path / "study.json", {**study.info, "strategies": some})
    last = build_contest(load_study(tmp_path))["verdict"][-1]
    assert "(2 for fp32 only, Best static, one for all, Evolution strategy and" in last


def test_only_metrics_that_the_plan_names_are_secondary(
    study: StudyRecord, folder: Path, tmp_path: Path
) -> None:
    told = ["Area under the curve", "final return (within 5%)", "CPU-seconds", "bytes", "joy"]
    found = changed(study, folder, tmp_path, plan={**study.info["plan"], "secondary": told})
    known, unknown = planned_secondary(found)
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
    found = load_study(folder)
    contest = build_contest(found)
    text = "Planned metric cpu_seconds: no pair of runs has it, so there is no contrast"
    assert contest["warnings"] == [*found.warnings, text]
    assert f"{text}." in verdict_sentences(found, contest)
