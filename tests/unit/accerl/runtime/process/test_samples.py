"""The ring of recorded states: the newest arrive, in order, and not while they are being read."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from accerl.networks.observation import ObservationSpec
from accerl.runtime.process.samples import SampleRing


@pytest.fixture
def ring() -> Iterator[SampleRing]:
    ring = SampleRing(ObservationSpec((2,), "uint8"), 5)
    yield ring
    ring.close()


def states(*numbers: int) -> np.ndarray:
    return np.array([[number, number] for number in numbers], np.uint8)


def read(ring: SampleRing, reader: SampleRing) -> list[int]:
    taken = reader.lent(*ring.lend())
    ring.returned()
    assert (taken[:, 0] == taken[:, 1]).all()
    return taken[:, 0].tolist()


def test_every_state_arrives_once_and_the_newest_win(ring: SampleRing) -> None:
    reader = SampleRing(**ring.handle())
    assert read(ring, reader) == []
    ring.add(states(1, 2, 3))
    assert read(ring, reader) == [1, 2, 3]
    assert read(ring, reader) == []
    ring.add(states(4, 5, 6, 7))  # over the end
    assert read(ring, reader) == [4, 5, 6, 7]
    ring.add(states(8, 9, 10))
    ring.add(states(11, 12, 13))
    assert read(ring, reader) == [9, 10, 11, 12, 13]
    ring.add(states(*range(20, 32)))
    assert read(ring, reader) == [27, 28, 29, 30, 31]
    reader.close()


def test_what_is_lent_stays_as_it_is(ring: SampleRing) -> None:
    ring.add(states(1, 2, 3))
    span = ring.lend()
    ring.add(states(7, 7, 7, 7, 7))
    assert ring.lent(*span)[:, 0].tolist() == [1, 2, 3]
    ring.returned()
    ring.add(states(8))
    assert read(ring, ring) == [8]
