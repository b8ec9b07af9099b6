"""Advice: the steady state against first principles, on toy machines whose bottleneck is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from accerl.config import RunConfig
from accerl.presets import load_preset
from accerl.runtime.conditions import Moment
from accerl.runtime.latency.predict import (
    STALE_UPDATES,
    WORTHWHILE,
    advise,
    free_steps_per_second,
    predict,
)
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.profiles import SHIPPED, load_profile
from accerl.runtime.latency.row import SpecLatency
from accerl.runtime.latency.steady import Work, settle
from accerl.spec import IDENTITY, CompressionSpec

INT8 = CompressionSpec(bits=8)
PRUNED = CompressionSpec(sparsity=0.5)
NET3 = CompressionSpec(student="net3")


def machine(**changes: Any) -> LatencyProfile:
    """Return an actor that takes 100 us per env step, 60 of them to infer; learning takes 20."""
    times = {IDENTITY: 60.0, INT8: 20.0, PRUNED: 19.0, NET3: 18.0}
    rows = tuple(
        SpecLatency(
            spec=spec, infer_us={1: us}, publish_ms=1e-3, distill_us=1e-3, size_bytes=int(us * 1e5)
        )
        for spec, us in times.items()
    )
    values: dict[str, Any] = {
        "name": "toy",
        "source": "a test",
        "env_step_us": 35.0,
        "write_us": 5.0,
        "learner_us_per_sample": 20.0,
        "specs": rows,
        "cores": 64,
    }
    return LatencyProfile(**{**values, **changes})


def config(**runtime: Any) -> RunConfig:
    """Return rollouts of 8 environments and 10 steps, used once."""
    preset = load_preset("catch").with_learner(unroll=10, reuse=1, minibatches=1)
    settings = {
        "num_envs": 8, "publish_every": 1, "queue_rollouts": 1, "patience_seconds": 0.0,
    }  # fmt: skip
    return preset.with_runtime(**{**settings, **runtime})


def test_weights_are_at_least_as_old_as_they_take_to_travel() -> None:
    """Where a link carries a publication in hundreds of updates, as many are played and more."""
    preset = load_preset("minatar-breakout")
    for number, spec in ((9000, IDENTITY), (9003, INT8), (9003, IDENTITY)):
        row = predict(load_profile(f"edge-{number}"), preset, spec)
        # Rollouts begin with new weights, and with those that are about to be replaced.
        assert 1.3 * row.age_updates < row.policy_lag < 2.5 * row.age_updates
    assert row.age_updates > 200


def steps(profile: LatencyProfile, spec: CompressionSpec = IDENTITY, **runtime: Any) -> float:
    return predict(profile, config(**runtime), spec).env_steps_per_second


def test_the_slowest_process_sets_the_pace() -> None:
    assert steps(machine()) == pytest.approx(1e6 / 100)
    assert steps(machine(num_actors=4)) == pytest.approx(4e6 / 100)
    assert steps(machine(num_actors=40)) == pytest.approx(1e6 / 20)
    assert steps(machine(num_actors=4, actors_per_batch=4)) == pytest.approx(4e6 / 100)
    # Five actors share eight environments: whoever steps two of them is waited for.
    assert steps(machine(num_actors=5, actors_per_batch=5)) == pytest.approx(4e6 / 100)


def test_shared_cores_are_divided_by_all_work() -> None:
    """One core: acting and learning add up. Two: each has its own."""
    assert steps(machine(cores=1)) == pytest.approx(1e6 / 120, rel=1e-3)
    assert steps(machine(cores=2)) == pytest.approx(1e6 / 100)
    assert predict(machine(cores=1), config(), IDENTITY).limit == "cores"


def test_a_group_takes_a_core_for_each_of_its_actors() -> None:
    """Eight actors, one environment each, of 100 us: 800 core-microseconds on four cores."""
    together = machine(num_actors=8, actors_per_batch=8, cores=4, learner_us_per_sample=1e-3)
    assert steps(together) == pytest.approx(4e6 / 100, rel=1e-3)
    # Of five actors three step two environments, and two step one: 4 cores on average.
    uneven = replace(together, num_actors=5, actors_per_batch=5)
    assert steps(uneven) == pytest.approx(4e6 / 100, rel=1e-3)
    assert steps(replace(uneven, cores=2)) == pytest.approx(2e6 / 100, rel=1e-3)


def test_actors_elsewhere_do_not_share_the_learner_s_cores() -> None:
    far = machine(num_actors=4, num_hosts=2, cores=1)
    assert steps(far) == pytest.approx(4e6 / 100, rel=1e-3)
    assert steps(replace(far, num_hosts=0)) == pytest.approx(1e6 / 120, rel=1e-3)


def test_distilling_on_a_gpu_slows_the_learner_by_as_much_as_itself_at_most() -> None:
    """Learning takes 20 us a step; distilling a quarter of that, or ten times as long."""
    busy = machine(num_actors=40, learner="gpu")
    for each, learner in ((0.25, 25.0), (10.0, 40.0)):
        rows = tuple(replace(row, distill_us=each * 20 * 80 / 512) for row in busy.specs)
        profile = replace(busy, specs=rows)
        assert steps(profile, NET3) == pytest.approx(1e6 / learner, rel=0.01)
        assert steps(profile, INT8) == pytest.approx(1e6 / 20, rel=0.01)
        apart = replace(profile, learner="cpu")
        assert steps(apart, NET3) == pytest.approx(1e6 / 20, rel=0.01)


def test_a_gpu_leaves_its_cores_to_the_actors() -> None:
    """Two actors on two cores: a learner of 50 us takes one of them, or a fifth of one."""
    profile = machine(num_actors=2, cores=2, learner_us_per_sample=50.0)
    assert steps(profile) == pytest.approx(2e6 / 150, rel=1e-3)
    assert steps(replace(profile, learner="gpu")) == pytest.approx(2e6 / 150, rel=1e-3)
    blocking = replace(profile, learner="gpu", gpu_core=0.2)
    assert steps(blocking) == pytest.approx(2e6 / 110, rel=1e-3)


def test_actors_wait_for_weights_on_their_way_as_long_as_they_have_patience() -> None:
    """6 MB at 0.6 MB/s are 10 s: there is always a publication under way, for all that is lent."""
    far = machine(num_hosts=1, down_bytes_per_second=6e5)
    assert steps(far, patience_seconds=0.0) == pytest.approx(80 / 8e-3)
    assert steps(far, patience_seconds=4e-3) == pytest.approx(80 / 12e-3, rel=0.01)
    # Half a publication is over when the actor comes to the slots: it need not wait.
    near = machine(num_hosts=1, down_bytes_per_second=6e6 / 10e-3)
    assert steps(near, patience_seconds=4e-3) == pytest.approx(80 / 8e-3)


def test_rollouts_travel_side_by_side_and_no_faster_than_their_links() -> None:
    """An env step of 400 bytes at 1 MB/s takes 400 us, an actor 100, a learner 20."""
    slow = machine(num_actors=4, num_hosts=4, up_bytes_per_second=1e6)
    found = predict(slow, config(), IDENTITY)
    assert found.env_steps_per_second == pytest.approx(4e6 / 400)
    assert found.limit == "upload"
    # Two machines with two actors each; then a link that is as fast as an actor.
    assert steps(replace(slow, num_hosts=2)) == pytest.approx(2e6 / 400)
    fast = replace(slow, up_bytes_per_second=4e6)
    assert steps(fast) == pytest.approx(4e6 / 100)
    # With two slots an actor waits for the first to be back before it fills a third.
    assert steps(fast, queue_rollouts=0) == pytest.approx(4e6 / ((100 + 100 + 20) / 2))
    assert steps(replace(slow, step_bytes=40.0)) == pytest.approx(4e6 / 100)
    lag = predict(slow, config(), IDENTITY).policy_lag
    # Actors wait for one of their three slots to be back: all others are used before it.
    assert lag == pytest.approx(4 * 3 - 1 + 1)


def test_links_of_machines_whose_actors_have_left_carry_nothing() -> None:
    slow = machine(num_actors=4, num_hosts=4, up_bytes_per_second=1e6)
    work = Work.of(slow, config(), IDENTITY)
    for left in (1, 2, 4):
        _, state = settle(work.under(Moment(actors=left)), 1)
        assert 1.0 / state.seconds == pytest.approx(left * 1e6 / 400), left


def test_distilling_without_pause_takes_as_much_as_the_slowest() -> None:
    """On one core an actor (58 us), the compressor (as long) and the learner (20 us) take turns."""
    busy = machine(cores=1)
    rows = tuple(replace(row, distill_us=1e4) for row in busy.specs)
    assert steps(replace(busy, specs=rows), NET3) == pytest.approx(1e6 / (58 + 58 + 20), rel=1e-3)
    assert steps(replace(busy, specs=rows, cores=64), NET3) == pytest.approx(1e6 / 58)
    assert steps(replace(busy, specs=rows), INT8) == pytest.approx(1e6 / (60 + 20), rel=1e-3)


def test_distilling_takes_what_a_learner_update_allows() -> None:
    """Four updates of 128 states take half as long as an actor's 80 steps of 58 us."""
    shared = machine(cores=1)
    rows = tuple(replace(row, distill_us=0.5 * 80 * 58 / 512) for row in shared.specs)
    profile = replace(shared, specs=rows)
    assert steps(profile, NET3) == pytest.approx(1e6 / (58 + 20 + 29), rel=1e-3)
    without = replace(config(), compression=replace(config().compression, distill_updates=0))
    found = predict(profile, without, NET3).env_steps_per_second
    assert found == pytest.approx(1e6 / (58 + 20 + 58), rel=1e-3)


def test_distillers_without_a_limit_take_a_core_each_where_there_are_any() -> None:
    many = machine(cores=1, num_distillers=4)
    rows = tuple(replace(row, distill_us=1.0) for row in many.specs)
    endless = replace(config(), compression=replace(config().compression, distill_updates=0))
    shared = predict(replace(many, specs=rows), endless, NET3).env_steps_per_second
    assert shared == pytest.approx(1e6 / (5 * 58 + 20), rel=1e-3)
    apart = predict(replace(many, specs=rows, cores=64), endless, NET3).env_steps_per_second
    assert apart == pytest.approx(1e6 / 58, rel=1e-3)


def test_a_compressor_in_the_learner_s_process_holds_it_up() -> None:
    """8 ms per publication of 80 env steps are 100 us each, on top of 20 us of learning."""
    profile = machine()
    rows = tuple(replace(row, publish_ms=8.0) for row in profile.specs)
    slow = replace(profile, specs=rows)
    assert steps(slow, compressor_process=False) == pytest.approx(1e6 / 120)
    assert steps(slow, compressor_process=False, publish_every=4) == pytest.approx(1e6 / 100)
    assert steps(slow) == pytest.approx(1e6 / 100)


def test_a_learner_that_compresses_itself_waits_while_it_sends() -> None:
    """6 MB in 8 ms: as long as an actor takes for 80 env steps, on top of 1.6 ms of learning."""
    far = machine(down_bytes_per_second=6e6 / 8e-3)
    assert far.send_seconds(IDENTITY) == pytest.approx(8e-3)
    row = predict(far, config(compressor_process=False), IDENTITY)
    assert row.env_steps_per_second == pytest.approx(80 / 9.6e-3, rel=1e-3)
    assert row.limit == "learner"
    rare = steps(far, compressor_process=False, publish_every=4)
    assert rare == pytest.approx(80 / 8e-3)
    assert steps(far) == pytest.approx(80 / 8e-3)


def test_loading_and_copying_happen_once_per_publication() -> None:
    """A rollout of 80 env steps takes 8 ms: loading for 4 ms makes it 12, if all are published."""
    profile = machine()
    rows = tuple(replace(row, load_ms=4.0) for row in profile.specs)
    loading = replace(profile, specs=rows)
    assert steps(loading) == pytest.approx(80 / 12e-3, rel=1e-3)
    assert steps(loading, publish_every=4) == pytest.approx(80 / 9e-3, rel=1e-3)
    copying = machine(num_actors=40, copy_bytes_per_second=6e6 / 1.6e-3)
    assert steps(copying, publish_every=1) == pytest.approx(80 / 3.2e-3, rel=0.01)


def test_one_publication_is_under_way_at_a_time() -> None:
    """6 MB at 160 MB/s are 37.5 ms, updates come every 8: every fifth finds none under way."""
    found = predict(machine(num_hosts=1, down_bytes_per_second=160e6), config(), IDENTITY)
    assert found.age_seconds == pytest.approx(0.0375, rel=1e-3)
    assert found.age_updates == pytest.approx(37.5 / 8, rel=1e-3)
    # The fifth rollout begun after an update is the first with its weights, the ninth the last.
    assert found.policy_lag == pytest.approx((5 + 6 + 7 + 8 + 9) / 5)
    assert found.env_steps_per_second == pytest.approx(1e6 / 100)


def test_what_waits_for_a_learner_that_limits_is_old() -> None:
    """Four actors with three slots each; a publication is there before the next update."""
    slow = machine(num_actors=4, learner_us_per_sample=500.0)

    def lag(**settings: Any) -> float:
        return predict(slow, config(hold_back=False, **settings), IDENTITY).policy_lag

    assert lag() == pytest.approx(4 * 3 - 1 + 1)
    assert lag(publish_every=3) == pytest.approx(11 + 2, abs=0.1)
    assert lag(patience_seconds=1.0) == pytest.approx(4 * 3 - 1)
    assert lag(queue_rollouts=0) == pytest.approx(4 * 2)
    held = predict(slow, config(), IDENTITY)
    assert held.policy_lag == pytest.approx(3.0)  # two are under way, and one is learned from


def test_rollouts_of_actors_side_by_side_are_used_one_after_the_other() -> None:
    """Four begin with weights that all four rollouts before them have not made yet."""
    found = predict(machine(num_actors=4), config(), IDENTITY)
    assert found.policy_lag == pytest.approx(4 + (0 + 1 + 2 + 3) / 4)
    # An actor alone begins its next rollout while the learner uses the last one.
    assert predict(machine(), config(), IDENTITY).policy_lag == pytest.approx(1.0)
    travels = machine(num_hosts=1, up_bytes_per_second=80 * 400 / 7e-3)
    assert predict(travels, config(), IDENTITY).policy_lag == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("changes", "limit", "start", "words"),
    [
        (
            {"env_step_us": 5000.0},
            "emulator",
            IDENTITY,
            "No: the actors limit, with more emulation",
        ),
        ({"learner_us_per_sample": 500.0}, "learner", IDENTITY, "No: the learner limits"),
        ({}, "inference", INT8, "Yes: the actors limit, with more inference"),
        ({"cores": 1}, "cores", INT8, "Yes: the cores that all share limit"),
        (
            {"num_hosts": 1, "down_bytes_per_second": 30e6},
            "network",
            INT8,
            "Yes: the network limits",
        ),
    ],
)
def test_the_limit_and_what_to_do_about_it(
    changes: dict[str, Any], limit: str, start: CompressionSpec, words: str
) -> None:
    advice = advise(machine(**changes), config())
    assert advice.fp32.limit == limit
    assert advice.start.spec == start
    assert advice.pays == (start != IDENTITY)
    assert advice.sentence.startswith(words)
    assert start.label in advice.sentence
    assert advice.fp32.is_stale == (limit == "network")
    assert (advice.fp32.age_updates > STALE_UPDATES) == (limit == "network")


def test_a_slow_compressor_makes_weights_stale() -> None:
    profile = machine()
    rows = tuple(
        replace(row, publish_ms=1000.0 if row.spec == IDENTITY else 1.0) for row in profile.specs
    )
    advice = advise(replace(profile, specs=rows), config())
    assert advice.fp32.limit == "publication"
    assert "125 learner updates" in advice.sentence


def test_a_gain_that_is_no_gain_is_not_advised() -> None:
    """Free inference would save a tenth, but no spec is faster."""
    same = tuple(replace(row, infer_us={1: 4.0}) for row in machine().specs)
    advice = advise(machine(specs=same), config())
    assert advice.bound == pytest.approx(44 / 40)
    assert not advice.pays
    assert advice.sentence.startswith("No: the actors limit")
    assert "no spec does so by 5%" in advice.sentence


@pytest.mark.parametrize("preset", ["pong", "catch", "paper-pong"])
@pytest.mark.parametrize("name", SHIPPED)
def test_nothing_exceeds_the_bound(name: str, preset: str) -> None:
    profile, run = load_profile(name), load_preset(preset)
    advice = advise(profile, run)
    free = free_steps_per_second(profile.for_network(run.network), run)
    assert max(row.env_steps_per_second for row in advice.rows) <= free * (1 + 1e-9)
    assert advice.bound == pytest.approx(free / advice.fp32.env_steps_per_second)
    assert len(advice.rows) == len(profile.for_network(run.network).specs)


@pytest.mark.parametrize("name", ["slow-env", "learner-bound"])
def test_compressing_is_worth_nothing_where_it_should_not_be(name: str) -> None:
    advice = advise(load_profile(name), load_preset("pong"))
    assert not advice.pays
    assert advice.bound < WORTHWHILE


def test_weights_that_would_be_fresher_at_the_same_pace_are_pointed_out() -> None:
    """Links limit: nothing brings more env steps, but small weights arrive sooner."""
    found = advise(load_profile("edge-8001"), load_preset("pong"))
    assert found.start.spec == IDENTITY
    told = next(row for row in found.rows if f"{row.spec.label} makes as many" in found.sentence)
    assert told.policy_lag < 0.7 * found.start.policy_lag
    assert told.speedup == pytest.approx(1.0, abs=0.02)
    milder = found.rows[: found.rows.index(told)]
    assert all(row.policy_lag > told.policy_lag for row in milder)


@pytest.mark.parametrize("hold_back", [False, True])
def test_where_the_learner_limits_fewer_actors_are_enough(hold_back: bool) -> None:
    """An actor brings 10,000 steps/s, a learner of 40 us takes 25,000: three of eight actors do."""
    crowded = machine(num_actors=8, learner_us_per_sample=40.0)
    found = advise(crowded, config(hold_back=hold_back))
    assert found.enough_actors == 3
    assert found.enough is not None
    assert found.enough.env_steps_per_second == pytest.approx(
        found.start.env_steps_per_second, rel=0.02
    )
    if not hold_back:
        assert found.enough.policy_lag < 0.5 * found.start.policy_lag
    assert ("instead of" in found.sentence) == (not hold_back)
    assert "3 of the 8 actors would do" in found.sentence
    assert "--set runtime.num_actors=3" in found.sentence


@pytest.mark.parametrize(
    "needed",
    [
        {"num_actors": 8, "learner_us_per_sample": 1.0},  # the actors limit
        {"num_actors": 8, "learner_us_per_sample": 40.0, "actors_per_batch": 8},
        {"num_actors": 1, "learner_us_per_sample": 500.0},
    ],
)
def test_no_actor_is_sent_away_that_is_needed(needed: dict[str, Any]) -> None:
    found = advise(machine(**needed), config())
    assert (found.enough_actors, found.enough) == (None, None)
    assert "would do" not in found.sentence
