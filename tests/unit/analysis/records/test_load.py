from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accerl.errors import UserError
from accerl.presets import load_preset
from accerl.records import read_json
from accerl.spec import Decision
from analysis.records.comparison import load_comparison
from analysis.records.load import Game, is_study, load_run, load_study, machine_warning
from analysis.records.read import read_list, read_rows
from tests.fixtures.studies.synthetic_contest import write_contest_study
from tests.fixtures.studies.synthetic_study import FULL, GAMES, make_report, write_run, write_study

GALLERY = Path(__file__).parents[4] / "analysis" / "gallery"
SMALL = {"games": ("freeway",), "strategies": ("fp32", "learned"), "seeds": (100, 101)}


def small_run(path: Path) -> Path:
    return write_run(path, [make_report(i, 2.0, float(i), Decision.of(FULL)) for i in range(3)])


def test_a_run_comes_back_as_it_was_written(tmp_path: Path) -> None:
    run = load_run(small_run(tmp_path / "run"))
    assert run.finished
    assert (run.env, run.strategy, run.seed, run.clock) == ("catch", "fp32", 0, "serial, virtual")
    assert [item.learner_return for item in run.reports] == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("cut", [b'{"index": 3, "seco', b'{"env": "\xc3', b"\xff"])
def test_an_unfinished_run_is_read_as_far_as_it_got(tmp_path: Path, cut: bytes) -> None:
    reports = [make_report(i, 2.0, float(i), Decision.of(FULL)) for i in range(3)]
    path = write_run(tmp_path / "run", reports, finish=False)
    with (path / "metrics.jsonl").open("ab") as file:
        file.write(cut)
    run = load_run(path)
    assert not run.finished
    assert len(run.reports) == 3
    assert run.summary["final_return"] == 2.0
    assert run.summary["spec_seconds"] == {"original fp32": pytest.approx(6.0)}


def test_a_summary_that_lacks_something_is_refused(tmp_path: Path) -> None:
    path = small_run(tmp_path / "run")
    (path / "summary.json").write_text('{"seconds": 6.0, "env_steps": 3}')
    with pytest.raises(UserError, match=r"summary.json is incomplete .* no env_steps_per_second, "):
        load_run(path)


def test_a_summary_of_another_form_is_refused(tmp_path: Path) -> None:
    path = small_run(tmp_path / "run")
    summary = read_json(path / "summary.json")
    (path / "summary.json").write_text(json.dumps({**summary, "phases": [1.0]}))
    with pytest.raises(UserError, match=r"summary.json: phases is damaged: an object was expected"):
        load_run(path)


def test_a_finished_run_that_lost_its_end_is_refused(tmp_path: Path) -> None:
    path = small_run(tmp_path / "run")
    lines = (path / "metrics.jsonl").read_text().splitlines()
    (path / "metrics.jsonl").write_text("\n".join([lines[0], lines[1][:40]]))
    with pytest.raises(UserError, match=r"metrics.jsonl was cut off: it has \d+ s of the \d+ s"):
        load_run(path)
    (path / "summary.json").unlink()
    assert len(load_run(path).reports) == 1


def test_an_unfinished_run_is_told_by_its_configuration(tmp_path: Path) -> None:
    reports = [make_report(0, 2.0, 1.0, Decision.of(FULL))]
    path = write_run(tmp_path / "run", reports, finish=False)
    config = replace(load_preset("pong"), seed=7)
    data = {**config.to_json(), "strategy": "fixed original INT8"}
    (path / "config.json").write_text(json.dumps(data))
    run = load_run(path)
    told = (run.env, run.seed, run.strategy, run.clock, run.network)
    assert told == ("pong", 7, "fixed original INT8", "process, real", "net1")
    assert run.summary["config_hash"] == config.hash


def test_what_is_not_a_run_directory_is_said_plainly(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a folder"):
        load_run(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"not a run directory \(no metrics.jsonl\)"):
        load_run(tmp_path)
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(UserError, match="its run ended before"):
        load_run(tmp_path)


def test_damage_is_said_with_file_and_line(tmp_path: Path) -> None:
    path = small_run(tmp_path / "run")
    (path / "summary.json").write_text("[1, 2]")
    with pytest.raises(UserError, match=r"summary.json must hold a JSON object"):
        load_run(path)
    lines = (path / "metrics.jsonl").read_text().splitlines()
    (path / "metrics.jsonl").write_text("\n".join([lines[0], "{oops", lines[2]]))
    with pytest.raises(UserError, match="line 2 is damaged"):
        load_run(path)


def test_a_study_comes_back_with_everything_it_holds(tmp_path: Path) -> None:
    study = load_study(write_study(tmp_path, **SMALL))
    assert is_study(tmp_path)
    assert set(study.runs) == {(s, "freeway", n) for s in ("fp32", "learned") for n in (100, 101)}
    assert study.subject == "learned"
    assert list(study.replays) == ["indicator", "fp32"]
    assert study.profiles["paper"]["name"] == "paper"
    assert study.meta_training
    assert study.bundle["schema"] == 1
    assert study.warnings == ()


def test_missing_and_unfinished_test_runs_become_warnings_not_silence(tmp_path: Path) -> None:
    write_study(tmp_path, **SMALL)
    (tmp_path / "runs/fp32/freeway/seed-100/metrics.jsonl").unlink()
    (tmp_path / "runs/learned/freeway/seed-101/summary.json").unlink()
    study = load_study(tmp_path)
    assert set(study.runs) == {("fp32", "freeway", 101), ("learned", "freeway", 100)}
    assert len(study.warnings) == 2
    assert "fp32 only on freeway, seed 100: no test run" in study.warnings[0]
    assert "never finished" in study.warnings[1]


def test_only_the_planned_seeds_of_a_strategy_are_missed(tmp_path: Path) -> None:
    write_study(tmp_path, **SMALL)
    shutil.rmtree(tmp_path / "runs/fp32/freeway/seed-101")
    info = json.loads((tmp_path / "study.json").read_text())
    info["strategies"][0]["test_seeds"] = [100]
    (tmp_path / "study.json").write_text(json.dumps(info))
    study = load_study(tmp_path)
    assert [item.test_seeds for item in study.strategies] == [(100,), (100, 101)]
    assert study.warnings == ()
    assert len(study.runs) == 3


def test_a_study_that_ended_early_says_so(tmp_path: Path) -> None:
    write_study(tmp_path, **SMALL)
    info = json.loads((tmp_path / "study.json").read_text())
    info["plan"]["seeds"] = {"test": [100, 101, 102]}
    (tmp_path / "study.json").write_text(json.dumps(info))
    assert load_study(tmp_path).warnings == ("ended early: 2 of 3 planned test seeds",)


def test_a_run_that_stopped_before_the_horizon_is_kept_and_named(tmp_path: Path) -> None:
    write_study(tmp_path, **SMALL)
    path = tmp_path / "runs/fp32/freeway/seed-100"
    lines = (path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (path / "metrics.jsonl").write_text("".join(lines[:10]))
    summary = json.loads((path / "summary.json").read_text())
    (path / "summary.json").write_text(json.dumps({**summary, "seconds": 30.0}))
    study = load_study(tmp_path)
    assert ("fp32", "freeway", 100) in study.runs
    assert "ended at 30 s of 90 s" in study.warnings[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"games": {}}, "names no games"),
        ({"games": {"freeway": {"horizon_seconds": 90}}}, "incomplete or damaged"),
        ({"strategies": [{"label": "x"}]}, "incomplete or damaged"),
        ({"test_seeds": []}, "no test seeds"),
        ({"accounting": {}}, r"study.json: accounting is incomplete .* it has no accepted"),
        ({"primary_against": 5}, "primary_against is damaged: a list was expected, found int"),
        ({"seed": "x"}, "seed is damaged: a whole number was expected, found str 'x'"),
        ({"plan": {"seeds": {"test": [1]}}}, "plan is incomplete or damaged: it has no budget, "),
        ({"games": {"freeway": {**GAMES["freeway"], "target_return": 0.0}}}, "must lie above"),
    ],
)
def test_a_bad_study_file_is_a_user_error(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    write_study(tmp_path, **SMALL)
    data = json.loads((tmp_path / "study.json").read_text()) | changes
    (tmp_path / "study.json").write_text(json.dumps(data))
    with pytest.raises(UserError, match=message):
        load_study(tmp_path)


@pytest.mark.parametrize(
    ("name", "found", "message"),
    [
        ("tuning.jsonl", {"score": 1.0}, r"tuning.jsonl\[0\] is .* it has no strategy"),
        ("variants.json", [{"name": "x"}], r"variants.json\[0\] is .* it has no ratio"),
        ("checks.json", [{"variant": "x"}], r"checks.json\[0\] is .* it has no candidate"),
        ("meta_training.jsonl", {"iteration": 1}, r"jsonl\[0\] is .* no game, gain, spread"),
        ("profiles/edge.json", {"cores": 2}, r"edge.json is .* it has no env_step_us, "),
        ("real.json", {"seconds": 1.0}, "real.json is incomplete or damaged: it has no rows"),
        ("oracle-gap.json", {"rows": [{"game": "x"}]}, r"rows\[0\] is .* it has no profile"),
    ],
)
def test_what_lies_beside_a_study_is_checked_too(
    tmp_path: Path, name: str, found: Any, message: str
) -> None:
    write_study(tmp_path, **SMALL)
    (tmp_path / name).write_text(json.dumps(found))
    with pytest.raises(UserError, match=message):
        load_study(tmp_path)


def test_an_oracle_with_another_number_of_seeds_is_refused(tmp_path: Path) -> None:
    folder = write_contest_study(tmp_path, seeds=(100, 101))
    data = json.loads((folder / "oracle-gap.json").read_text())
    data["rows"][0]["oracle"]["values"].pop()
    (folder / "oracle-gap.json").write_text(json.dumps(data))
    with pytest.raises(UserError, match="catch has another number of seeds"):
        load_study(folder)


def test_a_folder_without_study_file_or_runs_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no finished contest"):
        load_study(tmp_path)
    write_study(tmp_path / "s", **SMALL)
    (tmp_path / "s/runs").rename(tmp_path / "s/elsewhere")
    with pytest.raises(UserError, match="no finished test run"):
        load_study(tmp_path / "s")


def test_levels_of_a_game_must_make_sense() -> None:
    told: dict[str, Any] = GAMES["freeway"]
    with pytest.raises(UserError, match="horizon_seconds must be positive"):
        Game(name="x", **{**told, "horizon_seconds": 0.0})
    with pytest.raises(UserError, match=r"reference_return \(0\) must lie above"):
        Game(name="x", **{**told, "reference_return": 0.0})


def test_rows_drop_a_cut_last_line_and_refuse_damage_inside(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    assert read_rows(path) == ()
    path.write_text('{"a": 1}\n{"a": ')
    assert read_rows(path) == ({"a": 1},)
    path.write_text('{"a": \n{"a": 1}\n')
    with pytest.raises(UserError, match="line 1 is damaged"):
        read_rows(path)
    path.write_text("[1]\n")
    with pytest.raises(UserError, match="not a JSON object"):
        read_rows(path)


def comparison(**changes: Any) -> dict[str, Any]:
    """Return a real comparison of two scores, with some of it in another form."""
    result = read_json(GALLERY / "real-clock.json")
    row = result["strategies"][1]
    for name, value in changes.items():
        owner = next(each for each in (result, row, row["to_score"][0]) if name in each)
        owner[name] = value
    return result


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([], "must hold a JSON object, found list"),
        ({"game": "catch"}, "is incomplete or damaged: it has no network, clock"),
        (comparison(seeds=[], strategies=[]), "names no seeds and no strategies"),
        (comparison(strategies=[{"label": "x"}]), r"strategies\[0\] is .* it has no seeds"),
        (comparison(run_folders={}), "has no run folder of original fp32"),
        (comparison(seeds=5), ": seeds is damaged: a list was expected, found int '5'"),
        (comparison(scores=[True, 0.0]), r": scores\[0\] is damaged: a number was expected"),
        (comparison(scores=[0.0]), "is damaged: original fp32 is timed to "),
        (comparison(acted=None), "acted is damaged: an object was expected, found nothing"),
        (comparison(seconds_interval=[1.0, "2"]), r"seconds_interval\[1\] is damaged: a number"),
        (comparison(seconds_interval=[1.0]), "seconds_interval needs two bounds"),
        (comparison(seconds_interval=[]), "seconds_interval needs two bounds"),
        (comparison(bound=3), r"strategies\[1\]: to_score\[0\]: bound is damaged: a text was"),
    ],
)
def test_a_comparison_that_says_too_little_is_refused(
    found: Any, message: str, tmp_path: Path
) -> None:
    (tmp_path / "comparison.json").write_text(json.dumps(comparison()))
    assert load_comparison(tmp_path) == comparison()
    (tmp_path / "comparison.json").write_text(json.dumps(found))
    with pytest.raises(UserError, match=message) as refused:
        load_comparison(tmp_path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("found", [5, {}, [5]])
def test_what_is_no_list_of_objects_is_refused(found: Any, tmp_path: Path) -> None:
    path = tmp_path / "checks.json"
    assert read_list(path) == ()
    path.write_text(json.dumps(found))
    with pytest.raises(UserError, match="must hold a list of JSON objects"):
        read_list(path)


def test_real_seconds_of_two_machines_are_called_out(tmp_path: Path) -> None:
    reports = [make_report(0, 2.0, 1.0, Decision.of(FULL))]
    runs = [
        load_run(write_run(tmp_path / f"{i}", reports, tier=tier, fingerprint={"id": str(i)}))
        for i, tier in enumerate(("real", "real", "virtual"))
    ]
    assert "2 different machines" in str(machine_warning("These runs", runs))
    assert machine_warning("These runs", runs[1:]) is None
