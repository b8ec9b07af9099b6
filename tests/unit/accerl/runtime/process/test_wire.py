"""Messages between processes: trees survive, the end of a process is noticed."""

from __future__ import annotations

import multiprocessing
import os
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from accerl.runtime.process.messages import Filled, Learn, Ready
from accerl.runtime.process.wire import Channel, PeerGoneError, pack, unpack

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
)
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5).filter(lambda key: key[:1] != "$"), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(TREES)
def test_a_tree_survives(tree: Any) -> None:
    assert unpack(pack(tree)) == tree


def test_arrays_and_tensors_survive_bit_by_bit() -> None:
    generator = torch.Generator().manual_seed(3)
    tree = {
        "ring": np.arange(24, dtype=np.uint8).reshape(2, 3, 4)[:, ::2],
        "none": np.empty((0, 5), np.float32),
        "nested": [{"weight": torch.randn(3, 2, generator=generator)}, torch.tensor(4.0)],
        "generator": generator.get_state(),
        "nan": np.array([np.nan, np.inf]),
    }
    assert unpack(pack([np.empty(0)]))[0].shape == (0,)
    copy = unpack(pack(tree))
    for name in ("ring", "none", "nan"):
        assert copy[name].dtype == tree[name].dtype
        np.testing.assert_array_equal(copy[name], tree[name])
        assert copy[name].flags.writeable
    assert torch.equal(copy["nested"][0]["weight"], tree["nested"][0]["weight"])
    assert copy["nested"][1].shape == ()
    other = torch.Generator()
    other.set_state(copy["generator"])
    assert torch.equal(torch.rand(3, generator=other), torch.rand(3, generator=generator))


def test_the_end_of_the_peer_is_noticed_from_both_sides() -> None:
    ours, theirs = (Channel(pipe) for pipe in multiprocessing.Pipe())
    ours.send(Learn(3))
    theirs.send(Filled(2))
    theirs.close()
    assert ours.receive() == Filled(2)  # what was sent before the end still arrives
    with pytest.raises(PeerGoneError):
        ours.receive()
    with pytest.raises(PeerGoneError):
        ours.send(Ready())
    ours.close()
    ours.close()
    with pytest.raises(PeerGoneError):
        ours.receive()


def test_a_message_that_was_cut_off_is_no_message() -> None:
    pipe, theirs = multiprocessing.Pipe()
    channel = Channel(pipe)
    theirs.send_bytes(b"\x00" * 10)
    # The length of a message, and the death of its sender in the middle of it.
    os.write(theirs.fileno(), b"\x00\x00\x10\x00" + b"abc")
    theirs.close()
    pipe.recv_bytes()
    with pytest.raises(PeerGoneError):
        channel.receive()
    channel.close()
