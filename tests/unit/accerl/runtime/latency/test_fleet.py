"""Fleets: what limits them, and that Ray's messages are counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.presets import load_preset
from accerl.runtime.latency.fleet import (
    FLEET_LIMITS,
    FleetRow,
    FleetSettings,
    MessageCosts,
    fleet_sizes,
    plan_fleet,
)
from accerl.runtime.latency.predict import predict
from accerl.runtime.latency.profiles import load_profile
from accerl.spec import IDENTITY, CompressionSpec

PROFILE = load_profile("gpu-learner")
PONG = load_preset("pong")
ROLLOUT = PONG.learner.unroll * PONG.runtime.num_envs
FREE = replace(
    MessageCosts(),
    **{name: 0.0 for name in vars(MessageCosts()) if name.endswith("_seconds")},
)


def plan(
    largest: int, costs: MessageCosts | None = None, config: RunConfig = PONG, **settings: Any
) -> list[FleetRow]:
    fleet = FleetSettings(**settings)
    return plan_fleet(PROFILE, config, [IDENTITY], largest, settings=fleet, costs=costs)


def test_sizes_end_with_the_one_that_is_asked_for() -> None:
    assert fleet_sizes(30) == [1, 2, 5, 10, 20, 30]
    assert fleet_sizes(1) == [1]


def test_without_messages_a_small_fleet_is_what_predict_says() -> None:
    row = plan(1, FREE)[-1]
    alone = replace(PROFILE.for_network(PONG.network), num_actors=1, actors_per_batch=1)
    expected = predict(alone, PONG, IDENTITY)
    assert row.env_steps_per_second == pytest.approx(expected.env_steps_per_second)
    assert row.message_share == 0.0


def test_the_learner_limits_sooner_with_messages_than_without() -> None:
    free, dear = plan(1000, FREE), plan(1000)
    assert [row.actors for row in free] == [row.actors for row in dear]
    assert dear[0].limit == "emulator"
    assert "learner" in {row.limit for row in dear}
    assert all(
        a.env_steps_per_second >= b.env_steps_per_second for a, b in zip(free, dear, strict=True)
    )
    assert dear[-1].env_steps_per_second < 0.8 * free[-1].env_steps_per_second
    # Saturated: learning and messages are all that the learner's core does.
    assert dear[-1].learner_share == pytest.approx(1.0, abs=0.02)


def test_a_thin_link_limits_at_its_own_rate() -> None:
    row = plan(1000, link_gbit=0.01)[-1]
    assert row.limit == "link"
    assert row.bytes_in_per_second == pytest.approx(0.01e9 / 8.0)
    steps = 0.01e9 / 8.0 / MessageCosts().rollout_bytes * ROLLOUT
    assert row.env_steps_per_second == pytest.approx(steps)


def test_weights_age_in_updates_of_the_pace_that_the_link_leaves() -> None:
    """One publication after the other goes out, with hardly a pause between them."""
    row = plan(1000, link_gbit=0.01)[-1]
    assert row.bytes_out_per_second == pytest.approx(0.01e9 / 8.0, rel=0.05)


def test_rollouts_as_they_are_fill_the_link_of_a_small_fleet() -> None:
    packed, whole = plan(100, packed=True), plan(100, packed=False)
    assert "link" not in {row.limit for row in packed}
    assert whole[-1].limit == "link"
    ratio = whole[0].bytes_in_per_second / whole[0].env_steps_per_second
    ratio /= packed[0].bytes_in_per_second / packed[0].env_steps_per_second
    assert ratio == pytest.approx(MessageCosts().whole_bytes / MessageCosts().rollout_bytes)


def test_a_small_object_store_is_full() -> None:
    rows = plan(100, store_gb=0.005)
    assert rows[-1].limit == "store"
    slots = rows[-1].actors * 2  # nothing queues in the preset
    held = rows[-1].store_bytes - slots * MessageCosts().rollout_bytes
    assert 0.0 <= held < 10e6  # two publications


def test_int8_sends_less_to_the_actors() -> None:
    specs = [IDENTITY, CompressionSpec(bits=8)]
    fp32, int8 = plan_fleet(PROFILE, PONG, specs, 1)
    assert int8.bytes_out_per_second < 0.4 * fp32.bytes_out_per_second
    assert {fp32.limit, int8.limit} <= FLEET_LIMITS.keys()
    assert int8.to_json()["spec"]["bits"] == 8


def test_costs_survive_json_and_nonsense_is_refused() -> None:
    assert MessageCosts.from_json(MessageCosts().to_json()) == MessageCosts()
    with pytest.raises(UserError, match="link_gbit must be positive and finite, got 0"):
        FleetSettings(link_gbit=0.0)
    with pytest.raises(UserError, match="--fleet must be at least 1, got 0"):
        plan(0)


def test_a_student_that_a_gpu_distils_crowds_no_cores() -> None:
    """Learner and compressor have a core each, and are on the GPU in turns."""
    spec = CompressionSpec(student="net3", bits=8)
    (*_, row) = plan_fleet(PROFILE, PONG, [spec], 50)
    assert row.limit == "learner"
    idle = replace(PROFILE, cores=64)
    assert row.env_steps_per_second == plan_fleet(idle, PONG, [spec], 50)[-1].env_steps_per_second
