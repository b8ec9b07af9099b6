"""Admission in whole runs: students wait while something milder acts, in both runtimes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from accerl.checkpoint import load_checkpoint, save_checkpoint
from accerl.compress.admission import ADMISSION_STATES
from accerl.config import RunConfig
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.process.run import ProcessRun
from accerl.runtime.run import IntervalReport
from accerl.runtime.serial.clock import VirtualClock
from accerl.runtime.serial.run import SerialRun
from accerl.spec import IDENTITY, CompressionSpec, Decision
from accerl.training.summary import summarise
from tests.fixtures.runs.inner_runs import fast_profile, tiny_catch, weights_hash
from tests.fixtures.runs.process_runs import quick_catch

INT8 = CompressionSpec(bits=8)
NET2 = CompressionSpec(student="net2", bits=8)
NET3 = CompressionSpec(student="net3", bits=8)
BOUND, NEVER = 0.19, 1e-9


def admitting(config: RunConfig, bound: float) -> RunConfig:
    return replace(config, compression=replace(config.compression, admit_kl_nats=bound))


@contextmanager
def catch(
    bound: float, profile: LatencyProfile | None = None, seed: int = 0
) -> Iterator[SerialRun]:
    config = admitting(tiny_catch(seed, eval_episodes=0), bound)
    run = SerialRun(config, VirtualClock(profile or fast_profile()))
    try:
        yield run
    finally:
        run.close()


def begin(run: SerialRun) -> None:
    """Let the learner learn a little, so that students must be admitted."""
    run.apply(Decision.of(INT8))
    while run.advance(0.001).total_learner_updates == 0:
        assert run.now < 0.02


def line(report: IntervalReport) -> str:
    return json.dumps(report.to_json(), sort_keys=True)


def test_a_student_that_is_decided_for_first_acts_from_the_first_weights_on() -> None:
    with catch(NEVER) as run:
        run.apply(Decision.of(NET3))
        reports = [run.advance(0.015) for _ in range(3)]
        assert all(set(report.spec_seconds) == {NET3} for report in reports)
        assert not any(report.waiting_kl_nats for report in reports)
        assert reports[-1].total_learner_updates > 0


@pytest.mark.parametrize("distillers", [0, 1])
def test_a_student_waits_for_some_updates_and_then_acts(distillers: int) -> None:
    profile = replace(fast_profile(), num_distillers=distillers)
    with catch(BOUND, profile) as run:
        begin(run)
        begun = run.now
        run.apply(Decision.of(NET3))
        first = run.advance(0.005)
        assert set(first.spec_seconds) == {INT8}
        assert first.waiting_kl_nats == {NET3: None}
        assert first.decision == Decision.of(NET3)
        assert first.phase_seconds["compress"] == 0.0  # nothing to learn from yet
        reports = [first]
        while not reports[-1].takeovers:
            assert len(reports) < 20
            reports.append(run.advance(0.02))
        (taken,) = reports[-1].takeovers
        assert (taken.spec, taken.asked_seconds) == (NET3, begun)
        assert 0.005 < taken.seconds < run.now
        assert 0.0 < (taken.kl_nats or 0.0) <= BOUND
        expected = {**vars(taken), "spec": NET3.to_json()}
        assert summarise({}, reports)["takeovers"] == [expected]
        assert reports[-1].switch_seconds > 0.0
        assert reports[-1].waiting_kl_nats == {}
        assert sum(report.phase_seconds["compress"] for report in reports) > 0.0
        run.advance(0.02)
        assert set(run.advance(0.02).spec_seconds) == {NET3}


def test_waiting_is_charged_for_engines_that_are_built_and_compared() -> None:
    """On the virtual clock, each publication: two engines, and the states that were compared."""
    profile = fast_profile()
    with catch(NEVER) as run:
        begin(run)
        run.apply(Decision.of(NET3))
        while run.advance(0.02).total_env_steps < 16 * (ADMISSION_STATES + 16):
            pass
        report = run.advance(0.05)
        assert set(report.spec_seconds) == {INT8}
        compared = profile.distill_seconds(NET3, ADMISSION_STATES)
        each = profile.publish_seconds(NET3) + compared + profile.publish_seconds(INT8)
        assert report.publications > 5
        assert report.phase_seconds["publish"] == pytest.approx(report.publications * each)


def test_what_acted_goes_on_for_what_waits_and_a_mix_may_wait_in_part() -> None:
    with catch(BOUND) as run:
        begin(run)
        run.apply(Decision.of(NET2))
        while not run.advance(0.02).takeovers:
            assert run.now < 0.4
        run.publishing.compressor.admission.bound_nats = NEVER
        run.apply(Decision(((NET3, 0.5), (IDENTITY, 0.5))))
        run.advance(0.02)
        report = run.advance(0.02)
        assert set(report.spec_seconds) == {NET2, IDENTITY}
        assert set(report.waiting_kl_nats) == {NET3}
        assert set(report.student_kl_nats) == {NET2, NET3}  # both are kept close
        run.apply(Decision.of(INT8))
        run.advance(0.02)
        run.apply(Decision.of(NET2))  # it rested, and is asked anew
        run.advance(0.02)
        assert set(run.advance(0.02).spec_seconds) == {INT8}


@pytest.mark.parametrize("distillers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_run_that_is_restored_while_something_waits_goes_on_bit_by_bit(
    distillers: int, tmp_path: Path
) -> None:
    profile = replace(fast_profile(), num_distillers=distillers)
    mix = Decision(((NET3, 0.5), (NET2, 0.5)))

    def go_on(run: SerialRun) -> tuple[list[str], str]:
        lines = [line(run.advance(0.013)) for _ in range(4)]
        return lines, weights_hash(run.learner.policy)

    with catch(BOUND, profile) as run, catch(BOUND, profile, seed=1) as fresh:
        begin(run)
        run.apply(mix)
        assert run.advance(0.015).waiting_kl_nats.keys() == {NET2, NET3}
        save_checkpoint(tmp_path / "checkpoint", run.snapshot())
        expected = go_on(run)
        assert any('"takeovers": [{' in text for text in expected[0])
        fresh.restore(load_checkpoint(tmp_path / "checkpoint"))
        assert go_on(fresh) == expected


@pytest.mark.slow
def test_the_process_runtime_has_students_wait_too() -> None:
    run = ProcessRun(admitting(quick_catch(), BOUND))
    try:
        run.apply(Decision.of(INT8))
        while run.advance(0.1).total_learner_updates == 0:
            assert run.now < 10.0
        run.apply(Decision.of(NET3))
        reports = [run.advance(0.1)]
        while not reports[-1].takeovers:
            assert len(reports) < 100, reports[-1]
            reports.append(run.advance(0.1))
        reports.append(run.advance(0.1))
        acted = [spec for report in reports for spec in report.spec_seconds]
        assert set(acted) == {INT8, NET3}
        assert acted == sorted(acted, key=[INT8, NET3].index)  # none was taken for another
        (taken,) = (taken for report in reports for taken in report.takeovers)
        assert taken.spec == NET3
        assert 0.0 < taken.seconds <= run.now
        assert 0.0 < (taken.kl_nats or 0.0) <= BOUND
    finally:
        run.close()
