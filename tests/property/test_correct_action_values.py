"""Action-value estimators and ratios against their definitions, on any shapes and endings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from accerl.correct import (
    importance_sampling,
    per_decision_importance_sampling,
    q_lambda,
    retrace,
    tree_backup,
    truncated_importance_sampling,
)

Case = dict[str, np.ndarray]
RETURNS = ("q_t", "expected_q_tp1", "reward_t", "discount_t", "lam")
RATIO = ("behaviour_logp_t", "target_logp_t")
ESTIMATORS: dict[str, tuple[Callable[..., Tensor], tuple[str, ...]]] = {
    "retrace": (retrace, RATIO),
    "per-decision": (per_decision_importance_sampling, RATIO),
    "tree-backup": (tree_backup, ("target_prob_t",)),
    "q(lambda)": (q_lambda, ()),
}
# The trace coefficient of one step, before lambda, from pi(a|x) and mu(a|x).
COEFFICIENTS: dict[str, Callable[[float, float], float]] = {
    "retrace": lambda pi, mu: min(1.0, pi / mu),
    "per-decision": lambda pi, mu: pi / mu,
    "tree-backup": lambda pi, mu: pi,
    "q(lambda)": lambda pi, mu: 1.0,
}


@st.composite
def cases(draw: st.DrawFn) -> Case:
    steps, batch = draw(st.integers(1, 8)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = (steps, batch)
    terminated = rng.random(shape) < draw(st.sampled_from([0.0, 0.3, 1.0]))
    truncated = rng.random(shape) < draw(st.sampled_from([0.0, 0.3, 1.0]))
    target_logp = rng.uniform(-1.3, -0.1, shape)
    return {
        "q_t": rng.normal(size=shape),
        "expected_q_tp1": rng.normal(size=shape),
        "reward_t": rng.normal(size=shape),
        "discount_t": np.where(terminated, 0.0, draw(st.floats(0.0, 1.0))),
        "lam": np.where(truncated, 0.0, draw(st.floats(0.0, 1.0))),
        "behaviour_logp_t": rng.uniform(-1.3, -0.1, shape),
        "target_logp_t": target_logp,
        "target_prob_t": np.exp(target_logp),
    }


def run(name: str, case: Case, **changes: Any) -> np.ndarray:
    function, extra = ESTIMATORS[name]
    arguments = {key: torch.from_numpy(case[key]) for key in (*RETURNS, *extra)}
    return function(**(arguments | changes)).numpy()


def oracle(name: str, case: Case) -> np.ndarray:
    """Munos et al. (2016), eq. 4: sum and product written out, one pair of state and action."""
    steps, batch = case["q_t"].shape
    pi, mu = np.exp(case["target_logp_t"]), np.exp(case["behaviour_logp_t"])
    targets = np.zeros((steps, batch))
    for b in range(batch):
        for s in range(steps):
            total = 0.0
            for t in range(s, steps):
                product = 1.0
                for i in range(s + 1, t + 1):
                    c_i = case["lam"][i - 1, b] * COEFFICIENTS[name](pi[i, b], mu[i, b])
                    product *= case["discount_t"][i - 1, b] * c_i
                after = case["discount_t"][t, b] * case["expected_q_tp1"][t, b]
                total += product * (case["reward_t"][t, b] + after - case["q_t"][t, b])
            targets[s, b] = case["q_t"][s, b] + total
    return targets


@pytest.mark.parametrize("name", ESTIMATORS)
@settings(max_examples=40)
@given(case=cases())
def test_targets_match_the_equation(name: str, case: Case) -> None:
    targets = run(name, case)
    assert targets.size == case["q_t"].size > 0
    np.testing.assert_allclose(targets, oracle(name, case), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ESTIMATORS)
@settings(max_examples=30)
@given(case=cases(), at=st.integers(0, 7), ending=st.sampled_from(["discount_t", "lam"]))
def test_an_episode_end_is_a_wall(name: str, case: Case, at: int, ending: str) -> None:
    """A rollout with an end inside equals two rollouts computed apart."""
    at = min(at, len(case["q_t"]) - 1)
    case[ending][at] = 0.0
    parts = [{key: array[rows] for key, array in case.items()} for rows in split(at)]
    apart = np.concatenate([run(name, part) for part in parts if len(part["q_t"])])
    assert len(apart) == len(case["q_t"])
    np.testing.assert_allclose(run(name, case), apart, rtol=1e-12, atol=1e-12)


def split(at: int) -> tuple[slice, slice]:
    return slice(0, at + 1), slice(at + 1, None)


@pytest.mark.parametrize("name", ESTIMATORS)
@settings(max_examples=20)
@given(case=cases(), lam=st.floats(0.0, 1.0))
def test_one_lambda_is_that_of_every_step(name: str, case: Case, lam: float) -> None:
    case["lam"][:] = lam
    np.testing.assert_allclose(run(name, case, lam=lam), run(name, case), rtol=1e-12, atol=1e-12)


@given(case=cases(), bound=st.sampled_from([0.0, 0.5, 1.0, 2.0, np.inf]))
def test_ratios_are_those_of_the_probabilities_up_to_the_bound(case: Case, bound: float) -> None:
    logs = {key: torch.from_numpy(case[key]) for key in RATIO}
    ratios = np.exp(case["target_logp_t"]) / np.exp(case["behaviour_logp_t"])
    for weights in (
        importance_sampling(**logs, rho_bar=bound),
        truncated_importance_sampling(**logs, bound=bound),
    ):
        assert weights.numel() == ratios.size > 0
        np.testing.assert_allclose(weights, np.minimum(bound, ratios), rtol=1e-12)
