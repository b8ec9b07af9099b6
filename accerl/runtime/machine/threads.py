"""torch's threads: a run fixes their number, and leaves its caller's as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def own_threads(count: int = 0) -> Iterator[None]:
    """Let torch compute on `count` threads meanwhile (0: on as many as before)."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
