"""The advice and what this machine does: the real processes, for seconds."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from accerl.errors import UserError
from accerl.presets import load_preset
from accerl.runtime.machine.cores import usable_cores
from accerl.spec import IDENTITY, CompressionSpec
from studies.benchmarks.clocks import advice
from studies.benchmarks.clocks.advice import bench_advice
from studies.benchmarks.tables import print_advised
from studies.jobs.cache import ResultCache

INT8 = CompressionSpec(bits=8)


@pytest.mark.slow
def test_specs_act_beside_what_is_predicted_of_them(tmp_path: Path) -> None:
    def bench() -> dict[str, Any]:
        kept = ResultCache(tmp_path)
        short = {"seconds": 4.0, "rounds": 1, "repeats": 2, "kept": kept}
        return bench_advice(game="catch", network="net1", specs=[INT8], actors=1, **short)

    result = bench()
    fp32, int8 = result["rows"]
    assert (fp32["label"], int8["label"]) == ("original fp32", "original INT8")
    assert (result["actors"], result["cores"]) == (1, usable_cores())
    for row in (fp32, int8):
        assert row["acted"] > 0.9
        assert len(row["real_all"]) == 2
        # Loose: other tests may run on the same cores.
        assert 0.1 < row["real"] / row["predicted"] < 10.0
        assert row["error"] == pytest.approx(row["predicted"] / row["real"] - 1.0)
        assert 0.0 < row["cores"]["learner"] <= 1.1
    assert fp32["real_speedup"] == 1.0
    best = max(fp32["real"], int8["real"])
    advised = next(row for row in result["rows"] if row["label"] == result["advised"])
    assert result["advised_over_fastest"] == advised["real"] / best
    files = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert bench() == result
    assert {path: path.stat().st_mtime_ns for path in files} == files


def test_rows_hold_whole_specs_and_are_printed_by_their_labels() -> None:
    predicted = {"env_steps_per_second": 90.0, "policy_lag": 1.0, "speedup": 1.0, "limit": "env"}
    shown = {"env_steps_per_second": 100.0, "policy_lag": 1.0, "acted": 1.0, "cores": {}}
    rows = [advice._row(predicted, spec, [shown], [shown]) for spec in (IDENTITY, INT8)]
    assert [row["spec"] for row in rows] == [IDENTITY.to_json(), INT8.to_json()]
    found = advice._agreement(rows, INT8.label)
    assert found["fastest"] == IDENTITY.label
    console = Console(width=200, record=True)
    run = {"game": "pong", "network": "original", "actors": 1, "cores": 2, "device": "cpu"}
    print_advised(
        {**run, "precision": "fp32", "rows": rows, "advised": INT8.label, **found}, console
    )
    assert INT8.label in console.export_text().split("Env steps/s are off")[0]


def test_a_pace_that_something_else_made_is_no_verdict() -> None:
    predicted = {"env_steps_per_second": 90.0, "policy_lag": 1.0, "speedup": 1.0, "limit": "env"}
    shown = {"env_steps_per_second": 100.0, "policy_lag": 1.0, "acted": 1.0, "cores": {}}
    waited = {**shown, "env_steps_per_second": 900.0, "acted": 0.2}
    rows = [
        advice._row(predicted, spec, [own], [shown])
        for spec, own in ((IDENTITY, shown), (INT8, waited))
    ]
    found = advice._agreement(rows, INT8.label)
    assert (found["fastest"], found["left_out"]) == (IDENTITY.label, [INT8.label])
    assert found["error_max"] == pytest.approx(0.1)
    assert found["advised_over_fastest"] is None
    console = Console(width=300, record=True)
    run = {"game": "pong", "network": "original", "actors": 1, "cores": 2, "device": "cpu"}
    print_advised(
        {**run, "precision": "fp32", "rows": rows, "advised": INT8.label, **found}, console
    )
    said = " ".join(console.export_text().split())
    assert "an unknown share of the pace of the fastest, original fp32. Left out of this" in said


def test_a_window_without_an_update_costs_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    report = SimpleNamespace(env_steps=0, seconds=2.4, spec_seconds={}, cpu_seconds={})
    run = SimpleNamespace(apply=lambda _: None, advance=lambda _: report, close=lambda: None)
    monkeypatch.setattr(advice, "make_run", lambda _: run)
    monkeypatch.setattr("torch.set_num_threads", lambda _: None)
    with pytest.raises(UserError, match="INT8: no update in the window; give more --seconds"):
        advice._run(load_preset("catch"), [INT8], 4.0)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"seconds": 1.0}, "--seconds"),
        ({"repeats": 0}, "--repeats"),
        ({"game": "brakeout"}, "breakout"),
    ],
)
def test_mistakes_are_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(UserError, match=text):
        bench_advice(specs=[INT8], **changes)
