"""What a process distils, a piece at a time."""

from __future__ import annotations

import pytest
import torch

from accerl.compress import CompressionConfig, Compressor
from accerl.compress.compliance import VECTOR, random_states
from accerl.networks.policy_net import make_policy
from accerl.runtime.publishing.charges import Charge
from accerl.runtime.publishing.pieces import Pieces
from accerl.spec import CompressionSpec

NET2, NET3 = CompressionSpec(student="net2"), CompressionSpec(student="net3")


@pytest.mark.parametrize("updates", [0, 8])
def test_a_network_that_is_refused_leaves_the_others_their_turn(updates: int) -> None:
    generator = torch.Generator().manual_seed(0)
    learner = make_policy("net3", VECTOR, 5, generator)
    compressor = Compressor(VECTOR, 5, CompressionConfig(), generator)
    compressor.observe(random_states(VECTOR))
    pieces = Pieces(compressor, learner)
    pieces.version = 1
    pieces.charges = (Charge(NET2, updates=updates), Charge(NET3, updates=updates))
    done = [pieces.step() for _ in range(4)]
    assert sum(done) == 8
    assert [key.student for key in compressor.pool] == ["net3"]
    assert pieces.has_followed
