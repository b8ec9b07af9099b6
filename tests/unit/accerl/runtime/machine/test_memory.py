"""The allocator keeps what an update frees."""

from __future__ import annotations

import subprocess
import sys

import pytest

from accerl.runtime.machine.memory import keep_freed_memory

PROGRAM = """
import os, resource, torch
from accerl.runtime.machine.memory import give_back_large_blocks, keep_freed_memory

def print_faults(setting, size):
    torch.set_num_threads(1)
    assert setting()
    def faults():
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(40):  # the heap grows until leftovers of a few bytes have found their places
        torch.empty(size).fill_(1.0)
    before = faults()
    for _ in range(5):
        torch.empty(size).fill_(1.0)
    print(faults() - before, flush=True)

untouched = lambda: True
for setting, size in ((keep_freed_memory, {kept}), (untouched, {kept}),
                      (give_back_large_blocks, {given}), (untouched, {given})):
    child = os.fork()  # an allocator of its own, without another import of torch
    if child == 0:
        print_faults(setting, size)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
KEPT = 9_000_000
"""floats; 36 MB: by itself, glibc never keeps such a block"""
GIVEN_BACK = 4_000_000
"""floats; 16 MB: by itself, glibc keeps such a block once it has been freed"""


@pytest.fixture(scope="module")
def page_faults() -> list[int]:
    """Pages touched anew while blocks come and go: kept, untouched, given back, untouched."""
    command = [sys.executable, "-c", PROGRAM.format(kept=KEPT, given=GIVEN_BACK)]
    return [int(line) for line in subprocess.check_output(command, text=True).splitlines()]


@pytest.mark.slow
def test_blocks_that_are_used_again_are_not_given_back(page_faults: list[int]) -> None:
    assert keep_freed_memory()
    assert page_faults[0] < 100 < page_faults[1]


@pytest.mark.slow
def test_blocks_of_the_size_of_weights_are_given_back_where_that_is_asked(
    page_faults: list[int],
) -> None:
    assert page_faults[3] < 100 < page_faults[2]


RELEASED = """
import os
import numpy as np
from accerl.runtime.machine.memory import keep_freed_memory, release_memory
from accerl.runtime.machine.usage import memory

assert keep_freed_memory()
held = [np.ones(100_000) for _ in range(400)]  # 320 MB
between = [np.ones(1_000) for _ in range(400)]
held.append(held)  # a cycle
del held
before = memory(os.getpid()).private
release_memory()
print((before - memory(os.getpid()).private) // 10**6)
"""


def test_what_a_run_has_left_is_handed_back() -> None:
    released = int(subprocess.check_output([sys.executable, "-c", RELEASED], text=True))
    assert 280 < released < 340
