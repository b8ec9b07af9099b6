"""The Gaussian-process bandit: its posterior against one computed separately, and what it finds."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from accerl.monitor.compliance import StrategyCompliance
from accerl.monitor.strategy import Strategy
from accerl.spec import IDENTITY, CompressionSpec
from controller.comparators.gp_bandit import (
    KERNELS,
    GaussianProcess,
    GPBandit,
    Kernel,
    exploration_weight,
    likeliest,
)
from tests.fixtures.runs.scripted_runs import ScriptedRun

INT8, NET3 = CompressionSpec(bits=8), CompressionSpec(student="net3")
BOTH = CompressionSpec(bits=8, student="net3")
KERNEL = Kernel(lengthscale=0.5, memory=0.3, noise=0.4)


class TestGPBandit(StrategyCompliance):
    def make(self) -> Strategy:
        return GPBandit()


def sample(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Contexts, values and shares."""
    generator = np.random.default_rng(seed)
    contexts = generator.uniform(size=(count, 4))
    return contexts, generator.normal(size=count), generator.uniform(0.2, 1.0, count)


def covariance(kernel: Kernel, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The kernel, a pair at a time."""
    return np.array(
        [
            [
                math.exp(-(math.dist(a[1:], b[1:]) ** 2) / (2 * kernel.lengthscale**2))
                * math.exp(-abs(a[0] - b[0]) / kernel.memory)
                for b in second.tolist()
            ]
            for a in first.tolist()
        ]
    )


def test_the_posterior_is_that_of_a_conditioned_normal() -> None:
    """Known values and unknown ones are jointly normal; condition that on the known, by inverse."""
    contexts, values, shares = sample(12)
    others = np.random.default_rng(1).uniform(size=(5, 4))
    known = covariance(KERNEL, contexts, contexts) + np.diag(KERNEL.noise**2 / shares)
    across = covariance(KERNEL, others, contexts)
    mean = across @ np.linalg.inv(known) @ values
    spread = covariance(KERNEL, others, others) - across @ np.linalg.inv(known) @ across.T
    found = GaussianProcess(KERNEL, contexts, values, shares).predict(others)
    np.testing.assert_allclose(found[0], mean, atol=1e-10)
    np.testing.assert_allclose(found[1], np.sqrt(np.diag(spread)), atol=1e-10)


def test_the_marginal_likelihood_is_the_density_of_the_values() -> None:
    contexts, values, shares = sample(9)
    known: Any = covariance(KERNEL, contexts, contexts) + np.diag(KERNEL.noise**2 / shares)
    process = GaussianProcess(KERNEL, contexts, values, shares)
    expected = stats.multivariate_normal(np.zeros(9), known).logpdf(values)
    assert process.log_likelihood == pytest.approx(float(expected))


@pytest.mark.parametrize("kernel", [KERNELS[0], KERNELS[13], KERNELS[-1]])
def test_the_kernel_that_made_the_values_is_found_again(kernel: Kernel) -> None:
    """Up to one step of the grid in each of its three numbers, from a sample of the prior."""
    contexts, _, _ = sample(200, seed=3)
    shares = np.ones(200)
    known = covariance(kernel, contexts, contexts) + kernel.noise**2 * np.eye(200)
    values = np.random.default_rng(4).multivariate_normal(np.zeros(200), known)
    best = max(
        KERNELS, key=lambda each: GaussianProcess(each, contexts, values, shares).log_likelihood
    )
    assert best.noise == kernel.noise
    assert (best.lengthscale <= 0.7) == (kernel.lengthscale <= 0.7)
    there = np.random.default_rng(5).uniform(size=(3, 4))
    expected = GaussianProcess(best, contexts, values, shares).predict(there)
    np.testing.assert_array_equal(likeliest(contexts, values, shares).predict(there), expected)


def test_far_from_what_is_known_is_the_prior_and_on_it_almost_no_doubt() -> None:
    contexts, values = np.array([[0.0, 0.0, 0.0]]), np.array([2.0])
    process = GaussianProcess(replace(KERNEL, noise=1e-3), contexts, values, np.ones(1))
    mean, deviation = process.predict(np.array([[0.0, 0.0, 0.0], [9.0, 0.0, 0.0]]))
    assert mean == pytest.approx([2.0, 0.0], abs=1e-5)
    assert deviation == pytest.approx([0.0, 1.0], abs=2e-3)


def test_what_acted_for_a_small_share_says_little() -> None:
    contexts, values = np.zeros((1, 3)), np.ones(1)
    means = [
        GaussianProcess(KERNEL, contexts, values, np.array([share])).predict(contexts)[0][0]
        for share in (1.0, 0.1)
    ]
    assert means[1] < means[0] < 1.0


def test_the_schedule_is_pb2_s() -> None:
    assert exploration_weight(1) == exploration_weight(2) == pytest.approx(math.sqrt(0.2))
    assert exploration_weight(50) == pytest.approx(math.sqrt(0.2 + math.log(20.0)))


@pytest.mark.parametrize("seed", range(3))
def test_what_pays_is_found_and_a_change_is_followed(seed: int) -> None:
    def rate(time_fraction: float, spec: CompressionSpec) -> float:
        hard = (spec.bits == 8) + (spec.student == "net3")
        return float(hard) if time_fraction < 0.5 else 2.0 - hard

    specs = (IDENTITY, INT8, NET3, BOTH)
    decided = ScriptedRun(rate, 48).play(GPBandit(specs, seed=seed))
    assert Counter(decided[8:24]).most_common(1)[0][0] == BOTH
    assert Counter(decided[32:]).most_common(1)[0][0] == IDENTITY


def test_neighbours_learn_from_each_other() -> None:
    """Of a grid of 48 specs most are never tried, and yet a good one is soon found."""
    specs = tuple(
        CompressionSpec(bits=bits, sparsity=sparsity, student=student)
        for bits in (32, 16, 8)
        for sparsity in (0.0, 0.25, 0.5, 0.75)
        for student in ("original", "net1", "net2", "net3")
    )

    def rate(_: float, spec: CompressionSpec) -> float:
        return float(spec.bits == 8) - 2.0 * abs(spec.sparsity - 0.5) - spec.size_rank / 3.0

    later: list[float] = []
    for seed in range(12):
        decided = ScriptedRun(rate, 30).play(GPBandit(specs, exploration=0.5, seed=seed))
        later += [rate(0.0, spec) for spec in decided[15:]]
        assert len(set(decided)) < 24
    assert np.mean(later) > np.mean([rate(0.0, spec) for spec in specs]) + 1.0


def test_only_the_window_is_remembered() -> None:
    """Of a run whose gains have all left it, nothing is known but the last ones."""
    run = ScriptedRun(lambda fraction, spec: 5.0 * (spec == INT8) * (fraction < 0.3), 40)
    decided = run.play(GPBandit((IDENTITY, INT8), window=4, exploration=2.0))
    assert len(set(decided[24:])) == 2  # equal again, and both are tried
