"""Divergence and pool: exact numbers, exact pooling, and survival of a restart."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from accerl.monitor.divergence import measure_rollout, updates_between
from accerl.monitor.indicator_pool import IndicatorPool, RunningMoments


def slow_kl(logits_p: np.ndarray, logits_q: np.ndarray) -> float:
    """Equation 5, term by term, for one state."""
    p = np.exp(logits_p) / np.exp(logits_p).sum()
    q = np.exp(logits_q) / np.exp(logits_q).sum()
    return sum(p[a] * math.log(p[a] / q[a]) for a in range(len(p)))


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def kl_divergence(logits_p: Tensor, logits_q: Tensor) -> Tensor:
    """KL of the policies [..., A] as a rollout's measures have it."""
    none = torch.zeros(logits_p.shape[:-1])
    return measure_rollout(logits_p, logits_q, none, none).kl_nats


def test_kl_is_equation_5_for_every_state() -> None:
    p, q = normal(3, 4, 6, seed=1), normal(3, 4, 6, seed=2)
    kl = kl_divergence(p, q)
    assert kl.shape == (3, 4)
    for index in np.ndindex(3, 4):
        expected = slow_kl(p[index].double().numpy(), q[index].double().numpy())
        assert kl[index].item() == pytest.approx(expected, rel=1e-4)


def test_kl_has_a_direction() -> None:
    p, q = torch.tensor([[4.0, 0.0]]), torch.tensor([[0.0, 0.0]])
    assert kl_divergence(p, q).item() == pytest.approx(slow_kl(p[0].numpy(), q[0].numpy()))
    assert kl_divergence(p, q).item() != pytest.approx(kl_divergence(q, p).item(), rel=0.1)


@given(st.integers(0, 10_000), st.floats(0.01, 50.0), st.floats(-100.0, 100.0))
def test_kl_is_never_negative_and_blind_to_shifts(seed: int, scale: float, shift: float) -> None:
    p, q = normal(5, 4, seed=seed) * scale, normal(5, 4, seed=seed + 1) * scale
    kl = kl_divergence(p, q)
    assert (kl >= 0).all()
    torch.testing.assert_close(kl_divergence(p + shift, q), kl, rtol=1e-2, atol=1e-3)
    assert torch.equal(kl_divergence(p, p), torch.zeros(5))


def test_kl_of_extreme_logits_is_exact() -> None:
    p, q = torch.tensor([[1000.0, 0.0]]), torch.tensor([[0.0, 1000.0]])
    assert kl_divergence(p, q).item() == pytest.approx(1000.0)


def test_entropy_spans_zero_to_log_actions() -> None:
    logits = torch.tensor([[0.0] * 6, [500.0] + [0.0] * 5])
    none = torch.zeros(2)
    measured = measure_rollout(logits, logits, none, none)
    assert measured.entropy_nats.tolist() == pytest.approx([math.log(6), 0.0])


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.floats(-1e4, 1e4))
def test_pooled_moments_are_those_of_all_values(sizes: list[int], offset: float) -> None:
    parts = [normal(size, seed=size).double() + offset for size in sizes]
    together = torch.cat(parts).numpy()
    added, merged = RunningMoments(), RunningMoments()
    for part in parts:
        added.add(part)
        other = RunningMoments()
        other.add(part)
        merged.merge(other)
    for moments in (added, merged):
        assert moments.count == len(together)
        assert moments.mean == pytest.approx(together.mean(), rel=1e-9, abs=1e-9)
        assert moments.variance == pytest.approx(together.var(), rel=1e-6, abs=1e-9)
        assert moments.maximum == together.max()


def test_moments_of_nothing() -> None:
    moments = RunningMoments()
    moments.add(torch.zeros(0))
    moments.merge(RunningMoments())
    assert (moments.count, moments.mean, moments.variance) == (0, 0.0, 0.0)
    assert RunningMoments.from_state_dict(json.loads(json.dumps(moments.state_dict()))) == moments


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_diverged_network_shows_in_the_maximum(order: tuple[int, int]) -> None:
    values = (torch.tensor([math.nan, 1.0]), torch.tensor([2.0]))
    moments = RunningMoments()
    for index in order:
        moments.add(values[index])
    assert math.isnan(moments.maximum)
    assert math.isnan(moments.mean)


def measured_by_hand(ratios: list[float], rho_bar: float) -> tuple[float, float]:
    """Effective sample size over the count, and the share of ratios above rho_bar."""
    size = sum(ratios) ** 2 / sum(ratio**2 for ratio in ratios)
    return size / len(ratios), sum(ratio > rho_bar for ratio in ratios) / len(ratios)


def test_a_rollout_is_measured_state_by_state() -> None:
    logits, acted = normal(5, 3, 4, seed=1), normal(5, 3, 4, seed=2)
    log_prob, behaviour = normal(5, 3, seed=3) - 2.0, normal(5, 3, seed=4) - 2.0
    measured = measure_rollout(logits, acted, log_prob, behaviour, rho_bar=1.2)
    learned, engine = (torch.distributions.Categorical(logits=each) for each in (logits, acted))
    expected_kl = torch.distributions.kl_divergence(learned, engine)
    torch.testing.assert_close(measured.kl_nats, expected_kl)
    torch.testing.assert_close(measured.entropy_nats, learned.entropy())
    same = (logits.argmax(-1) == acted.argmax(-1)).sum().item()
    assert 0 < same < 15
    assert measured.argmax_agreement == pytest.approx(same / 15)
    ratios = (log_prob.double() - behaviour.double()).exp().flatten().tolist()
    expected = measured_by_hand(ratios, 1.2)
    assert (measured.ess_fraction, measured.clipped_share) == pytest.approx(expected, rel=1e-5)


def test_on_policy_every_sample_counts_in_full() -> None:
    logits, log_prob = normal(5, 3, 4), normal(5, 3)
    measured = measure_rollout(logits, logits, log_prob, log_prob)
    assert (measured.argmax_agreement, measured.ess_fraction, measured.clipped_share) == (1, 1, 0)
    assert torch.equal(measured.kl_nats, torch.zeros(5, 3))


def test_one_huge_ratio_leaves_one_effective_sample() -> None:
    log_prob = torch.zeros(2, 2)
    behaviour = torch.tensor([[0.0, 0.0], [0.0, -600.0]])
    measured = measure_rollout(normal(2, 2, 3), normal(2, 2, 3), log_prob, behaviour)
    assert (measured.ess_fraction, measured.clipped_share) == pytest.approx((0.25, 0.25))


def test_a_rollout_of_other_shapes_is_refused() -> None:
    with pytest.raises(ValueError, match="do not match"):
        measure_rollout(normal(2, 2, 3), normal(2, 2, 4), normal(2, 2), normal(2, 2))


def filled_pool() -> tuple[IndicatorPool, list[Tensor]]:
    pool = IndicatorPool()
    rollouts = [normal(4, 3, seed=1).abs(), normal(2, 3, seed=2).abs() * 5]
    for lag, kl_nats in zip((2.0, 8.0), rollouts, strict=True):
        pool.add_rollout(kl_nats, kl_nats / 10, lag, kl_nats.numel())
    return pool, rollouts


def test_the_pool_pools_the_states_of_an_interval() -> None:
    pool, rollouts = filled_pool()
    kl = torch.cat([item.flatten() for item in rollouts]).double()
    result = pool.indicators()
    assert result.kl_mean_nats == pytest.approx(kl.mean().item())
    assert result.kl_var == pytest.approx(kl.var(correction=0).item())
    assert result.kl_max_nats == kl.max().item()
    assert result.entropy_nats == pytest.approx(kl.mean().item() / 10, rel=1e-5)
    assert result.policy_lag == pytest.approx((12 * 2.0 + 6 * 8.0) / 18)


def test_the_pool_starts_every_interval_anew() -> None:
    pool, _ = filled_pool()
    first = pool.reset()
    pool.add_rollout(torch.full((1, 2), 0.5), torch.full((1, 2), 0.25), 1.0, 2)
    assert pool.indicators() == (0.5, 0.0, 0.5, 0.25, 1.0)
    assert first.kl_max_nats > 0.5


def test_the_pool_does_not_take_silence_for_agreement() -> None:
    pool, _ = filled_pool()
    measured = pool.reset()
    assert measured.kl_mean_nats > 0.0
    assert pool.reset() == measured
    assert IndicatorPool(math.log(6)).reset() == (0.0, 0.0, 0.0, math.log(6), 0.0)


def test_a_rollout_that_was_not_measured_counts_for_its_lag() -> None:
    pool, _ = filled_pool()
    measured = pool.reset()
    pool.add_rollout(torch.empty(0), torch.empty(0), 5.0, 12)
    assert pool.indicators() == measured._replace(policy_lag=5.0)
    pool.add_rollout(torch.ones(2, 2), torch.full((2, 2), 0.5), 1.0, 4)
    assert pool.indicators() == (1.0, 0.0, 1.0, 0.5, 4.0)


@pytest.mark.parametrize(
    ("macs", "updates"), [(9e9, 1), (1e9, 1), (6e8, 3), (2.5e8, 5), (1.3e7, 9), (0.0, 9)]
)
def test_small_updates_are_measured_now_and_then(macs: float, updates: int) -> None:
    assert updates_between(macs) == updates


def test_the_pool_survives_a_restart() -> None:
    pool, rollouts = filled_pool()
    pool.reset()
    pool.add_rollout(rollouts[0], rollouts[0], 3.0, 12)
    other = IndicatorPool()
    other.load_state_dict(json.loads(json.dumps(pool.state_dict())))
    for item in (pool, other):
        item.add_rollout(rollouts[1], rollouts[1], 4.0, 6)
    assert other.indicators() == pool.indicators()
    assert other.reset() == pool.reset()
