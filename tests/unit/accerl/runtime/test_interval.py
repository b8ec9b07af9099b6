"""The interval recorder: sums by hand, the difference between this interval and the run."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from accerl.acting.rollout import Rollout, RolloutShape
from accerl.learner.learner import UpdateStats
from accerl.networks.policy_net import ObservationSpec
from accerl.runtime.events import RunEvent
from accerl.runtime.interval import IntervalRecorder
from accerl.runtime.machine.usage import Memory
from accerl.runtime.run import PHASES, IntervalReport
from accerl.spec import IDENTITY, CompressionSpec, Decision

INT8 = CompressionSpec(bits=8)
SHAPE = RolloutShape(
    unroll=2, num_envs=3, num_actions=4, observation=ObservationSpec((1,), "uint8")
)


def rollout(*scores: float, seconds: tuple[float, float, float] = (1.0, 2.0, 0.5)) -> Rollout:
    made = Rollout.allocate(SHAPE)
    made.episode_return[:] = np.nan
    made.episode_return.ravel()[: len(scores)] = scores
    made.header[2:5] = seconds
    return made


def stats(kl: float, entropy: float, **losses: float) -> UpdateStats:
    return UpdateStats(
        torch.full((2, 3), kl), torch.full((2, 3), entropy), torch.zeros(2, 3, 4), losses
    )


def report(recorder: IntervalRecorder, total: float = 10.0) -> IntervalReport:
    return recorder.report(
        seconds=10.0,
        total_seconds=total,
        learner_return=0.5,
        decision=Decision.of(INT8),
        switch_seconds=0.25,
    )


def fill(recorder: IntervalRecorder) -> None:
    recorder.add_seconds("wait", 3.0)
    recorder.add_rollout(
        rollout(1.0, -1.0), IDENTITY, stats(0.1, 1.0, value=2.0), lag=2, queue_fill=1.0
    )
    recorder.add_rollout(
        rollout(5.0, seconds=(2.0, 1.0, 0.0)),
        INT8,
        stats(0.3, 0.5, value=4.0),
        lag=4,
        queue_fill=0.5,
    )
    recorder.add_seconds("learn", 4.0)


def test_an_interval_is_the_sum_of_what_passed_by() -> None:
    recorder = IntervalRecorder(num_actions=4)
    fill(recorder)
    made = report(recorder)
    assert (made.index, made.env_steps, made.learner_updates) == (0, 12, 2)
    assert (made.total_env_steps, made.total_learner_updates) == (12, 2)
    assert dict(made.phase_seconds) == {
        "env": 3.0, "infer": 3.0, "write": 0.5, "wait": 3.0, "learn": 4.0,
        "compress": 0.0, "publish": 0.0,
    }  # fmt: skip
    assert set(made.phase_seconds) == set(PHASES)
    assert dict(made.spec_seconds) == {IDENTITY: 3.5, INT8: 3.0}
    assert made.episode_returns == (1.0, -1.0, 5.0)
    assert made.queue_fill == 0.75
    assert made.policy_lag == 3.0
    assert made.kl_mean_nats == pytest.approx(0.2)
    assert made.kl_max_nats == pytest.approx(0.3)
    assert made.kl_var == pytest.approx(0.01)
    assert made.entropy_nats == pytest.approx(0.75)
    assert made.losses == {"value": 3.0}
    assert (made.learner_return, made.switch_seconds) == (0.5, 0.25)
    assert made.decision == Decision.of(INT8)
    assert IntervalReport.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_the_next_interval_starts_from_nothing_but_the_totals() -> None:
    recorder = IntervalRecorder(num_actions=4)
    fill(recorder)
    first = report(recorder)
    empty = report(recorder, total=20.0)
    assert (empty.index, empty.env_steps, empty.learner_updates) == (1, 0, 0)
    assert (empty.total_env_steps, empty.total_learner_updates) == (12, 2)
    assert set(empty.phase_seconds.values()) == {0.0}
    assert (empty.spec_seconds, empty.episode_returns, empty.losses) == ({}, (), {})
    assert empty.kl_mean_nats == first.kl_mean_nats  # what was seen last still holds
    assert first.phase_seconds["learn"] == 4.0  # and the first report has not been emptied


def test_before_the_first_rollout_the_policy_is_uniform() -> None:
    made = report(IntervalRecorder(num_actions=4))
    assert made.entropy_nats == pytest.approx(math.log(4))
    assert (made.kl_mean_nats, made.kl_max_nats, made.policy_lag, made.queue_fill) == (0, 0, 0, 0)


def test_events_and_usage_are_reported_and_survive_a_file() -> None:
    event = RunEvent(
        role="actor", index=0, exit_code=-9, seconds=1.5, cause="died", action="started again"
    )
    made = IntervalRecorder(num_actions=4).report(
        seconds=1.0,
        total_seconds=1.0,
        learner_return=None,
        decision=Decision.of(INT8),
        switch_seconds=0.0,
        events=(event,),
        memory={"learner": Memory(500, 300), "actor-0": Memory(100, 60)},
        cpu_seconds={"learner": 0.75},
    )
    assert made.events == (event.to_json(),)
    assert dict(made.rss_bytes) == {"learner": 500, "actor-0": 100}
    assert dict(made.private_bytes) == {"learner": 300, "actor-0": 60}
    assert dict(made.cpu_seconds) == {"learner": 0.75}
    assert IntervalReport.from_json(json.loads(json.dumps(made.to_json()))) == made


NEWER = ("events", "rss_bytes", "private_bytes", "cpu_seconds", "compression_kl_nats")
NEWER += ("staleness_kl_nats", "staleness_updates", "monitor_cpu_seconds", "indicators")


def test_records_from_before_events_and_usage_still_load() -> None:
    made = report(IntervalRecorder(num_actions=4))
    old = {name: value for name, value in made.to_json().items() if name not in NEWER}
    assert IntervalReport.from_json(old) == made
    assert (made.events, made.rss_bytes, made.cpu_seconds) == ((), {}, {})


def test_an_unknown_phase_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        IntervalRecorder(num_actions=4).add_seconds("coffee", 1.0)


def test_a_saved_recorder_goes_on_in_the_middle_of_an_interval() -> None:
    recorder, other = (IntervalRecorder(num_actions=4, times_itself=False) for _ in range(2))
    report(recorder)
    fill(recorder)
    state = json.loads(json.dumps(recorder.state_dict()))
    fill(other)
    other.load_state_dict(state)
    for item in (recorder, other):
        fill(item)
    mine, theirs = report(recorder, 20.0), report(other, 20.0)
    assert mine == theirs
    assert (mine.index, mine.learner_updates) == (1, 4)
