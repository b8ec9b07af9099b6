"""Seeds: no two streams are one, whatever their seeds, roles and indices."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from accerl.acting.evaluate import EVALUATION_SEED
from accerl.errors import UserError
from accerl.seeds import Role, generator, number, stream, torch_generator

INDICES = [(), (0,), (1,), (1000,), (0, 0), (0, 1), (1, 0), (1, 0, 0)]


def test_all_streams_of_many_seeds_differ() -> None:
    drawn = {
        stream(seed, role, *index).generate_state(2, np.uint64).tobytes()
        for seed, role, index in product(range(1000), Role, INDICES)
    }
    assert len(drawn) == 1000 * len(Role) * len(INDICES)


def test_actors_and_their_restarts_meet_no_other_seed_and_not_the_evaluation() -> None:
    indices = product(range(120), range(4), range(3), range(0, 200, 25))
    drawn = [number(seed, Role.ACTOR, *index) for seed, *index in indices]
    assert len(set(drawn)) == len(drawn)
    assert EVALUATION_SEED not in drawn


def test_a_stream_repeats() -> None:
    first, second = (generator(7, Role.ACTOR, 2).integers(2**40, size=4) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    drawn = [torch.rand(3, generator=torch_generator(7, Role.ACTOR, 2)) for _ in range(2)]
    assert torch.equal(*drawn)
    assert 0 <= number(7, Role.ACTOR, 2) == number(7, Role.ACTOR, 2) < 2**63


@pytest.mark.parametrize(("seed", "index"), [(-1, 0), (2**128, 0), (0, -1), (0, 2**32)])
def test_what_could_wrap_round_is_refused(seed: int, index: int) -> None:
    with pytest.raises(UserError, match=r"must lie between|out of range"):
        stream(seed, Role.ACTOR, index)
