"""What a controller looks at: the one feature that it was built to follow, and no other."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from accerl.monitor.features import FEATURE_NAMES
from controller.policy.policy import ControllerPolicy
from studies.contest.budget import SMALL_ACTIONS
from studies.contest.effects import GRID_POINTS, effects

FOLLOWED = FEATURE_NAMES.index("infer_share")
STUDENT = 2


def _follower() -> ControllerPolicy:
    """Return a policy that takes the smaller student the more the actors are busy inferring."""
    policy = ControllerPolicy(SMALL_ACTIONS.sizes, generator=torch.Generator().manual_seed(0))
    assert isinstance(policy.body, torch.nn.Linear)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.zero_()
        policy.body.weight[0, FOLLOWED] = 2.0
        policy.slopes.weight[STUDENT, 0] = 3.0
    return policy


def test_the_followed_feature_comes_first_and_leads_the_right_way() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.uniform(-1.0, 1.0, size=(200, len(FEATURE_NAMES))).astype(np.float32)
    found = effects(_follower(), SMALL_ACTIONS, vectors, rng)
    first, *others = found["features"]
    assert first["name"] == "infer_share"
    assert first["importance"] > 0.1
    assert max(row["importance"] for row in others) == pytest.approx(0.0, abs=1e-6)
    small = [levels[-1] for levels in first["heads"]["student"]]
    assert len(small) == GRID_POINTS == len(first["values"])
    assert all(later > earlier for earlier, later in pairwise(small))
    assert small[0] < 0.1 < 0.9 < small[-1]
    for levels in first["heads"]["bits"]:
        assert levels == pytest.approx([0.5, 0.5])
    assert found["levels"]["student"] == ["original", "net3"]


def test_what_is_returned_does_not_depend_on_how_many_states_there_are() -> None:
    rng = np.random.default_rng(1)
    vectors = rng.uniform(-1.0, 1.0, size=(5000, len(FEATURE_NAMES))).astype(np.float32)
    found = effects(_follower(), SMALL_ACTIONS, vectors, rng)
    assert found["states"] == 2000
    assert sum(found["features"][0]["heads"]["sparsity"][0]) == pytest.approx(1.0)
