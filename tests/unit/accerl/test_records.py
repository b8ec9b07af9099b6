"""The run directory: atomic files, crashes, folders that cannot be written, fingerprints."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import IO

import numpy as np
import pytest

from accerl import records
from accerl.errors import UserError
from accerl.records import (
    RunWriter,
    locked,
    make_out_dir,
    read_json,
    read_metrics,
    write_bytes,
    write_json,
)
from accerl.runtime.run import IntervalReport
from accerl.spec import IDENTITY, CompressionSpec, Decision
from tests.fixtures.reports.reports import interval_report

REPORT = interval_report(
    entropy_nats=1.0,
    episode_returns=(1.0, 3.0),
    learner_return=2.5,
    decision=Decision(((IDENTITY, 0.25), (CompressionSpec(bits=8), 0.75))),
    switch_seconds=0.125,
    losses={"value": 0.5},
)
SEQUENCE = [replace(REPORT, index=step, total_seconds=2.0 * (step + 1)) for step in range(4)]


def written(path: Path) -> RunWriter:
    writer = RunWriter(path, {"seed": 3})
    for report in SEQUENCE:
        writer.append(report)
    return writer


def test_a_report_survives_its_line() -> None:
    assert IntervalReport.from_json(json.loads(json.dumps(REPORT.to_json()))) == REPORT


def test_a_run_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    writer = written(tmp_path / "deep" / "run")
    writer.finish({"seed": 3, "final_return": 2.5})
    writer.close()
    assert list(read_metrics(writer.path)) == SEQUENCE
    assert read_json(writer.path / records.CONFIG) == {"seed": 3}
    assert read_json(writer.path / records.SUMMARY)["final_return"] == 2.5
    assert sorted(item.name for item in writer.path.iterdir()) == [
        "config.json",
        "metrics.jsonl",
        "summary.json",
    ]


def test_every_line_is_on_disk_before_append_returns(tmp_path: Path) -> None:
    writer = written(tmp_path)
    assert list(read_metrics(tmp_path)) == SEQUENCE
    writer.close()


@pytest.mark.parametrize("lost", [1, 20, 300])
def test_a_last_line_cut_off_by_a_crash_is_dropped(tmp_path: Path, lost: int) -> None:
    written(tmp_path).close()
    metrics = tmp_path / records.METRICS
    text = metrics.read_text().rstrip("\n")
    metrics.write_text(text[:-lost])
    assert list(read_metrics(tmp_path)) == SEQUENCE[:-1]


def test_damage_inside_a_run_is_not_passed_over(tmp_path: Path) -> None:
    written(tmp_path).close()
    metrics = tmp_path / records.METRICS
    lines = metrics.read_text().splitlines()
    metrics.write_text("\n".join([lines[0], lines[1][:-9], *lines[2:]]))
    with pytest.raises(UserError, match=r"metrics\.jsonl, line 2 is damaged"):
        list(read_metrics(tmp_path))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("index", 0.5),
        ("index", True),
        ("seconds", "2.0"),
        ("learner_return", [2.5]),
        ("episode_returns", 1.0),
        ("episode_returns", [None]),
        ("phase_seconds", [1.0]),
        ("losses", {"value": "0.5"}),
        ("decision", 3),
        ("unheard_of", 0),
    ],
)
def test_a_value_of_another_kind_is_damage(tmp_path: Path, field: str, value: object) -> None:
    changed = {**REPORT.to_json(), field: value}
    (tmp_path / records.METRICS).write_text(json.dumps(changed) + "\n")
    with pytest.raises(UserError, match=r"metrics\.jsonl, line 1 is damaged"):
        list(read_metrics(tmp_path))


def test_a_new_run_replaces_an_old_one_and_a_resumed_one_goes_on(tmp_path: Path) -> None:
    written(tmp_path).finish({"done": True})
    RunWriter(tmp_path, {"seed": 4}).close()
    assert list(read_metrics(tmp_path)) == []
    assert not (tmp_path / records.SUMMARY).exists()
    written(tmp_path).finish({"done": True})
    writer = RunWriter(tmp_path, {"seed": 5}, resume=True)
    assert writer.recorded(2) == SEQUENCE[:2]
    assert read_json(tmp_path / records.CONFIG) != {"seed": 5}  # until it does go on
    writer.go_on(2, finished=True)
    assert read_json(tmp_path / records.SUMMARY) == {"done": True}
    writer.go_on(2)
    assert not (tmp_path / records.SUMMARY).exists()
    writer.append(SEQUENCE[2])
    writer.close()
    assert list(read_metrics(tmp_path)) == SEQUENCE[:3]
    assert read_json(tmp_path / records.CONFIG) == {"seed": 5}  # it may have become longer


def test_numbers_of_numpy_are_recorded_as_python_s(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"count": np.int64(3), "share": np.float32(0.5)})
    assert read_json(tmp_path / "x.json") == {"count": 3, "share": 0.5}
    assert records.plain({"pair": (1, np.float64(2.0))}) == {"pair": [1, 2.0]}
    with pytest.raises(TypeError, match="ndarray cannot be recorded"):
        records.plain(np.zeros(2))


def test_a_failed_write_leaves_the_old_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "summary.json"
    write_json(path, {"value": 1})
    with pytest.raises(TypeError):
        write_json(path, {"value": object()})
    assert read_json(path) == {"value": 1}

    def crash(descriptor: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(OSError, match="disk full"):
        write_json(path, {"value": 2})
    assert read_json(path) == {"value": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_an_error_of_the_disk_in_one_line(tmp_path: Path) -> None:
    (tmp_path / records.METRICS).symlink_to("/dev/full")
    writer = RunWriter(tmp_path, {}, resume=True)
    said = r"cannot write .*/metrics\.jsonl: No space left on device; .*--resume goes on"
    with pytest.raises(UserError, match=said):
        writer.append(REPORT)
    with pytest.raises(UserError, match=said):  # what is still in the buffer
        writer.close()
    writer.close()
    (tmp_path / records.SUMMARY).mkdir()
    with pytest.raises(UserError, match=r"cannot write .*/summary\.json: Is a directory"):
        writer.finish({})


def test_what_is_no_file_is_not_replaced_and_a_link_stays_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="pipe is no file that can be replaced"):
        write_bytes(tmp_path / "pipe", b"new")
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "link").symlink_to("file")
    write_bytes(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"new"


@pytest.mark.parametrize("where", ["away", None])
def test_a_run_whose_folder_has_gone_ends(tmp_path: Path, where: str | None) -> None:
    writer = RunWriter(tmp_path / "run", {})
    if where is None:
        shutil.rmtree(tmp_path / "run")
    else:
        (tmp_path / "run").rename(tmp_path / where)
    with pytest.raises(UserError, match="run was moved or deleted meanwhile"):
        writer.append(REPORT)
    writer.close()


def test_a_reader_of_the_old_file_never_sees_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_json(path, {"value": 1})
    with path.open() as reader:
        write_json(path, {"value": 2})
        assert json.loads(reader.read()) == {"value": 1}
    assert read_json(path) == {"value": 2}


@pytest.mark.parametrize("below", ["run", "deep/er/run"])
def test_an_out_folder_below_a_file_is_a_mistake_of_the_user(tmp_path: Path, below: str) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    with pytest.raises(UserError, match=r"cannot write to .*; choose a folder that can be written"):
        RunWriter(tmp_path / "taken" / below, {})
    assert [item.name for item in tmp_path.iterdir()] == ["taken"]


def test_an_out_folder_that_cannot_hold_files_is_removed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "touch", refuse)
    with pytest.raises(UserError, match="Permission denied"):
        make_out_dir(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


def test_an_out_folder_that_exists_is_kept_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    assert make_out_dir(tmp_path) == tmp_path
    assert [item.name for item in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "does not exist"), (b'{"a": ', "not valid JSON"), (b"\xff\xfe", "not valid JSON")],
)
def test_unreadable_json_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "config.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_json(path)


def test_a_folder_without_metrics_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a run directory"):
        list(read_metrics(tmp_path))


def test_hashes_ignore_the_order_of_keys_and_nothing_else() -> None:
    assert records.json_hash({"a": 1, "b": 2}) == records.json_hash({"b": 2, "a": 1})
    assert records.json_hash({"a": 1}) != records.json_hash({"a": 1.5})


def test_a_machine_has_one_fingerprint() -> None:
    first = records.fingerprint()
    assert first == records.fingerprint()
    assert first["cores"] >= 1
    without_id = {key: value for key, value in first.items() if key != "id"}
    assert first["id"] == records.json_hash(without_id)[:12]
    assert set(records.versions()) >= {"python", "torch", "onnxruntime", "gymnasium"}


def test_a_package_that_a_run_does_not_need_may_be_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "optuna":
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(metadata, "version", version)
    found = records.versions()
    assert found["torch"] == "1.0"
    assert "optuna" not in found


X86 = """\
processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Platinum 8481C
flags\t\t: fpu sse4_2 avx2 avx512f avx512_bf16 avx512_vnni
bugs\t\t: spectre_v1

processor\t: 1
model name\t: another
flags\t\t: fpu
"""
ARM = """\
processor\t: 0
BogoMIPS\t: 50.00
Features\t: fp asimd aes atomics asimddp i8mm
CPU implementer\t: 0x41
CPU architecture: 8
CPU part\t: 0xd0c

processor\t: 1
"""


@pytest.mark.parametrize(
    ("info", "cpu", "features"),
    [
        (X86, "Intel(R) Xeon(R) Platinum 8481C", "avx2 avx512f avx512_vnni avx512_bf16"),
        (ARM, "aarch64 0x41 0xd0c", "asimddp i8mm"),
        ("isa\t: rv64imafdc\n", "aarch64", ""),
    ],
)
def test_a_processor_without_a_name_is_known_by_its_numbers(
    info: str, cpu: str, features: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(info)
    monkeypatch.setattr(records, "CPU_INFO", file)
    monkeypatch.setattr("platform.processor", lambda: "")
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    monkeypatch.setattr("sys.platform", "linux")
    found = records.fingerprint()
    assert (found["cpu"], found["features"]) == (cpu, features.split())
    assert found.keys() == {"cpu", "cores", "features", "system", "id"}


def test_a_lock_is_not_taken_on_a_file_that_its_holder_has_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the opening of the file and the locking the other one ends."""
    path, flock, kinds = tmp_path / "lock", fcntl.flock, []

    def lock(file: IO[str], kind: int) -> None:
        if not kinds:
            path.unlink()
        kinds.append(kind)
        flock(file, kind)

    monkeypatch.setattr("fcntl.flock", lock)
    with locked(path, "taken"):
        assert len(kinds) == 2
        with pytest.raises(UserError, match="taken"), locked(path, "taken"):
            pass
