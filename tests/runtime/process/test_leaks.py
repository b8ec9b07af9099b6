"""Many runs in one process leave nothing behind: no memory, no process, no descriptor."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from accerl.config import RunConfig
from accerl.runtime.process.run import ProcessRun
from accerl.spec import CompressionSpec, Decision
from tests.fixtures.runs.process_runs import Killer, immortal, quick_catch
from tests.fixtures.runs.processes import children, shared_memory


def traces() -> tuple[set[Path], list[int], set[str]]:
    """Return the shared memory, child processes, and open descriptors of this process."""
    descriptors = set()
    for entry in Path("/proc/self/fd").iterdir():
        if entry.is_symlink():  # the one that lists the folder has gone by now
            descriptors.add(entry.name)
    return shared_memory(os.getpid()), children(os.getpid()), descriptors


def play(config: RunConfig, *, kill: bool = False) -> None:
    run = ProcessRun(config, supervisor=immortal())
    try:
        run.apply(Decision.of(CompressionSpec(bits=8)))
        run.advance(0.05)
        run.snapshot()
        if kill:
            Killer(run).strike()
    finally:
        segments = shared_memory(os.getpid())
        run.close()
    assert len(segments) >= 12
    assert not [path for path in segments if path.exists()]


def before_and_after(configs: list[RunConfig]) -> list[object]:
    play(configs[0])  # the first also starts what stays: the server of forks, Python's tracker
    before = traces()
    for number, config in enumerate(configs):
        play(config, kill=number % 4 == 1)
    return [before, traces()]


@pytest.mark.parametrize(
    "runs",
    [
        2,  # the second loses an actor
        # A leak that is rare shows in many runs; each starts a compressor, which takes seconds.
        pytest.param(20, marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    ],
)
def test_several_runs_leave_nothing(runs: int) -> None:
    before, after = before_and_after([quick_catch(num_envs=4)] * runs)
    assert after == before


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_runs_with_every_role_leave_nothing() -> None:
    before, after = before_and_after(
        [quick_catch(num_actors=2, num_learners=2, eval_episodes=2)] * 8
    )
    assert after == before


def fail_at_the_start(moment: str) -> None:
    run = ProcessRun(quick_catch())
    if moment == "started":
        for worker in run.workers:
            worker.start()
    run.close()


@pytest.mark.parametrize("moment", ["built", "started"])
def test_a_run_that_fails_at_the_start_leaves_nothing(moment: str) -> None:
    fail_at_the_start(moment)  # the first starts what stays: the server of forks, Python's tracker
    before = traces()
    fail_at_the_start(moment)
    assert traces() == before


@pytest.mark.parametrize(
    "name",
    [
        "process.run.SharedBlocks.of",
        "process.blocks.Mailbox.__init__",
        "process.publishing.RemotePublishing",
    ],
)
def test_a_run_that_is_interrupted_while_it_is_built_leaves_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, segments = shared_memory(os.getpid()), set[Path]()

    def interrupt(*_: object, **__: object) -> None:
        segments.update(shared_memory(os.getpid()) - before)
        raise KeyboardInterrupt

    monkeypatch.setattr(f"accerl.runtime.{name}", interrupt)
    with pytest.raises(KeyboardInterrupt):
        ProcessRun(quick_catch(num_distillers=1))
    assert segments
    assert not [path for path in segments if path.exists()]


def test_a_close_that_is_interrupted_gives_back_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    run = ProcessRun(quick_catch())
    segments = shared_memory(os.getpid())
    monkeypatch.setattr(run._ranks, "dissolve", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run.close()
    assert segments
    assert not [path for path in segments if path.exists()]
