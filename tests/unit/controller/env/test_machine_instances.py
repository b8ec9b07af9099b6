"""Instances of tier 0 on real machines: draws, splits, horizons, and what strategies bind to."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from accerl.errors import UserError
from accerl.runtime.latency.families import FAMILIES, machine_of
from accerl.runtime.latency.games import times_of_run
from accerl.runtime.latency.predict import predict
from accerl.spec import CompressionSpec, Decision
from controller.actions import ACTION_SPACES
from controller.analytic.fidelity import FidelityPrior
from controller.env.control_env import CompressionControlEnv
from controller.env.instances import keeping_pace
from controller.env.machine_instances import (
    FIRST_SHARE,
    GAMES,
    INT8,
    INTERVALS,
    SPECS,
    STRETCH,
    DrawnInstances,
)
from controller.env.machines import NUMBERS


def test_small_games_keep_pace_where_that_is_asked_for_and_nothing_else_changes() -> None:
    plain, kept = DrawnInstances("train"), DrawnInstances("train", keeps_pace=True)
    changed = 0
    for number in range(12):
        config, own = plain[number].config(0), kept[number].config(0)
        assert own.compression == keeping_pace(config).compression
        assert (own.preset, own.learner) == (config.preset, config.learner)
        assert kept[number].fidelity == plain[number].fidelity
        changed += own.compression != config.compression
    assert 0 < changed < 12  # Atari's games keep pace as they are


def test_draws_are_those_of_their_split_and_number() -> None:
    drawn = {split: [DrawnInstances(split)[i] for i in range(10)] for split in NUMBERS}
    for split, found in drawn.items():
        machines = [machine_of(item.profile) for item in found]
        assert all(m is not None and m[1] in NUMBERS[split] for m in machines)
        assert {m[0] for m in machines if m is not None} <= set(FAMILIES)
        assert {item.game for item in found} <= {game for kind in GAMES.values() for game in kind}
        changing = [bool(item.config(0).conditions.events) for item in found]
        assert 1 <= sum(changing) <= 9
        assert len({item.name for item in found}) == len(found)
    again = DrawnInstances("validation")[7]
    assert again == drawn["validation"][7]
    assert again != drawn["train"][7]
    other = DrawnInstances("validation", replace(FidelityPrior(), lag_half=(3.0, 0.0)))[7]
    assert other.fidelity.lag_half == 3.0
    assert other.profile == again.profile


def test_the_fastest_spec_makes_half_as_many_env_steps_again() -> None:
    item = DrawnInstances("train")[3]
    config = item.config(5)
    assert (config.seed, config.seconds) == (5, item.horizon_seconds)
    assert config.runtime.runtime == "serial"
    assert config.runtime.eval_episodes > 0
    lengths = [item.first_interval_seconds] + [item.interval_seconds] * (INTERVALS - 1)
    assert item.horizon_seconds == pytest.approx(sum(lengths))
    assert item.first_interval_seconds == pytest.approx(FIRST_SHARE * item.interval_seconds)
    assert item.num_intervals == INTERVALS
    assert item.latency is not None
    times = times_of_run(item.latency, config)
    specs = [spec for spec in SPECS if item.has(spec)]
    rate = max(predict(times, config, spec).env_steps_per_second for spec in specs)
    shortest = min(low for kind in ("easy", "minatar", "atari") for low in _steps(kind)[:1])
    longest = max(high for kind in ("easy", "minatar", "atari") for high in _steps(kind)[1:])
    assert STRETCH * shortest * 0.99 <= rate * item.horizon_seconds <= STRETCH * longest * 1.01


def _steps(kind: str) -> tuple[float, ...]:
    return FidelityPrior().kind(kind).env_steps


def test_students_that_are_no_smaller_do_not_exist() -> None:
    drawn = (DrawnInstances("train")[i] for i in range(200))
    item = next(item for item in drawn if item.config(0).network == "net1")
    assert not item.has(CompressionSpec(student="net1", bits=8))
    assert item.has(CompressionSpec(student="net2", bits=8))
    assert not item.has(CompressionSpec(bits=8, rank=0.1))


def test_an_episode_of_the_environment() -> None:
    """Rewards add up to what J has gained; without chance they never fall."""
    item = DrawnInstances("train")[1].quiet()
    env = CompressionControlEnv([item], actions=ACTION_SPACES["joint"])
    _, info = env.reset(seed=1)
    assert info["action_mask"].sum() > 4
    total, truncated, steps = 0.0, False, 0
    while not truncated:
        _, reward, _, truncated, info = env.step_decision(Decision.of(INT8))
        assert reward >= -1e-9
        total, steps = total + float(reward), steps + 1
    assert steps == INTERVALS
    final = item.reference.normalise(info["learner_return"])
    assert total == pytest.approx(final)
    assert math.isfinite(total)
    env.close()


def test_mistakes() -> None:
    with pytest.raises(UserError, match="did you mean 'train'"):
        DrawnInstances("trains")
    with pytest.raises(IndexError):
        DrawnInstances("train")[-1]


def test_what_an_instance_saves_of_itself_is_plain_data_whatever_was_worked_out() -> None:
    instance = DrawnInstances("validation")[3]
    saved = instance.to_json()
    assert instance.has(INT8)  # works out the pace
    assert json.loads(json.dumps(instance.to_json())) == saved
    assert (saved["number"], saved["tier"]) == (3, "analytic")
