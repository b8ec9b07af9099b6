"""Runs with two learner processes: they learn, resume, survive deaths, and leave nothing."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from torch import Tensor

from accerl.acting.rollout import Rollout
from accerl.config import RunConfig
from accerl.learner.learner import UpdateStats
from accerl.monitor.strategies import FixedStrategy
from accerl.runtime.process.ranks import LearnerRanks
from accerl.runtime.process.run import ProcessRun
from accerl.runtime.process.supervise import Supervisor
from accerl.spec import CompressionSpec
from accerl.training.run import run_training
from accerl.training.saved_policy import evaluate_checkpoint
from tests.fixtures.runs.inner_runs import weights_hash
from tests.fixtures.runs.process_runs import Killer, immortal, quick_catch
from tests.fixtures.runs.processes import alive

TWO = quick_catch(num_learners=2)
INT8 = FixedStrategy(CompressionSpec(bits=8))


def strike_in_mid_update(run: ProcessRun, signal_number: int) -> None:
    """Have the second learner get a signal when the next update has made its first step."""
    step, steps = run.learner._step, []

    def stepping(loss: Tensor, losses: dict[str, Tensor]) -> dict[str, float]:
        steps.append(losses)
        if len(steps) == 2:
            os.kill(run._ranks.workers[0].pid, signal_number)
        return step(loss, losses)

    run.learner._step = stepping


def advance_until_formed(killer: Killer) -> None:
    """Advance until the second learner has been replaced and learns along."""
    (rank,) = killer.run._ranks.workers
    before = rank.restarts
    while rank.restarts == before:
        killer.advance(0.05)
    killer.recover()
    assert killer.run._ranks.formed


@pytest.mark.slow
def test_a_run_with_two_learners_is_recorded_and_resumed(tmp_path: Path) -> None:
    first = run_training(TWO, INT8, out=tmp_path / "run")
    longer = RunConfig.from_json({**TWO.to_json(), "seconds": 2.0})
    second = run_training(longer, INT8, out=tmp_path / "run", resume=True)
    assert second.reports[: len(first.reports)] == first.reports
    assert second.reports[-1].total_learner_updates > first.reports[-1].total_learner_updates > 0
    assert not [event for report in second.reports for event in report.events]
    assert second.summary["rss_bytes_max"]["learner-1"] > 10 * 2**20
    assert sum(report.cpu_seconds.get("learner-1", 0.0) for report in second.reports) > 0.0
    assert len(evaluate_checkpoint(tmp_path / "run", 3)["returns"]) == 3


@pytest.mark.slow
def test_two_learners_share_a_network_of_ones_own_with_idle_and_float64_parts() -> None:
    network = "tests.fixtures.own_networks:Scaled"
    run = ProcessRun(replace(TWO, game="cartpole", network=network))
    try:
        killer = Killer(run)
        killer.recover()  # of several updates, the second meets what the first left unfinished
        assert run._ranks.formed
    finally:
        run.close()
    assert not [event for report in killer.reports for event in report.events]


@pytest.mark.slow
def test_a_learner_that_is_killed_in_an_update_is_replaced_and_nothing_lost(
    capfd: pytest.CaptureFixture[str],
) -> None:
    run = ProcessRun(TWO, supervisor=immortal())
    try:
        killer = Killer(run)
        killer.recover()
        assert run._ranks.formed
        moments = run.learner.state_dict()["optimiser"]["0"]["step"].item()
        strike_in_mid_update(run, signal.SIGKILL)
        killer.killed.append("learner-1")
        advance_until_formed(killer)
        killer.check()
        assert run.learner.state_dict()["optimiser"]["0"]["step"] > moments
        (event,) = [event for report in killer.reports for event in report.events]
        assert event["action"] == "started it again, the learner goes on alone until it is ready"
        assert "Traceback" not in capfd.readouterr().err
        pids = [worker.pid for worker in run.workers]
    finally:
        run.close()
    assert not [pid for pid in pids if alive(pid)]
    assert not torch.distributed.is_initialized()


@pytest.mark.slow
def test_a_learner_that_freezes_in_an_update_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accerl.learner.group.TIMEOUT_SECONDS", 1.0)
    seconds = [0.0]
    run = ProcessRun(TWO, supervisor=Supervisor(clock=lambda: seconds[0]))
    try:
        killer = Killer(run)
        killer.recover()
        strike_in_mid_update(run, signal.SIGSTOP)
        while run._ranks.formed:
            killer.advance(0.05)
        before = weights_hash(run.learner.policy)
        killer.advance(0.3)
        assert weights_hash(run.learner.policy) != before  # alone
        seconds[0] += 121.0
        advance_until_formed(killer)
        (event,) = [event for report in killer.reports for event in report.events]
        assert (event["role"], event["cause"]) == ("learner", "was not ready after 120 seconds")
    finally:
        run.close()


@pytest.mark.slow
def test_a_learner_that_diverges_is_set_back_with_the_others() -> None:
    run = ProcessRun(TWO)
    update = run.learner.update

    def spoiling(rollout: Rollout) -> UpdateStats:
        rollout.reward[0, 0] = np.nan  # in the share of this process
        run.learner.update = update
        return update(rollout)

    try:
        killer = Killer(run)
        killer.recover()
        run.snapshot()
        run.learner.update = spoiling
        killer.recover()
        (event,) = [event for report in killer.reports for event in report.events]
        assert event["action"].startswith("set back to the weights of update")
        assert run._ranks.formed  # again, by the same process, with those weights
        assert run._ranks.workers[0].restarts == 0
    finally:
        run.close()


def test_who_has_learned_along_has_finished_work() -> None:
    rank, supervisor = MagicMock(), MagicMock()
    ranks = LearnerRanks(MagicMock(), [rank], supervisor)
    ranks.update(0, MagicMock())
    supervisor.worked.assert_not_called()  # the learner is still alone
    ranks.formed = True
    ranks.update(0, MagicMock())
    supervisor.worked.assert_called_once_with(rank)
    ranks.update(0, lambda: None)
    supervisor.worked.assert_called_once_with(rank)
