"""Publications and the mailbox, within one process."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import pytest

from accerl.compress.artifact import Artifact
from accerl.spec import IDENTITY, CompressionSpec
from accerl.weights import Mailbox, Publication, publication_from_state, publication_state

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
    with pytest.raises(ValueError, match=r"publication of \d+ bytes exceeds 2000"):
        mailbox.put(publication(1, 2000))
    assert mailbox.latest == 0
    assert equal(mailbox.get(), publication(0))
    mailbox.put(publication(1))
    assert equal(mailbox.get(), publication(1))


def test_closing_removes_the_memory(mailbox: Mailbox) -> None:
    name = mailbox.handle()["name"]
    reader = Mailbox(**mailbox.handle())
    reader.close()
    SharedMemory(name=name).close()  # the reader removed nothing
    mailbox.close()
    mailbox.close()
    with pytest.raises(FileNotFoundError):
        SharedMemory(name=name)
