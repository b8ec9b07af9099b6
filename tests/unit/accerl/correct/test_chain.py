"""The chain of correctors: the paper's usage, order, a corrector of one's own, and its mistakes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from accerl.correct import (
    Corrector,
    CorrectorChain,
    Experience,
    ISCorrector,
    Targets,
    VTraceCorrector,
    importance_sampling,
    vtrace,
)
from accerl.correct.compliance import CorrectorCompliance, random_experience
from accerl.errors import UserError


class HalvedWeights:
    """A corrector that knows nothing of the package but the protocol."""

    def correct(self, experience: Experience, targets: Targets) -> Targets:
        return targets._replace(policy_weights=targets.policy_weights / 2)


class TestOwnCorrector(CorrectorCompliance):
    def make(self) -> Corrector:
        return HalvedWeights()


class LeakyCorrector:
    """Uses the next row whether or not it belongs to the same episode."""

    def correct(self, experience: Experience, targets: Targets) -> Targets:
        return targets._replace(advantages=torch.roll(experience.reward_t, -1, dims=0))


class LeakyWeights:
    """Weighs a step by what acted in the next row."""

    def correct(self, experience: Experience, targets: Targets) -> Targets:
        weights = torch.roll(experience.behaviour_logp_t, -1, dims=0).exp()
        return targets._replace(policy_weights=weights)


@pytest.mark.parametrize("corrector", [LeakyCorrector(), LeakyWeights()])
def test_the_compliance_suite_catches_a_leak(corrector: Corrector) -> None:
    class Leaky(CorrectorCompliance):
        def make(self) -> Corrector:
            return corrector

    with pytest.raises(AssertionError):
        Leaky().test_the_next_episode_does_not_leak_back()


@pytest.fixture
def experience() -> Experience:
    return random_experience(torch.Generator().manual_seed(0))


def test_the_papers_chain_is_the_impala_learner(experience: Experience) -> None:
    chain = CorrectorChain().add_corrector(VTraceCorrector(1.0, 1.0)).add_corrector(ISCorrector(1))
    experience = replace(experience, policy_logp_t=None)
    targets = chain.correct(experience)
    expected = vtrace(
        behaviour_logp_t=experience.behaviour_logp_t,
        target_logp_t=experience.target_logp_t,
        reward_t=experience.reward_t,
        discount_t=experience.discount_t,
        value_t=experience.value_t,
        bootstrap_value=experience.value_tp1[-1],
        lam=experience.lam,
        value_tp1=experience.value_tp1,
    )
    assert torch.equal(targets.value_targets, expected.vs)
    torch.testing.assert_close(targets.policy_weights * targets.advantages, expected.pg_advantage)
    assert targets.policy_weights.max() == 1.0
    assert targets.policy_weights.min() < 1.0


def test_the_policy_gradient_may_be_weighed_by_another_policy(experience: Experience) -> None:
    """As under a surrogate clipped around the proximal policy; values are still the target's."""
    own = CorrectorChain([VTraceCorrector(), ISCorrector()])
    proximal = experience.policy_logp_t
    assert proximal is not None
    targets = own.correct(experience)
    expected = importance_sampling(
        behaviour_logp_t=experience.behaviour_logp_t, target_logp_t=proximal
    )
    assert torch.equal(targets.policy_weights, expected)
    without = own.correct(replace(experience, policy_logp_t=None))
    assert torch.equal(targets.value_targets, without.value_targets)
    assert not torch.allclose(targets.policy_weights, without.policy_weights)


def test_the_order_of_the_papers_correctors_does_not_matter(experience: Experience) -> None:
    pair = (VTraceCorrector(1.0, 0.5), ISCorrector(1.0))
    for first, second in zip(
        CorrectorChain(pair).correct(experience),
        CorrectorChain(pair[::-1]).correct(experience),
        strict=True,
    ):
        assert torch.equal(first, second)


def test_an_empty_chain_trusts_the_data(experience: Experience) -> None:
    targets = CorrectorChain().correct(experience)
    on_policy = CorrectorChain([VTraceCorrector(), ISCorrector()]).correct(
        replace(experience, behaviour_logp_t=experience.target_logp_t, policy_logp_t=None)
    )
    for first, second in zip(targets, on_policy, strict=True):
        assert torch.equal(first, second)
    assert not torch.equal(
        targets.value_targets, CorrectorChain([VTraceCorrector()]).correct(experience).value_targets
    )


def test_add_corrector_extends_the_chain_itself() -> None:
    chain = CorrectorChain()
    assert chain.add_corrector(ISCorrector()) is chain
    chain.add_corrector(HalvedWeights())
    assert [type(item) for item in chain.correctors] == [ISCorrector, HalvedWeights]


def test_a_corrector_of_ones_own_joins_in(experience: Experience) -> None:
    plain = CorrectorChain([ISCorrector()]).correct(experience)
    halved = CorrectorChain([ISCorrector(), HalvedWeights()]).correct(experience)
    assert torch.equal(halved.policy_weights, plain.policy_weights / 2)
    assert torch.equal(halved.value_targets, plain.value_targets)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda targets: None, "returned NoneType, not Targets"),
        (lambda targets: targets._replace(advantages=targets.advantages[0]), "returned advantages"),
        (lambda targets: targets._replace(advantages=0.0), "returned .* are float, not a tensor"),
        (
            lambda targets: targets._replace(advantages=targets.advantages / 0.0),
            "returned NaN or infinite advantages; look for",
        ),
    ],
)
def test_what_a_corrector_of_ones_own_must_return(
    made: Any, reason: str, experience: Experience
) -> None:
    class Mine:
        def correct(self, experience: Experience, targets: Targets) -> Targets:
            return made(targets)

    with pytest.raises(UserError, match=f"Mine: correct.. {reason}"):
        CorrectorChain([Mine()]).correct(experience)


def test_a_corrector_of_ones_own_that_raises_is_named(experience: Experience) -> None:
    class Mine:
        def correct(self, experience: Experience, targets: Targets) -> Targets:
            raise KeyError("gae")

    with pytest.raises(UserError, match=r"^corrector Mine: KeyError: 'gae' \(test_chain.py:"):
        CorrectorChain([Mine()]).correct(experience)


def test_experience_of_another_shape_is_refused(experience: Experience) -> None:
    narrow = experience.reward_t[:, :-1]
    for field in ("reward_t", "policy_logp_t"):
        with pytest.raises(ValueError, match=f"{field} is .* but value_t is"):
            CorrectorChain().correct(replace(experience, **{field: narrow}))
