"""What is wrong with a file that a user names is said in plain words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.command_line import accerl

TRAIN = ["train", "catch", "--seconds", "2"]


@pytest.mark.parametrize("option", ["--events", "--config"])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "no such file or directory"),
        (b"", "it is empty"),
        (b"\xff\xfe\x00", "it holds no text"),
        (b'{"seconds": ', "JSON ends or goes wrong at line 1, column 13"),
    ],
)
def test_a_file_that_cannot_be_read(
    option: str,
    content: bytes | None,
    expected: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "given.json"
    if content is not None:
        file.write_bytes(content)
    refused = accerl(capsys, *TRAIN, option, file, "--out", tmp_path / "run")
    assert refused.complaint == f"accerl: {option} {file}: {expected}"
    assert not (tmp_path / "run").exists()


def test_a_folder_to_look_in_need_not_be_writable(capsys: pytest.CaptureFixture[str]) -> None:
    shown = accerl(capsys, "profile", "show", "edge", "--out", "/proc/nowhere", "--json")
    assert shown.json["name"] == "edge"


def test_a_run_of_no_interval_has_nothing_to_show(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "metrics.jsonl").touch()
    refused = accerl(capsys, "report", tmp_path, "--html", tmp_path / "page.html")
    assert "its run ended before its first interval was over" in refused.complaint
    assert not (tmp_path / "page.html").exists()
