"""Files and folders that are not what a command needs: one line, before any work is done."""

from __future__ import annotations

import json
import lzma
import os
from pathlib import Path
from typing import Any

import pytest

from accerl.spec import Decision
from tests.fixtures.command_line import accerl
from tests.fixtures.studies.synthetic_study import FULL, make_report, write_run


@pytest.mark.parametrize(
    "costs",
    [[], {"costs": []}, {"costs": {"samples": 0}}, {"costs": {"rollout_bytes": 0}}, {"costs": 5}],
)
def test_costs_of_another_form(
    costs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "costs.json"
    file.write_text(json.dumps(costs))
    given = ["--fleet", 4, "--costs", file]
    assert "costs" in accerl(capsys, "profile", "sample", *given).complaint


def test_a_printed_configuration_is_no_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = accerl(capsys, "train", "catch", "--print-config").out
    (tmp_path / "config.json").write_text(printed)
    resumed = accerl(capsys, "train", "catch", "--out", tmp_path, "--resume")
    assert str(tmp_path) in resumed.complaint


def test_a_profile_that_could_not_be_kept_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").write_text("a file")
    monkeypatch.setenv("ACCERL_HOME", str(tmp_path / "taken"))
    assert "ACCERL_HOME" in accerl(capsys, "profile", "measure").complaint


def test_a_profile_says_which_times_it_loses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measure = ("profile", "measure", "--game", "catch", "--network", "net3", "--repeats", 1)
    first = accerl(capsys, *measure, "--specs", '{"bits": 8}', '{"bits": 16}', "--out", tmp_path)
    assert "no longer holds" not in first.out
    again = accerl(capsys, *measure, "--specs", '{"bits": 8}', "--out", tmp_path)
    assert "no longer holds the earlier times of catch: original bf16 (1 in all)" in again.out


def test_a_profile_says_what_a_network_cannot_be_compressed_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ("--game", "catch", "--network", "tests.fixtures.own_networks:bounded")
    asked = ("--specs", '{"bits": 8}', '{"sparsity": 0.5}', "--repeats", 1, "--out", tmp_path)
    measured = accerl(capsys, "profile", "measure", *own, *asked)
    assert "cannot be compressed to original pruned 50% fp32: left out" in " ".join(
        measured.out.split()
    )


@pytest.mark.parametrize("lacking", ["notes", "jobs"])
def test_a_pack_without_a_part(
    lacking: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = {"format": "accerl study pack", "notes": {}, "jobs": {}}
    file = tmp_path / "pack.json.xz"
    pack = {name: part for name, part in whole.items() if name != lacking}
    file.write_bytes(lzma.compress(json.dumps(pack).encode()))
    merged = accerl(capsys, "study", "merge", file, "--out", tmp_path / "out")
    assert "was not written by `accerl study pack`" in merged.complaint


def test_a_report_that_a_full_disk_refused_can_be_written_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reports = [make_report(i, 2.0, float(i), Decision.of(FULL)) for i in range(3)]
    run, page = write_run(tmp_path / "run", reports), tmp_path / "page.html"
    page.touch()  # as programs leave it that write in place
    assert accerl(capsys, "report", run, "--html", page).code == 0
    whole = page.read_text()
    assert whole
    (tmp_path / f".page.html.{os.getpid()}.tmp").symlink_to("/dev/full")
    assert "No space left" in accerl(capsys, "report", run, "--html", page).complaint
    assert page.read_text() == whole


def test_a_strategy_that_is_given_is_not_taken_for_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = ("train", "catch", "--out", tmp_path / "run", "--seconds")
    fast = ("--network", "net3", "--set", "runtime.eval_episodes=0")
    assert accerl(capsys, *train, 0.2, *fast, "--strategy", "kl-threshold").code == 0
    for given in (("--strategy", "fixed"), ("--spec", "{}")):
        again = accerl(capsys, *train, 0.4, "--resume", *given)
        assert "was started with other settings" in again.complaint
    assert accerl(capsys, *train, 0.4, "--resume").code == 0


def test_what_stands_by_itself_is_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    for given in (("train", "--game", "catch"), ("eval", "--run", "runs/x")):
        assert "stands by itself" in accerl(capsys, *given).complaint
    wrong = accerl(capsys, "train", "catch", "--name", "x").complaint
    assert "no option --name" in wrong
    assert "--game" not in wrong
