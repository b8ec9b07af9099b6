"""Finished jobs carried from one study's folder to another, through a file or straight."""

from __future__ import annotations

import base64
import json
import lzma
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from accerl.errors import UserError
from accerl.records import METRICS, SUMMARY, json_hash, read_json, write_json
from studies.cli.main import run
from studies.jobs.carry import Carried, merge_results, pack_results
from studies.jobs.executor import Job
from studies.jobs.local import LocalExecutor
from studies.jobs.work import JOB, Done, job_key
from studies.study_folder import (
    OPENED,
    PLAN,
    SETTINGS,
    claim,
    driven,
    find_folder,
    make_folder,
    write_plan,
)

ROW = '{"total_seconds": 1.0}'
"""what counts of a run's last interval"""


@dataclass(frozen=True)
class Value:
    value: float

    def to_json(self) -> dict[str, Any]:
        return {"value": self.value}


@dataclass(frozen=True, kw_only=True)
class Doubled(Job[Value]):
    kind: ClassVar[str] = "doubled"
    number: int

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "number": self.number}

    def run(self) -> Value:
        return Value(2.0 * self.number)

    @classmethod
    def read_result(cls, data: Mapping[str, Any]) -> Value:
        return Value(**data)


def save(study: Path, *numbers: int, value: float | None = None) -> None:
    """Save results as an executor does that had the jobs done."""
    with LocalExecutor(study, 1) as executor:
        for number in numbers:
            result = {"value": 2.0 * number if value is None else value}
            executor.save(str(number), Doubled(number=number), Done(result=result, cpu_seconds=1.0))


def values(study: Path, *numbers: int) -> list[float | None]:
    """Return the results that a study need not make again."""
    with LocalExecutor(study, 1) as executor:
        jobs = [Doubled(number=number) for number in numbers]
        return [
            executor.map([job])[0].result.value if executor.is_saved(job) else None for job in jobs
        ]


def test_a_study_goes_on_elsewhere_from_what_was_packed(tmp_path: Path) -> None:
    save(tmp_path / "here", 1, 2)
    write_plan(tmp_path / "here", {"seed": 0})
    write_json(tmp_path / "here" / SETTINGS, {"study": "contest"})
    assert pack_results(tmp_path / "here", tmp_path / "files" / "pack.json.xz") == 2
    found = merge_results([tmp_path / "files" / "pack.json.xz"], tmp_path / "there")
    assert found == Carried(added=2, known=0, left=0)
    assert values(tmp_path / "there", 1, 2, 3) == [2.0, 4.0, None]
    assert write_plan(tmp_path / "there", {"seed": 0})
    claim(tmp_path / "there", {"study": "contest"})  # which other folders are refused
    with pytest.raises(UserError, match="another plan"):
        write_plan(tmp_path / "there", {"seed": 1})


def test_a_run_that_is_made_again_brings_its_own_result(tmp_path: Path) -> None:
    """Its directory was lost; another program, or machine, may have made the new one."""
    with LocalExecutor(tmp_path / "one", 1) as executor:
        job = Doubled(number=1, out=tmp_path / "one" / "runs" / "it")
        for value in (1.0, 7.0):
            result, records = {"value": value}, records_of("1")
            executor.save("1", job, Done(result=result, cpu_seconds=1.0, records=records))
        assert executor._outcome("1", job).result.value == 7.0


def test_results_say_which_revision_made_them_wherever_they_are(tmp_path: Path) -> None:
    save(tmp_path / "here", 1)
    (file,) = (tmp_path / "here" / "jobs").iterdir()
    saved = json.loads(file.read_text())
    saved["result"]["git_revision"] = "0123abc"
    file.write_text(json.dumps(saved))
    pack_results(tmp_path / "here", tmp_path / "pack.json.xz")
    merge_results([tmp_path / "pack.json.xz"], tmp_path / "there")
    with LocalExecutor(tmp_path / "there", 1) as executor:
        assert executor.map([Doubled(number=1)])[0].git_revision == "0123abc"


def test_what_a_folder_has_stays_and_folders_are_sources_too(tmp_path: Path) -> None:
    save(tmp_path / "here", 1, 2)
    save(tmp_path / "there", 2, 3, value=7.0)
    found = merge_results([tmp_path / "here"], tmp_path / "there")
    assert found == Carried(added=1, known=1, left=0)
    assert values(tmp_path / "there", 1, 2, 3) == [2.0, 7.0, 7.0]
    assert merge_results([tmp_path / "here"], tmp_path / "there") == Carried(
        added=0, known=2, left=0
    )


def test_equal_results_make_equal_files(tmp_path: Path) -> None:
    save(tmp_path / "a", 1, 2)
    save(tmp_path / "b", 2, 1)
    pack_results(tmp_path / "a", tmp_path / "a.gz")
    pack_results(tmp_path / "b", tmp_path / "b.gz")
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


@dataclass(frozen=True, kw_only=True)
class Played(Doubled):
    """Whose run directory the report shows."""

    kind: ClassVar[str] = "strategy"


def records_of(name: str) -> dict[str, str]:
    """Return the least that a whole run directory holds, as it travels."""
    texts = {METRICS: f"{ROW}\n", SUMMARY: '{"seconds": 1.0}', JOB: name}
    return {
        file: base64.b64encode(zlib.compress(text.encode())).decode()
        for file, text in texts.items()
    }


def save_run(
    study: Path, number: int, kind: type[Doubled] = Played, place: str | None = None
) -> None:
    """Save a result whose job has written a run directory."""
    job = kind(number=number, out=study / "runs" / (place or str(number)))
    name = json_hash(job_key(job, study))
    with LocalExecutor(study, 1) as executor:
        done = Done(result={"value": 2.0 * number}, cpu_seconds=1.0, records=records_of(name))
        executor.save(name, job, done)
        assert executor.is_saved(job)


def test_run_directories_go_with_their_jobs(tmp_path: Path) -> None:
    """Without checkpoints, and only those whose records are all that is shown of them."""
    for number in (1, 2, 3):
        save_run(tmp_path / "here", number)
    run = tmp_path / "here" / "runs" / "1"
    (run / "checkpoint").mkdir()
    for picture in (".DS_Store", "returns.png"):
        (run / picture).write_bytes(b"\xff\xfe")
    (tmp_path / "here" / "runs" / "3" / SUMMARY).unlink()  # what is left of it is no run
    save_run(tmp_path / "here", 4, Doubled)
    pack = tmp_path / "pack.json.xz"
    assert pack_results(tmp_path / "here", pack) == 2
    for source, folder, left in ((pack, "file", 0), (tmp_path / "here", "folder", 2)):
        there = tmp_path / folder
        assert merge_results([source], there) == Carried(added=2, known=0, left=left)
        assert (there / "runs" / "2" / METRICS).read_text() == f"{ROW}\n"
        assert not (there / "runs" / "1" / "checkpoint").exists()
        with LocalExecutor(there, 1) as executor:
            jobs = [Played(number=number, out=there / "runs" / str(number)) for number in (1, 3)]
            assert [executor.is_saved(job) for job in jobs] == [True, False]
        assert merge_results([source], there) == Carried(added=0, known=2, left=left)


def test_what_was_timed_stays_on_its_machine_but_for_what_the_plan_depends_on(
    tmp_path: Path,
) -> None:
    keys = [
        {"kind": "infer"},
        *({"kind": "profile", "profile": name} for name in ("real-pong", "measured")),
    ]
    make_folder(tmp_path / "here")
    for key in keys:
        saved = {"key": key, "result": {"value": {}}}
        (tmp_path / "here" / "jobs").mkdir(exist_ok=True)
        write_json(tmp_path / "here" / "jobs" / f"{json_hash(key)}.json", saved)
    pack = tmp_path / "pack.json.xz"
    assert pack_results(tmp_path / "here", pack) == 1
    found = merge_results([tmp_path / "here"], tmp_path / "folder")
    assert found == Carried(added=1, known=0, left=2)
    merge_results([pack], tmp_path / "file")
    for there in ("folder", "file"):
        files = [path.stem for path in (tmp_path / there / "jobs").iterdir()]
        assert files == [json_hash(keys[-1])]


def test_a_run_that_has_the_place_of_another_is_left(tmp_path: Path) -> None:
    """Two machines may have trained, say, two controllers of one name."""
    save_run(tmp_path / "here", 1, place="controller")
    save_run(tmp_path / "there", 2, place="controller")
    found = merge_results([tmp_path / "here"], tmp_path / "there")
    assert found == Carried(added=0, known=0, left=1)
    with LocalExecutor(tmp_path / "there", 1) as executor:
        assert executor.is_saved(Played(number=2, out=tmp_path / "there" / "runs" / "controller"))
    found = merge_results([tmp_path / "here", tmp_path / "there"], tmp_path / "both")
    assert found == Carried(added=1, known=0, left=1)


@pytest.mark.parametrize("lost", [SUMMARY, METRICS])
def test_a_run_directory_that_was_lost_comes_back(tmp_path: Path, lost: str) -> None:
    save_run(tmp_path / "here", 1)
    merge_results([tmp_path / "here"], tmp_path / "there")
    (tmp_path / "there" / "runs" / "1" / lost).unlink()
    found = merge_results([tmp_path / "here"], tmp_path / "there")
    assert found == Carried(added=1, known=0, left=0)
    assert (tmp_path / "there" / "runs" / "1" / lost).is_file()


@pytest.mark.parametrize("place", ["../keep", "jobs/1", 5])
def test_a_job_whose_place_is_outside_is_none(tmp_path: Path, place: Any) -> None:
    save_run(tmp_path / "here", 1)
    (path,) = (tmp_path / "here" / "jobs").glob("*.json")
    job = json.loads(path.read_text())
    path.write_text(json.dumps({**job, "key": {**job["key"], "out": place}}))
    (tmp_path / "here" / "runs" / "1").rename(tmp_path / "keep")
    found = merge_results([tmp_path / "here"], tmp_path / "there")
    assert found == Carried(added=0, known=0, left=0)
    assert (tmp_path / "keep" / METRICS).is_file()


def test_nothing_is_added_while_a_study_is_under_way(tmp_path: Path) -> None:
    save_run(tmp_path / "here", 1)
    with (
        driven(make_folder(tmp_path / "there")),
        pytest.raises(UserError, match="a study is under way in"),
    ):
        merge_results([tmp_path / "here"], tmp_path / "there")


def test_what_was_planned_otherwise_is_refused_and_nothing_is_added(tmp_path: Path) -> None:
    for number, name in enumerate(("here", "there")):
        save(tmp_path / name, number)
        write_plan(tmp_path / name, {"seed": number})
    with pytest.raises(UserError, match="another plan"):
        merge_results([tmp_path / "here"], tmp_path / "there")
    assert values(tmp_path / "there", 0) == [None]
    with pytest.raises(UserError, match="another plan"):
        merge_results([tmp_path / "here", tmp_path / "there"], tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("claimed", [True, False])
def test_studies_of_two_kinds_are_not_merged(tmp_path: Path, claimed: bool) -> None:
    """Their files have no name in common; what has none takes over no study either."""
    here, there = tmp_path / "here", tmp_path / "there"
    for number, folder in enumerate((here, there)):
        save(folder, number)
    write_json(here / "plan.json", {"plan": {}})
    if claimed:
        write_json(there / "settings.json", {"study": "compare"})
    with pytest.raises(UserError, match="here holds another kind of study than the rest"):
        merge_results([here], there)
    assert not (there / "plan.json").exists()
    if claimed:
        with pytest.raises(UserError, match="there holds another kind of study"):
            merge_results([here, there], tmp_path / "new")


def outside(place: Any = "runs/1", file: str = SUMMARY, text: Any = "{}") -> bytes:
    """Return a pack whose one run has its place there."""
    name = "0" * 64
    job = {"key": {"out": place}, "result": {}}
    pack = {"format": "accerl study pack", "notes": {}, "jobs": {name: job}}
    return lzma.compress(json.dumps({**pack, "records": {name: {file: text}}}).encode())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not compressed",
        lzma.compress(b"[1, 2"),
        lzma.compress(b"[]"),
        lzma.compress(b'{"format": "accerl study pack", "notes": {}, "jobs": {"../../x": {}}}'),
        lzma.compress(b'{"format": "accerl study pack", "notes": {"../x": {}}, "jobs": {}}'),
        lzma.compress(b'{"format": "accerl study pack", "notes": {}, "jobs": {}}')[:-9],
        lzma.compress(b'{"format": "accerl study pack", "notes": {"plan.json": []}, "jobs": {}}'),
        lzma.compress(b'{"format": "accerl study pack", "notes": {}, "opened": {}, "jobs": {}}'),
        outside(place="/tmp/x"),
        outside(place="runs/../../x"),
        outside(place=""),
        outside(place="."),
        outside(place="jobs/x"),
        outside(place=1),
        outside(file="../x"),
        outside(text=1),
    ],
)
def test_a_file_that_is_no_pack_is_refused_and_never_overwritten(
    data: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_bytes(data)
    with pytest.raises(UserError, match="accerl study pack"):
        merge_results([file], tmp_path / "there")
    save(tmp_path / "here", 1)
    with pytest.raises(UserError, match="accerl study pack"):
        pack_results(tmp_path / "here", file)
    assert file.read_bytes() == data
    assert not (tmp_path / "there").exists()


def test_folders_that_are_no_study_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(UserError, match="holds no study"):
        pack_results(tmp_path / "other", tmp_path / "pack.gz")
    save(tmp_path / "here", 1)
    with pytest.raises(UserError, match="holds no study"):
        merge_results([tmp_path / "here"], tmp_path / "other")
    with pytest.raises(UserError, match="does not exist"):
        merge_results([tmp_path / "missing"], tmp_path / "there")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no study"):
        merge_results([tmp_path / "empty"], tmp_path / "there")
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["thesis.tex"]


def test_a_plan_that_is_damaged_is_one_line(tmp_path: Path) -> None:
    save(tmp_path, 1)
    write_json(tmp_path / PLAN, [])
    for use in (
        lambda: write_plan(tmp_path, {"seed": 0}),
        lambda: pack_results(tmp_path, tmp_path / "pack.xz"),
        lambda: merge_results([tmp_path], tmp_path / "there"),
    ):
        with pytest.raises(UserError, match=r"plan.json must hold a JSON object, found list"):
            use()


def test_what_no_file_can_hold_is_said_to_be_there(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (job,) = (tmp_path / "jobs").glob("*.json")
    job.unlink()
    with pytest.raises(UserError, match="has no finished job; run its study first"):
        pack_results(tmp_path, tmp_path / "pack.xz")
    key = {"kind": "infer"}
    write_json(job.with_name(f"{json_hash(key)}.json"), {"key": key, "result": {"value": {}}})
    with pytest.raises(UserError, match=r"no file can hold its 1 finished job: .* copy the folder"):
        pack_results(tmp_path, tmp_path / "pack.xz")


def test_when_test_seeds_were_opened_goes_with_the_runs(tmp_path: Path) -> None:
    """Each plan and revision as it was first, whichever folder is merged into which."""
    old, new, other = (
        {"plan_hash": "p", "git_revision": revision, "at": f"2026-11-{day}T08:00:00+00:00"}
        for revision, day in (("a", "01"), ("a", "03"), ("b", "02"))
    )
    for name, notes in (("here", [old]), ("there", [other, new])):
        save(tmp_path / name, 1)
        write_plan(tmp_path / name, {"seed": 0})
        write_json(tmp_path / name / OPENED, notes)
    pack_results(tmp_path / "here", tmp_path / "here.xz")
    merge_results([tmp_path / "there"], tmp_path / "both")
    assert read_json(tmp_path / "both" / OPENED) == [other, new]
    for there in ("both", "there"):
        merge_results([tmp_path / "here.xz"], tmp_path / there)
        assert read_json(tmp_path / there / OPENED) == [old, other]


def test_commands_pack_and_merge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path / "here", 1, 2)
    pack = str(tmp_path / "pack.json.xz")
    assert run(["study", "pack", str(tmp_path / "here"), "--file", pack]) == 0
    assert "2 finished runs" in capsys.readouterr().out
    assert run(["study", "merge", pack, "--out", str(tmp_path / "there"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["added"] == 2
    assert find_folder(tmp_path / "there") is not None
    assert not (tmp_path / "there" / PLAN).exists()
    assert run(["study", "pack", str(tmp_path / "nowhere"), "--file", pack]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert run(["study", "merge", "--out", str(tmp_path / "there")]) == 2
    assert "name files of" in capsys.readouterr().err
