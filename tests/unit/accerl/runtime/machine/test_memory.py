"""The allocator keeps what an update frees."""

from __future__ import annotations

import subprocess
import sys

from accerl.runtime.machine.memory import keep_freed_memory

PROGRAM = """
import resource, torch
from accerl.runtime.machine.memory import give_back_large_blocks, keep_freed_memory
torch.set_num_threads(1)
{setting}
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(40):  # the heap grows until leftovers of a few bytes have found their places
    torch.empty({size}).fill_(1.0)
before = faults()
for _ in range(5):
    torch.empty({size}).fill_(1.0)
print(faults() - before)
"""


def page_faults(setting: str, size: int) -> int:
    """Pages that were touched anew while blocks of `size` floats came and went five times."""
    command = [sys.executable, "-c", PROGRAM.format(setting=setting, size=size)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_blocks_that_are_used_again_are_not_given_back() -> None:
    assert keep_freed_memory()
    size = 9_000_000  # 36 MB: by itself, glibc never keeps such a block
    assert page_faults("assert keep_freed_memory()", size) < 100 < page_faults("", size)


def test_blocks_of_the_size_of_weights_are_given_back_where_that_is_asked() -> None:
    size = 4_000_000  # 16 MB: by itself, glibc keeps such a block once it has been freed
    assert page_faults("", size) < 100 < page_faults("assert give_back_large_blocks()", size)
