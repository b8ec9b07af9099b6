"""Memory and processor time from /proc, also of processes that were replaced."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from accerl.runtime.machine.usage import (
    CpuMeter,
    cpu_seconds,
    descendants,
    growth_per_minute,
    memory,
    memory_by_name,
)

BUSY = """
import ctypes, time
ctypes.CDLL(None).prctl(15, b'spiel-f\\xc3')  # a name that is cut within a letter
while time.process_time() < {seconds}:
    pass
print('done', flush=True)
input()
"""


class Busy:
    """A process that has used so much processor time, and then waits."""

    def __init__(self, seconds: float) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", BUSY.format(seconds=seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"done\n"
        self.pid = self.process.pid

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def test_a_process_may_have_any_name() -> None:
    child = Busy(0.0)
    try:
        assert child.pid in descendants(os.getpid())
        assert cpu_seconds(child.pid) is not None
        assert memory(child.pid) is not None
    finally:
        child.end()


def test_what_may_not_be_read_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    child, read = Busy(0.0), Path.read_text

    def hidden(path: Path, **options: Any) -> str:  # as a system with hidepid=1 does
        if path.parts[:3] == ("/", "proc", "1"):
            raise PermissionError(13, "Operation not permitted")
        return read(path, **options)

    monkeypatch.setattr(Path, "read_text", hidden)
    try:
        assert child.pid in descendants(os.getpid())
        assert memory(1) is None
        assert cpu_seconds(1) is None
    finally:
        child.end()


def test_memory_counts_what_is_held() -> None:
    before = memory(os.getpid())
    # Not from the heap, which may have room for it that is held already.
    block = mmap.mmap(-1, 50_000_000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.write(b"1" * len(block))
    after = memory(os.getpid())
    assert before is not None
    assert after is not None
    assert after.private - before.private > 45_000_000
    assert after.rss - before.rss > 45_000_000
    assert after.rss > after.private
    block.close()
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert memory(process.pid) is None
    assert cpu_seconds(process.pid) is None
    assert set(memory_by_name({"learner": os.getpid(), "gone": process.pid})) == {"learner"}


def test_a_process_that_was_killed_still_says_what_it_used() -> None:
    busy = Busy(0.2)
    os.kill(busy.pid, signal.SIGKILL)
    time.sleep(0.05)
    used = cpu_seconds(busy.pid)
    assert used is not None
    assert 0.15 < used < 5.0
    busy.end()


def test_the_meter_adds_up_processes_that_followed_each_other() -> None:
    meter = CpuMeter()
    first, second = Busy(0.2), Busy(0.3)
    meter.forget({"actor-0": first.pid})  # its start-up
    meter.note({"actor-0": first.pid})
    assert meter.take() == {"actor-0": 0.0}
    meter.note({"actor-0": second.pid})  # has taken its place: all of it counts
    used = meter.take()["actor-0"]
    assert 0.25 < used < 5.0
    meter.note({"actor-0": second.pid})
    assert meter.take()["actor-0"] <= 0.02  # it may just be going to rest
    for busy in (first, second):
        busy.end()
    meter.note({"actor-0": second.pid})  # has ended: nothing is known, nothing is booked
    assert meter.take() == {}
    meter.forget({"learner": os.getpid()})
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    meter.note({"learner": os.getpid()})
    assert 0.1 <= meter.take()["learner"] < 5.0


def test_growth_is_that_of_the_second_half() -> None:
    seconds = [5.0 * i for i in range(21)]
    held = [1000.0 + 3.0 * t if t >= 50.0 else 20.0 * t for t in seconds]
    assert growth_per_minute(seconds, held) == pytest.approx(180.0)
    assert growth_per_minute(seconds, [7.0] * 21) == 0.0
    assert growth_per_minute(seconds[:3], held[:3]) is None
    assert growth_per_minute([], []) is None
