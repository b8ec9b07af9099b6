"""A bundle of an Advanced Indicator drives games, networks and machines that it never saw."""

from __future__ import annotations

from pathlib import Path

import pytest

from accerl.records import read_json, read_metrics
from accerl.spec import IDENTITY, CompressionSpec
from tests.fixtures.command_line import accerl
from tests.fixtures.controllers.made_bundles import SPECS, make_indicator_bundle

QUICK = (
    "--set", "runtime.num_envs=8", "--set", "runtime.eval_episodes=1", "--set", "learner.unroll=8",
    "--set", "runtime.interval_seconds=0.1",
)  # fmt: skip
VIRTUAL = ("--runtime", "serial", "--profile", "edge-8000", "--json")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_indicator_bundle(tmp_path_factory.mktemp("made") / "learned")


def check_records(out: Path) -> None:
    """Every interval says what was believed of each spec, and that what was chosen acts."""
    reports = list(read_metrics(out))
    assert len(reports) >= 3
    for report in reports:
        chosen = [label for label, row in report.explanation.items() if row["chosen"]]
        assert chosen == [report.decision.without_shadow.label]
        assert IDENTITY.label in report.explanation
        assert {"env_steps_per_second", "efficiency", "score"} <= set(report.explanation[chosen[0]])


@pytest.mark.parametrize("game", ["cartpole", "LunarLander-v3"])
def test_a_game_and_a_machine_that_it_never_saw(
    bundle: Path, game: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    done = accerl(
        capsys, "train", game, "--seconds", 0.3, "--strategy", bundle, *QUICK, *VIRTUAL,
        "--out", out,
    )  # fmt: skip
    check_records(out)
    assert done.json["env_steps"] > 0
    assert "(original rank 50% INT8 (no times in" in done.err
    assert "); it chooses from the others" in done.err
    rows = next(iter(read_metrics(out))).explanation
    assert set(rows) == {spec.label for spec in (IDENTITY, *SPECS[:3])}


def test_a_shield_over_it_is_recorded_too(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    done = accerl(
        capsys, "train", "catch", "--seconds", 0.4, "--strategy", bundle, *QUICK, *VIRTUAL,
        "--shield", 0.0, "--out", out,
    )  # fmt: skip
    assert done.json["strategy_events"]
    assert IDENTITY in {report.decision.main for report in read_metrics(out)}
    check_records(out)


def test_its_fallback_is_that_of_the_machine_s_family(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = accerl(
        capsys, "train", "cartpole", "--seconds", 0.4, "--strategy", bundle, *QUICK, *VIRTUAL,
        "--bundle-mode", "schedule", "--out", tmp_path / "run",
    )  # fmt: skip
    assert f"{bundle} has no schedule for cartpole-edge-8000; replaying that of 'edge'" in done.err
    decided = [report.decision.main for report in read_metrics(tmp_path / "run")]
    assert decided[0] == CompressionSpec(student="net3", bits=8)
    assert decided[-1] == IDENTITY


@pytest.mark.slow
def test_a_network_of_one_s_own_on_the_real_clock(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is known of its speed: all specs are thought equally fast until they have acted."""
    network = "tests.fixtures.own_networks:residual_board"
    done = accerl(
        capsys, "train", "catch", "--network", network, "--runtime", "serial", "--clock", "real",
        "--seconds", 0.4, *QUICK, "--strategy", bundle,
        "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    check_records(tmp_path / "run")
    assert read_json(tmp_path / "run" / "config.json")["network"] == network
    assert done.json["tier"] == "real"
    first = next(iter(read_metrics(tmp_path / "run"))).explanation
    assert set(first) == {spec.label for spec in (IDENTITY, *SPECS)}


@pytest.mark.slow
def test_processes_on_the_real_clock(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A learner of net2 has neither net1 nor net2 as a student."""
    done = accerl(
        capsys, "train", "cartpole", "--runtime", "process", "--seconds", 4, "--network", "net2",
        "--strategy", bundle, "--set", "runtime.interval_seconds=0.5", "--set",
        "runtime.eval_episodes=0", "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    check_records(tmp_path / "run")
    assert "(net1 INT8 (student not smaller" in done.err


def test_show_prints_what_it_believes(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = accerl(capsys, "schedule", "show", bundle).out
    for text in (
        "It believes something of the speed and the fidelity of each of 5 specs",
        "cap: above a KL of 0.3 nats",
        "Specs that it may act with",
        "above_cap",
        "trained on catch on edge, seeds 0, 1, 60 s in steps of 15 s",
        "catch-edge: seconds to target 0.71 times that of fp32",
    ):
        assert text in shown
    verified = accerl(capsys, "schedule", "verify", bundle)
    assert f"{bundle} is intact: 5 files match their hashes" in verified.out
