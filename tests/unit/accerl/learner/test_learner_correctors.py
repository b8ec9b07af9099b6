"""The learner learns from what its correctors say: by name, or from a chain of one's own."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from accerl.correct import COMBINATIONS, CorrectorChain, Experience, ISCorrector, Targets
from accerl.errors import UserError
from accerl.learner.learner import Learner
from tests.fixtures.runs.learners import CONFIG, B, T, make_learner, make_rollout, tensors


class Untaught:
    """A corrector of one's own: nothing is to be learned, and it returns what it was given."""

    def __init__(self) -> None:
        self.seen: list[Experience] = []

    def correct(self, experience: Experience, targets: Targets) -> Targets:
        self.seen.append(experience)
        return Targets(
            value_targets=experience.value_t,
            advantages=experience.target_logp_t,
            policy_weights=torch.zeros_like(targets.policy_weights),
        )


def weights_after(learner: Learner) -> Tensor:
    learner.update(make_rollout())
    return torch.cat([parameter.detach().flatten() for parameter in learner.policy.parameters()])


@pytest.mark.parametrize("policy_loss", ["importance", "clipped"])
def test_every_name_makes_another_update(policy_loss: str) -> None:
    config = replace(CONFIG, policy_loss=policy_loss)
    after = {
        name: weights_after(make_learner(replace(config, corrector=name))) for name in COMBINATIONS
    }
    names = list(after)
    for index, name in enumerate(names):
        for other in names[:index]:
            assert not torch.equal(after[name], after[other]), (name, other)


def test_a_chain_of_ones_own_takes_the_place_of_the_named_one() -> None:
    policy = make_learner().policy
    own = Untaught()
    learner = Learner(
        policy, replace(CONFIG, entropy_cost=0.0), corrector=CorrectorChain([own, ISCorrector()])
    )
    before = [parameter.clone() for parameter in policy.parameters()]
    stats = learner.update(make_rollout())
    assert len(own.seen) == 1
    assert (stats.losses["policy"], stats.losses["value"]) == (0.0, 0.0)
    assert stats.losses["grad_norm"] == 0.0
    for parameter, old in zip(policy.parameters(), before, strict=True):
        assert torch.equal(parameter, old)


def test_no_gradient_flows_through_what_a_corrector_hands_back() -> None:
    learner = Learner(make_learner().policy, CONFIG, corrector=CorrectorChain([Untaught()]))
    batch = tensors(make_rollout())
    values = torch.zeros(T + 1, B, requires_grad=True)
    log_prob = torch.zeros(T, B, requires_grad=True)
    targets = learner._targets(batch, values, log_prob)
    assert torch.equal(targets.value_targets, values[:-1])
    assert not any(field.requires_grad for field in targets)


@pytest.mark.parametrize(("policy_loss", "weighed"), [("importance", False), ("clipped", True)])
def test_only_the_clipped_surrogate_is_weighed_by_the_proximal_policy(
    policy_loss: str, weighed: bool
) -> None:
    own = Untaught()
    learner = Learner(
        make_learner().policy,
        replace(CONFIG, policy_loss=policy_loss, reuse=2),
        corrector=CorrectorChain([own]),
    )
    expected = learner._proximal_logp_t(tensors(make_rollout()))
    learner.update(make_rollout())
    for experience in own.seen:
        assert (experience.policy_logp_t is not None) == weighed
        if experience.policy_logp_t is not None:
            torch.testing.assert_close(experience.policy_logp_t, expected)
    assert len(own.seen) == 2


def test_a_name_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UserError, match="did you mean 'retrace\\+importance'"):
        replace(CONFIG, corrector="retrace-importance")
