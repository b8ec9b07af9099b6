from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from accerl.compress import CompressionConfig
from accerl.compress.distillation.student_pool import StudentPool
from accerl.networks.policy_net import ObservationSpec, PolicyNet, make_policy
from accerl.spec import StudentKey

OBSERVATION = ObservationSpec((6,), "float32")
PRUNED = StudentKey("original", 0.5)


def make_learner(seed: int = 0) -> PolicyNet:
    net = make_policy("original", OBSERVATION, 4, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        net.policy_head.weight.mul_(200.0)
    return net


def make_pool(**settings: Any) -> StudentPool:
    config = CompressionConfig(distill_batch=32, **settings)
    return StudentPool(OBSERVATION, 4, config, torch.Generator().manual_seed(0))


def states(count: int = 64, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 6)).astype(np.float32)


def test_a_network_that_was_begun_anew_replaces_what_was_received() -> None:
    learner, here = make_learner(), make_pool()
    there = [make_pool(prune_budget=budget) for budget in ("uniform", "global")]
    for pool in there:
        pool.network(PRUNED, learner, states())
    first, second = (pool.send([PRUNED]) for pool in there)
    assert [entry["generation"] for entry in first] == [0]
    second[0]["generation"] = 1
    here.receive(first)
    before = here.network(PRUNED, learner, states())
    here.receive(first)
    assert here.network(PRUNED, learner, states()) is before
    here.receive(second)
    after = here.network(PRUNED, learner, states())
    assert here.generation(PRUNED) == 1
    assert isinstance(before, PolicyNet)
    assert isinstance(after, PolicyNet)
    assert after.arch != before.arch
    for name, weight in there[1].network(PRUNED, learner, states()).state_dict().items():
        torch.testing.assert_close(after.state_dict()[name], weight, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("key", [PRUNED, StudentKey("net3", 0.0)])
def test_a_resumed_pool_knows_how_often_it_began(key: StudentKey) -> None:
    learner, pool, resumed = make_learner(), make_pool(), make_pool()
    pool.network(key, learner, states())
    state = pool.state_dict()
    state["distillers"][0]["generation"] = 3
    resumed.load_state_dict(state)
    assert resumed.generation(key) == 3
    assert resumed.send([key])[0]["generation"] == 3
