"""Environments that fail end a run with one line, a traceback and a checkpoint."""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accerl.compress.pruning.sparse import TopologyConfig
from accerl.config import RunConfig
from accerl.errors import GameError, UserError
from accerl.monitor.strategies import FixedStrategy
from accerl.presets import load_preset
from accerl.records import read_json
from accerl.runtime.process.run import ProcessRun
from accerl.runtime.stuck import PAUSED_SECONDS
from accerl.training.run import _ended, make_run, run_training
from accerl.training.run_folder import TRACEBACK, saved_run
from tests.fixtures.own_games import NAME, own
from tests.fixtures.runs.inner_runs import fast_profile

pytestmark = pytest.mark.usefixtures("own_games")


@pytest.mark.parametrize(
    ("how", "runtime"),
    [
        ("raises", "serial"),
        ("nan-obs", "serial"),
        ("nan-reward", "serial"),
        ("raises", "process"),
        ("nan-obs", "process"),
    ],
)
def test_a_run_ends_with_a_checkpoint(how: str, runtime: str, tmp_path: Path) -> None:
    base = load_preset(own(f"Failing-{how}-v0")).with_learner(unroll=32, reuse=1)
    config = replace(base, seconds=60.0).with_runtime(
        runtime=runtime,
        clock="real" if runtime == "process" else "virtual",
        num_envs=4,
        num_actors=1,
    )
    out = tmp_path / "run"
    profile = None if runtime == "process" else fast_profile()
    with pytest.raises(GameError, match=r"environment \d (raised|returned)") as failed:
        run_training(config, FixedStrategy(), out=out, profile=profile)
    assert failed.value.saved
    message = str(failed.value)
    assert "\n" not in message
    assert ("actor-0: " in message) == (runtime == "process")
    assert "--resume goes on from the checkpoint" in message
    assert saved_run(out)["learner"]["updates"] == 0  # it failed in the first interval
    assert read_json(out / "config.json")["game"] == config.game
    traceback = out / TRACEBACK
    assert traceback.exists() == (how == "raises")
    if how == "raises":
        assert str(traceback) in message
        assert "the simulator crashed\nfor good" in traceback.read_text()
        assert "in step" in traceback.read_text()


def test_an_actor_whose_environment_never_returns_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an interval that is longer than what counts as a pause of the whole run."""
    interval_seconds = 6.0
    assert interval_seconds > PAUSED_SECONDS
    monkeypatch.setenv("ACCERL_TEST_STUCK", str(tmp_path / "stuck"))
    monkeypatch.setattr("accerl.runtime.stuck.STUCK_SECONDS", 2.5)
    # A rollout that was slow because the machine was busy earns its actor no more patience.
    monkeypatch.setattr("accerl.runtime.stuck.MANY", 1.0)
    base = load_preset(own("Stuck-v0")).with_learner(unroll=32, reuse=1)
    config = base.with_runtime(
        runtime="process", clock="real", num_envs=4, num_actors=1, eval_episodes=0
    )
    run = ProcessRun(config)
    try:
        report = run.advance(interval_seconds)
        while not report.events:
            report = run.advance(interval_seconds)
        waiting = run.learner.updates + run._slots.waiting
        while run.learner.updates <= waiting:  # until a rollout of its successor's is used
            run.advance(1.0)
    finally:
        run.close()
    event = report.events[0]
    assert event["role"] == "actor"
    assert event["cause"].startswith("finished no rollout in ")


def test_a_run_that_cannot_begin_closes_its_environments() -> None:
    held = held_games()
    broken = serial_config().with_learner(sparse=TopologyConfig(block=7))
    with pytest.raises(UserError, match="blocks of 7 do not divide"):
        make_run(broken, fast_profile())
    assert held.made >= 4 * fast_profile().num_actors
    assert held.open == set()


def test_a_traceback_that_is_no_text_is_written_all_the_same(tmp_path: Path) -> None:
    error = GameError("environment 1 raised OSError", "no such file: \udcff\n")
    assert "its traceback is in" in _ended(tmp_path, error)
    assert (tmp_path / TRACEBACK).read_text() == "no such file: \\udcff\n"
    error.details = "of a run whose folder is gone"
    assert _ended(tmp_path / "gone", error).startswith("its traceback cannot be written (No such")


def test_an_environment_that_cannot_be_closed_is_named_and_all_others_are_closed(
    capfd: pytest.CaptureFixture[str],
) -> None:
    held = held_games()
    run = make_run(serial_config(), fast_profile())
    assert len(held.open) == 4 * fast_profile().num_actors + 2
    held.clings = True
    run.close()
    assert len(held.open) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert re.search(r"environment \d raised RuntimeError in close: the viewer is gone", line)
    run.close()


def held_games() -> Any:
    """Return the class of environments that knows which of it are open; none are."""
    held = importlib.import_module(NAME).Held
    held.open.clear()
    held.made = 0
    return held


def serial_config() -> RunConfig:
    return load_preset(own("Held-v0")).with_runtime(
        runtime="serial", clock="virtual", num_envs=4, eval_episodes=2
    )
