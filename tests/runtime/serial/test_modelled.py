"""The modelled pipeline: cores that are shared, distillers, copies, networks and patience."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accerl.checkpoint import load_checkpoint, save_checkpoint
from accerl.compress.distillation.effort import LEAST_UPDATES
from accerl.config import RunConfig
from accerl.presets import load_preset
from accerl.runtime.latency.predict import predict
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.profiles import load_profile
from accerl.runtime.run import IntervalReport
from accerl.runtime.serial.clock import VirtualClock
from accerl.runtime.serial.run import SerialRun
from accerl.spec import IDENTITY, CompressionSpec, Decision
from tests.fixtures.runs.inner_runs import (
    check_that_a_copy_goes_on_alike,
    fast_profile,
    tiny_catch,
    weights_hash,
)

INT8 = CompressionSpec(bits=8)
NET3 = CompressionSpec(student="net3", bits=8)


@contextmanager
def serial(config: RunConfig, profile: LatencyProfile) -> Iterator[SerialRun]:
    run = SerialRun(config, VirtualClock(profile))
    try:
        yield run
    finally:
        run.close()


def speed(profile: LatencyProfile, spec: CompressionSpec = IDENTITY, **runtime: Any) -> float:
    """Return env steps per second after a start."""
    with serial(tiny_catch(eval_episodes=0, **runtime), profile) as run:
        run.apply(Decision.of(spec))
        run.advance(0.05)
        report = run.advance(0.2)
    return report.env_steps / report.seconds


def test_actors_on_fewer_cores_than_processes_are_slower_by_their_share() -> None:
    """A cheap learner that hardly publishes: four actors on two cores get half a core each."""
    own = replace(fast_profile(num_actors=4), learner_us_per_sample=0.01)
    apart = speed(own, publish_every=100_000)
    shared = speed(replace(own, cores=2), publish_every=100_000)
    assert shared == pytest.approx(apart / 2, rel=0.05)


def test_compressing_takes_cores_from_acting_only_where_they_are_shared() -> None:
    profile = fast_profile(num_actors=1)
    profile = replace(profile, learner_us_per_sample=0.01)
    rare, often = ({"publish_every": n, "patience_seconds": 0.0} for n in (100_000, 1))
    assert speed(profile, INT8, **often) == pytest.approx(speed(profile, INT8, **rare), rel=0.02)
    tight = replace(profile, cores=1)
    # 36 env steps take an actor 2.3 ms, a publication takes the compressor 1 ms.
    assert speed(tight, INT8, **often) < 0.85 * speed(tight, INT8, **rare)


def test_a_narrow_network_delays_weights_and_nothing_else() -> None:
    profile = fast_profile(num_actors=2)
    rows = tuple(replace(row, size_bytes=1_000) for row in profile.specs)
    wide = replace(profile, specs=rows, num_hosts=2, down_bytes_per_second=5e8)
    narrow = replace(wide, down_bytes_per_second=5e4)  # 20 ms
    lags, steps = [], []
    for each in (wide, narrow):
        with serial(tiny_catch(eval_episodes=0, patience_seconds=0.0), each) as run:
            run.apply(Decision.of(INT8))
            run.advance(0.05)
            report = run.advance(0.2)
        lags.append(report.policy_lag)
        steps.append(report.env_steps)
        assert sum(report.lag_rollouts.values()) == report.learner_updates
    assert lags[1] > lags[0] + 5.0
    assert steps[1] == pytest.approx(steps[0], rel=0.05)


def test_patience_buys_freshness_with_time() -> None:
    """The publication takes longer than a rollout: who waits for it acts less, and fresher."""
    profile = fast_profile(num_actors=1)
    rows = tuple(replace(row, publish_ms=9.0) for row in profile.specs)
    profile = replace(profile, specs=rows)
    lags, steps = [], []
    for patience in (0.0, 0.2):
        config = tiny_catch(eval_episodes=0, patience_seconds=patience, queue_rollouts=0)
        with serial(config, profile) as run:
            run.advance(0.05)
            report = run.advance(0.2)
        lags.append(report.policy_lag)
        steps.append(report.env_steps)
    assert lags[1] < lags[0] - 0.5
    assert steps[1] < steps[0]


def test_distillers_take_distilling_off_the_compressor() -> None:
    """With them, publications of a student are made as fast as the compressor can."""
    alone = fast_profile(num_actors=2)
    slow = tuple(replace(row, distill_us=20.0 * row.distill_us) for row in alone.specs)
    alone = replace(alone, specs=slow)
    publications = []
    for distillers in (0, 2):
        profile = replace(alone, num_distillers=distillers)
        with serial(tiny_catch(eval_episodes=0), profile) as run:
            run.apply(Decision.of(NET3))
            run.advance(0.1)
            report = run.advance(0.2)
        publications.append(report.publications)
        assert report.phase_seconds["compress"] > 0.0
        assert report.student_kl_nats[NET3] < 1.0
    assert publications[1] > 1.5 * publications[0]


def test_a_snapshot_with_everything_under_way_goes_on_to_the_bit(tmp_path: Path) -> None:
    """Distillers, a publication on the network, actors that wait: also through a file."""
    profile = fast_profile(num_actors=3)
    rows = tuple(replace(row, size_bytes=2_000, load_ms=0.1) for row in profile.specs)
    profile = replace(
        profile,
        specs=rows,
        num_distillers=2,
        cores=3,
        copy_bytes_per_second=1e7,
        num_hosts=3,
        down_bytes_per_second=1e6,
        up_bytes_per_second=1e7,
    )
    mix = Decision(((NET3, 0.5), (CompressionSpec(student="net2"), 0.5)))
    config = tiny_catch(eval_episodes=4)

    def go_on(run: SerialRun) -> list[str]:
        lines = []
        for decision in (mix, Decision.of(INT8)):
            run.apply(decision)
            report = run.advance(0.031)
            lines.append(json.dumps(report.to_json(), sort_keys=True))
        return [*lines, weights_hash(run.learner.policy)]

    with serial(config, profile) as run:
        run.apply(mix)
        run.advance(0.0437)
        state = run.snapshot()
        works = state["servers"]["works"]
        assert sum(work is not None for work in works.values()) >= 3
        save_checkpoint(tmp_path / "checkpoint", state)
        straight = go_on(run)
        run.restore(state)
        assert go_on(run) == straight
    with serial(config, profile) as other:
        other.restore(load_checkpoint(tmp_path / "checkpoint"))
        assert go_on(other) == straight


def test_students_that_do_not_act_are_part_of_a_snapshot() -> None:
    """One distiller has shown two students; the one that rests now acts again after a restore."""
    profile = replace(fast_profile(num_actors=2), num_distillers=1)
    net2 = CompressionSpec(student="net2", bits=8)
    config = tiny_catch(eval_episodes=4)

    def acts_again(run: SerialRun) -> str:
        run.apply(Decision.of(NET3))
        return json.dumps(run.advance(0.03).to_json(), sort_keys=True)

    with serial(config, profile) as run:
        for decision in (Decision(((net2, 0.5), (NET3, 0.5))), Decision.of(net2)):
            run.apply(decision)
            run.advance(0.05)
        state = run.snapshot()
        straight = acts_again(run)
    with serial(config, profile) as other:
        other.restore(state)
        assert acts_again(other) == straight


def test_an_update_under_way_is_not_in_the_report() -> None:
    """The learner needs 30 ms: until then nothing was learned, and J is the untrained policy's."""
    slow = replace(fast_profile(num_actors=1), learner_us_per_sample=30e3 / 72)
    with serial(tiny_catch(eval_episodes=4), slow) as run:
        before = weights_hash(run.learner.policy)
        report = run.advance(0.03)
        assert not run.servers.is_idle("learner")
        assert (report.learner_updates, report.env_steps) == (0, 0)
        assert weights_hash(run.learner.policy) == before
        assert run.advance(0.03).learner_updates == 1
        assert weights_hash(run.learner.policy) != before


@pytest.mark.parametrize(
    "name",
    [
        "paper-1080ti",
        "two-core",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("learner-bound", "slow-env")),
    ],
)
@pytest.mark.parametrize("spec", [IDENTITY, NET3], ids=lambda spec: spec.label)
def test_what_is_advised_is_what_the_model_does(name: str, spec: CompressionSpec) -> None:
    """The steady state that `accerl profile advise` works out, within a tenth."""
    profile = load_profile(name)
    config = load_preset("catch").with_runtime(eval_episodes=0)
    predicted = predict(profile.for_network(config.network), config, spec)
    rollout = config.learner.unroll * config.runtime.num_envs
    seconds = 40 * rollout / predicted.env_steps_per_second
    with serial(config, profile) as run:
        run.apply(Decision.of(spec))
        run.advance(seconds / 2)
        report = run.advance(seconds)
    assert report.env_steps / seconds == pytest.approx(predicted.env_steps_per_second, rel=0.1)


@pytest.mark.parametrize(("distill_updates", "rest"), [(0, 0.0), (12, 0.0), (12, 1e3)])
def test_what_is_advised_of_distillers_that_share_cores_is_what_the_model_does(
    distill_updates: int, rest: float
) -> None:
    profile = replace(fast_profile(num_actors=4), num_distillers=3, cores=4)
    rows = tuple(replace(row, distill_us=10.0 * row.distill_us) for row in profile.specs)
    profile = replace(profile, specs=rows)
    config = tiny_catch(eval_episodes=0, patience_seconds=0.0)
    compression = replace(
        config.compression, distill_updates=distill_updates, distill_rest_kl_nats=rest
    )
    config = replace(config, compression=compression)
    predicted = predict(profile, config, NET3).env_steps_per_second
    with serial(config, profile) as run:
        run.apply(Decision.of(NET3))
        run.advance(0.05)
        report = run.advance(0.1)
    assert report.env_steps / report.seconds == pytest.approx(predicted, rel=0.1)


def busy(
    distillers: int, *, distill_updates: int = 0, rest: float = 0.0, seconds: float = 0.1
) -> IntervalReport:
    """Return what distillers with a core each did for Net3."""
    slow = fast_profile(num_actors=2)
    rows = tuple(replace(row, distill_us=8.0 * row.distill_us) for row in slow.specs)
    profile = replace(slow, specs=rows, num_distillers=distillers)
    config = tiny_catch(eval_episodes=0)
    compression = replace(
        config.compression, distill_updates=distill_updates, distill_rest_kl_nats=rest
    )
    with serial(replace(config, compression=compression), profile) as run:
        run.apply(Decision.of(NET3))
        run.advance(0.05)
        return run.advance(seconds)


@pytest.mark.slow
def test_four_distillers_do_the_work_of_four_for_one_student() -> None:
    one, four = busy(1), busy(4)
    assert one.distill_updates > 20
    assert four.distill_updates > 3.5 * one.distill_updates  # all of which end up in what acts
    # Every distiller was busy all the time, but for the beginning.
    assert one.distill_core_seconds == pytest.approx(one.seconds, rel=0.1)
    assert four.distill_core_seconds == pytest.approx(4 * four.seconds, rel=0.1)


def test_no_more_is_distilled_than_the_learners_updates_allow() -> None:
    report = busy(4, distill_updates=2)
    assert report.distill_updates <= 2 * (report.learner_updates + 1)


@pytest.mark.slow
@pytest.mark.parametrize("distillers", [1, 2])
def test_a_student_that_is_close_rests_and_is_looked_at_again(distillers: int) -> None:
    all_of_it = busy(distillers, distill_updates=6)
    some = busy(distillers, distill_updates=6, rest=1e3)  # whose KL can only be below that
    assert LEAST_UPDATES * (some.learner_updates - 4) <= some.distill_updates
    assert some.distill_updates <= distillers * (LEAST_UPDATES * some.learner_updates + 2)
    assert all_of_it.distill_updates > 5 * some.distill_updates
    far = busy(distillers, distill_updates=6, rest=1e-9)
    assert far.distill_updates == all_of_it.distill_updates


def test_a_student_that_rests_goes_on_alike_from_a_snapshot() -> None:
    config = tiny_catch(eval_episodes=0)
    resting = replace(config.compression, distill_updates=6, distill_rest_kl_nats=0.05)
    own = replace(config, compression=resting)
    profile = replace(fast_profile(num_actors=2), num_distillers=2)
    run, other = (SerialRun(own, VirtualClock(profile)) for _ in range(2))
    run.apply(Decision.of(NET3))
    report = run.advance(0.053)
    assert 0 < report.distill_updates < 6 * report.learner_updates
    check_that_a_copy_goes_on_alike(run, other, 0.03)


def test_actors_do_not_wait_for_a_publication_that_came_to_nothing_new() -> None:
    """A distiller slower than the learner: what is published between two of its rounds is alike."""
    profile = replace(fast_profile(num_actors=2), num_distillers=1)
    slow = tuple(replace(row, distill_us=20.0 * row.distill_us) for row in profile.specs)
    config = tiny_catch(eval_episodes=0, patience_seconds=10.0)
    with serial(config, replace(profile, specs=slow)) as run:
        run.apply(Decision.of(NET3))
        run.advance(0.05)
        report = run.advance(0.1)
    assert report.publications_unchanged > 0
    assert report.learner_updates > 50


def test_a_student_that_comes_back_is_warmed_up_where_distillers_left_it() -> None:
    profile = replace(fast_profile(num_actors=2), num_distillers=1, cores=2)
    made: list[int] = []
    with serial(tiny_catch(eval_episodes=0), profile) as run:
        compressor = run.publishing.compressor
        for spec in (NET3, IDENTITY, NET3):
            run.apply(Decision.of(spec))
            before = run.learner.updates
            while run.publishing.orders.in_use[:1] != (spec,):
                run.advance(0.001)
            made.append(compressor.last_build_updates)
            while run.learner.updates < before + 40:
                run.advance(0.01)
    warmup = compressor.config.distill_warmup_updates
    assert made[0] >= warmup  # and its beginning
    assert made[1:] == [0, warmup]
