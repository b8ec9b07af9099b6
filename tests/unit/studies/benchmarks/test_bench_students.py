from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from accerl.errors import UserError
from accerl.monitor.strategies import FixedStrategy
from accerl.presets import load_preset
from accerl.spec import IDENTITY
from accerl.training.run import run_training
from analysis.figures.bench import students_kl
from studies.benchmarks.students import bench_students, smallest
from studies.benchmarks.tables import print_students


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "catch"
    config = replace(load_preset("catch"), seconds=1.0)
    run_training(config, FixedStrategy(IDENTITY), out=folder)
    return folder


def test_pruned_copies_curves_and_sizes_are_measured_and_printed(run: Path) -> None:
    result = bench_students(run, states=1024, compared=96, updates=(0, 10), batches=(32,))
    kls = {
        row["fitted_states"]: row["kl_mean"]
        for row in result["pruned"]
        if (row["sparsity"], row["criterion"], row["budget"]) == (0.5, "l1", "uniform")
    }
    assert kls[1024] < kls[0]
    begun = {
        row["start"]: row["kl_mean"]
        for row in result["curves"]
        if row["network"].startswith("net3") and row["updates"] == 0
    }
    assert begun["learner"] < begun["random"]
    by_name = {row["network"]: row for row in result["specs"]}
    assert by_name["original fp32"]["kl_mean"] < 1e-6
    assert by_name["original fp32"]["weight_bytes"] == 4 * by_name["original INT8"]["weight_bytes"]
    assert by_name["net3 INT8"]["smallest"]
    console = Console(width=160, record=True)
    print_students(result, console)
    assert "net3 fp32" in console.export_text()
    rows = students_kl(result).table
    assert {row["curve"] for row in rows} == {"random start, batch 32", "learner's start, batch 32"}


def test_what_is_as_close_and_smaller_wins() -> None:
    rows: list[dict[str, Any]] = [
        {"kl_mean": 0.1, "weight_bytes": 10},
        {"kl_mean": 0.2, "weight_bytes": 20},
        {"kl_mean": 0.3, "weight_bytes": 5},
    ]
    assert smallest(rows) == [rows[0], rows[2]]


def test_too_few_states_are_refused(run: Path) -> None:
    with pytest.raises(UserError, match="--states must be at least 1,024"):
        bench_students(run, states=100, compared=96)
