"""A disturber: a small program that does to a machine, or to a process, what an event says.

    disturber.py burn CORE        compute on that core without pause, as another program does
    disturber.py slow PID FACTOR  have a process advance as on a core that is so many times slower
    disturber.py guard PID        have a process that was stopped go on when its parent is gone

It imports nothing of AcceRL, starts within milliseconds, and ends when its standard input closes,
which the kernel does for a parent that was killed. Nothing that it stopped stays so.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress

SLICE_SECONDS = 0.005
"""between two looks: short beside a rollout"""


def is_over(seconds: float) -> bool:
    """Whether standard input closes within so many seconds."""
    return bool(select.select([0], [], [], seconds)[0])


def cpu_seconds(pid: int) -> float:
    """Return the processor seconds of a process with all its threads, to the nanosecond.

    Raises:
        OSError: it has ended.
    """
    return time.clock_gettime((~pid << 3) | 2)  # its CPU clock: clock_getcpuclockid(3)


def burn(seconds: float = float("inf")) -> bool:
    """Use so many processor seconds; return whether standard input has closed meanwhile."""
    begun = time.process_time()
    while (left := seconds - (time.process_time() - begun)) > 0.0:
        piece = time.process_time() + min(left, SLICE_SECONDS)
        while time.process_time() < piece:
            pass
        if is_over(0.0):
            return True
    return False


def slow(pid: int, factor: float) -> None:
    """Stop a process after each slice, and compute in its place for what it would need besides.

    A core at 1 / factor of its speed needs `factor` seconds for a second's work, and is busy all
    the while: others get no more of it.
    """
    os.sched_setaffinity(0, os.sched_getaffinity(pid))  # it is that core which is slower
    used = cpu_seconds(pid)
    over = False
    while not over and not is_over(SLICE_SECONDS):
        now = cpu_seconds(pid)
        owed, used = (factor - 1.0) * (now - used), now
        if owed <= 0.0:
            continue
        os.kill(pid, signal.SIGSTOP)
        try:
            over = burn(owed)
        finally:
            os.kill(pid, signal.SIGCONT)


def main() -> None:
    """Do what the command line says until standard input closes, or the process has ended."""
    for sign in (signal.SIGINT, signal.SIGHUP):  # the run decides when this ends
        signal.signal(sign, signal.SIG_IGN)
    kind, *arguments = sys.argv[1:]
    with suppress(OSError):
        if kind == "burn":
            os.sched_setaffinity(0, [int(arguments[0])])
            burn()
        elif kind == "slow":
            slow(int(arguments[0]), float(arguments[1]))
        else:
            try:
                select.select([0], [], [])
            finally:
                os.kill(int(arguments[0]), signal.SIGCONT)


if __name__ == "__main__":
    main()
