"""A writer that never stops against readers in other processes: no mixture is ever read."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pytest
import torch

from accerl.networks.observation import ObservationSpec
from accerl.networks.policy_net import PolicyNet, make_policy
from accerl.weights import Mailbox, WeightVector
from tests.fixtures.runs.mailbox_readers import publication, read_until_stopped

SMALL_BYTES = 6_000
OBSERVATION = ObservationSpec((8,), "float32")


def stress(publications: int, readers: int, most_bytes: int, *, enough: int, checked: bool) -> None:
    """Publish, with every reader busy, until each has seen `enough`; nothing may be torn.

    A reader that a loaded machine lets wait gets more to read, up to a hundred times as much.
    """
    mailbox = Mailbox(most_bytes + 1000, checked=checked)
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for _ in range(readers):
        pipe, theirs = context.Pipe()
        arguments = (mailbox.handle(), most_bytes, enough, theirs)
        process = context.Process(target=read_until_stopped, args=arguments, daemon=True)
        process.start()
        pipes.append(pipe)
        processes.append(process)
    try:
        for pipe in pipes:
            assert pipe.poll(100)
            assert pipe.recv() == "ready"
        number = 0
        while number < publications or not all(pipe.poll() for pipe in pipes):
            assert number < 100 * publications
            mailbox.put(publication(number, most_bytes))
            number += 1
        for pipe in pipes:
            assert pipe.recv() == "enough"
            pipe.send("stop")
        for pipe in pipes:
            assert pipe.poll(60)
            problems, count, distinct, last = pipe.recv()
            assert count == 0, problems
            assert last < number
            assert distinct >= enough
    finally:
        for process in processes:
            process.join(10)
            process.kill()
            process.join()
        mailbox.close()


@pytest.mark.parametrize("checked", [False, True])
def test_torn_reads_are_impossible(checked: bool) -> None:
    stress(10_000, 2, SMALL_BYTES, enough=50, checked=checked)


def test_large_publications_are_not_torn_either() -> None:
    stress(1_000, 1, 400_000, enough=20, checked=False)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_hundred_thousand_publications_against_four_readers() -> None:
    stress(100_000, 4, SMALL_BYTES, enough=500, checked=False)


def policy_of(version: int, net: PolicyNet) -> PolicyNet:
    """Make every weight of a network the number of its version."""
    with torch.no_grad():
        for tensor in net.state_dict().values():
            tensor.fill_(float(version))
    return net


ENOUGH = 20
"""versions that a reader has to see of a writer that never rests"""


def load_until_told(handle: dict[str, Any], pipe: Connection) -> None:
    """Load weights as fast as possible; say when that was enough, and send back the mixtures."""
    vector = WeightVector(**handle)
    net = make_policy("original", OBSERVATION, 3, torch.Generator())
    mixtures, versions = [], set()
    pipe.send("ready")
    while not pipe.poll():
        try:
            version = vector.load_into(net)
        except LookupError:
            continue
        values = {float(v) for t in net.state_dict().values() for v in np.unique(t.numpy())}
        if version not in versions and len(versions) == ENOUGH:
            pipe.send("enough")
        versions.add(version)
        if values != {float(version)}:
            mixtures.append((version, sorted(values)[:5]))
    pipe.send((mixtures[:5], len(versions)))
    vector.close()


def test_weights_are_not_torn() -> None:
    net = make_policy("original", OBSERVATION, 3, torch.Generator())
    vector = WeightVector(sum(tensor.numel() for tensor in net.state_dict().values()))
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    process = context.Process(target=load_until_told, args=(vector.handle(), theirs), daemon=True)
    process.start()
    try:
        assert pipe.poll(100)
        pipe.recv()
        for version in range(100_000):  # on a busy machine the reader may sleep for long
            vector.put(version, policy_of(version, net))
            if version >= 3_000 and pipe.poll():
                break
        assert pipe.poll(60)
        assert pipe.recv() == "enough"
        pipe.send("stop")
        assert pipe.poll(60)
        mixtures, versions = pipe.recv()
    finally:
        process.join(10)
        process.kill()
        process.join()
        vector.close()
    assert not mixtures
    assert versions > ENOUGH
