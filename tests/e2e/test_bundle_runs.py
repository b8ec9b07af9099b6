"""Bundles on the command line: shown, verified, replayed, and steering games they never saw."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accerl.records import read_json, write_json
from accerl.spec import CompressionSpec, Decision
from controller.bundle.bundle import export_bundle, read_bundle
from controller.bundle.files import MANIFEST, SCHEDULE
from tests.fixtures.command_line import accerl
from tests.fixtures.controllers.made_bundles import (
    META,
    make_bundle,
    make_schedules,
    make_wide,
    resign,
)
from tests.fixtures.runs.inner_runs import fast_profile

QUICK = (
    "--set", "runtime.num_envs=8", "--set", "runtime.eval_episodes=4",
    "--set", "runtime.interval_seconds=0.05", "--set", "learner.unroll=8",
)  # fmt: skip


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("made") / "learned")


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """A machine that has no times for INT8."""
    fast = fast_profile(num_actors=1)
    rows = tuple(row for row in fast.specs if row.spec.bits != 8)
    write_json(tmp_path / "no-int8.json", replace(fast, specs=rows).to_json())
    return tmp_path / "no-int8.json"


def labels(summary: dict[str, Any]) -> list[str]:
    return [Decision.from_json(entry["decision"]).label for entry in summary["decisions"]]


def test_a_game_that_a_bundle_never_saw_is_steered_by_its_policy(
    bundle: Path, profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """CartPole on the virtual clock, where half of the specs have no times; twice the same."""
    command = (
        "train", "cartpole", "--seconds", 0.15, "--profile", profile, "--strategy", bundle, *QUICK,
        "--json", "--out",
    )  # fmt: skip
    first = accerl(capsys, *command, tmp_path / "first")
    assert (
        f"warning: this run cannot act with 12 of the specs of {bundle} (original INT8 (no times "
        "in latency profile fast); "
    ) in first.err
    summary = first.json
    assert (summary["env"], summary["strategy"]) == ("cartpole", str(bundle))
    assert summary["env_steps"] > 0
    assert summary["decisions"]
    assert not any("INT8" in label for label in labels(summary))
    config = read_json(tmp_path / "first" / "config.json")
    assert config["strategy_params"]["mode"] == "policy"
    assert config["strategy_params"]["digest"] == read_bundle(bundle).manifest.digest[:12]
    assert len(config["strategy_params"]["replaced"]) == 12
    assert accerl(capsys, *command, tmp_path / "again").json == summary


def test_a_schedule_is_replayed_where_the_game_is_new(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_json(tmp_path / "fast.json", fast_profile(num_actors=1).to_json())
    command = (
        "train", "cartpole", "--seconds", 0.2, "--profile", tmp_path / "fast.json", "--strategy",
        bundle, "--bundle-mode", "schedule", "--strict", *QUICK, "--json", "--out",
    )  # fmt: skip
    done = accerl(capsys, *command, tmp_path / "run")
    assert f"{bundle} has no schedule for cartpole-" in done.err
    assert "; replaying that of 'all'" in done.err
    assert "cannot act" not in done.err
    assert labels(done.json) == ["net3 pruned 50% INT8", "original fp32"]
    assert done.json["decisions"][1]["seconds"] == pytest.approx(0.05, rel=0.1)
    # Of the same bundle only its own mode goes on.
    again = ["--resume", "--json"]
    other = [item for item in command[:-2] if item not in ("--bundle-mode", "schedule")]
    refused = accerl(capsys, *other, "--out", tmp_path / "run", *again)
    assert refused.code == 2
    assert "was started with other settings (strategy_params" in refused.err
    assert accerl(capsys, *command[:-2], "--out", tmp_path / "run", *again).json == done.json


def test_strict_refuses_what_would_be_replaced(
    bundle: Path, profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    virtual = ("train", "cartpole", "--seconds", 1, "--profile", profile, "--out", out)
    small = ("train", "catch", "--seconds", 1, "--network", "net3", "--out", out)
    for command, reason in (
        (virtual, "original INT8 (no times in latency profile fast)"),
        (small, "net1 fp32 (student not smaller than the learner's network net3)"),
    ):
        refused = accerl(capsys, *command, "--strategy", bundle, "--strict").complaint
        assert "this run cannot act with" in refused
        assert reason in refused
        assert "leave out --strict" in refused
    replayed = accerl(
        capsys, "schedule", "replay", bundle, "--preset", "catch", "--seconds", 1, "--out", out
    )
    assert "cannot act" not in replayed.out
    hand_set = accerl(capsys, "train", "catch", "--strict", "--out", out / "2").complaint
    assert "--bundle-mode and --strict go with a schedule bundle" in hand_set
    wrong = ("train", "catch", "--strategy", bundle, "--bundle-mode", "both", "--out", out / "2")
    assert "allowed: policy, schedule" in accerl(capsys, *wrong).complaint


@pytest.mark.parametrize("mode", ["policy", pytest.param("schedule", marks=pytest.mark.slow)])
def test_a_bundle_steers_processes_on_the_real_clock(
    bundle: Path, mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A learner of net2 has neither net1 nor net2 as a student."""
    done = accerl(
        capsys, "train", "cartpole", "--runtime", "process", "--seconds", 3, "--strategy", bundle,
        "--bundle-mode", mode, "--network", "net2", "--set", "runtime.interval_seconds=0.5",
        "--set", "runtime.eval_episodes=0", "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    summary = done.json
    assert (summary["runtime"], summary["tier"]) == ("process", "real")
    assert summary["env_steps"] > 0
    assert ("this run cannot act with 12 of the specs" in done.err) == (mode == "policy")
    chosen = [entry["decision"][0]["spec"]["student"] for entry in summary["decisions"]]
    assert set(chosen) <= {"original", "net3"}
    if mode == "schedule":
        assert labels(summary) == ["net3 pruned 50% INT8", "original fp32"]


def test_show_says_in_words_what_a_bundle_holds(
    bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = accerl(capsys, "schedule", "show", bundle)
    assert (shown.code, shown.err) == (0, "")
    prose = " ".join(shown.out.split())  # lines are as long as the terminal is wide
    for text in (
        "trained on tier virtual (real reinforcement learning",
        "trained on catch on edge, seeds 0, 1, 60 s in steps of 15 s",
        "64 inner runs of training; latency profiles: edge (abc123); contest plan: 9f8e7d",
        "decides every 15 s of 60 s; shield: none; code ",
        "It believes something of the speed and the fidelity of each of 24 specs",
        "nearest to the median",
        "catch-edge: seconds to target 0.71 times that of fp32 (95% interval 0.55 to 0.9",
        "breakout-edge: seconds to target 1.02 times that of fp32 (1 pair of runs, too few",
    ):
        assert text in prose
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.out.splitlines()]
    assert ["net3 pruned 50% INT8", "0.14"] in rows  # and its typical KL
    cells = ["50% to 75%", "net3 pruned 50% INT8", "67%", "32 | 8 | 8", "0% | 50% | 50%"]
    assert [*cells, "original | net3 | net3"] in rows
    data = accerl(capsys, "schedule", "show", bundle, "--json").json
    assert data["results"][0]["ratio"] == 0.71
    assert data["schedule_rows"]["catch"][1]["levels"]["sparsity"] == [0.0, 0.0, 0.5, 0.5, 0.5]
    assert len(data["action_table"]) == 24


def test_names_from_a_bundle_are_printed_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = replace(META.instances[0], game="[red]x[/]")
    schedules = {"[bold]y[/]": make_schedules()["catch"]}
    folder = tmp_path / "[b]bundle[/b]"
    export_bundle(folder, make_wide(), replace(META, instances=(odd,)), schedules)
    shown = accerl(capsys, "schedule", "show", folder).out
    assert "[red]x[/] on edge" in shown
    assert "[bold]y[/]" in shown
    assert f"{folder} is intact" in accerl(capsys, "schedule", "verify", folder).out


def test_a_bundle_is_copied_and_replayed(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied = accerl(capsys, "schedule", "export", bundle, "--out", tmp_path / "copy", "--json")
    assert copied.json["path"] == str(tmp_path / "copy")
    replayed = accerl(
        capsys, "schedule", "replay", tmp_path / "copy", "--preset", "catch", "--seconds", 4,
        "--out", tmp_path / "replay", "--json",
    )  # fmt: skip
    assert labels(replayed.json) == ["net3 pruned 50% INT8", "original fp32"]
    said = replayed.err[replayed.err.index("What was chosen when:") :].splitlines()
    assert said[1:] == [
        "  from 0.0 s (0% of the run): net3 pruned 50% INT8",
        "  from 3.0 s (75% of the run): original fp32",
    ]


@pytest.mark.parametrize(
    ("version", "advice"), [(5, "train or run the study again"), (7, "update")]
)
def test_a_bundle_of_another_version_is_refused(
    bundle: Path, version: int, advice: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    shutil.copytree(bundle, other)
    manifest = json.loads((other / MANIFEST).read_text())
    write_json(other / MANIFEST, {**manifest, "schema_version": version, "telepathy": True})
    for command in ("show", "verify"):
        refused = accerl(capsys, "schedule", command, other).complaint
        assert f"schema_version is {version}" in refused
        assert advice in refused


def test_a_schedule_outside_the_action_space_is_refused_in_a_run(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forged = tmp_path / "forged"
    shutil.copytree(bundle, forged)
    data = read_json(forged / SCHEDULE)
    data["games"]["catch"][0]["decision"][0]["spec"] = CompressionSpec(bits=16).to_json()
    write_json(forged / SCHEDULE, data)
    resign(forged, lambda manifest: None)
    out = tmp_path / "out"
    refused = accerl(capsys, "schedule", "replay", forged, "--preset", "catch", "--out", out)
    assert "original bf16 is not in it" in refused.complaint
    assert not out.exists()
