"""Shipped correctors: the contract, identities between state forms, fixed points, mistakes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from accerl.correct import (
    COMBINATIONS,
    Corrector,
    CorrectorChain,
    Experience,
    ISCorrector,
    LeakyVTraceCorrector,
    PerDecisionCorrector,
    QLambdaCorrector,
    RetraceCorrector,
    Targets,
    TreeBackupCorrector,
    TruncatedISCorrector,
    VTraceCorrector,
    make_corrector,
)
from accerl.correct.compliance import CorrectorCompliance, random_experience
from accerl.errors import UserError
from tests.fixtures.controllers import two_states

UNTRUNCATED: dict[str, Corrector] = {
    "vtrace": VTraceCorrector(math.inf, 1.0),
    "leaky vtrace": LeakyVTraceCorrector(math.inf, 1.0, 0.5),
    "retrace": RetraceCorrector(),
    "tree-backup": TreeBackupCorrector(),
    "q(lambda)": QLambdaCorrector(),
    "per-decision": PerDecisionCorrector(),
}


class TestVTraceCorrector(CorrectorCompliance):
    def make(self) -> Corrector:
        return VTraceCorrector(rho=1.2, c=0.9)


class TestLeakyVTraceCorrector(CorrectorCompliance):
    def make(self) -> Corrector:
        return LeakyVTraceCorrector(rho=1.2, c=0.9, alpha=0.7)


class TestRetraceCorrector(CorrectorCompliance):
    def make(self) -> Corrector:
        return RetraceCorrector()


class TestPerDecisionCorrector(CorrectorCompliance):
    def make(self) -> Corrector:
        return PerDecisionCorrector()


class TestTreeBackupCorrector(CorrectorCompliance):
    def make(self) -> Corrector:
        return TreeBackupCorrector()


class TestQLambdaCorrector(CorrectorCompliance):
    def make(self) -> Corrector:
        return QLambdaCorrector(rho=3.0)


class TestISCorrector(CorrectorCompliance):
    def make(self) -> Corrector:
        return ISCorrector(2.0)


class TestTruncatedISCorrector(CorrectorCompliance):
    def make(self) -> Corrector:
        return TruncatedISCorrector()


@pytest.fixture
def experience() -> Experience:
    return random_experience(torch.Generator().manual_seed(0))


def correct(corrector: Corrector, experience: Experience) -> Targets:
    return CorrectorChain([corrector]).correct(experience)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (RetraceCorrector(rho=1.0), VTraceCorrector(1.0, 1.0)),
        (RetraceCorrector(), VTraceCorrector(math.inf, 1.0)),
        (LeakyVTraceCorrector(1.5, 0.5, alpha=1.0), VTraceCorrector(1.5, 0.5)),
        (LeakyVTraceCorrector(1.5, 0.5, alpha=0.0), PerDecisionCorrector()),
        (PerDecisionCorrector(), VTraceCorrector(math.inf, math.inf)),
    ],
    ids=str,
)
def test_estimators_that_are_the_same(
    one: Corrector, other: Corrector, experience: Experience
) -> None:
    changed = False
    plain = CorrectorChain().correct(experience)
    for first, second, before in zip(
        correct(one, experience), correct(other, experience), plain, strict=True
    ):
        torch.testing.assert_close(first, second)
        changed |= not torch.allclose(first, before)
    assert changed


@pytest.mark.parametrize("name", ["vtrace", "leaky vtrace", "retrace", "q(lambda)", "per-decision"])
def test_on_policy_targets_are_lambda_returns(name: str, experience: Experience) -> None:
    """Those that the empty chain starts from; Tree-backup's traces are shorter even then."""
    experience = replace(experience, behaviour_logp_t=experience.target_logp_t)
    expected = CorrectorChain().correct(experience)
    for mine, plain in zip(correct(UNTRUNCATED[name], experience), expected, strict=True):
        torch.testing.assert_close(mine, plain)
    shorter = correct(TreeBackupCorrector(), experience)
    assert not torch.allclose(shorter.value_targets, expected.value_targets)


def test_tree_backup_is_on_policy_lambda_return_where_actions_are_certain(
    experience: Experience,
) -> None:
    certain = torch.zeros_like(experience.target_logp_t)
    experience = replace(experience, behaviour_logp_t=certain, target_logp_t=certain)
    expected = CorrectorChain().correct(experience)
    for mine, plain in zip(correct(TreeBackupCorrector(), experience), expected, strict=True):
        torch.testing.assert_close(mine, plain)


def played(values: Tensor, lam: float = 1.0) -> tuple[Experience, Tensor]:
    """Every way that the game of two states can go, and its chance under mu."""
    states, actions = two_states.every_way()
    now = states[:-1], actions
    behaviour = two_states.BEHAVIOUR[now].log()
    experience = Experience(
        value_t=values[states[:-1]],
        value_tp1=values[states[1:]],
        reward_t=two_states.REWARD[now],
        discount_t=torch.full(actions.shape, two_states.GAMMA, dtype=torch.float64),
        target_logp_t=two_states.TARGET[now].log(),
        behaviour_logp_t=behaviour,
        lam=torch.full(actions.shape, lam, dtype=torch.float64),
    )
    return experience, behaviour.sum(0).exp()


@pytest.mark.parametrize("name", UNTRUNCATED)
def test_the_targets_true_values_are_the_fixed_point_without_truncation(name: str) -> None:
    values, _ = two_states.true_values()
    experience, chances = played(values, lam=0.7)
    targets = correct(UNTRUNCATED[name], experience).value_targets
    torch.testing.assert_close((chances * targets[0]).sum(), values[0])
    assert not torch.allclose(targets[0], values[0])  # only in expectation


def test_truncated_weights_have_another_fixed_point() -> None:
    values, _ = two_states.true_values()
    experience, chances = played(values)
    bounded: list[Callable[[float], Corrector]] = [
        RetraceCorrector,
        TreeBackupCorrector,
        QLambdaCorrector,
        PerDecisionCorrector,
    ]
    for make in bounded:
        targets = correct(make(1.0), experience).value_targets
        assert not torch.isclose((chances * targets[0]).sum(), values[0])


def test_per_decision_targets_are_unbiased_whatever_the_values_are() -> None:
    """But for the last step, which bootstraps: there the values are right."""
    true, _ = two_states.true_values()
    experience, chances = played(torch.tensor([5.0, -3.0], dtype=torch.float64))
    rightly, _ = played(true)
    following = torch.cat([experience.value_tp1[:-1], rightly.value_tp1[-1:]])
    experience = replace(experience, value_tp1=following)
    for name, unbiased in (("per-decision", True), ("retrace", False), ("q(lambda)", False)):
        targets = correct(UNTRUNCATED[name], experience).value_targets
        mean = (chances * targets[0]).sum()
        assert torch.isclose(mean, true[0]).item() == unbiased, name


@pytest.mark.parametrize("value", [-0.1, math.nan])
def test_truncation_levels_must_make_sense(value: float) -> None:
    bounded: list[Callable[[float], Corrector]] = [
        ISCorrector,
        TruncatedISCorrector,
        RetraceCorrector,
        TreeBackupCorrector,
        QLambdaCorrector,
        PerDecisionCorrector,
    ]
    for make in bounded:
        with pytest.raises(UserError, match="rho is a truncation level"):
            make(value)
    for make in (VTraceCorrector, LeakyVTraceCorrector):
        with pytest.raises(UserError, match="c is a truncation level"):
            make(1.0, value)
        with pytest.raises(UserError, match="needs c <= rho"):
            make(0.5, 1.0)
    with pytest.raises(UserError, match="LeakyVTraceCorrector: alpha must lie in"):
        LeakyVTraceCorrector(alpha=value)


def test_names_stand_for_their_correctors() -> None:
    chain = make_corrector("vtrace+importance", rho=2.0, c=1.5)
    assert chain.correctors == (VTraceCorrector(2.0, 1.5), ISCorrector(2.0))
    assert make_corrector("none", rho=1.0, c=1.0).correctors == ()
    kinds = {
        type(item)
        for name in COMBINATIONS
        for item in make_corrector(name, rho=1.0, c=1.0).correctors
    }
    assert kinds == {
        ISCorrector,
        TruncatedISCorrector,
        *(type(corrector) for corrector in UNTRUNCATED.values()),
    }


def test_every_name_corrects_differently(experience: Experience) -> None:
    seen: list[Targets] = []
    for name in COMBINATIONS:
        targets = make_corrector(name, rho=1.0, c=1.0).correct(experience)
        for other in seen:
            pairs = zip(targets, other, strict=True)
            assert not all(torch.allclose(mine, theirs) for mine, theirs in pairs), name
        seen.append(targets)
    assert len(seen) == 10


@pytest.mark.parametrize("name", list(UNTRUNCATED))
@pytest.mark.parametrize("ending", ["discount_t", "lam"])
def test_ratios_that_overflow_stay_in_their_episode(name: str, ending: str) -> None:
    drawn = random_experience(torch.Generator().manual_seed(1))
    cut = getattr(drawn, ending).clone()
    cut[3] = 0.0
    extreme = drawn.target_logp_t.clone()
    extreme[4:] += 800.0  # exp of that is infinite, also in float64
    chain = CorrectorChain([UNTRUNCATED[name]])
    plain = chain.correct(replace(drawn, **{ending: cut}))
    other = chain.correct(replace(drawn, **{ending: cut, "target_logp_t": extreme}))
    assert not torch.isfinite(other.value_targets[4:]).all()
    for first, second in zip(plain, other, strict=True):
        torch.testing.assert_close(first[:4], second[:4], rtol=1e-12, atol=1e-12)


class OfOnesOwn:
    """Its rho is a level of advantages, not of ratios."""

    rho = 0.5

    def correct(self, experience: Experience, targets: Targets) -> Targets:
        return targets


@pytest.mark.parametrize(
    ("links", "level"),
    [
        ([], math.inf),
        ([VTraceCorrector(1.5, 1.0), ISCorrector(1.0)], 1.0),
        ([RetraceCorrector(), TruncatedISCorrector()], 2.0),
        ([QLambdaCorrector()], math.inf),
        ([OfOnesOwn()], math.inf),
    ],
)
def test_a_chain_tells_from_where_on_it_truncates(links: list[Corrector], level: float) -> None:
    assert CorrectorChain(links).truncation == level


def test_a_misspelt_name_is_refused() -> None:
    with pytest.raises(UserError, match="'v-trace' does not exist; did you mean 'vtrace'"):
        make_corrector("v-trace", rho=1.0, c=1.0)
