"""Runs of drawn games on real machines: determinism, what they report, switching, admission."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.monitor.divergence import measure_rollout
from accerl.presets import load_preset
from accerl.runtime.conditions import CO_TENANT, Condition, Conditions, Moment
from accerl.runtime.latency.families import sample_machine
from accerl.runtime.latency.predict import predict
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.run import PHASES
from accerl.spec import IDENTITY, CompressionSpec, Decision
from controller.analytic.fidelity import GameFidelity, learned_within
from controller.analytic.machine_report import diagnostics
from controller.analytic.machine_run import MachineRun
from controller.analytic.pace import MachinePace

INT8 = CompressionSpec(bits=8)
NET3 = CompressionSpec(bits=8, student="net3")
GAME = learned_within(GameFidelity(gain_per_step=1.0, distill_states=4e3, moves=0.03), 2e5)
QUIET = GAME.quiet()
LAPTOP = sample_machine("laptop", 8_001)


def config(game: str = "minatar-breakout", **fields: Any) -> RunConfig:
    found = load_preset(game).with_runtime(runtime="serial", clock="virtual", eval_episodes=16)
    return replace(found, seconds=100.0, **fields)


def make(
    game: GameFidelity = QUIET,
    latency: LatencyProfile = LAPTOP,
    run: RunConfig | None = None,
    seed: int = 0,
) -> MachineRun:
    return MachineRun(MachinePace(latency, run or config()), game, seed)


def go_on(run: MachineRun, *decisions: CompressionSpec) -> str:
    """Return the reports of one interval for each decision."""
    reports = []
    for spec in decisions:
        run.apply(Decision.of(spec))
        reports.append(run.advance(2.5).to_json())
    return json.dumps(reports, sort_keys=True)


def test_a_restored_run_goes_on_bit_by_bit() -> None:
    """In the middle of a switch, with a student on its way, through JSON, in any seed's run."""
    run = make(GAME)
    go_on(run, IDENTITY, INT8)
    run.apply(Decision(((NET3, 0.7), (INT8, 0.3))))
    run.advance(1e-3)
    snapshot = json.loads(json.dumps(run.snapshot()))
    straight = go_on(run, NET3, NET3, INT8)
    for other in (run, make(GAME), make(GAME, seed=1)):
        other.restore(snapshot)
        assert go_on(other, NET3, NET3, INT8) == straight
    assert go_on(make(GAME, seed=1), NET3) != go_on(make(GAME), NET3)


def test_noise_of_equal_seeds_is_the_same_whatever_acts() -> None:
    """Luck and the noise of J differ by seed alone: paired differences are those of the specs."""
    gaps = []
    for seed in range(4):
        noisy, quiet = make(replace(QUIET, episode_noise=0.5), seed=seed), make(seed=seed)
        found = []
        for spec in (IDENTITY, INT8):
            run, exact = make(noisy.game, seed=seed), make(quiet.game, seed=seed)
            go_on(run, spec)
            go_on(exact, spec)
            pair = [json.loads(go_on(each, spec))[0]["learner_return"] for each in (run, exact)]
            found.append(pair[0] - pair[1])
        gaps.append(found)
    for fp32, int8 in gaps:
        assert fp32 != 0.0
        assert int8 / fp32 == pytest.approx(1.0, abs=0.3)  # both are shares of what was reached
    assert len({round(fp32, 9) for fp32, _ in gaps}) == 4


def test_a_report_says_what_the_machine_does() -> None:
    run = make()
    run.apply(Decision.of(INT8))
    run.advance(20.0)
    report = run.advance(20.0)
    predicted = predict(LAPTOP, config(), INT8)
    assert report.env_steps / 20.0 == pytest.approx(predicted.env_steps_per_second, rel=1e-3)
    assert set(report.phase_seconds) == set(PHASES)
    learner = sum(report.phase_seconds[name] for name in ("learn", "wait"))
    assert learner == pytest.approx(20.0, rel=0.05)
    acting = sum(report.phase_seconds[name] for name in ("env", "infer", "write"))
    assert report.spec_seconds == {INT8: pytest.approx(acting)}
    assert report.actor_core_seconds == pytest.approx(acting)
    assert report.env_steps == pytest.approx(report.learner_updates * 32 * 32, rel=0.02)
    assert 0.0 < report.compression_kl_nats[INT8] < report.kl_mean_nats
    assert report.publications == pytest.approx(report.learner_updates / 2, abs=2)
    assert report.learner_return == pytest.approx(GAME.score(run.skill))


def test_an_update_is_booked_where_it_ends() -> None:
    """However short an interval is, those that end in it took what an update takes."""
    run = make()
    run.apply(Decision.of(INT8))
    long = run.advance(20.0)
    each = long.phase_seconds["learn"] / long.learner_updates
    short = [run.advance(0.6 * each) for _ in range(20)]
    ended = [report for report in short if report.learner_updates]
    assert 0 < len(ended) < 20
    for report in short:
        expected = report.learner_updates * each
        assert report.phase_seconds["learn"] == pytest.approx(expected, rel=0.01)


def test_co_tenants_slow_everybody_and_core_seconds_say_so() -> None:
    event = Condition(at_seconds=50.0, lasts_seconds=50.0, kind=CO_TENANT, amount=6.0)
    run = make(run=config(conditions=Conditions((event,))))
    before, after = run.advance(50.0), run.advance(50.0)
    assert before.conditions == ()
    assert after.conditions[0]["kind"] == CO_TENANT
    assert after.env_steps < 0.8 * before.env_steps
    shares = [
        report.actor_core_seconds
        / sum(report.phase_seconds[name] for name in ("env", "infer", "write"))
        for report in (before, after)
    ]
    assert shares[0] == pytest.approx(1.0)
    assert shares[1] < 0.8
    # One interval over the change is as two beside it.
    whole = make(run=config(conditions=Conditions((event,)))).advance(100.0)
    assert whole.env_steps == pytest.approx(before.env_steps + after.env_steps, abs=2)


def test_a_student_acts_when_it_is_published_and_warmed_up() -> None:
    run = make()
    run.advance(5.0)
    run.apply(Decision.of(NET3))
    report = run.advance(5.0)
    (takeover,) = report.takeovers
    assert takeover.spec == NET3
    assert takeover.asked_seconds == pytest.approx(5.0)
    warmup = 20 * 128 * next(r.distill_us for r in LAPTOP.specs if r.spec == NET3) * 1e-6
    assert warmup < takeover.seconds < 5.0
    assert report.switch_seconds > warmup
    assert set(report.spec_seconds) == {IDENTITY, NET3}
    acting = sum(report.spec_seconds.values())
    assert report.spec_seconds[NET3] < acting * (1.0 - 0.5 * takeover.seconds / 5.0)
    assert report.distill_updates > 0
    assert report.student_kl_nats[NET3] > 0.0
    later = run.advance(5.0)
    assert later.switch_seconds == 0.0
    assert set(later.spec_seconds) == {NET3}
    assert later.student_kl_nats[NET3] < report.student_kl_nats[NET3]  # it is distilled on


def test_what_acted_before_a_switch_keeps_its_own_kl() -> None:
    """Of compression and staleness, where what follows it has next to none of the first."""
    run = make(replace(QUIET, student_kl=0.5))
    run.apply(Decision.of(NET3))
    run.advance(20.0)
    run.apply(Decision.of(INT8))
    report = run.advance(20.0)
    assert set(report.spec_seconds) == {NET3, INT8}
    assert report.acted_kl_nats[NET3] > 2.0 * report.acted_kl_nats[INT8]
    assert NET3 not in report.compression_kl_nats  # which is measured of what is published


def test_a_student_that_is_too_far_waits_and_something_milder_acts() -> None:
    """Atari's presets admit by KL: one that cannot follow never acts, one that can soon does."""
    pong = config("pong", network="original")
    never = make(replace(QUIET, student_kl=9.0, kl_at_start=1.0), run=pong)
    never.apply(Decision.of(INT8))
    assert never.advance(10.0).learner_updates > 0
    never.apply(Decision.of(NET3))
    report = never.advance(100.0)
    assert set(report.spec_seconds) == {INT8}
    assert set(report.waiting_kl_nats) == {NET3}
    assert report.distill_updates > 0
    assert report.takeovers == ()
    soon = make(replace(QUIET, student_kl=0.2, kl_at_start=1.0, distill_states=5e4), run=pong)
    soon.apply(Decision.of(INT8))
    soon.advance(10.0)
    soon.apply(Decision.of(NET3))
    report = soon.advance(100.0)
    (takeover,) = report.takeovers
    assert 0.0 < takeover.seconds < 100.0
    assert takeover.kl_nats is not None
    assert takeover.kl_nats <= 0.5
    assert set(report.spec_seconds) == {INT8, NET3}
    assert report.waiting_kl_nats == {}


def test_of_two_students_the_one_that_is_far_off_is_distilled_more() -> None:
    net2 = CompressionSpec(bits=8, student="net2")
    pace = MachinePace(sample_machine("server", 8_000), load_preset("pong"))

    def distilled(near: float, far: float) -> list[float]:
        kls = {net2: near, NET3: far}
        found = pace.of(((net2, 1.0),), (NET3,), Moment(), kl_nats=kls.__getitem__)
        states = dict(found.distill_states)
        assert found.distill_updates * 256 == pytest.approx(sum(states.values()))
        return [states[spec.student_key] for spec in kls if spec.student_key is not None]

    near, far = distilled(0.025, 3.0)
    assert far > 5.0 * near
    near, far = distilled(3.0, 3.0)
    assert far == pytest.approx(near)


def test_what_copies_an_untrained_learner_acts_at_once() -> None:
    run = make(replace(QUIET, student_kl=9.0), run=config("pong", network="original"))
    run.apply(Decision.of(NET3))
    assert set(run.advance(100.0).spec_seconds) == {NET3}


def test_a_shadow_is_measured_and_does_not_act() -> None:
    """It costs the compressor a little; a student that was one needs no warm-up."""
    plain, shadowed = make(), make()
    plain.apply(Decision.of(INT8))
    shadowed.apply(Decision(((INT8, 1.0),), shadow=NET3))
    for run in (plain, shadowed):
        run.advance(2.5)
    without, report = plain.advance(2.5), shadowed.advance(2.5)
    assert without.shadow_kl_nats == {}
    assert set(report.shadow_kl_nats) == {NET3}
    assert set(report.spec_seconds) == {INT8}
    assert report.phase_seconds["compress"] > without.phase_seconds["compress"]
    assert 0.0 < report.distill_updates <= 4 * report.learner_updates + 1
    snapshot = json.loads(json.dumps(shadowed.snapshot()))
    switched = []
    for run in (plain, shadowed):
        run.apply(Decision.of(NET3))
        switched.append(run.advance(2.5))
    assert switched[1].switch_seconds < switched[0].switch_seconds
    plain.restore(snapshot)
    plain.apply(Decision(((INT8, 1.0),), shadow=CompressionSpec(bits=8, rank=0.25)))
    again = plain.advance(2.5)
    assert again.switch_seconds == 0.0
    assert again.takeovers == ()
    assert again.distill_updates == 0


def test_one_publication_is_under_way_at_a_time() -> None:
    """On a slow link fp32 weights take longer to arrive than another decision; that one waits."""
    slow = replace(sample_machine("edge", 8_003), down_bytes_per_second=1e6)
    run = make(latency=slow)
    run.apply(Decision.of(IDENTITY))
    first = run.advance(10.0)
    assert first.env_steps == 0
    assert first.phase_seconds["wait"] == pytest.approx(10.0)
    run.apply(Decision.of(INT8))
    report = run.advance(90.0)
    assert list(report.spec_seconds) == [IDENTITY, INT8]
    assert report.takeovers[-1].seconds > 26.07 - 10.0


def test_fidelity_costs_learning_and_lag_does_too() -> None:
    def skill(game: GameFidelity, spec: CompressionSpec) -> float:
        run = make(game)
        go_on(run, *(spec,) * 20)
        return run.skill

    assert skill(replace(QUIET, cost=3.0), NET3) < skill(replace(QUIET, cost=0.0), NET3)
    assert skill(replace(QUIET, cost=3.0), IDENTITY) == skill(replace(QUIET, cost=0.0), IDENTITY)
    assert skill(replace(QUIET, lag_half=5.0), IDENTITY) < skill(QUIET, IDENTITY)


def test_mistakes() -> None:
    run = make(run=config(network="net2"))
    with pytest.raises(UserError, match="not smaller"):
        run.apply(Decision.of(CompressionSpec(student="net1")))
    with pytest.raises(UserError, match="positive seconds"):
        run.advance(0.0)


@pytest.mark.parametrize("spread", [0.02, 0.1, 0.3])
def test_correctors_see_of_a_modelled_kl_what_they_see_of_real_policies(spread: float) -> None:
    generator = torch.Generator().manual_seed(0)
    learner = 1.5 * torch.randn(20, 256, 6, generator=generator)
    actors = learner + spread * torch.randn(20, 256, 6, generator=generator)
    noise = -torch.log(-torch.log(torch.rand(20, 256, 6, generator=generator)))
    actions = (actors + noise).argmax(-1, keepdim=True)  # as drawn from a softmax
    log_probs = [each.log_softmax(-1).gather(-1, actions)[..., 0] for each in (learner, actors)]
    measured = measure_rollout(learner, actors, *log_probs)
    modelled = diagnostics(float(measured.kl_nats.mean()))
    for name in ("ess_fraction", "clipped_share"):
        assert modelled[name] == pytest.approx(getattr(measured, name), abs=0.05)
