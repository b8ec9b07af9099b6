"""Clocks: the virtual one charges the profile, the real one what was measured."""

from __future__ import annotations

import pytest

from accerl.runtime.latency.profiles import paper_profile
from accerl.runtime.serial.clock import ActSeconds, RealClock, VirtualClock
from accerl.spec import IDENTITY, CompressionSpec

NET3 = CompressionSpec(student="net3")
MEASURED = ActSeconds(1.0, 2.0, 3.0)


def test_the_virtual_clock_knows_the_profile_alone() -> None:
    clock = VirtualClock(paper_profile())
    for measured in (MEASURED, ActSeconds(0.0, 0.0, 0.0)):
        env, infer, write = clock.act(NET3, 5, 8, measured)
        # Of the twelve actors that share the environments, eight have one.
        assert env == pytest.approx(5 * 3e-3)
        assert infer == pytest.approx(5 * 1.2e-3)
        assert write == 0.0
    assert clock.learn(320, 99.0) == pytest.approx(50e-3)
    assert clock.distill(NET3, 64, 99.0) == paper_profile().distill_seconds(NET3, 64)
    assert clock.load(NET3, 99.0) == paper_profile().load_seconds(NET3)
    warmup, publish = clock.publish(NET3, 640, 99.0)
    assert warmup == pytest.approx(10 * clock.distill(NET3, 64, 0.0))
    assert publish == pytest.approx(0.1)
    assert clock.publish(IDENTITY, 0, 99.0) == (0.0, pytest.approx(0.1))


def test_the_real_clock_knows_what_was_measured_alone() -> None:
    clock = RealClock()
    assert clock.act(NET3, 5, 8, MEASURED) == MEASURED
    assert clock.learn(320, 0.25) == 0.25
    assert clock.distill(NET3, 64, 0.5) == 0.5
    assert clock.load(NET3, 0.125) == 0.125
    assert clock.publish(NET3, 640, 0.75) == (0.0, 0.75)  # the warm-up is in it
