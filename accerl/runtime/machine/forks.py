"""Processes that learn or distil need not import torch: a server that has done so forks them."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import reduction
from pathlib import Path
from typing import Any

SPAWN = multiprocessing.get_context("spawn")
"""for processes without torch, which are small"""
# Never fork this process: torch and ONNX Runtime hold threads that a fork would leave in
# mid-step. The server imports torch, with the compiler that every optimiser asks for, which
# starts no thread, and never computes with it. Its forks are there in milliseconds, where such
# an import takes four seconds of a core, and share what is in memory. A GPU's driver, and
# libraries of systems other than Linux, must not be used after a fork.
_HAS_GPU = any(Path(name).exists() for name in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg"))
_FORKS: Any = SPAWN
if sys.platform == "linux" and not _HAS_GPU:
    _FORKS = multiprocessing.get_context("forkserver")
    _FORKS.set_forkserver_preload(["accerl.runtime.machine.preload"])
_IMPORTED_BY = os.getpid()
LONGEST_FOLDER = 75
"""characters of the folder for temporary files: the server's socket in it may have 107 at most"""


def for_torch() -> Any:
    """Return the context of processes that learn or distil: forked where that is possible.

    A copy of this process (os.fork) spawns them, as the server is not its child.
    """
    fits = len(os.fsencode(tempfile.gettempdir())) <= LONGEST_FOLDER
    return _FORKS if fits and os.getpid() == _IMPORTED_BY else SPAWN


class _Output:
    """This process's stdout (1) or stderr (2), which takes that number's place in a fork."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Callable[..., None], tuple[Any, ...]]:
        """Be passed on as the file that is open now."""
        return _take, (self.number, reduction.DupFd(self.number))


def _take(number: int, passed: Any) -> None:
    descriptor = passed.detach()
    os.dup2(descriptor, number)
    os.close(descriptor)


Surroundings = tuple[dict[str, str], frozenset[int] | None, tuple[_Output | None, ...]]
"""environment variables, the cores that may be used, and where messages go"""


def surroundings(context: Any) -> Surroundings:
    """Return what a process inherits of this one, where no server stands between them."""
    cores = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    outputs = () if context is SPAWN else tuple(_Output(n) for n in (1, 2) if _is_open(n))
    return dict(os.environ), cores, outputs


def _is_open(number: int) -> bool:
    with suppress(OSError):
        os.fstat(number)
        return True
    return False


def call_in(surroundings: Surroundings, body: Callable[..., None], *arguments: Any) -> None:
    """Call `body` in the surroundings of the process that asked for this one.

    The server still has those of the moment that it was started at. (Outputs took their places
    when they were read.)
    """
    environment, cores, _ = surroundings
    os.environ.clear()
    os.environ.update(environment)
    if cores is not None:
        os.sched_setaffinity(0, cores)
    body(*arguments)
