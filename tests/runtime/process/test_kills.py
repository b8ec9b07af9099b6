"""kill -9 at random moments: another process takes over, nothing is lost, all is recorded."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any, cast

import pytest

from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.monitor.strategies import FixedStrategy
from accerl.records import read_json, read_metrics
from accerl.runtime.process.messages import (
    Distilled,
    Done,
    Filled,
    Measured,
    Message,
    Ready,
    Taken,
)
from accerl.runtime.process.run import ProcessRun
from accerl.runtime.process.supervise import Supervised, Supervisor
from accerl.runtime.run import IntervalReport
from accerl.spec import CompressionSpec, Decision
from accerl.training.run import run_training
from tests.fixtures.runs.inner_runs import weights_hash
from tests.fixtures.runs.process_runs import Killer, immortal, quick_catch

NET3 = CompressionSpec(student="net3", bits=8)
INT8 = CompressionSpec(bits=8)


def shoot(kills: int, config: RunConfig, seed: int) -> Killer:
    """Kill so many processes of one run, one after the other; return what happened."""
    run = ProcessRun(config, supervisor=immortal())
    try:
        run.apply(Decision.of(NET3))
        killer = Killer(run, seed)
        killer.recover()
        before = weights_hash(run.learner.policy)
        for number in range(kills):
            killer.strike(run.workers[number % len(run.workers)] if number < 4 else None)
            if number % 5 == 3:
                run.apply(Decision.of(INT8 if number % 10 == 3 else NET3))
                run.snapshot()
        killer.recover()
        assert weights_hash(run.learner.policy) != before
        killer.check()
        # It acts with what was asked for last, made from recent weights.
        published = run._blocks.mailbox.get()
        tag = run.orders.tag(published.number, 0)
        assert run.orders.decision is not None
        assert tag is not None
        assert (tag.spec,) == run.orders.decision.specs
        assert published.artifacts[0].version == tag.version
        return killer
    finally:
        run.close()


def test_a_run_survives_the_death_of_every_role(capfd: pytest.CaptureFixture[str]) -> None:
    killer = shoot(6, quick_catch(num_actors=2, eval_episodes=4), seed=1)
    assert {"actor-0", "actor-1", "compressor", "evaluator"} == set(killer.killed)
    error = capfd.readouterr().err
    assert "compressor died (exit code -9); started it again, with the students of update" in error
    assert "Traceback" not in error
    assert "leaked" not in error
    assert all(report.learner_return is not None for report in killer.reports)
    events = [event for report in killer.reports for event in report.events]
    assert len(events) == 6
    copy = IntervalReport.from_json(json.loads(json.dumps(killer.reports[-1].to_json())))
    assert copy == killer.reports[-1]


def test_what_the_dead_had_used_is_booked_before_another_takes_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = ProcessRun(quick_catch())
    try:
        run.apply(Decision.of(INT8))
        run.advance(0.1)
        noted: list[dict[str, int]] = []
        monkeypatch.setattr(run._cpu, "note", noted.append)
        monkeypatch.setattr(run._supervisor, "replace", lambda *_, **__: None)
        actor = run.workers[0]
        run._replace(actor)
        assert noted[0][actor.name] == actor.pid
    finally:
        run.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_fifty_kills_in_one_run() -> None:
    killer = shoot(50, quick_catch(num_actors=2, num_learners=2, eval_episodes=4), seed=2)
    assert len(killer.killed) == 50
    assert sum(len(report.events) for report in killer.reports) == 50


@pytest.mark.slow
def test_a_compressor_goes_on_with_the_students_that_were_last_known() -> None:
    run = ProcessRun(quick_catch(), supervisor=immortal())
    try:
        run.apply(Decision.of(NET3))
        killer = Killer(run)
        killer.recover()
        known = run.snapshot()["publishing"]["compressor"]
        (distiller,) = known["students"]
        assert distiller["state"]["updates"] > 0
        (worker,) = (worker for worker in run.workers if worker.role == "compressor")
        killer.strike(worker)
        again = run.snapshot()["publishing"]["compressor"]
        assert again["version"] == known["version"]  # the new one is still starting
        killer.recover()
        run.snapshot()  # may come while it publishes: then it is asked afterwards
        run.advance(0.5)
        later = run.snapshot()["publishing"]["compressor"]
        # Its Adam counts on: the student was not made anew.
        assert later["students"][0]["state"]["updates"] > distiller["state"]["updates"]
        assert later["version"] > known["version"]
    finally:
        run.close()


def kill_an_actor(_: IntervalReport) -> None:
    """Kill an actor of this process, from outside the run."""
    for process in multiprocessing.active_children():
        if process.name.startswith("accerl-actor") and process.pid is not None:
            os.kill(process.pid, signal.SIGKILL)


@pytest.mark.slow
def test_five_deaths_in_a_minute_end_the_run_with_a_checkpoint_to_resume_from(
    tmp_path: Path,
) -> None:
    config = quick_catch()
    strategy = FixedStrategy(INT8)
    long = RunConfig.from_json({**config.to_json(), "seconds": 600.0})
    with pytest.raises(UserError, match=r"5 processes died within 60 seconds") as error:
        run_training(long, strategy, out=tmp_path / "run", on_interval=kill_an_actor)
    assert "\n" not in str(error.value)
    assert not multiprocessing.active_children()
    reports = list(read_metrics(tmp_path / "run"))
    assert sum(len(report.events) for report in reports) == 4  # the fifth ended it
    seconds = reports[-1].total_seconds + 0.3
    result = run_training(
        RunConfig.from_json({**config.to_json(), "seconds": seconds}),
        strategy,
        out=tmp_path / "run",
        resume=True,
    )
    assert result.reports[: len(reports)] == reports
    assert result.reports[-1].total_seconds >= seconds
    assert result.reports[-1].total_learner_updates > reports[-1].total_learner_updates
    assert read_json(tmp_path / "run" / "summary.json")["seconds"] >= seconds


def test_a_process_that_hangs_at_the_start_is_noticed() -> None:
    """Frozen in mid-start, twice, while the clock of the supervisor jumps ahead."""
    seconds = [0.0]
    supervisor = Supervisor(clock=lambda: seconds[0])
    start = supervisor.start

    def start_frozen(worker: Supervised) -> None:
        start(worker)
        os.kill(run.workers[0].pid, signal.SIGSTOP)
        seconds[0] += 121.0

    run = ProcessRun(quick_catch(), supervisor=supervisor)
    supervisor.start = start_frozen
    try:
        with pytest.raises(UserError, match="actor-0 was not ready after 120 seconds, twice"):
            run.advance(0.1)
    finally:
        run.close()
    assert not multiprocessing.active_children()


def impatient_run(monkeypatch: pytest.MonkeyPatch, **runtime: Any) -> ProcessRun:
    """Return a run that gives who works beside it seconds where others give minutes."""
    monkeypatch.setattr("accerl.runtime.stuck.LEAST_PUBLICATION_SECONDS", 4.0)
    monkeypatch.setattr("accerl.runtime.stuck.STUCK_SECONDS", 4.0)
    monkeypatch.setattr("accerl.runtime.stuck.MANY", 1.0)
    return ProcessRun(quick_catch(num_actors=1, **runtime), supervisor=immortal())


@pytest.mark.slow
def test_a_compressor_that_hangs_in_the_middle_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one does whose user's own link never returns."""
    run = impatient_run(monkeypatch)
    compressor = run.publishing.worker
    events: list[Any] = []
    try:
        while run.orders.last_ordered < 3:
            run.advance(0.1)
        os.kill(compressor.pid, signal.SIGSTOP)
        published = run._blocks.mailbox.latest
        while not any(event["role"] == "compressor" for event in events):
            events += run.advance(0.5).events
        while run._blocks.mailbox.latest <= published + 1:  # its successor publishes
            run.advance(0.1)
    finally:
        run.close()
    (event,) = (event for event in events if event["role"] == "compressor")
    assert event["cause"].startswith("finished no publication in ")


@pytest.mark.slow
def test_a_compressor_that_hangs_while_a_checkpoint_is_made_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = impatient_run(monkeypatch)
    run.apply(Decision.of(NET3))
    try:
        while run.orders.last_ordered < 3:
            run.advance(0.1)
        while not run.publishing.idle:
            run.advance(0.01)
        os.kill(run.publishing.worker.pid, signal.SIGSTOP)
        run.snapshot()
        assert run.publishing.worker.restarts == 1
    finally:
        run.close()


@pytest.mark.slow
def test_an_evaluator_that_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    run = impatient_run(monkeypatch, eval_episodes=4)
    evaluator = run._evaluator
    assert evaluator is not None
    try:
        assert run.advance(0.1).learner_return is not None
        os.kill(evaluator.pid, signal.SIGSTOP)
        report = run.advance(0.1)
    finally:
        run.close()
    assert report.learner_return is not None
    (event,) = report.events
    assert event["role"] == "evaluator"
    assert event["cause"].startswith("finished no measurement in ")


def test_who_finishes_work_is_known_to_do_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compressor that distils and then dies of every publication has finished none.

    Nor has a distiller that has distilled nothing yet, as each says at first.
    """
    run = ProcessRun(quick_catch(num_actors=1, num_distillers=1, eval_episodes=4))
    worked: list[str] = []
    monkeypatch.setattr(run._supervisor, "worked", lambda worker: worked.append(worker.name))
    monkeypatch.setattr(run.publishing, "handle", lambda *_: None)
    slot, *_ = run._slots.lend(0)
    begun, piece = Distilled(0, 0.0, 0.0), Distilled(1, 0.1, 0.1)
    said: dict[str, list[Message]] = {
        "actor-0": [Ready(), Filled(slot)],
        "compressor": [Ready(), piece, Taken(), Done(cast(Any, None))],
        "distiller-0": [Ready(), begun, piece],
        "evaluator": [Ready(), Measured(2.0)],
    }
    try:
        for worker in run.workers:
            for message in said[worker.name]:
                run._handle(worker, message)
    finally:
        run.close()
    assert worked == ["actor-0", "compressor", "distiller-0", "evaluator"]
