"""The process runtime on real ALE Pong: it learns, tags, switches, survives, and leaves nothing."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest

from accerl.acting.rollout import POISON_BYTE, Rollout
from accerl.checkpoint import load_checkpoint, save_checkpoint
from accerl.compress.engine import make_engine
from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.learner.learner import UpdateStats
from accerl.presets import load_preset
from accerl.runtime.process.run import ProcessRun
from accerl.runtime.publishing.delivery import Tag
from accerl.runtime.run import IntervalReport
from accerl.spec import IDENTITY, CompressionSpec, Decision
from accerl.weights import Publication
from tests.fixtures.runs.inner_runs import tiny_catch, weights_hash
from tests.fixtures.runs.process_runs import quick_catch
from tests.fixtures.runs.processes import alive, children, shared_memory

INT8 = CompressionSpec(bits=8)
NET3 = CompressionSpec(student="net3", bits=8)


def pong(num_actors: int = 1) -> RunConfig:
    config = load_preset("pong").with_learner(unroll=5, minibatches=1, precision="fp32")
    # Students act at once: the few rollouts of a test would not admit them.
    config = replace(config, compression=replace(config.compression, admit_kl_nats=0.0))
    return config.with_runtime(num_envs=4, num_actors=num_actors, publish_every=2)


def test_pinned_actors_keep_off_the_learners_core_until_the_run_is_closed() -> None:
    everywhere = os.sched_getaffinity(0)
    run = ProcessRun(quick_catch(num_actors=1, pin_cores=True))
    try:
        run.apply(Decision.of(IDENTITY))
        run.advance(0.1)
        own = os.sched_getaffinity(0)
        assert own == {max(everywhere)}
        assert os.sched_getaffinity(run._actors[0].pid) == everywhere - own
    finally:
        run.close()
    assert os.sched_getaffinity(0) == everywhere


class Witness:
    """Keeps what was published, and copies of the rollouts that the learner used."""

    def __init__(self, run: ProcessRun) -> None:
        self.rollouts: list[Rollout] = []
        self.slots: set[int] = set()
        self.published: dict[int, Publication] = {}
        update = run.learner.update

        def updating(rollout: Rollout) -> UpdateStats:
            # One is ordered after an update at most, and none while another is being made.
            publication = run._blocks.mailbox.get()
            self.published[publication.number] = publication
            slots = range(run._slab.slots)
            self.slots.update(slot for slot in slots if run._slab[slot] is rollout)
            self.rollouts.append(rollout.copy())
            return update(rollout)

        run.learner.update = updating

    def versions(self) -> list[int]:
        """Return which weights acted in each rollout."""
        return [
            self.published[rollout.publication].artifacts[rollout.spec_index].version
            for rollout in self.rollouts
        ]


@contextmanager
def clean(run: ProcessRun) -> Iterator[ProcessRun]:
    """Close the run, then look for anything it has left behind."""
    try:
        yield run
    finally:
        segments = shared_memory(os.getpid())
        started = [worker.pid for worker in run.workers]
        run.close()
        run.close()  # twice is once
    assert len(segments) >= 12  # nine fields, mailbox, weights and samples
    assert not [path for path in segments if path.exists()]
    assert started
    assert not [pid for pid in started if alive(pid)]


def advance_until(run: ProcessRun, updates: int) -> list[IntervalReport]:
    """Advance by short intervals until the learner has made so many updates in all."""
    reports, end = [], perf_counter() + 60.0
    while run.learner.updates < updates:
        reports.append(run.advance(0.3))
        assert perf_counter() < end, "no rollouts arrive"
    return reports


def test_pong_runs_in_processes_and_a_switch_takes_effect() -> None:
    with clean(ProcessRun(pong())) as run:
        witness = Witness(run)
        run.apply(Decision.of(IDENTITY))
        before = weights_hash(run.learner.policy)
        reports = advance_until(run, 8)
        assert weights_hash(run.learner.policy) != before
        run.apply(Decision.of(NET3))
        reports += advance_until(run, 20)
        # Until net3 acts and is distilled again, and weights have travelled.
        while not (
            reports[-1].phase_seconds["compress"]
            and NET3 in reports[-1].spec_seconds
            and len(set(witness.versions())) > 3
        ):
            reports += advance_until(run, run.learner.updates + 1)

    assert [report.index for report in reports] == list(range(len(reports)))
    assert reports[-1].total_env_steps == run.learner.updates * 20
    assert reports[-1].total_seconds == pytest.approx(sum(report.seconds for report in reports))
    for report in reports:
        assert math.isfinite(report.kl_max_nats)
        assert report.policy_lag >= 0.0
        assert 0.0 <= report.queue_fill <= 1.0
        learner = sum(report.phase_seconds[name] for name in ("learn", "wait"))
        assert learner <= report.seconds * 1.01
    # A piece may have begun in the interval before.
    assert sum(r.phase_seconds["compress"] for r in reports) <= reports[-1].total_seconds * 1.01
    for name in ("env", "infer", "learn", "compress", "publish"):
        assert sum(report.phase_seconds[name] for report in reports) > 0.0
    cpu_seconds = sum(report.cpu_seconds["actor-0"] for report in reports)
    acting = sum(sum(report.spec_seconds.values()) for report in reports)
    assert 0.0 < cpu_seconds < 20.0 * acting
    for name in ("learner", "actor-0", "compressor"):
        assert reports[-1].rss_bytes[name] > reports[-1].private_bytes[name] > 10 * 2**20
    # Without torch an actor is small: it makes several per machine affordable.
    assert reports[-1].rss_bytes["actor-0"] < 200 * 2**20
    specs = {spec for report in reports for spec in report.spec_seconds}
    assert specs == {IDENTITY, NET3}
    assert sum(report.switch_seconds > 0.0 for report in reports) == 1
    numbers = [rollout.publication for rollout in witness.rollouts]
    assert numbers == sorted(numbers)
    acted = [witness.published[number].artifacts[0].spec for number in numbers]
    assert (acted[0], acted[-1]) == (IDENTITY, NET3)

    # Each rollout says truly who acted: that engine gives these logits, bit for bit.
    for number, rollout in enumerate(witness.rollouts):
        artifact = witness.published[rollout.publication].artifacts[rollout.spec_index]
        if number % 3 == 0:
            logits, _ = make_engine(artifact).infer(rollout.obs[4])
            np.testing.assert_array_equal(rollout.logits[4], logits)
        assert rollout.obs.std() > 1.0
        assert not np.array_equal(rollout.obs[0], rollout.obs[-1])
        assert set(np.unique(rollout.reward)) <= {-1.0, 0.0, 1.0}
        assert (rollout.log_prob < 0.0).all()
        poison = np.frombuffer(bytes([POISON_BYTE]) * 4, np.float32)[0]
        assert not (rollout.logits == poison).any()
    versions = witness.versions()
    assert len(set(versions)) > 3  # weights did travel
    assert all(update >= version for update, version in enumerate(versions))


@pytest.mark.slow
def test_an_actor_that_keeps_dying_ends_the_run_with_one_line() -> None:
    run = ProcessRun(pong())
    # A shape that the shared memory does not have: every actor fails as soon as it starts.
    handle = run._slab.handle()
    handle["slots"] = 10_000
    run._slab.handle = lambda: handle
    try:
        with pytest.raises(
            UserError, match=r"5 processes died .* actor-0 died \(exit code 1\)"
        ) as died:
            run.advance(0.1)
        assert "\n" not in str(died.value)
    finally:
        run.close()
    assert not [pid for pid in children(os.getpid()) if "accerl-actor" in _command(pid)]


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text() if alive(pid) else ""


@pytest.mark.slow
def test_a_restored_run_goes_on_learning(tmp_path: Path) -> None:
    config = tiny_catch(eval_episodes=0).with_runtime(
        runtime="process", clock="real", num_actors=1, profile="paper"
    )
    with clean(ProcessRun(config)) as run:
        run.apply(Decision.of(INT8))
        advance_until(run, 4)
        save_checkpoint(tmp_path / "checkpoint", run.snapshot())
        expected, updates = weights_hash(run.learner.policy), run.learner.updates
        with pytest.raises(RuntimeError, match="only be restored before it advances"):
            run.restore(run.snapshot())
    with clean(ProcessRun(config)) as run:
        run.restore(load_checkpoint(tmp_path / "checkpoint"))
        assert weights_hash(run.learner.policy) == expected
        reports = advance_until(run, updates + 4)
        assert reports[0].index > 0
        assert reports[-1].total_learner_updates == run.learner.updates
        assert {spec for report in reports for spec in report.spec_seconds} == {INT8}


def test_a_rollout_of_which_nobody_knows_what_acted_is_thrown_away() -> None:
    """As one that was begun more publications ago than are remembered."""
    config = tiny_catch(eval_episodes=0).with_runtime(
        runtime="process", clock="real", num_actors=1, profile="paper"
    )
    with clean(ProcessRun(config)) as run:
        run.apply(Decision.of(IDENTITY))
        known, unknown = run._tag, []

        def tag(slot: int, rollout: Rollout) -> Tag | None:
            if len(unknown) < 3:
                unknown.append(slot)
                return None
            return known(slot, rollout)

        run._tag = tag
        advance_until(run, 4)
        assert len(unknown) == 3
        assert run.learner.updates >= 4


def test_closing_before_the_first_interval_leaves_nothing() -> None:
    run = ProcessRun(pong())
    segments = shared_memory(os.getpid())
    assert segments
    run.close()
    assert not [path for path in segments if path.exists()]
