"""A study's folder that is moved, damaged, or left by a killed driver: nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accerl.errors import UserError
from accerl.records import read_json, write_json
from accerl.spec import CompressionSpec, Decision
from studies.jobs import work
from studies.jobs.executor import Job, open_executor
from studies.jobs.round import PROGRESS, RESULTS, job_counts
from studies.study_folder import check_folder, claim, is_driven, make_folder
from tests.fixtures.studies.diary import DiaryJob, notes
from tests.fixtures.studies.jobs import catch_job, results_of


def test_nothing_is_written_where_a_folder_was_moved_from(tmp_path: Path) -> None:
    out, diary = tmp_path / "study", tmp_path / "diary"
    diary.mkdir()
    first, second = (DiaryJob(number=number, diary=diary) for number in (1, 2))
    with open_executor(out, 1) as executor:
        executor.map([first])
        moved = out.rename(tmp_path / "moved")
        with pytest.raises(UserError, match=r"study was moved or deleted meanwhile, .* as --out"):
            executor.map([second])
    assert not out.exists()
    with open_executor(moved, 1) as executor:
        assert [each.number for each in results_of(executor.map([first, second]))] == [1, 2]
    assert len(notes(diary, "begun", 1)) == 1


def test_a_job_that_fails_as_its_folder_was_moved_says_so(tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    diary.mkdir()
    with (
        open_executor(tmp_path / "study", 1) as executor,
        pytest.raises(UserError, match=r"study was moved or deleted meanwhile, .* as --out"),
    ):
        executor.map([DiaryJob(number=1, diary=diary, does="move")])
    assert not (tmp_path / "study").exists()


def test_a_result_of_another_form_is_made_again(tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    diary.mkdir()
    job = DiaryJob(number=3, diary=diary)
    with open_executor(tmp_path / "study", 1) as executor:
        executor.map([job])
    (file,) = (tmp_path / "study" / RESULTS).glob("*.json")
    found = read_json(file)
    write_json(file, {**found, "result": {**found["result"], "value": {"count": 3}}})
    with open_executor(tmp_path / "study", 1) as executor:
        assert not executor.is_saved(job)
        assert [each.number for each in results_of(executor.map([job]))] == [3]
    assert len(notes(diary, "begun")) == 2


def test_a_result_whose_spec_is_none_of_today_s_is_not_there(tmp_path: Path) -> None:
    job = catch_job(3, tmp_path / "study" / "runs" / "a")
    with open_executor(tmp_path / "study", 1) as executor:
        executor.map([job])
        assert executor.is_saved(job)
    (file,) = (tmp_path / "study" / RESULTS).glob("*.json")
    found = read_json(file)
    decisions = found["result"]["value"]["decisions"]
    decisions[0] = Decision.of(CompressionSpec(bits=8)).to_json()
    text = json.dumps(found)
    assert '"bits": 8' in text
    file.write_text(text.replace('"bits": 8', '"bits": 7'))
    with open_executor(tmp_path / "study", 1) as executor:
        assert not executor.is_saved(job)


def test_a_run_that_another_machine_has_just_made_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that machines share may show what is new in it seconds later."""
    looks: list[str] = []

    def appears(job: Job[Any], digest: str) -> bool:
        looks.append(digest)
        return len(looks) > 2

    monkeypatch.setattr(work, "has_run", appears)
    assert work.sees_run(catch_job(3, tmp_path / "runs" / "a"), "name")
    monkeypatch.setattr(work, "SEEN_SECONDS", 0.0)
    looks.clear()
    assert not work.sees_run(catch_job(3, tmp_path / "runs" / "a"), "name")


def cut_off(file: Path) -> None:
    file.write_text(file.read_text()[:40])


def without_its_end(file: Path) -> None:
    file.write_text(file.read_text().splitlines(keepends=True)[0])


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        pytest.param("summary.json", cut_off, marks=pytest.mark.slow),
        pytest.param("metrics.jsonl", cut_off, marks=pytest.mark.slow),
        ("metrics.jsonl", without_its_end),
        pytest.param("job.id", lambda file: file.write_bytes(b"\xff"), marks=pytest.mark.slow),
    ],
)
def test_a_damaged_run_directory_is_made_again(
    tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    out = tmp_path / "study"
    job = catch_job(3, out / "runs" / "a")
    with open_executor(out, 1) as executor:
        (result,) = results_of(executor.map([job]))
        whole = json.loads((out / "runs" / "a" / "summary.json").read_text())
        damage(out / "runs" / "a" / name)
        assert not executor.is_saved(job)
        assert results_of(executor.map([job])) == [result]
        assert executor.is_saved(job)
    again = json.loads((out / "runs" / "a" / "summary.json").read_text())
    assert again["env_steps"] == whole["env_steps"]


def test_what_a_killed_driver_ran_runs_no_more(tmp_path: Path) -> None:
    with open_executor(tmp_path, 1) as executor:
        executor.take_folder()  # type: ignore[attr-defined]
        counts = {"done": 1, "running": 2, "failed": 0, "left": 3, "seconds_left": 9.0, "at": ""}
        write_json(tmp_path / PROGRESS, counts)
        assert is_driven(tmp_path)
        assert job_counts(tmp_path)["step"] == counts
    assert not is_driven(tmp_path)
    assert job_counts(tmp_path)["step"] == {**counts, "running": 0, "left": 5}
    write_json(tmp_path / PROGRESS, {**counts, "left": "three"})
    with pytest.raises(UserError, match=r"progress\.json: left is damaged: a whole number was exp"):
        job_counts(tmp_path)


def test_what_a_killed_start_left_is_in_nobody_s_way(tmp_path: Path) -> None:
    (tmp_path / ".settings.json.123.tmp").write_text("{")
    check_folder(tmp_path)
    claim(tmp_path, {"study": "compare"})
    make_folder(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").touch()
    with pytest.raises(UserError, match="is not empty and holds no study"):
        check_folder(tmp_path / "other")


@pytest.mark.slow
def test_a_run_directory_is_that_of_the_job_whose_result_is_kept(tmp_path: Path) -> None:
    place = tmp_path / "run"
    first, second = catch_job(1, place), catch_job(2, place)
    with open_executor(tmp_path, 1) as executor:
        executor.map([first])
        assert executor.is_saved(first)
        executor.map([second])  # as where a setting has changed since
        assert read_json(place / "config.json")["seed"] == 2
        assert executor.is_saved(second)
        assert not executor.is_saved(first)
