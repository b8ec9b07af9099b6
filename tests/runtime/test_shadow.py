"""Shadows in whole runs: measured once an interval, on the clock, without acting."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accerl.checkpoint import load_checkpoint, save_checkpoint
from accerl.errors import UserError
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.process.run import ProcessRun
from accerl.runtime.publishing.probe import KLProbe
from accerl.runtime.run import IntervalReport
from accerl.runtime.serial.clock import RealClock, VirtualClock
from accerl.runtime.serial.run import SerialRun
from accerl.spec import IDENTITY, CompressionSpec, Decision
from tests.fixtures.runs.inner_runs import fast_profile, tiny_catch, weights_hash
from tests.fixtures.runs.process_runs import quick_catch

INT8 = CompressionSpec(bits=8)
BF16 = CompressionSpec(bits=16)
NET2 = CompressionSpec(student="net2", bits=8)
NET3 = CompressionSpec(student="net3", bits=8)
BOUND = 0.03
PROFILE = fast_profile()


def beside(acting: CompressionSpec, shadow: CompressionSpec | None) -> Decision:
    return Decision(((acting, 1.0),), shadow)


@contextmanager
def catch(
    profile: LatencyProfile | None = None,
    *,
    seed: int = 0,
    bound: float = 0.0,
    steps: int = 1,
    **runtime: Any,
) -> Iterator[SerialRun]:
    config = tiny_catch(seed, eval_episodes=0, **{"publish_every": 4, **runtime})
    config = config.with_learner(minibatches=steps)  # of an update
    small = {"distill_states": 512, "distill_batch": 32, "distill_learning_rate": 4e-3}
    compression = replace(config.compression, admit_kl_nats=bound, **small)
    config = replace(config, compression=compression)
    run = SerialRun(config, VirtualClock(profile or PROFILE))
    try:
        yield run
    finally:
        run.close()


def line(report: IntervalReport) -> str:
    return json.dumps(report.to_json(), sort_keys=True)


def test_a_shadow_is_as_far_from_the_learner_as_if_it_acted_with_the_same_weights() -> None:
    with catch(publish_every=10_000) as run, catch(publish_every=10_000) as other:
        run.apply(beside(IDENTITY, INT8))
        other.apply(Decision.of(INT8))
        report, acted = run.advance(0.02), other.advance(0.02)
    assert set(report.spec_seconds) == {IDENTITY}
    assert report.shadow_kl_nats == acted.compression_kl_nats
    assert report.shadow_kl_nats[INT8] > 0.0
    assert set(report.compression_kl_nats) == {IDENTITY}
    assert acted.shadow_kl_nats == {}
    assert IntervalReport.from_json(json.loads(line(report))) == report


def test_it_is_measured_once_an_interval_and_charged_as_a_publication_is() -> None:
    profile = fast_profile()
    clock = VirtualClock(profile)
    expected = profile.publish_seconds(INT8) + clock.compare(INT8, KLProbe.STATES)
    assert 0.0 < clock.compare(INT8, KLProbe.STATES) <= profile.distill_seconds(INT8, 32)
    with catch(profile) as run:
        run.apply(beside(IDENTITY, INT8))
        reports = [run.advance(0.03) for _ in range(3)]
        run.apply(Decision.of(IDENTITY))
        reports.append(run.advance(0.03))
    assert reports[0].phase_seconds["compress"] < expected  # there were fewer states
    for report in reports[:3]:
        assert set(report.shadow_kl_nats) == {INT8}
        assert report.phase_seconds["compress"] == pytest.approx(expected) or report is reports[0]
        assert report.publications > 1
    assert reports[3].shadow_kl_nats == {}
    assert reports[3].phase_seconds["compress"] == 0.0
    assert all(report.switch_seconds == 0.0 for report in reports)


def test_whoever_compresses_pays_for_it() -> None:
    """Where the learner does, it learns less; where another does, what acts is older."""

    def interval(shadow: CompressionSpec | None, learner_us: float, apart: bool) -> IntervalReport:
        rows = [replace(r, publish_ms=9.0 if r.spec == INT8 else 1.0) for r in PROFILE.specs]
        profile = replace(PROFILE, specs=tuple(rows), learner_us_per_sample=learner_us)
        with catch(profile, compressor_process=apart, patience_seconds=0.0) as run:
            run.apply(beside(IDENTITY, shadow))
            run.advance(0.02)
            return run.advance(0.02)

    alone, beside_it = (interval(shadow, 20.0, False) for shadow in (None, INT8))
    assert beside_it.total_learner_updates <= 0.85 * alone.total_learner_updates
    alone, beside_it = (interval(shadow, 0.5, True) for shadow in (None, INT8))
    assert beside_it.learner_updates == pytest.approx(alone.learner_updates, abs=1)
    assert beside_it.policy_lag > alone.policy_lag + 0.5


def test_first_it_is_published_then_the_shadow_comes() -> None:
    """Actors begin no later with a shadow that takes a long time."""
    rows = [
        replace(row, publish_ms=row.publish_ms if row.spec == IDENTITY else 25.0)
        for row in PROFILE.specs
    ]
    profile = replace(PROFILE, specs=tuple(rows))
    steps, taken = [], []
    for shadow in (None, INT8):
        with catch(profile, publish_every=10_000) as run:
            run.apply(beside(IDENTITY, shadow))
            report = run.advance(0.02)
            steps.append(report.env_steps)
            taken += report.takeovers
            assert report.shadow_kl_nats == {}  # it is under way
            later = run.advance(0.02)
            assert set(later.shadow_kl_nats) == ({INT8} if shadow else set())
    assert steps[0] == steps[1] > 0
    assert [each.seconds for each in taken] == [taken[0].seconds] * 2


def test_a_new_shadow_is_no_switch_and_waits_for_a_publication_that_is_due() -> None:
    with catch(publish_every=10_000) as run:
        run.apply(beside(IDENTITY, INT8))
        run.advance(0.02)
        run.apply(beside(IDENTITY, BF16))
        report = run.advance(0.02)
        assert report.publications == 0
        assert report.shadow_kl_nats == {}
        run.orders.publish_every = 4
        report = run.advance(0.02)
        assert set(report.shadow_kl_nats) == {BF16}
        assert report.switch_seconds == 0.0
        run.apply(beside(INT8, BF16))
        assert run.advance(0.02).switch_seconds > 0.0


def decided_for(
    shadow: CompressionSpec | None, bound: float
) -> tuple[IntervalReport, IntervalReport]:
    """Return the interval in which something was the shadow, and that in which NET3 is to act."""
    rows = [replace(row, distill_us=20.0 * row.distill_us) for row in PROFILE.specs]
    with catch(replace(PROFILE, specs=tuple(rows)), bound=bound, steps=4) as run:
        run.apply(beside(INT8, shadow))
        before = run.advance(0.04)
        run.apply(Decision.of(NET3))
        return before, run.advance(0.02)


def test_a_student_that_was_a_shadow_is_admitted_sooner() -> None:
    before, after = decided_for(NET3, BOUND)
    assert set(before.spec_seconds) == {INT8}
    assert before.distill_updates > 0
    assert before.shadow_kl_nats[NET3] <= BOUND
    assert before.waiting_kl_nats == {}
    (taken,) = after.takeovers
    assert taken.spec == NET3
    assert NET3 in after.spec_seconds
    before, after = decided_for(None, BOUND)
    assert before.distill_updates == 0
    assert after.takeovers == ()
    assert (after.waiting_kl_nats[NET3] or 0.0) > BOUND


def test_a_student_that_was_a_shadow_needs_no_warm_up() -> None:
    seconds = []
    for shadow in (NET3, None):
        (taken,) = decided_for(shadow, 0.0)[1].takeovers
        seconds.append(taken.seconds)
    assert seconds[0] < 0.7 * seconds[1]


@pytest.mark.slow
def test_a_shadow_that_is_gone_costs_nothing_where_processes_share_cores() -> None:
    """With cores enough, a distiller that is free goes on with it; nobody is slower for that."""

    def distilled(cores: int) -> float:
        profile = replace(fast_profile(), num_distillers=2, cores=cores)
        with catch(profile, publish_every=1) as run:
            run.apply(beside(NET2, NET3))
            run.advance(0.03)
            run.apply(beside(NET2, None))
            run.advance(0.03)
            report = run.advance(0.03)
        return report.distill_updates / report.learner_updates

    many, few = distilled(16), distilled(2)
    assert many == pytest.approx(2.0 * few, rel=0.1)


@pytest.mark.parametrize(
    ("shadow", "distillers", "stage"), [(INT8, 0, "next"), (NET3, 1, "job")], ids=["next", "job"]
)
def test_a_run_that_is_restored_with_a_shadow_under_way_goes_on_bit_by_bit(
    shadow: CompressionSpec, distillers: int, stage: str, tmp_path: Path
) -> None:
    """While its publication is on its way, and while it is compressed itself."""
    rows = [replace(row, publish_ms=4.0 * row.publish_ms) for row in PROFILE.specs]
    profile = replace(PROFILE, specs=tuple(rows), num_distillers=distillers)

    def go_on(run: SerialRun) -> tuple[list[str], str]:
        lines = [line(run.advance(0.013))]
        run.apply(Decision.of(shadow))
        return [*lines, line(run.advance(0.013))], weights_hash(run.learner.policy)

    def shadowed(run: SerialRun) -> bool:
        job = run.publishing._job if stage == "job" else run.publishing._next
        return job is not None and job.shadow is not None

    with catch(profile, bound=BOUND) as run, catch(profile, bound=BOUND, seed=1) as fresh:
        run.apply(beside(BF16, shadow))
        run.advance(0.02)
        while not shadowed(run):
            run.advance(0.0007)
        save_checkpoint(tmp_path / "checkpoint", run.snapshot())
        expected = go_on(run)
        assert f'"shadow_kl_nats": {{"{shadow.label}"' in expected[0][0]
        fresh.restore(load_checkpoint(tmp_path / "checkpoint"))
        assert go_on(fresh) == expected


def test_what_the_learner_cannot_have_as_a_student_is_no_shadow_either() -> None:
    config = replace(tiny_catch(eval_episodes=0), network="net2")
    run = SerialRun(config, VirtualClock(fast_profile().for_network("net2")))
    try:
        with pytest.raises(UserError, match="'net2' is not smaller than the learner's network"):
            run.apply(beside(IDENTITY, NET2))
    finally:
        run.close()


def test_the_real_clock_of_a_serial_run_measures_it_too() -> None:
    run = SerialRun(tiny_catch(eval_episodes=0, clock="real"), RealClock())
    try:
        run.apply(beside(IDENTITY, INT8))
        report = run.advance(0.1)
        while not report.shadow_kl_nats:
            report = run.advance(0.1)
        assert set(report.shadow_kl_nats) == {INT8}
        assert report.phase_seconds["compress"] > 0.0
    finally:
        run.close()


@pytest.mark.slow
def test_the_process_runtime_has_shadows_too() -> None:
    run = ProcessRun(quick_catch())
    try:
        seen = []
        for shadow in (INT8, NET3):
            run.apply(beside(BF16, shadow))
            reports = [run.advance(0.1)]
            while shadow not in reports[-1].shadow_kl_nats:
                assert len(reports) < 300, reports[-1]
                reports.append(run.advance(0.1))
            seen += reports
            least = 1e-6 if shadow == NET3 else 0.0  # INT8 of a policy at its start is the same
            assert least <= reports[-1].shadow_kl_nats[shadow] < math.log(run.num_actions)
            assert reports[-1].phase_seconds["compress"] > 0.0
        assert {spec for report in seen for spec in report.spec_seconds} == {BF16}
        assert all(report.switch_seconds == 0.0 for report in seen)
    finally:
        run.close()
