"""How benchmarks measure: interleaved repeats, medians and their spread.

Configurations are interleaved within every repeat, and ratios are formed within a repeat before
their median is taken: a machine that slows down for a second slows both sides of a ratio.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

import numpy as np
import torch

from accerl.errors import UserError
from accerl.records import fingerprint, versions
from accerl.runtime.machine.cores import usable_cores
from accerl.runtime.process.supervise import end_with_parent, ignoring_interrupts, leave_interrupts
from controller.bundle.meta import code_revision

Key = TypeVar("Key", bound=Hashable)
T = TypeVar("T")


Clock = Callable[[], float]
"""returns seconds; differences count"""


def rotated(items: Sequence[T], by: int) -> list[T]:
    """Return items in another order for every repeat: drift must not favour one of them."""
    by %= len(items)
    return [*items[by:], *items[:by]]


def interleaved(
    calls: dict[Key, Callable[[], object]],
    repeats: int,
    seconds_per_call: float,
    clock: Clock = time.perf_counter,
) -> dict[Key, np.ndarray]:
    """Return seconds per call, [repeats] each: every round times every entry once.

    Args:
        calls: what is timed.
        repeats: rounds.
        seconds_per_call: how long an entry is timed in one round.
        clock: `time.thread_time` counts what calls of one thread compute, whoever else wants the
            core meanwhile.
    """
    rounds: dict[Key, int] = {}
    for key, call in calls.items():
        call()  # first calls allocate
        start = clock()
        call()
        rounds[key] = max(1, round(seconds_per_call / max(clock() - start, 1e-6)))
    seconds: dict[Key, np.ndarray] = {key: np.zeros(repeats) for key in calls}
    for repeat in range(repeats):
        for key, call in calls.items():
            start = clock()
            for _ in range(rounds[key]):
                call()
            seconds[key][repeat] = (clock() - start) / rounds[key]
    return seconds


@contextlib.contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Run a block with so many torch threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def median_and_spread(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Return the median over repeats and the interquartile range."""
    low, median, high = np.percentile(values, (25, 50, 75))
    return float(median), float(high - low)


def per_item(seconds: np.ndarray, name: str) -> dict[str, float]:
    """Return the median of `seconds` [repeats] in microseconds under `name`, and the spread."""
    median, spread = median_and_spread(seconds * 1e6)
    return {name: median, "spread": spread}


def apart(call: Callable[..., T], *arguments: Any, what: str) -> T:
    """Return what `call` returns in a fresh process, which leaves no memory behind.

    Raises:
        UserError: see `refuse_killed`.
    """
    spawn = multiprocessing.get_context("spawn")
    with refuse_killed(what), ProcessPoolExecutor(1, spawn, _heed_the_end) as fresh:
        with ignoring_interrupts():
            process = fresh.submit(os.getpid).result()
        measured = fresh.submit(call, *arguments)
        try:
            return measured.result()
        except BaseException:
            if not measured.done():  # this command is to end before the measurement does
                os.kill(process, signal.SIGTERM)
            raise


def _heed_the_end() -> None:
    """Have this process give up what it measures, and tidy up, when its parent asks it to."""
    leave_interrupts()
    end_with_parent()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


@contextlib.contextmanager
def refuse_killed(what: str) -> Iterator[None]:
    """Run a block that waits for processes which measure `what`.

    Raises:
        UserError: one of them was killed.
    """
    try:
        yield
    except BrokenProcessPool as error:
        raise UserError(
            f"the process that measured {what} was killed: is there memory enough?"
        ) from error


def timed_here() -> list[Any]:
    """Return what a saved time depends on beside what was timed: machine, its cores, and code."""
    return [fingerprint()["id"], usable_cores(), code_revision(), versions()]


def result_of(name: str, **fields: Any) -> dict[str, Any]:
    """Return a benchmark's result with the machine and the versions that it was measured on."""
    return {"bench": name, "fingerprint": fingerprint(), "versions": versions(), **fields}


SPREAD = "interquartile range over repeats, in the unit of the median beside it"
