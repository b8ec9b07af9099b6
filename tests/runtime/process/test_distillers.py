"""Distillers in processes of their own: who is in charge of what, and what a death costs."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from accerl.compress import CompressionConfig, Compressor
from accerl.compress.compliance import VECTOR, decided_policy, random_states
from accerl.compress.distillation.sharing import StudentShares
from accerl.config import RuntimeConfig
from accerl.errors import UserError
from accerl.monitor.strategies import FixedStrategy
from accerl.runtime.process import distillers
from accerl.runtime.process.board import Board
from accerl.runtime.process.messages import AskState, Distil, Message
from accerl.runtime.process.run import ProcessRun
from accerl.runtime.process.supervise import Worker
from accerl.runtime.publishing import led
from accerl.runtime.publishing.charges import Charges
from accerl.runtime.run import IntervalReport
from accerl.spec import CompressionSpec, Decision, StudentKey
from accerl.training.run import run_training
from tests.fixtures.runs.process_runs import Killer, immortal, quick_catch

NET2, NET3 = CompressionSpec(student="net2", bits=8), CompressionSpec(student="net3", bits=8)
MIX = Decision(((NET2, 0.5), (NET3, 0.5)))
TWO = quick_catch(num_distillers=2)


def made(seed: int = 0) -> Compressor:
    config = CompressionConfig(calibration_states=64)
    compressor = Compressor(VECTOR, 5, config, torch.Generator().manual_seed(seed))
    compressor.observe(random_states(VECTOR))
    return compressor


def test_a_board_carries_students_to_who_publishes_them() -> None:
    distiller, publisher, policy = made(), made(1), decided_policy(VECTOR)
    board = Board(1_000_000)
    reader = Board(**board.handle())
    try:
        assert reader.news() == []
        shares = StudentShares(distiller, 0)
        assert shares.train(NET3, policy, 4, 0) == 4
        board.put(shares.entries([StudentKey("net2", 0.0), StudentKey("net3", 0.0)]))
        news = reader.news()
        assert [entry["student"] for entry in news] == [["net3", 0.0]]
        assert reader.news() == []
        publisher.take_students(news)
        shown = publisher.build(NET3, policy, 1)
        assert publisher.last_build_updates == 0  # it was warm
        assert publisher.student_kl_nats(NET3, policy) == distiller.student_kl_nats(NET3, policy)
        assert shown.spec == NET3
    finally:
        reader.close()
        board.close()


def test_students_are_shared_out_evenly() -> None:
    charges = Charges(2, 4)
    specs = [NET2, NET3, CompressionSpec(bits=8), CompressionSpec(student="net3", bits=16)]
    charges.assign([*specs, CompressionSpec(sparsity=0.5)])
    charges.assign(specs)
    networks = [set(charges.keys(index)) for index in range(2)]
    assert networks == [{("net2", 0.0), ("original", 0.5)}, {("net3", 0.0)}]


class DeafWorker(Worker):
    """A ready process that is stuck: messages to it are kept, and it sends none."""

    def __init__(self) -> None:
        super().__init__("distiller", 0, lambda *_: None, lambda _: ())
        self.ready = True
        self.sent: list[Message] = []

    def send(self, message: Message) -> None:
        self.sent.append(message)


def test_a_stuck_distiller_holds_a_snapshot_up_for_some_seconds_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds, shown = [0.0], []
    monkeypatch.setattr(led, "monotonic", lambda: seconds[0])
    worker, board = DeafWorker(), Board(64)
    pool = distillers.DistillerPool([distillers.DistillerProcess(worker, board)], 4)
    try:
        for update in range(3):
            pool.after_update([NET3], lambda update=update: shown.append(update))
        assert shown == [0]  # it has not read those weights: nothing newer is copied for it
        pool.ask_state()
        assert [type(message) for message in worker.sent] == [Distil, AskState]
        assert not pool.led.is_known
        seconds[0] += led.PATIENCE_SECONDS + 0.1
        assert pool.led.is_known
    finally:
        pool.close()


def test_a_distiller_that_rests_says_what_it_has_made_and_goes_on_with_the_next_update() -> None:
    worker, board = DeafWorker(), Board(64)
    pool = distillers.DistillerPool([distillers.DistillerProcess(worker, board)], 0)
    try:
        pool.after_update([NET3], lambda: None)
        pool.rest()
        pool.rest()
        pool.ask_state()
        pool.after_update([NET3], lambda: None)
        first, rests, asked, again = worker.sent
        assert isinstance(first, Distil)
        assert isinstance(rests, Distil)
        assert isinstance(asked, AskState)
        assert isinstance(again, Distil)
        assert (bool(first.charges), rests.charges, again) == (True, (), first)
    finally:
        pool.close()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_two_distillers_keep_two_students_and_survive_their_deaths() -> None:
    run = ProcessRun(TWO, supervisor=immortal())
    try:
        run.apply(MIX)
        killer = Killer(run)
        killer.recover()
        known = run.snapshot()["publishing"]["compressor"]
        before = {tuple(e["student"]): e["state"]["updates"] for e in known["students"]}
        assert set(before) == {("net2", 0.0), ("net3", 0.0)}
        for worker in [worker for worker in run.workers if worker.role == "distiller"]:
            killer.strike(worker)
        killer.recover()
        known = run.snapshot()["publishing"]["compressor"]
        after = {tuple(e["student"]): e["state"]["updates"] for e in known["students"]}
        assert all(after[key] > before[key] for key in before)
        killer.check()
        assert {spec for r in killer.reports for spec in r.student_kl_nats} == {NET2, NET3}
    finally:
        run.close()


def advanced(run: ProcessRun) -> list[IntervalReport]:
    """Advance by 15 intervals, and on until the learner has made 100 updates, the student some."""
    reports: list[IntervalReport] = []
    updates = distilled = 0
    while len(reports) < 15 or updates < 100 or not distilled:
        reports.append(run.advance(0.1))
        updates += reports[-1].learner_updates
        distilled += reports[-1].distill_updates
    return reports


@pytest.mark.slow
def test_a_distiller_that_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accerl.runtime.stuck.LEAST_PUBLICATION_SECONDS", 4.0)
    monkeypatch.setattr("accerl.runtime.stuck.MANY", 1.0)
    run = ProcessRun(quick_catch(num_actors=1, num_distillers=1), supervisor=immortal())
    (distiller,) = run.publishing.pool.distillers
    run.apply(Decision.of(NET3))
    updates, events = 0, list[Any]()
    try:
        while not updates:
            updates = run.advance(0.1).distill_updates
        os.kill(distiller.worker.pid, signal.SIGSTOP)
        while not events:
            events += run.advance(0.5).events
        run.advance(0.1)
        while not run.advance(0.1).distill_updates:  # its successor's
            pass
    finally:
        run.close()
    assert events[0]["role"] == "distiller"
    assert events[0]["cause"].startswith("finished no distillation in ")


@pytest.mark.timeout(240)
@pytest.mark.parametrize("distillers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_student_that_rests_is_distilled_on_with_every_few_updates(distillers: int) -> None:
    config = quick_catch(num_distillers=distillers)
    resting = replace(config.compression, distill_updates=8, distill_rest_kl_nats=1e3)
    run = ProcessRun(replace(config, compression=resting))
    try:
        run.apply(Decision.of(NET3))
        advanced(run)  # until it rests
        late = advanced(run)
    finally:
        run.close()
    seen = sum(report.learner_updates for report in late)
    distilled = sum(report.distill_updates for report in late)
    assert 0.02 * seen < distilled < 0.5 * seen  # a quarter of those that it comes to see


@pytest.mark.timeout(240)
@pytest.mark.slow
def test_a_run_with_distillers_is_recorded_and_resumed(tmp_path: Path) -> None:
    first = run_training(TWO, FixedStrategy(NET3), out=tmp_path / "run")
    longer = type(TWO).from_json({**TWO.to_json(), "seconds": 2.0})
    second = run_training(longer, FixedStrategy(NET3), out=tmp_path / "run", resume=True)
    assert second.reports[: len(first.reports)] == first.reports
    assert {"distiller-0", "distiller-1"} <= set(second.summary["rss_bytes_max"])
    assert not [event for report in second.reports for event in report.events]


def test_distillers_need_a_compressor_process() -> None:
    with pytest.raises(UserError, match="num_distillers must not be negative"):
        RuntimeConfig(num_distillers=-1)
    with pytest.raises(UserError, match="needs a compressor process"):
        RuntimeConfig(num_distillers=1, compressor_process=False)
    with pytest.raises(UserError, match="--runtime process"):
        RuntimeConfig(num_distillers=1, clock="real")
