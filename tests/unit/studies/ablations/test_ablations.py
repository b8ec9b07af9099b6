"""Ablations: what is left out, the arithmetic of pairs, and a small study from end to end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from accerl.errors import UserError
from accerl.records import read_json
from accerl.runtime.latency.profiles import load_profile
from accerl.spec import IDENTITY, CompressionSpec, Decision
from controller.env.instances import Instance, make_instance
from controller.shipped import shipped_indicator
from studies.ablations import run as ablations
from studies.ablations.plan import (
    BUDGETS,
    LEFT_OUT,
    UNCOMPRESSED,
    WHOLE,
    Part,
    find_parts,
    make_plan,
)
from studies.ablations.result import part_rows, run_rows
from studies.contest.budget import REFERENCE_SEEDS
from studies.contest.plan import find_instances
from studies.jobs.inner import StrategyResult
from studies.options import StudyOptions

INT8 = CompressionSpec(bits=8)
SMALL = replace(
    BUDGETS["tiny"],
    env_steps={"catch": 5_000},
    held_out=(("catch", "edge-9000"),),
    intervals=4,
    reference_runs=1,
    test_seeds=2,
)


def instance(machine: str) -> Instance:
    made = make_instance("catch", load_profile(machine), 8_000)
    return replace(made, random_return=-1.0, reference_return=1.0, target_return=0.5)


def run(reached: float, horizon: float, spec: CompressionSpec = INT8) -> StrategyResult:
    """A run that climbs from -1 so that it crosses 0.5 after a share of the horizon."""
    times = np.linspace(0.0, horizon, 41)
    returns = np.minimum(-1.0 + 1.5 * times / (reached * horizon), 1.0)
    return StrategyResult(
        times=tuple(times),
        returns=tuple(returns),
        env_steps=tuple(100.0 * times),
        decisions=(Decision.of(spec),) * 40,
    )


def test_every_part_lacks_what_it_says() -> None:
    parts = {part.name: part for part in find_parts(0)}
    assert list(parts) == [WHOLE, *LEFT_OUT, UNCOMPRESSED]
    whole = shipped_indicator().to_json()
    assert {**parts[WHOLE].strategy, "label": None} == {**whole, "label": None}
    for name, setting in (
        ("no_predictions", "uses_predictions"),
        ("no_kl", "uses_kl"),
        ("no_changes", "uses_changes"),
    ):
        own = parts[name].strategy["params"]
        assert own["settings"] == {**whole["params"]["settings"], setting: False}
        assert own["scorer"] == whole["params"]["scorer"]
    untrained = parts["untrained"].strategy
    assert untrained["params"]["settings"] == whole["params"]["settings"]
    assert untrained["params"]["scorer"] != whole["params"]["scorer"]
    assert untrained["shield"] == whole["shield"]


def test_ratios_are_of_pairs_and_interval_bounds_of_seeds_and_games() -> None:
    instances = [instance("edge-9000"), instance("laptop-9000")]
    parts = [
        Part(name=WHOLE, label="whole", what="", strategy={}),
        Part(name="half", label="half as fast", what="", strategy={}),
        Part(name=UNCOMPRESSED, label="one seed, alike", what="", strategy={}),
    ]
    runs = {}
    for item in instances:
        for seed in (0, 1, 2):
            reached, horizon = 0.2 + 0.05 * seed, item.horizon_seconds
            runs[WHOLE, item.name, seed] = run(reached, horizon)
            runs["half", item.name, seed] = run(2.0 * reached, horizon, IDENTITY)
        runs[UNCOMPRESSED, item.name, 0] = run(0.2, item.horizon_seconds)
    half, alike = part_rows(parts, instances, run_rows(instances, runs), 0)
    # The curve is a running mean of two points, which arrives half a point later.
    assert half["ratio"] == pytest.approx(2.0, rel=0.06)
    assert 1.8 < half["low"] < half["ratio"] < half["high"] < 2.1
    assert (half["pairs"], half["independent"], half["alike"], half["missed"]) == (6, 3, 0, 0)
    by = {(each["by"], each["name"]): each for each in half["by"]}
    assert by["machines", "laptop"]["pairs"] == 3
    assert by["game", "catch"]["ratio"] == pytest.approx(half["ratio"])
    assert alike["ratio"] == 1.0
    assert alike["low"] is None, "one seed has no interval"
    assert (alike["pairs"], alike["alike"]) == (2, 2)


def test_what_was_measured_without_acting_is_no_other_decision() -> None:
    item = instance("edge-9000")
    parts = [
        Part(name=name, label=name, what="", strategy={}) for name in (WHOLE, "no_kl", UNCOMPRESSED)
    ]
    net3 = CompressionSpec(student="net3", bits=8)
    shadowed, runs = replace(Decision.of(INT8), shadow=net3), {}
    for seed in (0, 1):
        plain = run(0.2, item.horizon_seconds)
        decisions = (shadowed, *plain.decisions[1:])
        runs[WHOLE, item.name, seed] = replace(plain, decisions=decisions)
        runs["no_kl", item.name, seed] = plain
        runs[UNCOMPRESSED, item.name, seed] = run(0.2, item.horizon_seconds, IDENTITY)
    no_kl, uncompressed = part_rows(parts, [item], run_rows([item], runs), 0)
    assert (no_kl["alike"], uncompressed["alike"]) == (2, 0)


def test_what_is_tested_was_not_trained_on_and_the_plan_fixes_it() -> None:
    budget = BUDGETS["short"]
    machines = {name: load_profile(name) for _, name in budget.pairs}
    instances = find_instances(budget, machines)
    assert len(instances) == 12
    changing = [item for item in instances if item.config(0).conditions.events]
    assert len(changing) == 6
    assert budget.test == [136, 137, 138, 139]
    parts = find_parts(0)
    plan = make_plan(budget, instances, parts, seed=0)
    assert json.dumps(plan) == json.dumps(make_plan(budget, instances, find_parts(0), seed=0))
    assert json.dumps(plan) != json.dumps(make_plan(budget, instances, find_parts(1), seed=0))


def test_a_study_goes_on_and_can_end_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(ablations.BUDGETS, "tiny", replace(SMALL, test_seeds=1))
    with pytest.raises(UserError, match="is complete yet; leave it out"):
        ablations.run_ablations(tmp_path, StudyOptions(budget="tiny", workers=1, saved_only=True))
    assert not list(tmp_path.iterdir()), "no run is made, and nothing written"
    result = ablations.run_ablations(tmp_path, StudyOptions(budget="tiny", workers=1))
    assert [row["name"] for row in result["parts"]] == [*LEFT_OUT, UNCOMPRESSED]
    assert len(result["runs"]) == 6
    assert all(row["pairs"] == 1 for row in result["parts"])
    saved = [read_json(path)["result"] for path in (tmp_path / "jobs").glob("*.json")]
    assert len(saved) == 7, "the reference is one of them"
    core_seconds = sum(each["cpu_seconds"] for each in saved)
    assert result["core_hours"] == pytest.approx(core_seconds / 3600.0)
    for name in ("ablations.json", "ablations.html", "ablations.png", "plan.json"):
        assert (tmp_path / name).stat().st_size > 0
    page = (tmp_path / "ablations.html").read_text()
    assert "without predictions" in page
    capsys.readouterr()
    again = ablations.run_ablations(
        tmp_path, StudyOptions(budget="tiny", workers=1, saved_only=True)
    )
    assert again["parts"] == result["parts"]
    assert again["core_hours"] == result["core_hours"]
    assert "ends early" not in capsys.readouterr().err, "it has all of its seeds"
    files = {read_json(path)["key"]["seed"]: path for path in (tmp_path / "jobs").iterdir()}
    reference = files[REFERENCE_SEEDS[0]]
    reference.unlink()
    with pytest.raises(UserError, match=r"--saved-only: .*seed 200.*leave --saved-only out"):
        ablations.run_ablations(tmp_path, StudyOptions(budget="tiny", workers=1, saved_only=True))
    assert not reference.exists(), "it is not made"


def test_seeds_after_one_that_is_not_complete_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    executor = SimpleNamespace(is_saved=lambda job: job != "missing")
    study: Any = SimpleNamespace(executor=executor, out=tmp_path)
    by_seed: Any = [
        [("part", "item", seed, job) for job in jobs]
        for seed, jobs in enumerate(["ab", ["a", "missing"], "ab"])
    ]
    assert ablations._complete(study, by_seed) == by_seed[:1]
    assert "ends early, with 1 of 3 planned seeds" in capsys.readouterr().err
