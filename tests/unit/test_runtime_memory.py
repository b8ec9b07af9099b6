"""The allocator keeps what an update frees."""

from __future__ import annotations

import subprocess
import sys

from accerl.runtime.memory import keep_freed_memory

PROGRAM = """
import resource, torch
from accerl.runtime.memory import keep_freed_memory
torch.set_num_threads(1)
if {keep}:
    assert keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    torch.empty(16_000_000).fill_(1.0)
before = faults()
for _ in range(5):
    torch.empty(16_000_000).fill_(1.0)
print(faults() - before)
"""


def page_faults(keep: bool) -> int:
    command = [sys.executable, "-c", PROGRAM.format(keep=keep)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_blocks_that_are_used_again_are_not_given_back() -> None:
    assert keep_freed_memory()
    assert page_faults(keep=True) < 100 < page_faults(keep=False)
