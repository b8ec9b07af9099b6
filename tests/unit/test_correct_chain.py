"""The chain of correctors: the paper's usage, order, a corrector of one's own, and its mistakes."""

from __future__ import annotations

import math

import pytest
import torch

from accerl.correct import (
    Corrector,
    CorrectorChain,
    Experience,
    ISCorrector,
    Targets,
    VTraceCorrector,
    importance_ratios,
    vtrace,
)
from accerl.correct.compliance import CorrectorCompliance, random_experience
from accerl.errors import UserError


class HalvedWeights:
    """A corrector that knows nothing of the package but the protocol."""

    def correct(self, experience: Experience, targets: Targets) -> Targets:
        return targets._replace(policy_weights=targets.policy_weights / 2)


class TestVTraceCorrector(CorrectorCompliance):
    def make(self) -> Corrector:
        return VTraceCorrector(rho=1.2, c=0.9)


class TestISCorrector(CorrectorCompliance):
    def make(self) -> Corrector:
        return ISCorrector(2.0)


class TestOwnCorrector(CorrectorCompliance):
    def make(self) -> Corrector:
        return HalvedWeights()


class LeakyCorrector:
    """Uses the next row whether or not it belongs to the same episode."""

    def correct(self, experience: Experience, targets: Targets) -> Targets:
        return targets._replace(advantages=torch.roll(experience.r_t, -1, dims=0))


def test_the_compliance_suite_catches_a_leak() -> None:
    class Leaky(CorrectorCompliance):
        def make(self) -> Corrector:
            return LeakyCorrector()

    with pytest.raises(AssertionError):
        Leaky().test_the_next_episode_does_not_leak_back()


@pytest.fixture
def experience() -> Experience:
    return random_experience(torch.Generator().manual_seed(0))


def test_the_papers_chain_is_the_impala_learner(experience: Experience) -> None:
    chain = CorrectorChain().add_corrector(VTraceCorrector(1.0, 1.0)).add_corrector(ISCorrector(1))
    targets = chain.correct(experience)
    ratios = importance_ratios(experience.target_log_prob, experience.behaviour_log_prob)
    expected = vtrace(
        experience.v_tm1,
        experience.v_t,
        experience.r_t,
        experience.discount_t,
        ratios,
        lambda_=experience.lambda_,
    )
    assert torch.equal(targets.value_targets, expected.vs)
    torch.testing.assert_close(targets.policy_weights * targets.advantages, expected.pg_advantages)
    assert targets.policy_weights.max() == 1.0
    assert targets.policy_weights.min() < 1.0


def test_vtrace_corrector_truncates_at_its_own_levels(experience: Experience) -> None:
    targets = CorrectorChain([VTraceCorrector(rho=2.0, c=0.25)]).correct(experience)
    expected = vtrace(
        experience.v_tm1,
        experience.v_t,
        experience.r_t,
        experience.discount_t,
        importance_ratios(experience.target_log_prob, experience.behaviour_log_prob),
        lambda_=experience.lambda_,
        clip_rho=2.0,
        clip_c=0.25,
    )
    assert torch.equal(targets.value_targets, expected.vs)
    assert torch.equal(targets.advantages, expected.advantages)
    assert torch.equal(targets.policy_weights, torch.ones_like(expected.vs))


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
        Experience(**{**vars(experience), "behaviour_log_prob": experience.target_log_prob.clone()})
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


@pytest.mark.parametrize("value", [-0.1, math.nan])
def test_truncation_levels_must_make_sense(value: float) -> None:
    with pytest.raises(UserError, match="rho is a truncation level"):
        ISCorrector(value)
    with pytest.raises(UserError, match="c is a truncation level"):
        VTraceCorrector(1.0, value)
    with pytest.raises(UserError, match="needs c <= rho"):
        VTraceCorrector(0.5, 1.0)
