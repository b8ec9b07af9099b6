"""Publications and the mailbox, within one process."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import pytest
import torch

from accerl.compress.artifact import Artifact
from accerl.errors import UserError
from accerl.networks.observation import ObservationSpec
from accerl.networks.policy_net import make_policy
from accerl.spec import IDENTITY, CompressionSpec
from accerl.weights import (
    Mailbox,
    Publication,
    SharedBlock,
    WeightVector,
    publication_from_state,
    publication_state,
)
from tests.fixtures.runs.inner_runs import weights_hash

INT8 = CompressionSpec(bits=8)


def publication(number: int, payload_bytes: int = 100) -> Publication:
    artifacts = [
        Artifact(IDENTITY, 10 * number, "onnx", bytes([number % 256]) * payload_bytes),
        Artifact(INT8, 10 * number + 1, "onnx", b"\x00\xff" * 7),
    ]
    return Publication(number, artifacts, [0.25, 0.75])


def equal(one: Publication, two: Publication) -> bool:
    return (one.number, one.shares, one.artifacts) == (two.number, two.shares, two.artifacts)


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    mailbox = Mailbox(2000)
    yield mailbox
    mailbox.close()


def test_a_publication_survives_its_bytes() -> None:
    original = publication(3)
    assert equal(Publication.from_bytes(original.to_bytes()), original)
    state = publication_state(original)
    assert state is not None
    assert state.dtype == np.uint8
    restored = publication_from_state(state)
    assert restored is not None
    assert equal(restored, original)
    assert publication_from_state(publication_state(None)) is None


def test_before_the_first_publication_there_is_nothing(mailbox: Mailbox) -> None:
    assert mailbox.latest == -1
    with pytest.raises(LookupError, match="nothing has been published"):
        mailbox.get()


def test_readers_get_the_newest_publication_whatever_its_size(mailbox: Mailbox) -> None:
    reader = Mailbox(**mailbox.handle())
    for number, size in enumerate([100, 1000, 10, 1, 900]):
        sent = publication(number, size)
        assert mailbox.put(sent) == len(sent.to_bytes())
        assert reader.latest == number
        assert equal(reader.get(), sent)
        assert equal(reader.get(), sent)  # reading takes nothing away
    reader.close()


def test_a_publication_that_does_not_fit_is_refused_and_changes_nothing(mailbox: Mailbox) -> None:
    mailbox.put(publication(0))
    with pytest.raises(UserError, match=r"has \d,\d+ bytes, .* room for 2,000, .* serial$"):
        mailbox.put(publication(1, 2000))
    assert mailbox.latest == 0
    assert equal(mailbox.get(), publication(0))
    mailbox.put(publication(1))
    assert equal(mailbox.get(), publication(1))


def test_what_came_to_nothing_new_is_settled_without_being_sent(mailbox: Mailbox) -> None:
    reader = Mailbox(**mailbox.handle())
    assert reader.settled == -1
    mailbox.put(publication(3))
    assert reader.settled == 3
    mailbox.settle(4)
    assert (reader.settled, reader.latest) == (4, 3)
    assert equal(reader.get(), publication(3))
    mailbox.put(publication(5))
    assert (reader.settled, reader.latest) == (5, 5)
    reader.close()


def test_closing_removes_the_memory(mailbox: Mailbox) -> None:
    name = mailbox.handle()["name"]
    reader = Mailbox(**mailbox.handle())
    reader.close()
    SharedMemory(name=name).close()  # the reader removed nothing
    mailbox.close()
    mailbox.close()
    with pytest.raises(FileNotFoundError):
        SharedMemory(name=name)


def killed_in_the_middle(block: SharedBlock) -> None:
    """Leave what a writer leaves that dies while it copies."""
    which = (int(block._words[0]) + 1) % block._count
    block._words[1 + which * block._WORDS] |= 1
    block._buffers[which][:10] = 77


def test_a_writer_that_was_killed_spoils_nothing(mailbox: Mailbox) -> None:
    for number in range(4):
        mailbox.put(publication(2 * number))  # numbers may be left out
        killed_in_the_middle(mailbox)
        assert mailbox.latest == 2 * number
        assert equal(mailbox.get(), publication(2 * number))
    successor = Mailbox(**mailbox.handle())
    successor.put(publication(9, 300))
    successor.close()
    assert equal(mailbox.get(), publication(9, 300))


def test_with_one_buffer_a_reader_waits_for_the_next_writer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SharedBlock, "_ATTEMPTS", 3)
    block = SharedBlock(100, 1)
    block.write(5, [np.arange(10, dtype=np.uint8)])
    killed_in_the_middle(block)
    with pytest.raises(TimeoutError, match="in the making"):
        block.read(np.ndarray.tobytes)
    block.write(6, [np.arange(20, dtype=np.uint8)])
    assert block.read(np.ndarray.tobytes) == (6, bytes(range(20)))
    block.close()


def test_what_changes_under_a_reader_is_read_again(mailbox: Mailbox) -> None:
    """The second try sees what overtook the first, whatever the first made of it."""
    block, seen = mailbox, []

    def overtaken(data: np.ndarray) -> bytes:
        seen.append(bytes(data))
        if len(seen) == 1:
            for number in (2, 3):
                block.write(number, [np.full(30, number, np.uint8)])
            raise ValueError("half of this is new")
        return seen[-1]

    block.write(1, [np.full(50, 1, np.uint8)])
    assert block.read(overtaken) == (3, bytes([3] * 30))
    assert len(seen) == 2
    with pytest.raises(ZeroDivisionError):  # a failure that nothing overtook is the reader's own
        block.read(lambda data: len(data) // 0)


@pytest.mark.parametrize("checked", [False, True])
def test_a_checksum_finds_what_the_counters_do_not(
    monkeypatch: pytest.MonkeyPatch, checked: bool
) -> None:
    """As on a machine where the counters become visible before what they guard."""
    monkeypatch.setattr(SharedBlock, "_ATTEMPTS", 3)
    block = SharedBlock(100, 2, checked=checked)
    block.write(0, [np.zeros(5, np.uint16), np.ones((2, 2), np.float32)])
    assert block.read(len) == (0, 26)
    block._buffers[0][3] = 1
    if checked:
        with pytest.raises(TimeoutError):
            block.read(len)
    else:
        assert block.read(len) == (0, 26)
    block.close()


def test_weights_travel_as_one_vector() -> None:
    observation = ObservationSpec((6,), "float32")
    policy, other = (
        make_policy("net1", observation, 3, torch.Generator().manual_seed(seed)) for seed in (0, 1)
    )
    size = sum(tensor.numel() for tensor in policy.state_dict().values())
    vector = WeightVector(size)
    reader = WeightVector(**vector.handle())
    with pytest.raises(LookupError):
        reader.load_into(other)
    vector.put(7, policy)
    assert weights_hash(other) != weights_hash(policy)
    assert reader.load_into(other) == 7
    assert weights_hash(other) == weights_hash(policy)
    with torch.no_grad():
        policy.value_head.bias.add_(1.0)
    vector.put(8, policy)
    assert reader.load_into(other) == 8
    assert weights_hash(other) == weights_hash(policy)
    reader.close()
    vector.close()


def test_gradients_follow_where_asked_for() -> None:
    observation = ObservationSpec((6,), "float32")
    policy, other = (
        make_policy("net1", observation, 3, torch.Generator().manual_seed(seed)) for seed in (0, 1)
    )
    size = sum(tensor.numel() for tensor in policy.state_dict().values())
    vector = WeightVector(size, gradients=True)
    reader = WeightVector(**vector.handle())
    vector.put(0, policy)  # nothing was learned yet
    assert reader.load_into(other) == 0
    assert all(weight.grad is not None and not weight.grad.any() for weight in other.parameters())
    logits, values = policy(torch.ones(2, 6))
    (logits.sum() + values.sum()).backward()
    vector.put(1, policy)
    assert reader.load_into(other) == 1
    assert weights_hash(other) == weights_hash(policy)
    for one, two in zip(policy.parameters(), other.parameters(), strict=True):
        assert one.grad is not None
        assert two.grad is not None
        assert torch.equal(one.grad, two.grad)
    reader.close()
    vector.close()
