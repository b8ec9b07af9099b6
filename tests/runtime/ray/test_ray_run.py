"""The Ray runtime on this machine: it learns, tags, switches, survives, and leaves nothing."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accerl.acting.actor import action_log_prob
from accerl.compress.engine import make_engine
from accerl.errors import UserError
from accerl.monitor.strategies import FixedStrategy
from accerl.records import read_metrics
from accerl.runtime.process.messages import Distilled
from accerl.runtime.ray.compressing import unpacked
from accerl.runtime.ray.config import RayConfig
from accerl.runtime.ray.roles import Started
from accerl.runtime.ray.run import RayRun
from accerl.runtime.ray.worker import Call
from accerl.runtime.run import IntervalReport
from accerl.spec import IDENTITY, CompressionSpec, Decision
from accerl.training.run import run_training
from tests.fixtures.runs.inner_runs import weights_hash
from tests.fixtures.runs.process_runs import immortal
from tests.fixtures.runs.ray_runs import Witness, advance_until, ray_catch, ray_here

INT8 = CompressionSpec(bits=8)
NET2, NET3 = CompressionSpec(student="net2", bits=8), CompressionSpec(student="net3", bits=8)


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    with ray_here() as started:
        yield started


@pytest.mark.slow
def test_what_acted_is_what_the_learner_is_told(ray: Any) -> None:
    """Its logits are the engine's bit for bit, and what the corrector reads follows from them."""
    run = RayRun(ray_catch())
    try:
        witness = Witness(ray, run)
        run.apply(Decision(((IDENTITY, 1.0),), INT8))
        before = weights_hash(run.learner.policy)
        reports = advance_until(run, 20)
        assert weights_hash(run.learner.policy) != before
        run.apply(Decision.of(NET3))
        acted = {rollout.publication for rollout in witness.rollouts}
        while NET3 not in reports[-1].spec_seconds or len(acted) < 6:
            reports += advance_until(run, run.learner.updates + 1)
            acted = {rollout.publication for rollout in witness.rollouts}
        published = witness.published()
    finally:
        run.close()
        run.close()  # twice is once
    assert [report.index for report in reports] == list(range(len(reports)))
    assert reports[-1].total_env_steps == run.learner.updates * 72
    assert {spec for report in reports for spec in report.spec_seconds} == {IDENTITY, NET3}
    assert {spec for report in reports for spec in report.shadow_kl_nats} == {INT8}
    assert reports[-1].rss_bytes["actor-0"] > 0
    specs, versions = set(), []
    for update, rollout in enumerate(witness.rollouts):
        artifact = published[rollout.publication].artifacts[rollout.spec_index]
        specs.add(artifact.spec)
        versions.append(artifact.version)
        assert artifact.version <= update
        if update % 7 and update < len(witness.rollouts) - 3:
            continue
        logits, _ = make_engine(artifact).infer(rollout.obs[4])
        np.testing.assert_array_equal(rollout.logits[4], logits)
        expected = action_log_prob(rollout.logits, rollout.action)
        np.testing.assert_array_equal(rollout.log_prob, expected)
    assert specs == {IDENTITY, NET3}
    assert len(set(versions)) > 3  # weights did travel


@pytest.mark.slow
def test_a_rollout_says_what_acted_and_not_what_was_ordered(ray: Any) -> None:
    """The student that was ordered is never admitted: something milder acts, and is booked."""
    config = ray_catch()
    config = replace(config, compression=replace(config.compression, admit_kl_nats=1e-9))
    run = RayRun(config)
    try:
        witness = Witness(ray, run)
        run.apply(Decision.of(IDENTITY))
        reports = advance_until(run, 5)
        run.apply(Decision.of(NET3))
        reports += advance_until(run, 40)
        published = witness.published()
    finally:
        run.close()
    acted = {published[r.publication].artifacts[r.spec_index].spec for r in witness.rollouts}
    assert {spec for report in reports for spec in report.spec_seconds} == acted
    assert NET3 not in acted


@pytest.mark.slow
def test_a_run_survives_the_death_of_every_role(
    ray: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    run = RayRun(ray_catch(num_actors=2, eval_episodes=4), supervisor=immortal())
    killed = ["actor-1", "compressor", "evaluator"]
    try:
        run.apply(Decision.of(NET3))
        reports = advance_until(run, 5)
        for name in killed:
            (worker,) = (worker for worker in run.workers if worker.name == name)
            assert worker.started is not None
            os.kill(worker.started.pid, signal.SIGKILL)
            while not worker.restarts:
                reports.append(run.advance(0.1))
            reports += advance_until(run, run.learner.updates + 5)
    finally:
        run.close()
    events = [event for report in reports for event in report.events]
    names = [e["role"] if e["index"] is None else f"{e['role']}-{e['index']}" for e in events]
    assert names == killed
    assert reports[-1].total_env_steps == run.learner.updates * 72
    assert all(report.learner_return is not None for report in reports)
    assert "compressor died (its process ended); started it again, with" in capfd.readouterr().err


@pytest.mark.slow
def test_an_actor_that_lives_and_finishes_nothing_is_replaced(
    ray: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accerl.runtime.stuck.STUCK_SECONDS", 3.0)
    run = RayRun(ray_catch(num_actors=2), supervisor=immortal())
    try:
        reports = advance_until(run, 5)
        (actor,) = (worker for worker in run.workers if worker.name == "actor-1")
        assert actor.started is not None
        restarts = actor.restarts
        os.kill(actor.started.pid, signal.SIGSTOP)
        while actor.restarts == restarts or not actor.ready:
            reports.append(run.advance(0.1))
        reports += advance_until(run, run.learner.updates + 5)
    finally:
        run.close()
    # On a busy machine the other may have been slow, too.
    events = [event for report in reports for event in report.events if event["index"] == 1]
    assert events
    assert {event["role"] for event in events} == {"actor"}
    assert all(event["cause"].startswith("finished no rollout in ") for event in events)
    assert reports[-1].total_env_steps == run.learner.updates * 72


@pytest.mark.slow
@pytest.mark.parametrize(
    ("index", "role", "work"),
    [(0, "compressor", "publication"), (1, "distiller", "distillation")],
)
def test_who_lives_and_publishes_or_distils_nothing_is_replaced(
    ray: Any, monkeypatch: pytest.MonkeyPatch, index: int, role: str, work: str
) -> None:
    monkeypatch.setattr("accerl.runtime.stuck.LEAST_PUBLICATION_SECONDS", 4.0)
    monkeypatch.setattr("accerl.runtime.stuck.MANY", 1.0)
    run = RayRun(ray_catch(num_actors=1, num_distillers=index), supervisor=immortal())
    worker = run.publishing.workers[index]
    run.apply(Decision.of(NET3))
    try:
        while not run.advance(0.1).distill_updates:
            pass
        assert worker.started is not None
        os.kill(worker.started.pid, signal.SIGSTOP)
        events: list[Any] = []
        while not events:
            events += run.advance(0.5).events
        published = run.orders.last_ordered
        while run.orders.last_ordered <= published + 1:  # it, or its successor, goes on
            run.advance(0.1)
        while not run.advance(0.1).distill_updates:
            pass
    finally:
        run.close()
    assert events[0]["role"] == role
    assert events[0]["cause"].startswith(f"finished no {work} in ")


def test_who_finishes_work_is_known_to_do_so(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RayRun(ray_catch(num_actors=1, num_distillers=1, eval_episodes=4))
    worked: list[str] = []
    monkeypatch.setattr(run._supervisor, "worked", lambda worker: worked.append(worker.name))
    monkeypatch.setattr(run.publishing, "handle", lambda *_: None)
    slot, *_ = run._slots.lend(0)
    (actor,), compressor, evaluator = run._actors, run.publishing.worker, run._evaluator
    (distiller,) = run.publishing.distillers.workers
    assert evaluator is not None
    try:
        run._handle(actor, Call("collect", None, slot), None)
        for method in ("state", "work"):
            run._handle(compressor, Call(method, None), None)
        for updates in (0, 3):  # waiting for weights is no work
            run._handle(distiller, Call("distil", None), Distilled(updates, 0.1, 0.1))
        run._handle(evaluator, Call("measure", None), 2.0)
    finally:
        run.close()
    assert worked == ["actor-0", "compressor", "distiller-0", "evaluator"]


def test_what_the_learner_does_off_the_clock_is_not_booked_with_a_death(
    ray: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies while J is measured, say."""
    run = RayRun(ray_catch(num_actors=1))
    noted: list[dict[str, int]] = []
    monkeypatch.setattr(run._cpu, "note", noted.append)
    monkeypatch.setattr(run._supervisor, "replace", lambda *_, **__: None)
    (actor,) = run._actors
    actor.started = Started(run._cluster.node, 1234, "")
    try:
        run._replace(actor)
    finally:
        run.close()
    assert noted == [{"actor-0": 1234}]


@pytest.mark.parametrize("are_ready", [True, False])
def test_a_node_that_dies_counts_once_however_many_actors_it_had(
    ray: Any, monkeypatch: pytest.MonkeyPatch, *, are_ready: bool
) -> None:
    """Those that have not started yet have not said where they are."""
    run = RayRun(ray_catch(num_actors=2))
    counted: list[bool] = []
    monkeypatch.setattr(run._supervisor, "replace", lambda *_, counts, **__: counted.append(counts))
    try:
        for actor in run._actors:
            actor.started = Started("a node", 1234, "") if are_ready else None
            run._replace(actor, ray.exceptions.RayError("its node has died"))
    finally:
        run.close()
    assert counted == [True, False]


def test_a_close_that_is_interrupted_lets_go_of_the_cluster(
    ray: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = sys.stdout
    run = RayRun(ray_catch())
    assert sys.stdout is not before  # an open run leaves out what Ray prints
    monkeypatch.setattr(run._actors[0], "end", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run.close()
    assert sys.stdout is before


@pytest.mark.slow
def test_a_run_survives_the_death_of_its_compressor_and_all_actors_at_once(ray: Any) -> None:
    """As when a node with all of them goes: nobody has anything to act with, nor to learn from."""
    run = RayRun(ray_catch(num_actors=1), supervisor=immortal())
    try:
        advance_until(run, 5)
        gone = [worker for worker in run.workers if worker.name in ("actor-0", "compressor")]
        for worker in gone:
            assert worker.started is not None
            os.kill(worker.started.pid, signal.SIGKILL)
        while not all(worker.restarts for worker in gone):
            run.advance(0.1)
        reports = advance_until(run, run.learner.updates + 5)
    finally:
        run.close()
    assert reports[-1].total_env_steps == run.learner.updates * 72


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("decision", "hold_back"),
    [(Decision.of(NET3), True), (Decision(((NET2, 0.5), (NET3, 0.5))), False)],
)
def test_distillers_share_students_and_survive_their_deaths(
    ray: Any, decision: Decision, hold_back: bool
) -> None:
    """One student that both add to, or one each; what they had made is gone on with."""
    config = ray_catch(num_distillers=2, hold_back=hold_back)
    compression = replace(config.compression, distill_updates=0)  # as much as there is time for
    config = replace(config, compression=compression, ray=RayConfig(actor_cpus=0.5))

    def updates(run: RayRun) -> dict[str, int]:
        known = run.snapshot()["publishing"]["compressor"]["students"]
        return {entry["student"][0]: entry["state"]["updates"] for entry in known}

    def add_up(run: RayRun) -> bool:
        """Whether both have changed the same weights of a student since they were begun."""
        shown = [unpacked(ray.get(ref))[0] for ref in run.publishing.distillers._shown]
        marks = {(entry["generation"], entry["base"]) for entry in shown}
        return len(marks) == 1 and all(
            any(bool(delta.any()) for delta in entry["delta"].values()) for entry in shown
        )

    run = RayRun(config, supervisor=immortal())
    try:
        run.apply(decision)
        reports = advance_until(run, 20)
        pool = run.publishing.distillers
        sharers = [charge.sharers for charges in pool._charges for charge in charges]
        assert sharers == ([2, 2] if len(decision.mix) == 1 else [1, 1])
        before = updates(run)
        assert before.keys() == {spec.student for spec, _ in decision.mix}
        for worker in pool.workers:
            assert worker.started is not None
            os.kill(worker.started.pid, signal.SIGKILL)
        while not all(worker.restarts for worker in pool.workers):
            reports.append(run.advance(0.1))
        reports += advance_until(run, run.learner.updates + 20)
        while len(decision.mix) == 1 and not add_up(run):
            reports += advance_until(run, run.learner.updates + 1)
        while not all(updates(run)[name] > before[name] for name in before):
            reports += advance_until(run, run.learner.updates + 1)
        saved, after = run.snapshot(), updates(run)
    finally:
        run.close()
    roles = [event["role"] for report in reports for event in report.events]
    assert roles == ["distiller", "distiller"]
    compared = {spec for report in reports for spec in report.student_kl_nats}
    assert compared == {spec for spec, _ in decision.mix}
    resumed = RayRun(config)
    try:
        resumed.restore(saved)
        resumed.apply(decision)
        advance_until(resumed, saved["learner"]["updates"] + 5)
        while not all(updates(resumed)[name] > after[name] for name in after):
            advance_until(resumed, resumed.learner.updates + 1)
    finally:
        resumed.close()


@pytest.mark.slow
def test_five_deaths_in_a_minute_end_the_run_with_a_checkpoint_to_resume_from(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[RayRun] = []
    started = RayRun._start_workers
    monkeypatch.setattr(RayRun, "_start_workers", lambda run: (runs.append(run), started(run))[1])

    def kill_an_actor(_: IntervalReport) -> None:
        where = runs[0]._actors[0].started
        if where is not None:
            os.kill(where.pid, signal.SIGKILL)

    config, out = ray_catch(), tmp_path / "run"
    with pytest.raises(UserError, match=r"5 processes died within 60 seconds") as error:
        run_training(
            replace(config, seconds=600.0), FixedStrategy(INT8), out=out, on_interval=kill_an_actor
        )
    assert "\n" not in str(error.value)
    before = list(read_metrics(out))
    assert sum(len(report.events) for report in before) == 4  # the fifth ended it
    longer = replace(config, seconds=before[-1].total_seconds + 0.3)
    result = run_training(longer, FixedStrategy(INT8), out=out, resume=True)
    assert result.reports[: len(before)] == before
    assert result.reports[-1].total_learner_updates > before[-1].total_learner_updates
    assert result.summary["runtime"] == "ray"
