"""`accerl bench inner`: every second is booked once, and nothing is measured afterwards."""

from __future__ import annotations

import pytest

from accerl.acting.actor import Actor
from accerl.errors import UserError
from accerl.spec import CompressionSpec
from studies.benchmarks.inner import PHASES, REST, PhaseMeter, bench_inner

NET3 = CompressionSpec(student="net3", bits=8)


def test_seconds_go_to_the_innermost_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [5.0]
    monkeypatch.setattr("studies.benchmarks.inner.process_time", lambda: clock[0])

    def work(seconds: float) -> None:
        clock[0] += seconds

    meter = PhaseMeter()
    with meter.phase("act"):
        work(0.02)
        with meter.phase("env"):
            work(0.03)
        work(0.1)
    work(0.4)
    with meter.phase("evaluate"), meter.phase("env"):
        work(0.01)
    meter.book()
    found = {"act": 0.12, "env": 0.03, "evaluate": 0.01, REST: 0.4}
    assert meter.seconds == pytest.approx(found)


def test_an_inner_run_is_taken_apart_and_left_as_it_was() -> None:
    collect = Actor.collect
    result = bench_inner("catch", [NET3], precisions=("bf16",), env_steps=1000, repeats=1)
    assert Actor.collect is collect
    assert [row["precision"] for row in result["rows"]] == ["bf16"]
    for row in result["rows"]:
        assert row["env_steps"] >= 1000
        assert row["evaluations"] > 0
        assert tuple(row["phases"]) == PHASES
        assert sum(row["phases"].values()) == pytest.approx(row["core_seconds"])
        for phase in ("env", "act", "learn", "distill", "publish", "evaluate"):
            assert row["phases"][phase] > row["phases"][REST] * 1e-3


def test_a_profile_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UserError, match="nowhere"):
        bench_inner("catch", [NET3], profile="nowhere", env_steps=10, repeats=1)
