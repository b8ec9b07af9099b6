"""What the indicator believes of machines and games, and how that moves by what is seen."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.monitor.monitor import Monitor
from accerl.presets import load_preset
from accerl.runtime.latency.games import times_of_run
from accerl.runtime.latency.predict import predict, steady_state
from accerl.runtime.latency.profiles import load_profile
from accerl.runtime.latency.steady import Work, settle
from accerl.spec import IDENTITY, CompressionSpec, Decision
from accerl.training.episode import Episode
from controller.analytic.fidelity import GameFidelity, learned_within
from controller.analytic.machine_run import MachineRun
from controller.analytic.pace import MachinePace
from controller.env.instances import keeping_pace
from controller.env.machine_instances import DrawnInstances
from controller.indicator.effects import Effects
from controller.indicator.fidelity import FidelityBelief
from controller.indicator.prior import Prior, drift_share
from controller.indicator.speed import SpeedBelief, corrected
from tests.fixtures.controllers.raw_indicators import raw

INT8 = CompressionSpec(bits=8)
NET3 = CompressionSpec(student="net3", bits=8)
SPECS = (IDENTITY, INT8, NET3)


class Clock:
    """Makes raw indicators of intervals of one second, with 50 updates each."""

    def __init__(self) -> None:
        self.seconds = self.env_steps = 0.0

    def after(self, rate: float, **known: float) -> dict[str, float]:
        """Return them after one more interval."""
        self.seconds += 1.0
        self.env_steps += rate
        clock = {"seconds": self.seconds, "env_steps": self.env_steps}
        return raw(**clock, learner_updates=50.0 * self.seconds, **known)


def test_a_value_of_one_moves_all_as_far_as_they_share() -> None:
    effects = Effects([0.0, 0.0, 1.0], shared=1.0, own=0.5)
    effects.observe(0, 2.0, 0.1)
    # By hand: P = 1 + 0.25 on the diagonal, 1 beside it; gain = P e_0 / (1.25 + 0.01).
    assert effects[0].mean == pytest.approx(2.0 * 1.25 / 1.26)
    assert effects[1].mean == pytest.approx(2.0 * 1.0 / 1.26)
    assert effects[2].mean == pytest.approx(1.0 + 2.0 * 1.0 / 1.26)
    assert effects[0].sd == pytest.approx(math.sqrt(1.25 - 1.25**2 / 1.26))
    assert effects[0].sd < effects[1].sd < math.sqrt(1.25)


def test_a_jump_is_a_change_and_is_believed_at_once() -> None:
    effects = Effects([0.0, 0.0], shared=1.0, own=0.01)
    for _ in range(20):
        assert not effects.observe(0, 0.0, 0.05)
    assert effects[1].sd < 0.05
    assert not effects.observe(0, 0.5, 0.05, least=0.6)
    slow = effects[0].mean
    assert effects.observe(0, 1.0, 0.05, least=0.1)
    assert slow < 0.2
    assert effects[0].mean == pytest.approx(1.0, abs=0.1)
    assert effects[1].mean == pytest.approx(1.0, abs=0.1)


def test_a_change_is_seen_twice_in_a_row_or_not_at_all() -> None:
    effects = Effects([0.0], shared=1.0, own=0.01)
    for _ in range(20):
        effects.observe(0, 0.0, 0.05, least=0.1, waits=True)
    assert not effects.observe(0, 1.0, 0.05, least=0.1, waits=True)
    effects.skip()
    assert not effects.observe(0, 1.0, 0.05, least=0.1, waits=True)
    assert effects.observe(0, 1.0, 0.05, least=0.1, waits=True)


def make_speed(machine: str = "edge-8000") -> tuple[SpeedBelief, dict[CompressionSpec, float]]:
    """Return a belief and the rates that the profile predicts."""
    config = load_preset("minatar-breakout")
    times = times_of_run(load_profile(machine), config)
    rates = {spec: predict(times, config, spec).env_steps_per_second for spec in SPECS}
    return SpeedBelief(config, times, SPECS, Prior()), rates


def test_speed_begins_with_what_the_profile_predicts() -> None:
    belief, rates = make_speed()
    for spec in SPECS:
        assert math.exp(belief[spec].log_rate.mean) == pytest.approx(rates[spec])
    assert rates[INT8] > 1.2 * rates[IDENTITY]
    # The link is slow, and Net3 small; where there is none, warming it up is what takes time, if it
    # is not admitted by its KL instead.
    assert belief[INT8].takeover_seconds > 2.0 * belief[NET3].takeover_seconds > 0.0
    near, _ = make_speed("server-8000")
    assert near[NET3].takeover_seconds > near[INT8].takeover_seconds > 0.0


def test_what_is_seen_of_one_spec_is_believed_of_the_others() -> None:
    belief, rates = make_speed()
    clock = Clock()
    for _ in range(10):
        belief.observe(INT8, clock.after(0.8 * rates[INT8]))
    assert math.exp(belief[INT8].log_rate.mean) == pytest.approx(0.8 * rates[INT8], rel=0.02)
    assert math.exp(belief[NET3].log_rate.mean) == pytest.approx(0.8 * rates[NET3], rel=0.04)
    assert belief[INT8].log_rate.sd < belief[NET3].log_rate.sd


def test_what_is_not_looked_at_becomes_less_certain() -> None:
    belief, rates = make_speed()
    clock = Clock()
    for _ in range(10):
        belief.observe(INT8, clock.after(rates[INT8]))
    known = belief[INT8].log_rate.sd
    for _ in range(20):
        belief.skip(clock.after(rates[INT8]))
    assert belief[INT8].log_rate.sd > 1.5 * known


def test_a_slow_learner_is_seen_and_what_compressing_brings_is_worked_out_again() -> None:
    """A factor on the learner's times is no factor on all rates."""
    belief, rates = make_speed("server-8000")
    config = load_preset("minatar-breakout")
    times = times_of_run(load_profile("server-8000"), config)
    rows = [replace(row, distill_us=4.0 * row.distill_us) for row in times.specs]
    slow_us = 4.0 * times.learner_us_per_sample  # the same GPU distils
    slower = replace(times, learner_us_per_sample=slow_us, specs=tuple(rows))
    truth = {spec: predict(slower, config, spec).env_steps_per_second for spec in SPECS}
    work = Work.of(slower, config, INT8)
    _, state = settle(work, config.runtime.publish_every)
    groups = work.wiring.actors * state.slowdown
    clock = Clock()
    for _ in range(6):
        seen = clock.after(
            truth[INT8],
            env_seconds_per_step=(work.act - work.infer) * groups,
            infer_seconds_per_step=work.infer * groups,
            learn_seconds_per_update=state.learning,
            publish_seconds_each=work.publish * state.slowdown,
        )
        belief.observe(INT8, seen)
    for spec in SPECS:
        assert math.exp(belief[spec].log_rate.mean) == pytest.approx(truth[spec], rel=0.05)
    assert truth[NET3] / truth[IDENTITY] < 0.7 * rates[NET3] / rates[IDENTITY]


@pytest.mark.parametrize("machine", ["server-8000", "gpu-few-cores-8001", "edge-8001", "edge-8002"])
@pytest.mark.parametrize("spec", [IDENTITY, INT8, NET3])
def test_on_the_machine_that_was_predicted_no_factor_moves(
    machine: str, spec: CompressionSpec
) -> None:
    """Also where a publication takes longer than an interval, and where copies are made for it."""
    latency = load_profile(machine)
    config = load_preset("minatar-breakout").with_runtime(runtime="serial", clock="virtual")
    config = keeping_pace(replace(config, seconds=200.0))
    game = learned_within(GameFidelity(gain_per_step=1.0, distill_states=4e3), 2e5).quiet()
    run = MachineRun(MachinePace(latency, config), game, seed=0)
    monitor = Monitor(6, 200.0)
    times = times_of_run(latency, config)
    belief = SpeedBelief(config, times, SPECS, Prior())
    predicted = {each: belief[each].log_rate.mean for each in SPECS}
    run.apply(Decision.of(spec))
    for _ in range(40):
        seen = monitor.update(run.advance(5.0)).raw
        if seen["served_share"] > 0.95:
            belief.observe(spec, seen)
            assert not belief.changed
        else:
            belief.skip(seen)
    for each in SPECS:
        assert belief[each].log_rate.mean == pytest.approx(predicted[each], abs=0.1)
    lag = steady_state(Work.of(times, config, IDENTITY), config, IDENTITY).policy_lag
    assert belief[IDENTITY].policy_lag == pytest.approx(lag, rel=0.15)


def test_a_student_that_follows_badly_is_no_slow_learner() -> None:
    """It is distilled more than is usual, on the GPU that learns too."""
    instance = DrawnInstances("validation")[139].quiet()
    config = instance.config(0)
    assert instance.latency is not None
    times = times_of_run(instance.latency, config)
    both = [SpeedBelief(config, times, SPECS, Prior(), uses_kl=uses) for uses in (True, False)]
    predicted = both[0][INT8].log_rate.mean
    episode = Episode(
        instance.make_run(0),
        horizon_seconds=instance.horizon_seconds,
        interval_seconds=instance.interval_seconds,
    )
    seen = [episode.step(Decision.of(NET3))[0].raw for _ in range(20)]
    assert seen[-1]["compression_kl_nats"] > 0.2
    for belief in both:
        for each in seen:
            belief.observe(NET3, each) if each["served_share"] > 0.95 else belief.skip(each)
    knows, ignores = (belief[INT8].log_rate.mean for belief in both)
    assert knows == pytest.approx(predicted, abs=0.03)
    assert ignores < predicted - 0.2


def test_a_co_tenant_is_noticed_and_a_steady_machine_is_not() -> None:
    belief, rates = make_speed()
    noise = np.random.default_rng(0)
    changes, clock = [], Clock()
    for interval in range(1, 41):
        share = 0.5 if 20 <= interval < 30 else 1.0
        rate = share * rates[INT8] * math.exp(0.03 * noise.standard_normal())
        belief.observe(INT8, clock.after(rate))
        if belief.changed:
            changes.append(interval)
    assert changes == [21, 31]


def test_the_interval_in_which_conditions_change_is_not_believed() -> None:
    """Two specs are alike; what lies halfway between before and after says nothing of after."""
    effects = Effects([0.0, 0.0], shared=0.3, own=0.01)
    for _ in range(20):
        effects.observe(0, 0.0, 0.05, waits=True)
    assert not effects.observe(0, 0.7, 0.05, waits=True)
    assert effects[1].mean == pytest.approx(0.0, abs=0.01)
    assert effects.observe(0, 1.4, 0.05, waits=True)
    assert effects[1].mean == pytest.approx(1.4, abs=0.1)
    assert not effects.observe(0, 0.7, 0.05, waits=True)
    assert not effects.observe(0, 1.4, 0.05, waits=True)
    assert effects[1].mean == pytest.approx(1.4, abs=0.1)


def test_a_stall_and_what_makes_up_for_it_are_no_change() -> None:
    effects = Effects([0.0, 0.0], shared=0.3, own=0.01)
    for _ in range(20):
        effects.observe(0, 0.0, 0.05, waits=True)
    for value in (-0.7, 0.7, -0.7, 0.0):
        assert not effects.observe(0, value, 0.05, waits=True)
    assert effects[1].mean == pytest.approx(0.0, abs=0.05)


def test_a_first_value_that_is_far_off_says_that_the_guess_was_wrong() -> None:
    """It is believed at once, though later ones are waited with; conditions have not changed."""
    effects = Effects([0.0, 0.0], shared=0.3, own=0.01)
    assert not effects.observe(0, 2.4, 0.05, waits=True)
    assert effects[0].mean == pytest.approx(2.4, abs=0.1)
    assert effects[1].mean == pytest.approx(2.4, abs=0.1)
    assert not effects.observe(0, 0.5, 0.05, waits=True)
    assert effects[0].mean == pytest.approx(2.4, abs=0.1)


def test_the_seconds_before_the_first_update_are_no_rate() -> None:
    belief, rates = make_speed()
    belief.observe(INT8, raw(seconds=1.0, env_steps=0.0, learner_updates=0.0))
    belief.observe(INT8, raw(seconds=2.0, env_steps=0.3 * rates[INT8], learner_updates=15.0))
    assert math.exp(belief[INT8].log_rate.mean) == pytest.approx(rates[INT8])
    belief.observe(INT8, raw(seconds=3.0, env_steps=1.3 * rates[INT8], learner_updates=65.0))
    assert math.exp(belief[INT8].log_rate.mean) == pytest.approx(rates[INT8], rel=0.01)


def test_a_machine_without_a_profile_is_learned_from_what_acts() -> None:
    """What acted first says how fast the machine is, and not that the others are slower."""
    belief = SpeedBelief(load_preset("catch"), None, SPECS, Prior())
    assert belief[INT8].log_rate == belief[NET3].log_rate
    clock = Clock()
    for _ in range(5):
        belief.observe(INT8, clock.after(5_000.0))
    for spec in SPECS:
        assert math.exp(belief[spec].log_rate.mean) == pytest.approx(5_000.0, rel=0.05)
    assert belief[INT8].log_rate.sd < 0.1
    assert belief[NET3].log_rate.sd > 0.6
    for _ in range(3):
        belief.observe(NET3, clock.after(15_000.0))
        assert not belief.changed
    assert math.exp(belief[NET3].log_rate.mean) == pytest.approx(15_000.0, rel=0.05)
    assert math.exp(belief[INT8].log_rate.mean) == pytest.approx(5_000.0, rel=0.15)


def test_priors_are_read_as_they_were_written_and_nonsense_is_refused() -> None:
    prior = Prior(cost=1.25)
    assert Prior.from_json(prior.to_json()) == prior
    with pytest.raises(UserError, match=r"there is no 'costs'.*cost"):
        Prior.from_json({"costs": 1.0})
    with pytest.raises(UserError, match="cost must be a number"):
        Prior.from_json({"cost": "1"})
    for given in (10**400, float("nan")):
        with pytest.raises(UserError, match="kl_base must be a number"):
            Prior.from_json({"kl_base": given})
    with pytest.raises(UserError, match="cost must be positive"):
        Prior(cost=0.0)


@pytest.mark.parametrize("factor", [0.25, 4.0])
def test_a_machine_that_is_slower_throughout_is_believed_to_be_just_that(factor: float) -> None:
    config = load_preset("minatar-breakout")
    times = times_of_run(load_profile("edge-8000"), config)
    for spec in SPECS:
        work = Work.of(times, config, spec)
        known = ("act", "infer", "learn", "distill", "piece", "publish", "copy", "load", "send")
        scaled = {name: factor * getattr(work, name) for name in (*known, "upload")}
        truth = steady_state(replace(work, **scaled), config, spec).env_steps_per_second
        believed = corrected(work, dict.fromkeys(("acting", "learning", "publishing"), factor))
        rate = steady_state(believed, config, spec).env_steps_per_second
        # Of publishing only what is sent is corrected where there is a link.
        assert rate == pytest.approx(truth, rel=0.02)


def test_doubt_never_grows_beyond_what_it_was_at_first() -> None:
    effects = Effects([0.0, 0.0], shared=1.5, own=0.7, shared_drift=0.2, own_drift=0.2)
    first = effects[1].sd
    for interval in range(1000):
        effects.drift()
        if interval < 900:
            effects.observe(0, 0.0, 0.5)
    assert effects[1].sd == pytest.approx(first, rel=0.05)
    assert effects[1].sd <= first * (1.0 + 1e-9)
    assert 0.5 * first < effects[0].sd <= first * (1.0 + 1e-9)


def cut_into(intervals: int) -> RunConfig:
    """Return a run of ten seconds."""
    config = replace(load_preset("catch"), seconds=10.0)
    return config.with_runtime(interval_seconds=10.0 / intervals)


def test_runs_of_up_to_40_intervals_drift_as_those_of_training_do() -> None:
    drawn = [DrawnInstances("train")[number].config(0) for number in range(3)]
    for config in (*map(cut_into, (1, 12, 39, 40)), *drawn):
        assert drift_share(config) == 1.0
    assert drift_share(cut_into(400)) == pytest.approx(0.1)


def test_beliefs_drift_no_further_in_a_run_that_is_cut_finely() -> None:
    grown = []
    for intervals in (40, 400):
        config, clock = cut_into(intervals), Clock()
        kl = FidelityBelief(SPECS, Prior(), drift_share(config))
        kl.observe_policy(raw(entropy_fraction=2.0 / 3.0))
        speed, seen = SpeedBelief(config, None, SPECS, Prior()), raw()
        for _ in range(20):
            seen = clock.after(5_000.0)
            speed.observe(INT8, seen)
            kl.observe_kl(INT8, 0.01)
        before = np.array([speed[INT8].log_rate.sd, kl.log_kl(INT8).sd])
        for _ in range(intervals // 2):
            speed.observe(INT8, seen)  # without another update, no rate is seen
            kl.drift()
        grown.append(np.array([speed[INT8].log_rate.sd, kl.log_kl(INT8).sd]) ** 2 - before**2)
    assert grown[1] == pytest.approx(grown[0])
    assert (grown[0] > 0.0).all()
