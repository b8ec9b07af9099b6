"""The serial runtime as a model of the parallel pipeline: seconds, queue, switches, snapshots."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from accerl.acting.actor import Actor
from accerl.checkpoint import load_checkpoint, save_checkpoint
from accerl.compress.quantization.quantize import CALIBRATION_STATES
from accerl.presets import load_preset
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.run import IntervalReport
from accerl.runtime.serial.clock import RealClock, VirtualClock
from accerl.runtime.serial.run import SerialRun
from accerl.spec import IDENTITY, CompressionSpec, Decision
from accerl.weights import Publication
from tests.fixtures.runs.inner_runs import fast_profile, tiny_catch, weights_hash

INT8 = CompressionSpec(bits=8)
NET3 = CompressionSpec(student="net3", bits=8)
MIX = Decision(((NET3, 0.5), (IDENTITY, 0.5)))


@contextmanager
def catch(
    profile: LatencyProfile | None = None, *, seed: int = 0, **runtime: Any
) -> Iterator[SerialRun]:
    profile = profile or fast_profile()
    config = tiny_catch(seed, **{"eval_episodes": 0, **runtime})
    run = SerialRun(config, VirtualClock(profile))
    try:
        yield run
    finally:
        run.close()


def test_every_rollout_of_stacked_frames_fits_into_the_ring_of_states() -> None:
    """Of a short one, nearly all frames are new."""
    pong = load_preset("pong").with_learner(unroll=2, minibatches=1, precision="fp32")
    config = pong.with_runtime(num_envs=2, runtime="serial", clock="virtual", eval_episodes=0)
    config = replace(config, compression=replace(config.compression, distill_states=1))
    run = SerialRun(config, VirtualClock(fast_profile()))
    while run.learner.updates < 2:
        run.advance(0.001)
    assert len(run._ring) == 2 * config.runtime.num_envs * config.learner.unroll
    run.close()


def test_ranges_never_come_from_the_first_states_of_games_alone() -> None:
    with catch(num_envs=2 * CALIBRATION_STATES) as run:
        assert 0 < len(run.publishing.compressor.states) < CALIBRATION_STATES


def test_pruning_by_gradients_resumes_bit_by_bit() -> None:
    """Also where a network begins anew after a snapshot, and before the learner's next step."""
    renewed = {"prune_criterion": "taylor", "distill_renew_every": 1, "distill_renew_share": 0.0}
    config = tiny_catch(eval_episodes=0)
    config = replace(config, compression=replace(config.compression, **renewed))

    def reports(*, resumed: bool) -> list[str]:
        run = SerialRun(config, VirtualClock(fast_profile()))
        run.apply(Decision.of(CompressionSpec(sparsity=0.5)))
        lines = []
        for _ in range(30):
            lines.append(line(run.advance(0.001)))
            if resumed:
                state = run.snapshot()
                run.close()
                run = SerialRun(config, VirtualClock(fast_profile()))
                run.restore(state)
        run.close()
        return lines

    assert reports(resumed=True) == reports(resumed=False)


def line(report: IntervalReport) -> str:
    return json.dumps(report.to_json(), sort_keys=True)


def test_learner_seconds_add_up_and_actors_are_never_busier_than_they_can_be() -> None:
    """Learner that compresses too: learn + compress + publish + wait is the clock, but for a rest.

    What is under way at the end of an interval is booked when it ends.
    """
    learner = actors = 0.0
    with catch(compressor_process=False) as run:
        for decision in (Decision.of(IDENTITY), Decision.of(NET3), MIX):
            run.apply(decision)
            for _ in range(4):
                report = run.advance(0.01)
                phases = report.phase_seconds
                busy = phases["learn"] + phases["compress"] + phases["publish"]
                learner += busy + phases["wait"]
                acting = phases["env"] + phases["infer"] + phases["write"]
                actors += acting
                work = run.snapshot()["servers"]["works"]["learner"]
                under_way = 0.0 if work is None else run.now - work["began"]
                assert learner + under_way == pytest.approx(run.now)
                # A rollout is booked when it is used, hence never before it is finished.
                assert 0.0 < actors <= 4 * run.now
                assert sum(report.spec_seconds.values()) == pytest.approx(acting)
                assert report.seconds == 0.01


def test_phases_are_charged_from_the_profile_exactly() -> None:
    """One actor, a learner that is always free: every number can be worked out by hand."""
    profile = fast_profile(num_actors=1)
    with catch(profile, publish_every=1000) as run:
        report = run.advance(0.1)
        updates = report.learner_updates
        env, infer = 9 * 8 * 30e-6, 9 * 8 * 60e-6
        publish = 1e-3
        # The first rollout starts when the first weights are out; then one follows the other.
        assert updates == int((0.1 - publish) / (env + infer))
        phases = report.phase_seconds
        assert phases["env"] == pytest.approx(updates * env)
        assert phases["infer"] == pytest.approx(updates * infer)
        assert phases["publish"] == pytest.approx(publish)
        assert phases["learn"] == pytest.approx(updates * 72 * profile.learner_us_per_sample * 1e-6)
        assert phases["compress"] == 0.0
        busy = phases["learn"]
        assert phases["wait"] == pytest.approx(0.1 - busy, abs=profile.learn_seconds(72))
        assert report.env_steps == updates * 72
        assert report.queue_fill == 0.0  # behind what the learner takes, none is left
        assert run.now == 0.1


def test_the_queue_limit_holds_and_actors_wait_when_it_is_full() -> None:
    """With a slow learner the actors are idle most of the time, however many there are."""
    slow = replace(fast_profile(num_actors=4), learner_us_per_sample=100.0)
    for limit, each in ((1, 3), (8, 4)):  # an actor has what it fills, and its share of the queue
        with catch(slow, queue_rollouts=limit, publish_every=1, hold_back=False) as run:
            assert len(run.snapshot()["slots"]["states"]) == 4 * each
            report = run.advance(0.3)
            slots = run.snapshot()["slots"]
            # All but what is learned from, and perhaps what was just lent again.
            assert len(slots["ready"]) >= 4 * each - 2
            assert not run.servers.is_idle("learner")
            assert sum(run.servers.is_idle(f"actor-{index}") for index in range(4)) >= 3
            assert report.queue_fill > 0.9
            # Lag grows with what stands in the queue.
            assert 4 * (each - 1) - 2 <= run.advance(0.3).policy_lag <= 4 * each + 2


def test_faster_inference_makes_more_env_steps_in_the_same_seconds() -> None:
    steps, updates, waits = [], [], []
    for factor in (4.0, 1.0, 0.25):
        profile = fast_profile(num_actors=1, infer_factor=factor)
        with catch(profile, publish_every=1000) as run:
            report = run.advance(0.1)
        steps.append(report.env_steps)
        updates.append(report.learner_updates)
        waits.append(report.phase_seconds["wait"])
    assert steps == sorted(steps)
    assert steps[2] > 4 * steps[0]
    assert updates == [count // 72 for count in steps]
    assert waits == sorted(waits, reverse=True)


def test_a_smaller_network_acts_more_often_on_the_same_profile() -> None:
    steps = {}
    for spec in (IDENTITY, INT8, NET3):
        with catch(fast_profile(num_actors=1), publish_every=1000) as run:
            run.apply(Decision.of(spec))
            steps[spec] = run.advance(0.1).env_steps
    assert steps[IDENTITY] < steps[INT8] < steps[NET3]


def test_a_switch_is_charged_once_and_takes_effect() -> None:
    with catch() as run:
        run.apply(Decision.of(IDENTITY))
        assert run.advance(0.02).switch_seconds == 0.0  # the first decision switches nothing
        run.apply(Decision.of(IDENTITY))
        assert run.advance(0.02).switch_seconds == 0.0
        run.apply(Decision.of(NET3))
        report = run.advance(0.02)
        # One publication, and the distillation of a student that has never acted.
        config = run.config.compression
        states = config.distill_warmup_updates * min(config.distill_batch, run.shape.samples * 99)
        profile = fast_profile()
        expected = profile.publish_seconds(NET3) + profile.distill_seconds(NET3, states)
        assert report.switch_seconds == pytest.approx(expected)
        assert set(report.spec_seconds) == {IDENTITY, NET3}
        assert report.decision == Decision.of(NET3)
        report = run.advance(0.02)
        assert report.switch_seconds == 0.0
        assert set(report.spec_seconds) == {NET3}
        assert report.phase_seconds["compress"] > 0.0


def test_lag_and_kl_are_never_negative_and_the_identity_has_no_kl_but_by_its_lag() -> None:
    with catch(fast_profile(num_actors=1), publish_every=1) as run:
        reports = [run.advance(0.02) for _ in range(3)]
    for report in reports:
        assert report.policy_lag >= 0.0
        assert 0.0 <= report.kl_mean_nats <= report.kl_max_nats
    with catch(fast_profile(num_actors=1), publish_every=1000) as run:
        late = [run.advance(0.02) for _ in range(3)][-1]
    # Weights that are never renewed lag behind by every update made so far.
    assert late.policy_lag > 3 * reports[-1].policy_lag
    assert late.kl_mean_nats > reports[-1].kl_mean_nats


def test_an_interval_without_rollouts_still_reports() -> None:
    with catch() as run:
        empty = [run.advance(1e-5), run.advance(1e-5)]
        for index, report in enumerate(empty):
            assert (report.index, report.env_steps, report.learner_updates) == (index, 0, 0)
            assert report.episode_returns == ()
            assert report.kl_mean_nats == 0.0
            assert report.entropy_nats == pytest.approx(1.0986, abs=1e-3)
            assert report.decision == Decision.of(IDENTITY)
            assert IntervalReport.from_json(json.loads(line(report))) == report
        run.advance(0.05)
        before = run.advance(0.05)
        silent = run.advance(1e-9)
        assert silent.env_steps == 0
        assert silent.kl_mean_nats == before.kl_mean_nats  # silence is not agreement
        assert silent.total_env_steps == before.total_env_steps


def test_intervals_cut_time_without_changing_what_happens() -> None:
    """One long interval or ten short ones: the same rollouts, the same weights."""
    with catch() as one, catch() as ten:
        long = one.advance(0.1)
        short = [ten.advance(0.01) for _ in range(10)]
        assert weights_hash(one.learner.policy) == weights_hash(ten.learner.policy)
        assert sum(report.env_steps for report in short) == long.env_steps
        assert [score for report in short for score in report.episode_returns] == list(
            long.episode_returns
        )
        for phase, seconds in long.phase_seconds.items():
            assert sum(report.phase_seconds[phase] for report in short) == pytest.approx(seconds)


SCRIPTS = {
    "identity": [Decision.of(IDENTITY)] * 4,
    "int8": [Decision.of(INT8)] * 4,
    "mix": [MIX] * 4,
    "switching": [Decision.of(NET3), Decision.of(NET3), Decision.of(INT8), Decision.of(NET3)],
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_restored_run_goes_on_bit_by_bit(script: str, tmp_path: Path) -> None:
    """In the same run, in a fresh one, and through the files of a checkpoint."""
    decisions = SCRIPTS[script]

    def go_on(run: SerialRun) -> tuple[list[str], str]:
        lines = []
        for decision in decisions[2:]:
            run.apply(decision)
            lines.append(line(run.advance(0.013)))
        return lines, weights_hash(run.learner.policy)

    with catch(seed=1, eval_episodes=4) as run, catch(seed=2, eval_episodes=4) as fresh:
        for decision in decisions[:2]:
            run.apply(decision)
            run.advance(0.013)
        run.apply(decisions[2])  # a decision that has not been published yet is part of it
        snapshot = run.snapshot()
        save_checkpoint(tmp_path / "checkpoint", snapshot)
        expected = go_on(run)
        run.restore(snapshot)
        assert go_on(run) == expected
        fresh.advance(0.02)  # elsewhere: another seed, another time
        fresh.restore(load_checkpoint(tmp_path / "checkpoint"))
        assert go_on(fresh) == expected


def test_a_snapshot_before_the_first_interval_is_the_whole_run() -> None:
    with catch(seed=1) as run, catch(seed=2) as other:
        run.apply(Decision.of(INT8))
        other.restore(run.snapshot())
        assert line(other.advance(0.02)) == line(run.advance(0.02))


def test_the_real_clock_charges_what_was_measured() -> None:
    run = SerialRun(tiny_catch(eval_episodes=2), RealClock())
    try:
        report = run.advance(0.3)
    finally:
        run.close()
    assert report.learner_updates > 0
    assert all(report.phase_seconds[name] > 0.0 for name in ("env", "infer", "learn", "publish"))
    assert report.learner_return is not None


def test_the_real_clock_charges_an_actor_for_making_its_engines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]

    def load(actor: Actor, publication: Publication) -> None:
        now[0] += 5.0

    run = SerialRun(tiny_catch(eval_episodes=0), RealClock())
    monkeypatch.setattr("accerl.runtime.serial.run.perf_counter", lambda: now[0])
    monkeypatch.setattr(Actor, "load", load)
    artifacts = [cast(Any, SimpleNamespace(spec=spec)) for spec in (IDENTITY, NET3)]
    run.publishing.current = Publication(0, artifacts, [0.5, 0.5])
    try:
        assert run._load_newest(run.actors[0]) == 5.0
    finally:
        run.close()


def test_what_this_machine_uses_is_reported_on_the_real_clock_only() -> None:
    """A virtual clock's reports are equal on every machine; memory is not."""
    with catch() as run:
        report, later = run.advance(0.01), run.advance(0.01)
        assert (report.rss_bytes, report.private_bytes) == ({}, {})
    busy = {name: report.cpu_seconds[name] for name in ("actor-0", "learner", "compressor")}
    assert all(0.0 < seconds <= 0.01 + 1e-9 for seconds in busy.values())
    phases = later.phase_seconds
    assert later.cpu_seconds["learner"] == pytest.approx(phases["learn"], rel=0.3)
    run = SerialRun(tiny_catch(eval_episodes=0).with_runtime(clock="real"), RealClock())
    try:
        reports = [run.advance(0.1) for _ in range(2)]
    finally:
        run.close()
    for report in reports:
        assert report.rss_bytes.keys() == report.cpu_seconds.keys() == {"learner"}
        assert report.rss_bytes["learner"] > report.private_bytes["learner"] > 10 * 2**20
        assert 0.0 < report.cpu_seconds["learner"] < 60.0
        assert report.events == ()
