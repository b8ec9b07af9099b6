"""Measuring a latency profile: real actor and learner side by side, on a game that is quick."""

from __future__ import annotations

import math
import multiprocessing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from accerl.errors import GameError, UserError
from accerl.presets import load_preset
from accerl.runtime.latency.measure import _usual_batches, measure_game, measure_profile
from accerl.runtime.latency.measure_acting import Acting
from accerl.runtime.latency.measure_learning import Measuring
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.profiles import load_profile
from accerl.runtime.machine import cores
from accerl.runtime.machine.cores import usable_cores
from accerl.spec import IDENTITY, CompressionSpec
from accerl.training.run import known_times
from accerl.weights import Mailbox
from tests.fixtures.own_games import own

IMPOSSIBLE = CompressionSpec(student="tests.fixtures.own_networks:wrong")
SPECS = [IDENTITY, CompressionSpec(bits=8), CompressionSpec(student="net3", sparsity=0.5)]


@pytest.fixture(scope="module")
def measured() -> LatencyProfile:
    config = load_preset("catch").with_runtime(num_envs=8)
    return measure_profile(
        "mine",
        config=config,
        specs=[*SPECS, IMPOSSIBLE],
        batches=(1, 8),
        networks=("net1", "net2"),
        repeats=2,
    )


def test_everything_that_can_be_made_of_the_network_has_a_time(measured: LatencyProfile) -> None:
    assert [row.spec for row in measured.specs] == SPECS
    for row in measured.specs:
        assert set(row.infer_us) == {1, 8}
        assert min(*row.infer_us.values(), row.publish_ms, row.distill_us, row.load_ms) > 0.0
    assert (measured.game, measured.network) == ("catch", "net1")
    assert set(measured.small_learner_us) == {"net2"}
    assert measured.cores == usable_cores()


def test_a_container_has_the_cores_of_its_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu.max").write_text("300000 100000\n")
    monkeypatch.setattr(cores, "CPU_MAX", tmp_path / "cpu.max")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)))
    assert load_preset("pong").with_learner(device="cpu").adapted().runtime.num_actors == 2
    catch = load_preset("catch").with_learner(minibatches=1).with_runtime(num_envs=2)
    times = measure_profile(
        config=catch, specs=[IDENTITY], batches=(1,), networks=("net3",), repeats=1
    )
    assert (times.cores, times.num_actors) == (3, 2)


@pytest.mark.usefixtures("own_games")
@pytest.mark.slow
def test_what_an_environment_of_the_actor_raises_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = load_preset(own("Failing-raises-v0")).with_learner(unroll=32, minibatches=1)
    small = replace(config.compression, distill_batch=16)
    config = replace(config, compression=small).with_runtime(num_envs=8)
    # It goes on acting beside the learner, and comes as far as that step, on two cores alone.
    monkeypatch.setattr("accerl.runtime.latency.measure_learning.usable_cores", lambda: 2)
    with pytest.raises(GameError, match=r"^actor-0: .*the simulator crashed for good") as failed:
        measure_profile(config=config, specs=[IDENTITY], batches=(8,), networks=("net3",))
    assert "\n" not in str(failed.value)
    assert "in step" in failed.value.details


def test_an_actor_that_dies_while_it_is_timed_is_one_line() -> None:
    config, mailbox = load_preset("catch"), Mailbox(1_000)
    before = {*multiprocessing.active_children()}
    acting = Acting(config, mailbox, beside=True)
    try:
        (process,) = {*multiprocessing.active_children()} - before
        process.kill()
        acting.ask(1)
        with pytest.raises(UserError, match=r"died while it was timed \(exit code -9\)"):
            acting.answer()
    finally:
        acting.close()
        mailbox.close()


def test_sizes_are_those_of_what_is_sent(measured: LatencyProfile) -> None:
    full, int8, student = (row.size_bytes for row in measured.specs)
    assert student < int8 < full


def test_how_far_times_scatter_is_told(measured: LatencyProfile) -> None:
    assert {"env", "write", "infer 1", "infer 8", "learner net1", "publish"} <= set(measured.spread)
    assert all(spread >= 0.0 for spread in measured.spread.values())


def test_it_is_read_back_as_it_was_written(measured: LatencyProfile) -> None:
    assert LatencyProfile.from_json(measured.to_json()) == measured
    assert "measured" in measured.source


@pytest.mark.parametrize(
    ("runtime", "batches"),
    [
        ({"num_envs": 32}, [1, 8, 16, 32]),
        ({"num_envs": 8}, [1, 8]),
        ({"num_envs": 64}, [1, 8, 16, 32, 64]),
        ({"num_envs": 64, "infer_batch": 4}, [1, 4]),
        ({"num_envs": 4, "infer_batch": 1}, [1]),
    ],
)
def test_no_batch_is_measured_that_no_actor_of_the_run_has(
    runtime: dict[str, int], batches: list[int]
) -> None:
    assert _usual_batches(load_preset("catch").with_runtime(**runtime)) == batches


def test_distilling_what_cannot_be_made_is_not_timed() -> None:
    refusing = SimpleNamespace(
        distill=lambda *_: 0, config=SimpleNamespace(distill_batch=4), states=range(4)
    )
    measuring = object.__new__(Measuring)
    vars(measuring).update(_compressor=refusing, _policy_net=None, spread={})
    assert measuring._time_distilling(IDENTITY) == math.ulp(0.0)


def test_times_of_a_gpu_and_of_the_processor_are_kept_apart(measured: LatencyProfile) -> None:
    gpu = replace(measured, learner="gpu")
    with pytest.raises(UserError, match="learner on the gpu, and this one is on cpu; give another"):
        measure_game(load_preset("catch"), gpu, "mine")


def test_on_the_real_clock_a_strategy_knows_the_processes_of_its_own_run() -> None:
    many = replace(load_profile("two-core"), num_actors=16, actors_per_batch=4, cores=32)
    run = replace(load_preset("pong"), network="net1").with_runtime(
        runtime="process", clock="real", num_actors=3, num_distillers=1
    )
    known = known_times(run, many)
    assert known is not None
    assert (known.num_actors, known.groups, known.num_distillers) == (3, 3, 1)
    assert known.cores == min(usable_cores(), 3 + 1 + 1 + 1)
    on_ray = known_times(run.with_runtime(runtime="ray", pin_cores=False), many)
    assert on_ray is not None
    assert on_ray.cores == 3 + 1 + 1 + 1
    virtual = run.with_runtime(runtime="serial", clock="virtual", num_distillers=0)
    for other in (virtual, virtual.with_runtime(clock="real")):
        known = known_times(other, many)
        assert known is not None
        assert (known.num_actors, known.groups, known.cores) == (16, 4, 32)


@pytest.mark.parametrize("runtime", ["serial", "process"])
def test_a_run_is_not_told_what_a_gpu_takes_that_it_does_not_use(
    measured: LatencyProfile, runtime: str
) -> None:
    preset = replace(load_preset("catch"), network="net1")
    real = preset.with_runtime(runtime=runtime, clock="real")
    gpu = replace(measured, learner="gpu")
    assert known_times(real, measured) is not None
    assert known_times(real, gpu) is None
    virtual = load_preset("catch").with_runtime(runtime="serial", clock="virtual")
    assert known_times(replace(virtual, network="net1"), gpu) is not None
