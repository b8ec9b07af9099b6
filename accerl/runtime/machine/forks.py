"""Processes that learn or distil need not import torch: a server that has done so forks them."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
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
FORKS: Any = SPAWN
"""for processes that learn or distil"""
if sys.platform == "linux" and not _HAS_GPU:
    FORKS = multiprocessing.get_context("forkserver")
    FORKS.set_forkserver_preload(["torch", "torch._dynamo"])

Surroundings = tuple[dict[str, str], frozenset[int] | None]
"""environment variables, and the cores that may be used"""


def surroundings() -> Surroundings:
    """Return what a process inherits of this one, where no server stands between them."""
    cores = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    return dict(os.environ), cores


def call_in(surroundings: Surroundings, body: Callable[..., None], *arguments: Any) -> None:
    """Call `body` in the surroundings of the process that asked for this one.

    The server still has those of the moment that it was started at.
    """
    environment, cores = surroundings
    os.environ.clear()
    os.environ.update(environment)
    if cores is not None:
        os.sched_setaffinity(0, cores)
    body(*arguments)
