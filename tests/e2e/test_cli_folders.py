"""A command writes where nothing lies that somebody needs, or over what is its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.command_line import accerl
from tests.fixtures.controllers.made_bundles import make_bundle
from tests.fixtures.runs.inner_runs import files_hash

TRAIN = ["train", "catch", "--seconds", "2"]


def test_an_earlier_bundle_is_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = make_bundle(tmp_path / "bundle")
    before = files_hash(bundle)
    refused = accerl(capsys, "controller", "train", "--iterations", 1, "--out", bundle)
    assert "already exists; give --out a new folder" in refused.complaint
    assert files_hash(bundle) == before


@pytest.mark.parametrize("name", ["config.json", "notes.txt"])
def test_a_run_does_not_mix_with_other_files(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text("of another program")
    refused = accerl(capsys, *TRAIN, "--out", tmp_path)
    assert "holds other things than a run; give a new folder" in refused.complaint
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "of another program"


def test_a_run_that_ended_before_its_first_interval_is_in_nobodys_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "metrics.jsonl").touch()
    assert accerl(capsys, *TRAIN, "--out", tmp_path, "--json").json["env_steps"] > 0


def test_a_foreign_page_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "README.md"
    page.write_text("# My project\n")
    for sources in ([], [tmp_path]):
        refused = accerl(capsys, "study", "page", *sources, "--out", tmp_path)
        assert "it was not written here" in refused.complaint
    assert page.read_text() == "# My project\n"


def test_a_page_of_nothing_is_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = accerl(capsys, "study", "page", "--out", tmp_path / "new")
    assert "name the folders of results" in refused.complaint
    assert list(tmp_path.iterdir()) == []
