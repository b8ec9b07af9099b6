"""State-value estimators against their defining sums, on any shapes, truncations and endings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accerl.correct import (
    Corrector,
    CorrectorChain,
    Experience,
    LeakyVTraceCorrector,
    PerDecisionCorrector,
    QLambdaCorrector,
    RetraceCorrector,
    TreeBackupCorrector,
    VTraceCorrector,
    leaky_vtrace,
    vtrace,
)


@dataclass(frozen=True)
class Case:
    behaviour_logp_t: np.ndarray
    target_logp_t: np.ndarray
    reward_t: np.ndarray
    discount_t: np.ndarray
    value_t: np.ndarray
    value_tp1: np.ndarray
    lam: np.ndarray
    rho_bar: float
    c_bar: float
    pg_rho_bar: float
    alpha: float

    def map(self, change: Callable[[np.ndarray], np.ndarray]) -> Case:
        arrays = {k: change(v) for k, v in vars(self).items() if isinstance(v, np.ndarray)}
        return replace(self, **arrays)

    def arguments(self) -> dict[str, Any]:
        """Return what both functions take."""
        tensors = {k: torch.from_numpy(v) for k, v in vars(self).items() if k in ARRAYS}
        bars = {k: getattr(self, k) for k in ("rho_bar", "c_bar", "pg_rho_bar")}
        # Where `value_tp1` is given, it is what the last step bootstraps from.
        unused = torch.full_like(tensors["value_t"][0], torch.nan)
        return {**tensors, **bars, "bootstrap_value": unused}

    def vtrace(self) -> tuple[np.ndarray, ...]:
        return tuple(field.numpy() for field in vtrace(**self.arguments()))

    def experience(self) -> Experience:
        tensors = self.arguments()
        return Experience(
            value_t=tensors["value_t"],
            value_tp1=tensors["value_tp1"],
            reward_t=tensors["reward_t"],
            discount_t=tensors["discount_t"],
            target_logp_t=tensors["target_logp_t"],
            behaviour_logp_t=tensors["behaviour_logp_t"],
            lam=tensors["lam"],
        )


ARRAYS = [name for name, kind in Case.__annotations__.items() if kind == "np.ndarray"]
Coefficient = Callable[[Case, float, float], float]  # of a step, from its pi(a|x) and mu(a|x)


def truncated(case: Case, pi: float, mu: float) -> float:
    return min(case.rho_bar, pi / mu)


def leaky(bar: str) -> Coefficient:
    def mixed(case: Case, pi: float, mu: float) -> float:
        ratio = pi / mu
        return (1.0 - case.alpha) * ratio + case.alpha * min(getattr(case, bar), ratio)

    return mixed


RHO_AND_C: dict[str, tuple[Coefficient, Coefficient]] = {
    "vtrace": (truncated, lambda case, pi, mu: min(case.c_bar, pi / mu)),
    "leaky vtrace": (leaky("rho_bar"), leaky("c_bar")),
    "retrace": (truncated, lambda case, pi, mu: min(1.0, pi / mu)),
    "tree-backup": (truncated, lambda case, pi, mu: pi),
    "q(lambda)": (truncated, lambda case, pi, mu: 1.0),
    "per-decision": (truncated, lambda case, pi, mu: pi / mu),
}
CORRECTORS: dict[str, Callable[[Case], Corrector]] = {
    "vtrace": lambda case: VTraceCorrector(case.rho_bar, case.c_bar),
    "leaky vtrace": lambda case: LeakyVTraceCorrector(case.rho_bar, case.c_bar, case.alpha),
    "retrace": lambda case: RetraceCorrector(case.rho_bar),
    "tree-backup": lambda case: TreeBackupCorrector(case.rho_bar),
    "q(lambda)": lambda case: QLambdaCorrector(case.rho_bar),
    "per-decision": lambda case: PerDecisionCorrector(case.rho_bar),
}


def oracle(case: Case, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Targets and unweighted advantages, with sum and product written out, state by state."""
    rho, c = RHO_AND_C[name]
    steps, batch = case.value_t.shape
    pi, mu = np.exp(case.target_logp_t), np.exp(case.behaviour_logp_t)
    vs, advantages = np.zeros((steps, batch)), np.zeros((steps, batch))
    for b in range(batch):
        for s in range(steps):
            total = 0.0
            for t in range(s, steps):
                product = 1.0
                for i in range(s, t):
                    c_i = case.lam[i, b] * c(case, pi[i, b], mu[i, b])
                    product *= case.discount_t[i, b] * c_i
                after = case.discount_t[t, b] * case.value_tp1[t, b]
                delta = case.reward_t[t, b] + after - case.value_t[t, b]
                total += product * rho(case, pi[t, b], mu[t, b]) * delta
            vs[s, b] = case.value_t[s, b] + total
        for s in range(steps):
            after = case.value_tp1[s, b]
            if s + 1 < steps:
                after = case.lam[s, b] * vs[s + 1, b] + (1.0 - case.lam[s, b]) * after
            q = case.reward_t[s, b] + case.discount_t[s, b] * after
            advantages[s, b] = q - case.value_t[s, b]
    return vs, advantages


@st.composite
def cases(draw: st.DrawFn) -> Case:
    steps, batch = draw(st.integers(1, 8)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = (steps, batch)
    terminated = rng.random(shape) < draw(st.sampled_from([0.0, 0.3, 1.0]))
    cut = rng.random(shape) < draw(st.sampled_from([0.0, 0.3, 1.0]))
    rho_bar = draw(st.sampled_from([0.0, 0.5, 1.0, 2.0, np.inf]))
    return Case(
        behaviour_logp_t=rng.uniform(-1.3, -0.1, shape),
        target_logp_t=rng.uniform(-1.3, -0.1, shape),
        reward_t=rng.normal(size=shape),
        discount_t=np.where(terminated, 0.0, draw(st.floats(0.0, 1.0))),
        value_t=rng.normal(size=shape),
        value_tp1=rng.normal(size=shape),
        lam=np.where(cut, 0.0, draw(st.floats(0.0, 1.0))),
        rho_bar=rho_bar,
        c_bar=min(rho_bar, draw(st.sampled_from([0.0, 0.5, 1.0, 2.0]))),
        pg_rho_bar=draw(st.sampled_from([0.5, 1.0, np.inf])),
        alpha=draw(st.sampled_from([0.0, 0.3, 0.9, 1.0])),
    )


def near(actual: np.ndarray | torch.Tensor, expected: np.ndarray) -> None:
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["vtrace", "leaky vtrace"])
@given(case=cases())
def test_functions_match_the_equation(name: str, case: Case) -> None:
    if name == "vtrace":
        vs, pg_advantage = vtrace(**case.arguments())
    else:
        vs, pg_advantage = leaky_vtrace(**case.arguments(), alpha=case.alpha)
    expected_vs, advantages = oracle(case, name)
    assert vs.numel() == case.value_t.size > 0
    near(vs, expected_vs)
    ratios = np.exp(case.target_logp_t - case.behaviour_logp_t)
    near(pg_advantage, np.minimum(case.pg_rho_bar, ratios) * advantages)


@pytest.mark.parametrize("name", CORRECTORS)
@settings(max_examples=40)
@given(case=cases())
def test_correctors_match_the_equation(name: str, case: Case) -> None:
    targets = CorrectorChain([CORRECTORS[name](case)]).correct(case.experience())
    expected_vs, advantages = oracle(case, name)
    assert targets.value_targets.numel() == case.value_t.size > 0
    near(targets.value_targets, expected_vs)
    near(targets.advantages, advantages)
    near(targets.policy_weights, np.ones_like(expected_vs))


@settings(max_examples=40)
@given(case=cases(), lam=st.floats(0.0, 1.0))
def test_what_follows_is_by_default_the_next_row_and_then_the_bootstrap(
    case: Case, lam: float
) -> None:
    bootstrap = case.value_tp1[-1]
    shifted = replace(
        case,
        value_tp1=np.concatenate([case.value_t[1:], bootstrap[None]]),
        lam=np.full_like(case.lam, lam),
    )
    plain = shifted.arguments() | {"bootstrap_value": torch.from_numpy(bootstrap), "lam": lam}
    del plain["value_tp1"]
    vs, pg_advantage = vtrace(**plain)
    expected_vs, expected_advantage = shifted.vtrace()
    assert vs.numel() > 0
    near(vs, expected_vs)
    near(pg_advantage, expected_advantage)


@settings(max_examples=40)
@given(cases(), st.integers(0, 7), st.booleans())
def test_an_episode_end_is_a_wall(case: Case, at: int, terminated: bool) -> None:
    """A rollout with an end inside equals two rollouts computed apart."""
    at = min(at, len(case.value_t) - 1)
    (case.discount_t if terminated else case.lam)[at] = 0.0
    before = case.map(lambda array: array[: at + 1])
    after = case.map(lambda array: array[at + 1 :])
    parts = [part.vtrace() for part in (before, after) if len(part.value_t)]
    whole = case.vtrace()
    assert sum(len(part[0]) for part in parts) == len(whole[0])
    for index, field in enumerate(whole):
        apart = np.concatenate([part[index] for part in parts])
        np.testing.assert_allclose(field, apart, rtol=1e-12, atol=1e-12)


@settings(max_examples=40)
@given(cases(), st.randoms(use_true_random=False))
def test_environments_may_come_in_any_order(case: Case, random: Random) -> None:
    order = list(range(case.value_t.shape[1]))
    random.shuffle(order)
    permuted = case.map(lambda array: np.ascontiguousarray(array[:, order]))
    for plain, moved in zip(case.vtrace(), permuted.vtrace(), strict=True):
        np.testing.assert_array_equal(plain[:, order], moved)
