"""`accerl bench messages`: every cost is measured, and bytes are those of real rollouts."""

from __future__ import annotations

import pytest

from accerl.runtime.latency.fleet import MessageCosts
from studies.benchmarks.messages import bench_messages


@pytest.mark.slow
def test_what_messages_take_is_measured() -> None:
    result = bench_messages(calls=10, repeats=2)
    costs = MessageCosts.from_json(result["costs"])
    assert all(value > 0.0 for name, value in vars(costs).items() if name != "wait_seconds")
    assert costs.wait_seconds >= 0.0
    assert costs.samples == 1024
    assert costs.whole_bytes > 1024 * 4 * 84 * 84
    # Three of four frames are not sent, and what is left is mostly background.
    assert costs.rollout_bytes < costs.whole_bytes / 20.0
    assert result["spread"].keys() == result["costs"].keys() - {
        "rollout_bytes", "whole_bytes", "samples",
    }  # fmt: skip
