"""`accerl train --resume` goes on as a run was started, without being told how."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from accerl.records import read_json
from tests.fixtures.command_line import accerl
from tests.fixtures.controllers.made_bundles import make_bundle

CATCH = ["train", "catch"]
OWN = "tests.fixtures.own_strategies:Careful"
OWN_RULE = "tests.fixtures.own_strategies:Stricter"


@pytest.mark.parametrize(
    "given",
    [
        [
            "--strategy",
            "random",
            "--strategy-params",
            '{"specs": [{"bits": 8}, {"bits": 32}], "seed": 1}',
        ],
        ["--strategy", "kl-threshold", "--shield", 9, "--set", "runtime.num_envs=16"],
        ["--strategy", "indicator", "--seed", 3],
        pytest.param(
            ["--strategy", "indicator", "--strategy-params", '{"cap_nats": 0.2}'],
            marks=pytest.mark.slow,
            id="settings",
        ),
        ["--spec", '{"bits": 8}', "--set", "learner.reuse=1"],
    ],
    ids=lambda given: given[1],
)
def test_a_run_goes_on_as_it_was_started(
    given: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    first = accerl(capsys, *CATCH, *given, "--seconds", 2, "--out", out, "--json").json
    before = read_json(out / "config.json")
    more = accerl(capsys, *CATCH, "--seconds", 3, "--out", out, "--resume", "--json").json
    assert (more["strategy"], more["seed"]) == (first["strategy"], first["seed"])
    after = read_json(out / "config.json")
    assert {**before, "seconds": 3.0, "hash": after["hash"]} == after
    assert accerl(capsys, "report", out, "--out", tmp_path / "page").code == 0
    assert (tmp_path / "page" / "report.html").is_file()


def test_parameters_of_one_s_own_are_recorded_and_given_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    own = ["--strategy", OWN, "--strategy-params", '{"bits": 32}']
    accerl(capsys, *CATCH, *own, "--seconds", 2, "--out", out, "--json")
    assert read_json(out / "config.json")["strategy_params"] == {"bits": 32}
    again = ["--seconds", 3, "--out", out, "--resume"]
    refused = accerl(capsys, *CATCH, *again).complaint
    assert "give --strategy and --strategy-params again" in refused
    assert '{"bits": 32}' in refused
    other = accerl(capsys, *CATCH, "--strategy", OWN, *again).complaint
    assert "started with other settings (strategy_params" in other
    assert accerl(capsys, *CATCH, *own, *again, "--json").json["seconds"] >= 3.0


def test_a_rule_of_one_s_own_is_not_taken_for_the_one_that_it_is_made_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    accerl(capsys, *CATCH, "--strategy", OWN_RULE, "--seconds", 1, "--out", out, "--json")
    assert read_json(out / "config.json")["strategy"] == OWN_RULE
    refused = accerl(capsys, *CATCH, "--seconds", 2, "--out", out, "--resume").complaint
    assert f"was started with {OWN_RULE}" in refused
    assert "which is your own: give --strategy" in refused


def test_a_bundle_goes_on_in_the_mode_that_it_was_started_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle, out = make_bundle(tmp_path / "learned (1)"), tmp_path / "run"
    quick = ["--set", "runtime.interval_seconds=0.05", "--set", "runtime.eval_episodes=2"]
    given = ["--strategy", bundle, "--bundle-mode", "schedule", *quick]
    accerl(capsys, *CATCH, *given, "--seconds", 0.1, "--out", out, "--json")
    before = read_json(out / "config.json")
    assert before["strategy_params"]["mode"] == "schedule"
    accerl(capsys, *CATCH, "--seconds", 0.2, "--out", out, "--resume", "--json")
    after = read_json(out / "config.json")
    assert {**before, "seconds": 0.2, "hash": after["hash"]} == after
    policy = tmp_path / "policy"
    accerl(capsys, *CATCH, "--strategy", bundle, *quick, "--seconds", 0.1, "--out", policy)
    other = ["--resume", "--bundle-mode", "schedule"]
    refused = accerl(capsys, *CATCH, "--seconds", 0.2, "--out", policy, *other).complaint
    assert "was started with --bundle-mode policy" in refused


def test_the_seed_is_that_of_a_strategy_s_own_dice_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = [*CATCH, "--strategy", "random", "--seconds", 0.05, "--set", "runtime.eval_episodes=2"]
    specs = {"specs": [{"bits": 8}, {"bits": 32}]}
    for given, seed in ((specs, 7), ({**specs, "seed": 2}, 2)):
        out = tmp_path / f"run-{seed}"
        params = ["--strategy-params", json.dumps(given)]
        assert accerl(capsys, *quick, *params, "--seed", 7, "--out", out).code == 0
        assert read_json(out / "config.json")["strategy_params"]["seed"] == seed
