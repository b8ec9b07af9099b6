"""Signals to `accerl train` with processes: everything ends, nothing is left, the run goes on."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from accerl.checkpoint import has_checkpoint
from accerl.records import read_json, read_metrics
from accerl.training.run_folder import CHECKPOINT
from tests.fixtures.command_line import call
from tests.fixtures.runs.processes import alive, children, shared_memory, wait_for

COMMAND = [sys.executable, "-m", "studies.cli", "train"]
REAL = ["--runtime", "process", "--set", "runtime.num_learners=2"]


def _heed() -> None:
    """A suite that is started in the background ignores them, and its children would too."""
    for sign in (signal.SIGINT, signal.SIGHUP):
        signal.signal(sign, signal.SIG_DFL)


class Started:
    """A training command in a process group of its own, with a second or so behind it."""

    def __init__(self, game: str, out: Path, arguments: list[str]) -> None:
        self.out = out
        with (out.parent / "stderr").open("w") as errors:
            self.process = subprocess.Popen(
                [*COMMAND, game, *arguments, "--out", str(out)],
                stderr=errors,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=_heed,
            )
        try:
            # It comes after the first interval's record, and a run that has none cannot go on.
            wait_for(lambda: has_checkpoint(out / CHECKPOINT), "a first checkpoint")
            assert self.process.poll() is None, self.stderr
            self.children = children(self.process.pid)
            self.segments = shared_memory(self.process.pid)
            assert len(self.children) >= 4  # with Python's tracker of shared memory
            assert len(self.segments) >= 10
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """End it, if it has not ended."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    @property
    def stderr(self) -> str:
        return (self.out.parent / "stderr").read_text()

    def nothing_is_left(self) -> None:
        self.process.wait(60)
        wait_for(lambda: not any(map(alive, self.children)), "children to end")
        wait_for(lambda: not any(p.exists() for p in self.segments), "shared memory to go")


@pytest.fixture
def catch(tmp_path: Path) -> Iterator[Started]:
    started = Started("catch", tmp_path / "run", [*REAL, "--seconds", "600"])
    yield started
    started.end()


def resume(out: Path) -> list[int]:
    """Go on for a moment; return the indices of all intervals."""
    seconds = sum(report.seconds for report in read_metrics(out)) + 0.5
    arguments = [*REAL, "--seconds", str(seconds), "--resume", "--out", str(out)]
    assert call("train", "catch", *arguments) == 0
    assert read_json(out / "summary.json")["seconds"] >= seconds
    return [report.index for report in read_metrics(out)]


def test_ctrl_c_ends_everything_and_the_run_can_be_resumed(catch: Started) -> None:
    os.killpg(catch.process.pid, signal.SIGINT)  # the whole group, as a terminal does
    catch.nothing_is_left()
    assert catch.process.returncode == 130
    last = catch.stderr.splitlines()[-1]
    assert last.startswith("accerl: interrupted; ")
    assert last.endswith("run --resume to go on from there")
    assert "Traceback" not in catch.stderr
    assert not (catch.out / "summary.json").exists()
    before = len(list(read_metrics(catch.out)))
    indices = resume(catch.out)
    assert len(indices) > before
    assert indices == list(range(len(indices)))


@pytest.mark.slow
def test_a_run_whose_terminal_is_closed_ends_as_by_ctrl_c(tmp_path: Path) -> None:
    """What it still prints, such as its progress, has nowhere to go."""
    ours, theirs = pty.openpty()

    def take_the_terminal() -> None:
        _heed()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    with subprocess.Popen(
        [*COMMAND, "catch", *REAL, "--seconds", "600", "--out", str(tmp_path / "run")],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=take_the_terminal,
    ) as training:
        os.close(theirs)
        wait_for(lambda: has_checkpoint(tmp_path / "run" / CHECKPOINT), "a first checkpoint")
        assert training.poll() is None
        os.close(ours)
        assert training.wait(60) == 130
    indices = resume(tmp_path / "run")
    assert indices == list(range(len(indices)))


@pytest.mark.slow
def test_a_terminated_run_tidies_up_too(catch: Started) -> None:
    catch.process.terminate()  # the main process alone
    catch.nothing_is_left()
    assert catch.process.returncode == 130
    assert "Traceback" not in catch.stderr
    assert (catch.out / "checkpoint" / "state.json").is_file()


def test_children_end_by_themselves_when_the_main_process_is_killed(catch: Started) -> None:
    catch.process.kill()
    catch.nothing_is_left()
    assert catch.process.returncode == -signal.SIGKILL
    assert list(read_metrics(catch.out))
    indices = resume(catch.out)
    assert indices == list(range(len(indices)))


@pytest.mark.slow
def test_ctrl_c_ends_the_measurement_of_a_profile_in_one_line(tmp_path: Path) -> None:
    command = [*COMMAND[:-1], "profile", "measure", "--game", "catch", "--out", str(tmp_path)]
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as measuring:
        # Python's tracker of shared memory, and the actor.
        wait_for(lambda: len(children(measuring.pid)) == 2, "the actor to start")
        started = children(measuring.pid)
        os.killpg(measuring.pid, signal.SIGINT)
        _, errors = measuring.communicate(timeout=60)
    assert measuring.returncode == 130
    assert "Traceback" not in errors
    assert errors.splitlines()[-1].startswith("accerl: interrupted")
    wait_for(lambda: not any(map(alive, started)), "children to end")
