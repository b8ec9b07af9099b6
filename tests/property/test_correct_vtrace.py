"""V-trace against a slow transcription of the equation, on arbitrary shapes, clips and endings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from accerl.correct import vtrace


@dataclass(frozen=True)
class Case:
    v_tm1: np.ndarray
    v_t: np.ndarray
    r_t: np.ndarray
    discount_t: np.ndarray
    rho_tm1: np.ndarray
    lambda_: np.ndarray
    clip_rho: float
    clip_c: float
    clip_pg_rho: float

    def map(self, change: Callable[[np.ndarray], np.ndarray]) -> Case:
        arrays = {k: change(v) for k, v in vars(self).items() if isinstance(v, np.ndarray)}
        return replace(self, **arrays)

    def run(self) -> tuple[np.ndarray, ...]:
        arrays = (self.v_tm1, self.v_t, self.r_t, self.discount_t, self.rho_tm1)
        output = vtrace(
            *map(torch.from_numpy, arrays),
            lambda_=torch.from_numpy(self.lambda_),
            clip_rho=self.clip_rho,
            clip_c=self.clip_c,
            clip_pg_rho=self.clip_pg_rho,
        )
        return tuple(field.numpy() for field in output)


def oracle(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Equation 2 with its sum and product written out, one state at a time."""
    steps, batch = case.v_tm1.shape
    vs = np.zeros((steps, batch))
    advantages = np.zeros((steps, batch))
    for b in range(batch):
        for s in range(steps):
            total = 0.0
            for t in range(s, steps):
                product = 1.0
                for i in range(s, t):
                    c_i = case.lambda_[i, b] * min(case.clip_c, case.rho_tm1[i, b])
                    product *= case.discount_t[i, b] * c_i
                bootstrap = case.discount_t[t, b] * case.v_t[t, b]
                rho_t = min(case.clip_rho, case.rho_tm1[t, b])
                total += product * rho_t * (case.r_t[t, b] + bootstrap - case.v_tm1[t, b])
            vs[s, b] = case.v_tm1[s, b] + total
        for s in range(steps):
            following = case.v_t[s, b]
            if s + 1 < steps:
                lam = case.lambda_[s, b]
                following = lam * vs[s + 1, b] + (1.0 - lam) * following
            q = case.r_t[s, b] + case.discount_t[s, b] * following
            weight = min(case.clip_pg_rho, case.rho_tm1[s, b])
            advantages[s, b] = weight * (q - case.v_tm1[s, b])
    return vs, advantages


@st.composite
def cases(draw: st.DrawFn) -> Case:
    steps, batch = draw(st.integers(1, 9)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = (steps, batch)
    terminated = rng.random(shape) < draw(st.sampled_from([0.0, 0.3, 1.0]))
    truncated = rng.random(shape) < draw(st.sampled_from([0.0, 0.3, 1.0]))
    gamma, lam = draw(st.floats(0.0, 1.0)), draw(st.floats(0.0, 1.0))
    clip_rho = draw(st.sampled_from([0.0, 0.5, 1.0, 2.0, np.inf]))
    return Case(
        v_tm1=rng.normal(size=shape),
        v_t=rng.normal(size=shape),
        r_t=rng.normal(size=shape),
        discount_t=np.where(terminated, 0.0, gamma),
        rho_tm1=np.exp(rng.normal(size=shape)),
        lambda_=np.where(truncated, 0.0, lam),
        clip_rho=clip_rho,
        clip_c=min(clip_rho, draw(st.sampled_from([0.0, 0.5, 1.0, 2.0]))),
        clip_pg_rho=draw(st.sampled_from([0.5, 1.0, np.inf])),
    )


@given(cases())
def test_matches_the_equation(case: Case) -> None:
    vs, pg_advantages, rhos, advantages = case.run()
    expected_vs, expected_advantages = oracle(case)
    assert vs.size == case.v_tm1.size > 0
    np.testing.assert_allclose(vs, expected_vs, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(pg_advantages, expected_advantages, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(rhos, np.minimum(case.clip_rho, case.rho_tm1))
    weights = np.minimum(case.clip_pg_rho, case.rho_tm1)
    np.testing.assert_allclose(pg_advantages, weights * advantages, rtol=1e-12)


@given(cases(), st.integers(0, 7), st.booleans())
def test_an_episode_end_is_a_wall(case: Case, at: int, terminated: bool) -> None:
    """A rollout with an end inside equals two rollouts computed apart."""
    at = min(at, len(case.v_tm1) - 1)
    (case.discount_t if terminated else case.lambda_)[at] = 0.0
    before = case.map(lambda array: array[: at + 1])
    after = case.map(lambda array: array[at + 1 :])
    parts = [part.run() for part in (before, after) if len(part.v_tm1)]
    whole = case.run()
    assert sum(len(part[0]) for part in parts) == len(whole[0])
    for index, field in enumerate(whole):
        apart = np.concatenate([part[index] for part in parts])
        np.testing.assert_allclose(field, apart, rtol=1e-12, atol=1e-12)


@given(cases(), st.randoms(use_true_random=False))
def test_environments_may_come_in_any_order(case: Case, random: Random) -> None:
    order = list(range(case.v_tm1.shape[1]))
    random.shuffle(order)
    permuted = case.map(lambda array: np.ascontiguousarray(array[:, order]))
    for plain, moved in zip(case.run(), permuted.run(), strict=True):
        np.testing.assert_array_equal(plain[:, order], moved)
