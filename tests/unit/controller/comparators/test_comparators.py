"""Comparators by name: as parameters, as JSON, in a study's jobs and on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from accerl.errors import UserError
from accerl.monitor.strategy import specs_of
from accerl.records import read_json
from accerl.runtime.latency.profiles import paper_profile
from accerl.spec import IDENTITY, CompressionSpec
from controller.comparators.by_name import COMPARATORS, existing_specs, make_comparator
from controller.comparators.credit import JOINT_SPECS
from controller.env.instances import Instance
from controller.shield import Shielded
from studies.jobs.inner import build_strategy
from tests.fixtures.command_line import accerl
from tests.fixtures.runs.inner_runs import fast_profile
from tests.fixtures.runs.scripted_runs import ScriptedRun

INT8 = CompressionSpec(bits=8)
INSTANCE = Instance(game="catch", profile="fast", horizon_seconds=0.1, interval_seconds=0.02)


@pytest.mark.parametrize("name", COMPARATORS)
def test_a_comparator_tells_what_makes_it_again(name: str) -> None:
    assert make_comparator(name).label == name
    comparator = make_comparator(name, specs=[{"bits": 8}, IDENTITY], seed=3, hold_intervals=2)
    assert comparator.name == name
    told = json.loads(json.dumps(comparator.to_json()))
    assert make_comparator(told["name"], **told["params"]) == comparator
    label = f"{name}(specs=(original INT8, original fp32), seed=3, hold_intervals=2)"
    assert comparator.label == label


def test_what_was_learned_is_no_part_of_what_it_is() -> None:
    for name in COMPARATORS:
        played, fresh = make_comparator(name), make_comparator(name)
        run = ScriptedRun(lambda _, spec: float(spec.bits), 12)
        decided = run.play(played)
        assert played == fresh
        # A run starts with a reset, so that the next one is the same.
        assert ScriptedRun(run.rate, 12).play(played) == decided


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("sw-ucp", {}, "'sw-ucp' does not exist; did you mean 'sw-ucb'"),
        ("sw-ucb", {"windows": 3}, "unknown parameter 'windows'; did you mean 'window'"),
        ("sw-ucb", {"window": 1}, "window must be a whole number at least 2, got 1"),
        ("sw-ucb", {"exploration": -0.1}, "exploration must be a number at least 0.0"),
        ("sw-ucb", {"specs": []}, "specs must be a list of at least one spec"),
        ("sw-ucb", {"specs": [INT8, {"bits": 8}]}, "specs holds 'original INT8' twice"),
        ("sw-ucb", {"seed": -1}, "seed must be a whole number at least 0, got -1"),
        ("sw-ucb", {"hold_intervals": 0}, "hold_intervals must be a whole number at least 1"),
        ("sw-ucb", {"hold_intervals": 1.5}, "hold_intervals must be a whole number at least 1"),
        ("sw-ucb", {"hold_seconds": 2.0}, "unknown parameter 'hold_seconds'; allowed: specs"),
        ("sw-ucb", {"factored": "no"}, "factored must be true or false, got 'no'"),
        ("thompson", {"discount": 0.0}, "discount must be a number above 0.0 and at most 1.0"),
        ("thompson", {"noise": 0.0}, "noise must be a number above 0.0"),
        ("gp-bandit", {"window": 2.5}, "window must be a whole number at least 2, got 2.5"),
        ("gp-bandit", {"exploration": True}, "exploration must be a number at least 0.0"),
    ],
)
def test_mistakes_are_named(name: str, params: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        make_comparator(name, **params)
    assert "\n" not in str(caught.value)


def test_presets_that_do_not_exist_are_left_out() -> None:
    assert existing_specs("original", None) == JOINT_SPECS
    profile = paper_profile()
    assert existing_specs("original", profile.for_network("original")) == JOINT_SPECS
    small = existing_specs("net2", profile.for_network("net2"))
    assert {spec.student for spec in small} == {"original", "net3"}
    assert set(small) < set(JOINT_SPECS)


def test_a_job_may_name_a_comparator_and_a_shield() -> None:
    described = {"name": "thompson", "params": {"specs": [{"bits": 8}, {"bits": 16}], "seed": 2}}
    bare = build_strategy(described, INSTANCE)
    assert bare == make_comparator("thompson", **described["params"])
    shielded = build_strategy({**described, "shield": {"threshold_nats": 3.0}}, INSTANCE)
    assert isinstance(shielded, Shielded)
    assert shielded.strategy == bare
    assert (shielded.threshold_nats, shielded.fallback.bits) == (3.0, 16)
    fixed = {"name": "fixed", "params": {}, "shield": {}}
    assert isinstance(build_strategy(fixed, INSTANCE), Shielded)
    with pytest.raises(UserError, match="did you mean 'threshold_nats'"):
        build_strategy({**fixed, "shield": {"threshold": 3.0}}, INSTANCE)


def test_the_command_line_says_that_a_strategy_fails_under_its_shield(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", "catch", "--seconds", 0.1, "--out", tmp_path / "run", "--shield", 14]
    command += ["--set", "runtime.interval_seconds=0.05"]
    done = accerl(capsys, *command, "--strategy", "tests.fixtures.own_strategies:Failing")
    assert done.code == 0
    told = " ".join(done.out.split())
    assert "the strategy failed in 2 intervals, in which a fallback acted for it" in told
    assert "nothing to divide by" in told


def test_the_command_line_runs_and_resumes_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile, out = tmp_path / "fast.json", tmp_path / "run"
    profile.write_text(json.dumps(fast_profile(num_actors=1).to_json()))
    command = ["train", "catch", "--profile", profile, "--out", out, "--json"]
    command += ["--set", "runtime.interval_seconds=0.03"]
    command += ["--set", "runtime.first_interval_seconds=0.003"]
    command += ["--strategy", "sw-ucb", "--shield", "0.5"]
    first = accerl(capsys, *command, "--seconds", 0.3).json
    assert first["strategy"] == "sw-ucb + shield(0.5 nats, original fp32)"
    assert {event["cause"] for event in first["strategy_events"]} <= {"kl"}
    assert len(first["spec_seconds"]) > 1
    longer = accerl(capsys, *command, "--seconds", 0.33, "--resume").json
    assert longer["decisions"][: len(first["decisions"]) - 1] == first["decisions"][:-1]
    config = read_json(out / "config.json")
    assert config["strategy_params"] == make_comparator("sw-ucb").to_json()["params"]
    other = accerl(capsys, *command[:-1], "14", "--seconds", 0.5, "--resume")
    assert "was started with other settings" in other.complaint


def test_mistakes_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = ["train", "catch", "--seconds", 1, "--out", tmp_path / "run", "--strategy"]
    assert "did you mean 'thompson'?" in accerl(capsys, *train, "tompson").complaint
    shielded = accerl(capsys, *train, "thompson", "--shield", "-1")
    assert "threshold_nats must be a number at least 0.0, got -1" in shielded.complaint
    params = accerl(capsys, *train, "gp-bandit", "--strategy-params", '{"noise": 1}')
    assert "unknown parameter 'noise'" in params.complaint
    assert list(tmp_path.iterdir()) == []
    assert specs_of(make_comparator("thompson")) == JOINT_SPECS
