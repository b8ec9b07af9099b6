"""`accerl bench inner`: every second is booked once, and nothing is measured afterwards."""

from __future__ import annotations

from time import process_time

import pytest

from accerl.acting.actor import Actor
from accerl.errors import UserError
from accerl.spec import CompressionSpec
from studies.benchmarks.inner import PHASES, REST, PhaseMeter, bench_inner

NET3 = CompressionSpec(student="net3", bits=8)


def work(seconds: float) -> None:
    end = process_time() + seconds
    while process_time() < end:
        pass


def test_seconds_go_to_the_innermost_phase() -> None:
    meter, before = PhaseMeter(), process_time()
    with meter.phase("act"):
        work(0.02)
        with meter.phase("env"):
            work(0.03)
    with meter.phase("evaluate"), meter.phase("env"):
        work(0.01)
    meter.book()
    took = process_time() - before
    assert sum(meter.seconds.values()) == pytest.approx(took, abs=0.01)
    assert meter.seconds["act"] == pytest.approx(0.02, abs=0.01)
    assert meter.seconds["env"] == pytest.approx(0.03, abs=0.01)
    assert meter.seconds["evaluate"] == pytest.approx(0.01, abs=0.01)


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
