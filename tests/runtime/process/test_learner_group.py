"""Two learners in two processes make the updates of one, equal to rounding, and fail as one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from accerl.compress.pruning.sparse import TopologyConfig
from accerl.errors import UserError
from accerl.learner.config import LearnerConfig
from accerl.learner.group import GlooGroup, LearnerGroup, open_store, translating_failures
from accerl.learner.learner import Learner
from accerl.runtime.process.messages import State
from accerl.runtime.process.supervise import Worker
from tests.fixtures.chains import as_chain
from tests.fixtures.runs.learners import CONFIG, make_learner
from tests.fixtures.runs.partners import ENVS, join_with, learn_along, rollout

CLIPPED: dict[str, Any] = {"policy_loss": "clipped", "clip_ratio": 0.05}
SPARSE: dict[str, Any] = {"sparsity": 0.5, "update_every": 2}


@pytest.fixture(scope="module")
def partner() -> Iterator[Worker]:
    worker = Worker("learner", 1, learn_along, lambda _: ())
    worker.start()
    worker.receive()
    yield worker
    worker.end()


def answered(partner: Worker) -> dict[str, Any]:
    """Return what the partner sends when it has learned along."""
    answer = partner.receive()
    assert isinstance(answer, State)
    return answer.state


def gradients(learner: Learner) -> torch.Tensor:
    """Return those of the last step in one vector."""
    found = [weight.grad for weight in learner.policy.parameters()]
    return torch.cat([gradient.flatten() for gradient in found if gradient is not None])


def weights(learner: Learner) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in learner.policy.parameters()])


def learn_both(partner: Worker, config: LearnerConfig) -> tuple[Learner, Learner, dict[str, Any]]:
    """Learn alone and with the partner, from the same state; compare what each update returns."""
    one, two = make_learner(config), make_learner(config)
    for learner in (one, two):
        learner.update(rollout(0))  # so that there are moments and masks to hand over
    join_with(partner, two, [1, 2, 3])
    near = 1e-5 if config.precision == "fp32" else 0.03
    for number in (1, 2, 3):
        whole, shared = one.update(rollout(number)), two.update(rollout(number))
        torch.testing.assert_close(shared.kl_nats, whole.kl_nats, rtol=near, atol=near)
        torch.testing.assert_close(shared.entropy_nats, whole.entropy_nats, rtol=near, atol=near)
        assert shared.losses == pytest.approx(whole.losses, rel=10.0 * near, abs=near)
    two.join(LearnerGroup())
    return one, two, answered(partner)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"normalise_advantages": True, "minibatches": 2},
        {"actor_kl_cost": 0.1, "reuse": 2, "anneal_updates": 4},
        {
            **CLIPPED,
            "normalise_advantages": True,
            "minibatches": 2,
            "reuse": 2,
            "advantage_moments": "weighted",
        },
        {**CLIPPED, "proximal": "pass", "minibatches": 4, "reuse": 2},
        {"sparse": TopologyConfig(method="rigl", **SPARSE), "minibatches": 2},
        {"sparse": TopologyConfig(method="set", **SPARSE), "minibatches": 2},
    ],
    ids=str,
)
def test_two_learners_make_the_updates_of_one(partner: Worker, changes: dict[str, Any]) -> None:
    config = replace(CONFIG, max_grad_norm=0.5, **changes)
    one, two, partners = learn_both(partner, config)
    assert (weights(two) - weights(make_learner(config))).abs().max() > 1e-3  # they did learn
    torch.testing.assert_close(gradients(two), gradients(one), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(weights(two), weights(one), rtol=1e-5, atol=1e-5)
    # The copies do not drift apart: they are equal to the last bit.
    state = two.state_dict()
    assert partners["state"]["updates"] == state["updates"] == one.updates
    for name, tensor in state["policy"].items():
        assert torch.equal(partners["state"]["policy"][name], tensor)
    assert {one.topology is None, two.topology is None} == {"sparse" not in changes}
    if one.topology is not None and two.topology is not None:
        pairs = zip(one.topology.masks, two.topology.masks, strict=True)
        assert all(torch.equal(mine, theirs) for mine, theirs in pairs)


def test_under_bf16_they_differ_by_what_it_resolves(partner: Worker) -> None:
    config = replace(CONFIG, max_grad_norm=0.5, precision="bf16", minibatches=2)
    one, two, _ = learn_both(partner, config)
    distance = (gradients(two) - gradients(one)).norm() / gradients(one).norm()
    assert distance < 0.03
    moved = (weights(one) - weights(make_learner(config))).norm()
    assert (weights(two) - weights(one)).norm() < 0.1 * moved


@pytest.mark.parametrize("environment", [0, ENVS - 1])
def test_what_is_not_finite_for_one_stops_both(partner: Worker, environment: int) -> None:
    learner = make_learner(replace(CONFIG, reward_clip=0.0))
    before = weights(learner)
    join_with(partner, learner, [1], spoilt=environment)
    with pytest.raises(FloatingPointError, match="not finite after 0 updates"):
        learner.update(rollout(1, environment))
    learner.join(LearnerGroup())
    answer = answered(partner)
    assert "not finite after 0 updates" in answer["failed"]
    assert torch.equal(weights(learner), before)
    assert torch.equal(
        answer["state"]["policy"]["value_head.bias"], as_chain(learner.policy).value_head.bias
    )


def test_a_second_group_in_one_process_is_refused(partner: Worker) -> None:
    learner = make_learner()
    join_with(partner, learner, [1])
    with pytest.raises(UserError, match="close the other run first, or use num_learners 1"):
        GlooGroup(open_store(2), 0, 2)
    assert learner.update(rollout(1)).kl_nats.shape[1] == ENVS  # the first is as it was
    learner.join(LearnerGroup())
    assert not answered(partner)["failed"]


def test_members_share_every_minibatch() -> None:
    class Member(LearnerGroup):
        size = 2

        def __init__(self, rank: int) -> None:
            self.rank = rank

    minibatch = np.arange(4, 8)
    assert [Member(rank).share(minibatch).tolist() for rank in (0, 1)] == [[4, 5], [6, 7]]
    np.testing.assert_array_equal(LearnerGroup().share(minibatch), minibatch)


def test_only_what_communication_throws_counts_as_a_broken_group() -> None:
    with pytest.raises(RuntimeError, match="shapes do not fit"), translating_failures():
        raise RuntimeError("shapes do not fit")
