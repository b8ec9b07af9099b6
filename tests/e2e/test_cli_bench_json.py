"""What programs read of `accerl bench ... --json` and of `profile sample --json`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from accerl.records import fingerprint, versions
from accerl.runtime.latency.families import FAMILIES
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.profiles import load_profile
from accerl.runtime.run import PHASES
from accerl.spec import CompressionSpec
from studies.benchmarks import infer, learner, pipeline, publish
from studies.benchmarks.clocks import clock
from studies.benchmarks.pipelines import EAGER, INT8, NET3_INT8, Pipeline
from tests.fixtures.command_line import accerl
from tests.fixtures.runs.inner_runs import fast_profile, tiny_catch

ROWS = {
    "infer": {
        "spec", "batch", "us_per_state", "spread", "ratio_eager", "ratio_ort_fp32", "bytes",
        "macs", "kl_mean", "argmax_agreement",
    },
    "publish": {"spec", "ms", "naive_ms", "ratio", "bytes"},
    "learner": {"precision", "batch", "us_per_sample", "threads"},
}  # fmt: skip
OPTIONS = {
    "infer": ("--batches", 1, 2, "--repeats", 1, "--distill-updates", 2),
    "publish": ("--repeats", 1),
    "learner": ("--repeats", 1),
}
SHOWN = {"env_steps_per_second": 100.0, "lags": {"1": 2}, "phase_shares": {"learn": 0.5}}
"""by a run of `bench clock`"""


def here(call: Callable[..., Any], *arguments: Any, what: str) -> Any:
    """Do what a process of its own would do."""
    return call(*arguments)


def check_machine(printed: dict[str, Any]) -> None:
    assert printed["fingerprint"] == fingerprint()
    assert printed["versions"] == versions()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few states and networks: how fast they are is not what is tested."""
    monkeypatch.setattr(infer, "STATES", 64)
    monkeypatch.setattr(infer, "COMPARED", 32)
    monkeypatch.setattr(infer, "SPECS", (infer.EAGER, infer.FP32, NET3_INT8))
    monkeypatch.setattr(publish, "STATES", 64)
    monkeypatch.setattr(publish, "SPECS", (NET3_INT8,))
    net3 = partial(learner.bench_learner, students=("net3",))
    monkeypatch.setattr("studies.cli.bench.times.bench_learner", net3)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", ROWS)
def test_benchmarks_of_operations(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    printed = accerl(capsys, "bench", name, *OPTIONS[name], "--json").json
    check_machine(printed)
    assert printed["rows"]
    for row in printed["rows"]:
        assert ROWS[name] <= row.keys()
        assert "spec" not in row or CompressionSpec.from_json(row["spec"]).to_json() == row["spec"]


def test_bench_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "fast.json"
    path.write_text(json.dumps(fast_profile().to_json()))
    config = tiny_catch(seconds=60.0, profile=str(path))
    specs = {"paper": EAGER, "fp32": CompressionSpec(), "int8": INT8}
    named = {name: Pipeline(config, spec) for name, spec in specs.items()}
    monkeypatch.setattr(pipeline, "pipelines", lambda game, network: named)
    monkeypatch.setattr(pipeline, "WARM_UP_SECONDS", 0.02)
    monkeypatch.setattr(pipeline, "apart", here)
    words = ("bench", "pipeline", "--seconds", 0.05, "--repeats", 1, "--json")
    printed = accerl(capsys, *words).json
    check_machine(printed)
    assert printed["configs"].keys() == specs.keys()
    for found in printed["configs"].values():
        promised = {"env_steps_per_second", "cpu_seconds_per_1000_steps", "phases", "spread"}
        assert promised <= found.keys()
        assert set(found["phases"]) == set(PHASES)
    assert {"int8/paper", "int8/fp32"} <= printed["ratios"].keys()


def test_bench_clock(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def predicted(keys: Sequence[tuple[Any, int]], *_: Any) -> dict[Any, Any]:
        return {(case.game, case.label, seed): SHOWN for case, seed in keys}

    monkeypatch.setattr(clock, "measured_here", lambda *_: fast_profile())
    monkeypatch.setattr(clock, "_run", lambda *_: SHOWN)
    monkeypatch.setattr(clock, "apart", here)
    monkeypatch.setattr(clock, "_predicted", predicted)
    words = ("bench", "clock", "--games", "pong", "--seeds", 1, "--repeats", 1, "--json")
    printed = accerl(capsys, *words).json
    check_machine(printed)
    assert printed["rows"]
    assert (printed["time_error_median"], printed["time_error_max"]) == (0.0, 0.0)
    assert printed["spearman"] is None  # nothing was learned


def test_machines_that_are_drawn_are_profiles(capsys: pytest.CaptureFixture[str]) -> None:
    printed = accerl(capsys, "profile", "sample", 1, "--json").json
    check_machine(printed)
    assert [machine["family"] for machine in printed["machines"]] == list(FAMILIES)
    for machine in printed["machines"]:
        profile = LatencyProfile.from_json(machine["profile"])
        assert (machine["name"], machine["hash"]) == (profile.name, profile.hash)
        assert load_profile(machine["name"]).hash == machine["hash"]
