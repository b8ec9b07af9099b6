from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from accerl.errors import UserError
from accerl.records import read_json, write_json
from accerl.spec import Decision
from analysis.comparison import contest as contest_module
from analysis.comparison import curves, stats
from analysis.comparison.contest import METRICS, build_contest
from analysis.comparison.verdict import comparison_sentences, headline, lean, outcome
from analysis.formats import p_value
from analysis.records.load import StudyRecord, load_run, load_study
from analysis.render.terminal import print_summary
from analysis.report.study import StudyReport
from tests.fixtures.studies.synthetic_study import FULL, GAMES, make_report, write_run, write_study

STRATEGIES = ("fp32", "static", "learned")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> StudyRecord:
    return load_study(write_study(tmp_path_factory.mktemp("study"), strategies=STRATEGIES))


@pytest.fixture(scope="module")
def contest(study: StudyRecord) -> dict[str, Any]:
    return build_contest(study)


def find(contest: dict[str, Any], other: str, metric: str) -> dict[str, Any]:
    return next(c for c in contest["contrasts"] if (c["b"], c["metric"]) == (other, metric))


def test_the_headline_says_where_what_is_faster_may_end_lower(
    study: StudyRecord, contest: dict[str, Any]
) -> None:
    """The plan asks for both: seconds to target, and a final return that is not lower."""
    turned = copy.deepcopy(contest)
    for item in turned["contrasts"]:
        if item["metric"] == "seconds_to_target":
            item |= {"ratio": 0.8, "low": 0.7, "high": 0.9, "p_holm": 0.01, "family": "primary"}
        elif item["metric"] == "final_return":
            low = -0.3 if item["b"] == "static" else 0.0
            item |= {"difference": 0.1, "low": low, "high": 0.2, "family": "co-primary"}
    faster = "faster than every comparator (2 of 2)"
    lower = "; that it ends at most 5% lower is shown against 1 of 2."
    assert headline(study, turned).endswith(faster + lower)
    further = {**study.info, "primary_against": [*study.primary_against, "oracle"]}
    oracle = replace(study.strategies[0], name="oracle", label="the oracle")
    wider = replace(study, info=further, strategies=(*study.strategies, oracle))
    said = headline(wider, turned)
    assert "every comparator" not in said
    assert said.endswith("; planned, but without a pair of runs: the oracle.")
    for item in turned["contrasts"]:
        item["low"] = max(item["low"], 0.0)
    assert headline(study, turned).endswith(faster + ".")


def test_where_no_run_arrived_nothing_is_claimed(
    study: StudyRecord, contest: dict[str, Any]
) -> None:
    far = {name: replace(game, target_return=1e9) for name, game in study.games.items()}
    none = build_contest(replace(study, games=far))
    found = find(none, "fp32", "seconds_to_target")
    assert (found["ratio"], found["low"], found["high"]) == (1.0, None, None)
    assert headline(study, none).endswith("reached the target: nothing to compare.")
    assert comparison_sentences(study, none)[0].endswith(
        "reached the target (18 pairs): it cannot be told."
    )
    mixed = copy.deepcopy(contest)
    find(mixed, "fp32", "seconds_to_target").update(found)
    assert headline(study, mixed).endswith("; no run arrived to compare it with fp32 only.")


def test_a_rule_that_never_changed_its_spec_is_named(
    study: StudyRecord, contest: dict[str, Any]
) -> None:
    assert not any("Kept to one spec" in text for text in contest["verdict"])
    held = {
        key: replace(
            run, reports=[replace(each, decision=Decision.of(FULL)) for each in run.reports]
        )
        if key[0] == "learned"
        else run
        for key, run in study.runs.items()
    }
    said = "Kept to one spec in most of their test runs: Learned controller (18 of 18)."
    assert said in build_contest(replace(study, runs=held))["verdict"]


def test_rows_follow_the_definitions(study: StudyRecord, contest: dict[str, Any]) -> None:
    assert len(contest["rows"]) == 3 * 3 * 6
    for row in contest["rows"][::7]:
        game = study.games[row["env"]]
        run = study.runs[row["strategy"], row["env"], row["seed"]]
        curve = curves.learning_curve(run.reports, game.random_return)
        reached = curves.seconds_to_target(
            curve.seconds, curve.returns, game.target_return, game.horizon_seconds
        )
        assert (row["seconds_to_target"], row["censored"]) == (reached.seconds, reached.censored)
        last = [r.learner_return for r in run.reports[-3:] if r.learner_return is not None]
        assert len(last) == 3
        assert row["final_return"] == pytest.approx(np.mean(last))
        assert row["profile"] == "paper"
        assert 0.0 < row["auc"] < 1.0
        if not row["censored"]:
            span = game.reference_return - game.random_return
            gained = (game.target_return - game.random_return) / span
            assert row["gain_per_second"] == pytest.approx(gained / row["seconds_to_target"])


def test_contrasts_pair_by_game_and_seed(study: StudyRecord, contest: dict[str, Any]) -> None:
    times = {
        (row["strategy"], row["env"], row["seed"]): row["seconds_to_target"]
        for row in contest["rows"]
    }
    logs = {
        game: np.mean(
            [np.log(times["learned", game, s] / times["static", game, s]) for s in range(100, 106)]
        )
        for game in GAMES
    }
    found = find(contest, "static", "seconds_to_target")
    assert found["ratio"] == pytest.approx(np.exp(np.mean(list(logs.values()))))
    assert found["ratio_by_game"] == pytest.approx({g: np.exp(v) for g, v in logs.items()})
    assert found["low"] < found["ratio"] < found["high"]
    assert (found["n"], found["clusters"]) == (18, 18)
    assert found["difference"] is None


def test_every_metric_has_a_contrast_with_every_comparator(contest: dict[str, Any]) -> None:
    found = {(item["a"], item["b"], item["metric"]) for item in contest["contrasts"]}
    assert found == {("learned", b, m) for b in ("fp32", "static") for m in METRICS}
    for metric in METRICS:
        family = [c for c in contest["contrasts"] if c["metric"] == metric]
        if metric == "gain_per_second":  # no plan names it
            assert {(c["family"], c["p_holm"]) for c in family} == {("exploratory", None)}
            continue
        assert all(item["p"] <= item["p_holm"] <= 1.0 for item in family)
        assert min(c["p_holm"] for c in family) == pytest.approx(2 * min(c["p"] for c in family))


def test_a_metric_has_one_scale_for_all_comparators(
    study: StudyRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    ratio, asked = stats.paired_ratio_of_means, iter([False, True])

    def unsafe_at_times(*arguments: Any, **options: Any) -> stats.Interval | None:
        return ratio(*arguments, **options) if next(asked) else None

    monkeypatch.setattr(stats, "paired_ratio_of_means", unsafe_at_times)
    found = [c for c in build_contest(study)["contrasts"] if c["metric"] == "gain_per_second"]
    assert len(found) == 2
    assert all(item["ratio"] is None and item["difference"] is not None for item in found)


def test_the_same_records_give_the_same_contest(
    study: StudyRecord, contest: dict[str, Any]
) -> None:
    again = StudyReport.of(study.path).contest
    assert again == json.loads(json.dumps(contest, allow_nan=False))


def test_the_planted_winner_is_found_and_named(study: StudyRecord, contest: dict[str, Any]) -> None:
    assert outcome(find(contest, "fp32", "seconds_to_target")) == "better"
    sentences = build_contest(study)["verdict"]
    assert sentences == contest["verdict"]
    ratio = find(contest, "fp32", "seconds_to_target")["ratio"]
    line = next(s for s in sentences if "the seconds of fp32 only" in s)
    assert line.startswith(f"Learned controller reaches the target in {ratio:.2f}x")
    assert line.endswith("faster.")
    assert any("did not reach the target before the horizon" in s for s in sentences)


def test_instances_are_named_on_which_no_compression_hardly_acts(study: StudyRecord) -> None:
    game = next(iter(study.games.values())).game
    runs = [run for (name, _, _), run in study.runs.items() if name == "fp32"]
    most = max(run.reports[-1].total_env_steps for run in runs)
    texts = []
    for planned in (most, 10 * most):
        plan = {**study.info["plan"], "budget": {"env_steps": {game: planned}}}
        other = StudyRecord(**{**study.__dict__, "info": {**study.info, "plan": plan}})
        texts.append(" ".join(build_contest(other)["verdict"]))
    sentence = "fp32 makes less than half of the env steps that were planned"
    assert sentence not in texts[0]
    named = [item.name for item in study.games.values() if item.game == game]
    assert f"{sentence} for it" in texts[1]
    assert all(name in texts[1] for name in named)


def test_a_loss_is_called_a_loss(study: StudyRecord) -> None:
    turned = load_study(study.path)
    info = {**turned.info, "subject": "fp32", "primary_against": ["static", "learned"]}
    lost = StudyRecord(**{**turned.__dict__, "info": info})
    sentences = build_contest(lost)["verdict"]
    assert sentences[0] == (
        "fp32 only is slower than Best static and Learned controller (seconds to target)."
    )
    assert sum(s.endswith(": slower.") for s in sentences) == 2
    assert any("it trades quality for speed" in s for s in sentences)


def test_processor_seconds_are_those_of_all_processes(
    study: StudyRecord, contest: dict[str, Any]
) -> None:
    row = next(row for row in contest["rows"] if row["strategy"] == "static")
    reports = study.runs["static", row["env"], row["seed"]].reports
    expected = sum(sum(report.cpu_seconds.values()) for report in reports)
    assert row["cpu_seconds"] == pytest.approx(expected)
    assert expected > 0.0


def test_real_runs_are_charged_what_their_processes_used(tmp_path: Path) -> None:
    reports = [make_report(i, 2.0, 1.0, Decision.of(FULL), cpu_seconds={"a": 3.0}) for i in (0, 1)]
    run = load_run(write_run(tmp_path, reports, tier="real"))
    assert contest_module._cpu_seconds(run) == 6.0


def test_contrasts_are_over_the_games_that_the_plan_names(tmp_path: Path) -> None:
    groups = {"breakout": "trained", "freeway": "new game"}
    games = {name: {**GAMES[name], "group": group} for name, group in groups.items()}
    path = write_study(tmp_path, games=tuple(groups), seeds=(100, 101, 102))
    info = read_json(path / "study.json")
    write_json(path / "study.json", info | {"games": games})
    everywhere = build_contest(load_study(path))
    assert {item["n"] for item in everywhere["contrasts"]} == {6}
    held_out = ["new game", "new machine"]
    write_json(path / "study.json", info | {"games": games, "primary_groups": held_out})
    planned = build_contest(load_study(path))
    assert {item["n"] for item in planned["contrasts"]} == {3}
    assert len(planned["rows"]) == len(everywhere["rows"])
    assert any("1 instances, as planned" in line for line in planned["verdict"])


def test_few_pairs_name_no_winner(tmp_path: Path) -> None:
    path = write_study(tmp_path, strategies=STRATEGIES, games=("freeway",), seeds=(100, 101, 102))
    study = load_study(path)
    contest = build_contest(study)
    assert lean(find(contest, "fp32", "seconds_to_target")) == "better"
    assert outcome(find(contest, "fp32", "seconds_to_target")) == "undecided"
    assert contest["verdict"][0].startswith("No winner: Learned controller is not distinguishable")
    assert any("small study" in s for s in contest["verdict"])
    assert any("3 pairs cannot give a p value below 0.25" in s for s in contest["verdict"])


def test_one_pair_gives_no_interval(tmp_path: Path) -> None:
    path = write_study(tmp_path, strategies=STRATEGIES, games=("freeway",), seeds=(100,))
    contest = build_contest(load_study(path))
    found = find(contest, "fp32", "seconds_to_target")
    assert (found["low"], found["high"], found["n"], found["p"]) == (None, None, 1, 1.0)
    assert any("too little data for an interval" in s for s in contest["verdict"])


def test_a_lone_strategy_has_nothing_to_win_against(tmp_path: Path) -> None:
    path = write_study(tmp_path, strategies=("learned",), games=("freeway",), seeds=(100, 101))
    assert "nothing to compare" in build_contest(load_study(path))["verdict"][0]


def test_an_unknown_subject_is_a_user_error(tmp_path: Path) -> None:
    path = write_study(
        tmp_path, strategies=STRATEGIES, games=("freeway",), seeds=(100,), subject="nobody"
    )
    with pytest.raises(UserError, match="subject 'nobody'"):
        build_contest(load_study(path))


@pytest.mark.parametrize(
    ("metric", "low", "high", "p_holm", "expected"),
    [
        ("seconds_to_target", 0.7, 0.9, 0.01, "better"),
        ("seconds_to_target", 1.1, 1.3, 0.01, "worse"),
        ("seconds_to_target", 0.7, 1.02, 0.01, "undecided"),
        ("seconds_to_target", 0.7, 0.9, 0.06, "undecided"),
        ("seconds_to_target", None, None, 1.0, "undecided"),
        ("gain_per_second", 1.1, 1.3, 0.01, "better"),
        ("gain_per_second", 0.7, 0.9, 0.01, "worse"),
    ],
)
def test_outcome_needs_both_the_interval_and_the_corrected_p(
    metric: str, low: float | None, high: float | None, p_holm: float, expected: str
) -> None:
    contrast = {"metric": metric, "ratio": 1.0, "low": low, "high": high, "p_holm": p_holm}
    assert outcome(contrast) == expected


def test_outcome_of_differences_compares_with_zero() -> None:
    contrast = {"metric": "auc", "ratio": None, "p_holm": 0.01}
    assert outcome({**contrast, "low": 0.1, "high": 0.2}) == "better"
    assert outcome({**contrast, "low": -0.2, "high": -0.1}) == "worse"
    assert outcome({**contrast, "low": -0.1, "high": 0.1}) == "undecided"


def test_p_values_are_never_printed_as_zero() -> None:
    assert [p_value(p) for p in (0.00001, 0.0312, 0.25)] == ["<0.001", "0.031", "0.25"]


def test_the_terminal_summary_says_what_the_contest_says(
    study: StudyRecord, contest: dict[str, Any]
) -> None:
    console = Console(width=200, record=True, force_terminal=False)
    with console.capture() as captured:
        print_summary(StudyReport(study, contest), console)
    text = captured.get()
    for sentence in contest["verdict"]:
        assert sentence in text
    for label in ("fp32 only", "Best static", "Learned controller"):
        assert label in text
    assert f"{find(contest, 'static', 'seconds_to_target')['ratio']:.2f}" in text
    assert str(study.path / "bundle") in text
    assert "report.html" not in text  # not written in this test, hence not promised
