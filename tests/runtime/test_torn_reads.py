"""A writer that never stops against a reader in another process: no mixture is ever read."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any

from accerl.compress.artifact import Artifact
from accerl.spec import IDENTITY
from accerl.weights import Mailbox, Publication

PAYLOAD_BYTES = 400_000
SECONDS = 2.0


def publication(number: int) -> Publication:
    """Every byte and the length say which publication they belong to."""
    size = PAYLOAD_BYTES - 1000 * (number % 7)
    return Publication(
        number, [Artifact(IDENTITY, number, "onnx", bytes([number % 256]) * size)], [1.0]
    )


def read_until_told(handle: dict[str, Any], pipe: Connection) -> None:
    """Read as fast as possible; send back what was wrong, and how many numbers were seen."""
    mailbox = Mailbox(**handle)
    problems: list[str] = []
    reads, last, distinct = 0, -1, 0
    pipe.send("ready")
    while not pipe.poll():
        try:
            read = mailbox.get()
        except LookupError:
            continue
        except Exception as error:  # whatever a mixture of bytes provokes must be reported
            problems.append(repr(error)[:200])
            continue
        number, payload = read.number, read.artifacts[0].payload
        if payload != publication(number).artifacts[0].payload:
            problems.append(f"publication {number} holds {sorted(set(payload))}")
        if read.artifacts[0].version != number or number < last:
            problems.append(f"publication {number} after {last}")
        reads, distinct, last = reads + 1, distinct + (number != last), number
    pipe.send((problems[:5], len(problems), reads, distinct))
    mailbox.close()


def test_torn_reads_are_impossible() -> None:
    mailbox = Mailbox(PAYLOAD_BYTES + 1000)
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    process = context.Process(target=read_until_told, args=(mailbox.handle(), theirs))
    process.start()
    try:
        assert pipe.poll(60)
        assert pipe.recv() == "ready"
        number, end = 0, perf_counter() + SECONDS
        while perf_counter() < end:
            mailbox.put(publication(number))
            number += 1
        pipe.send("stop")
        assert pipe.poll(60)
        problems, count, reads, distinct = pipe.recv()
    finally:
        process.join(10)
        if process.is_alive():
            process.kill()
        mailbox.close()
    assert count == 0, problems
    assert number > 200
    assert distinct > 50, f"{reads} reads saw only {distinct} of {number} publications"
