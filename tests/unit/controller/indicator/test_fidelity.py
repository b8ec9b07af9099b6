"""FidelityBelief: what KL is believed to be, and what an env step is worth."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest

from accerl.spec import IDENTITY, CompressionSpec
from controller.indicator.fidelity import FidelityBelief
from controller.indicator.prior import Prior
from tests.fixtures.controllers.raw_indicators import raw

INT8 = CompressionSpec(bits=8)
NET3 = CompressionSpec(student="net3", bits=8)
SPECS = (IDENTITY, INT8, NET3)


def make_fidelity(prior: Prior | None = None) -> FidelityBelief:
    """Return a belief about a policy that is as decided as the prior's typical KL is of."""
    belief = FidelityBelief(SPECS, prior or Prior())
    belief.observe_policy(raw(entropy_fraction=2.0 / 3.0))
    return belief


def observe(
    belief: FidelityBelief, spec: CompressionSpec, seen: Mapping[str, float], policy_lag: float
) -> None:
    """Learn from an interval in which a spec acted."""
    belief.observe_lag(spec, seen, policy_lag)
    belief.observe_acting(spec, seen, policy_lag)


def test_a_lag_is_no_change_to_who_notices_none() -> None:
    found = []
    for notices in (True, False):
        belief = FidelityBelief(SPECS, Prior(), notices_changes=notices)
        for _ in range(20):
            belief.observe_lag(INT8, raw(policy_lag=3.0), 3.0)
        belief.observe_lag(INT8, raw(policy_lag=15.0), 3.0)
        found.append(belief.policy_lag(INT8, 3.0))
    assert found[1] < found[0] < 15.0


def test_kl_grows_with_how_decided_the_policy_is() -> None:
    belief = FidelityBelief(SPECS, Prior())
    even = belief.log_kl(NET3).mean
    belief.observe_kl(NET3, 1e-5)  # as close as copies of an untrained network are
    assert belief.log_kl(NET3).mean == even
    assert not belief.measured
    belief.observe_policy(raw(entropy_fraction=2.0 / 3.0))
    assert belief.log_kl(NET3).mean == pytest.approx(Prior().log_kl(NET3))
    for _ in range(50):
        belief.observe_kl(NET3, 0.2)
    belief.observe_policy(raw(entropy_fraction=0.0))
    assert math.exp(belief.log_kl(NET3).mean) == pytest.approx(0.5, rel=0.05)
    before = belief.log_kl(NET3)
    belief.observe_policy(raw(entropy_fraction=math.nan))  # the learner used nothing
    assert belief.log_kl(NET3) == before


def test_kl_of_one_spec_says_something_of_the_others() -> None:
    prior = Prior()
    belief = make_fidelity(prior)
    before = belief.log_kl(NET3)
    belief.observe_kl(INT8, 10.0 * math.exp(prior.log_kl(INT8)))
    assert belief.log_kl(INT8).mean > prior.log_kl(INT8) + 1.0
    assert belief.log_kl(NET3).mean > before.mean + 0.5
    assert belief.log_kl(NET3).sd < before.sd
    assert belief.measured == {INT8}
    belief.observe_kl(NET3, math.nan)
    assert belief.measured == {INT8}


def test_efficiency_falls_with_kl_and_with_lag_and_fp32_is_the_unit() -> None:
    belief = make_fidelity()
    assert belief.log_efficiency(IDENTITY, 5.0, 5.0).mean == pytest.approx(0.0)
    near, far = (belief.log_efficiency(spec, 5.0, 5.0).mean for spec in (INT8, NET3))
    assert far < near < 0.0
    assert belief.log_efficiency(INT8, 40.0, 5.0).mean < near - 0.3
    assert belief.log_efficiency(INT8, math.nan, 5.0).mean == pytest.approx(near)


def test_few_effective_samples_make_divergence_dear() -> None:
    cheap, dear = make_fidelity(), make_fidelity()
    for belief, share in ((cheap, 0.98), (dear, 0.1)):
        for _ in range(5):
            belief.observe_kl(NET3, 0.2)
            seen = raw(kl_mean_nats=0.2, policy_lag=3.0, ess_fraction=share)
            observe(belief, NET3, seen, 3.0)
    worth = [math.exp(b.log_efficiency(NET3, 3.0, 3.0).mean) for b in (cheap, dear)]
    assert worth[1] < 0.9 * worth[0]


def test_no_number_of_effective_samples_makes_the_cost_of_divergence_certain() -> None:
    """They follow from the divergence itself: forty of them are no forty witnesses."""
    prior = Prior()
    belief = make_fidelity(prior)
    for _ in range(40):
        seen = raw(kl_mean_nats=0.1, policy_lag=3.0, ess_fraction=1.0 / 1.2)
        observe(belief, INT8, seen, 3.0)
    assert prior.cost_spread / math.sqrt(2.0) < belief.log_cost.sd < 0.8 * prior.cost_spread
    said = prior.ess_weight * math.log(1.2) / 0.1**prior.power
    halfway = (math.log(prior.cost) + math.log(said)) / 2.0
    assert belief.log_cost.mean == pytest.approx(halfway, abs=0.02)


def test_what_an_interval_did_not_measure_is_not_learned_again() -> None:
    belief = make_fidelity()
    seen = raw(kl_mean_nats=0.1, policy_lag=3.0, ess_fraction=0.5)
    observe(belief, INT8, seen | {"kl_is_new": 1.0}, math.nan)
    known = belief.log_cost, belief.divergence(INT8, math.nan)
    observe(belief, INT8, seen | {"kl_is_new": 0.0, "kl_mean_nats": 0.2}, math.nan)
    assert (belief.log_cost, belief.divergence(INT8, math.nan)) == known
    observe(belief, INT8, seen, math.nan)  # who does not say so measured it
    assert belief.log_cost.sd < known[0].sd


@pytest.mark.parametrize(("spec", "kl_nats"), [(INT8, 0.002), (NET3, 0.15)])
def test_the_doubt_about_efficiency_is_that_of_kl_and_cost(
    spec: CompressionSpec, kl_nats: float
) -> None:
    """Against the spread over drawn worlds, with little doubt, where first order holds."""
    prior = Prior(cost_spread=0.1, kl_shared=0.05, kl_own=0.1, lag_own=1e-6)
    belief = make_fidelity(prior)
    for _ in range(30):
        belief.observe_kl(spec, kl_nats)
    seen = raw(kl_mean_nats=kl_nats + 0.05, policy_lag=3.0, ess_fraction=1.0)
    observe(belief, spec, seen, 3.0)
    believed, dice = belief.log_efficiency(spec, 3.0, 3.0), np.random.default_rng(0)
    own, cost = belief.log_kl(spec), belief.log_cost
    kl = np.exp(own.mean + own.sd * dice.standard_normal(20_000))
    stale = kl_nats + 0.05 - math.exp(own.mean)
    lost = (kl + stale) ** prior.power - stale**prior.power
    worlds = -np.exp(cost.mean + cost.sd * dice.standard_normal(20_000)) * lost
    assert believed.mean == pytest.approx(worlds.mean(), rel=0.05)
    assert believed.sd == pytest.approx(worlds.std(), rel=0.05)


def test_lags_are_corrected_by_those_that_are_seen() -> None:
    """What was measured of the spec that acts is what is believed of it."""
    belief = make_fidelity()
    for _ in range(20):
        observe(belief, IDENTITY, raw(kl_mean_nats=0.5, policy_lag=14.5), 2.5)
    assert belief.policy_lag(IDENTITY, 2.5) == pytest.approx(14.5, rel=0.1)
    assert belief.policy_lag(INT8, 2.5) == pytest.approx(14.5, rel=0.2)  # they share most of it
    assert belief.divergence(IDENTITY, 2.5) == pytest.approx(0.5)
    assert belief.divergence(INT8, 5.0) > 0.6  # staler still
    for _ in range(3):  # slots are held back from now on
        observe(belief, IDENTITY, raw(kl_mean_nats=0.5, policy_lag=1.5), 2.5)
    assert belief.policy_lag(IDENTITY, 2.5) == pytest.approx(1.5, abs=0.5)
    sure, unsure = (make_fidelity(Prior(lag_own=own)) for own in (1e-6, 0.3))
    assert unsure.log_efficiency(INT8, 5.0, 5.0).sd > 1.1 * sure.log_efficiency(INT8, 5.0, 5.0).sd
    assert unsure.log_efficiency(IDENTITY, 5.0, 5.0).sd == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("acted", [False, True])
def test_an_infinite_kl_is_that_of_a_network_that_has_diverged(acted: bool) -> None:
    """Else a shadow that has diverged would be measured again and again."""
    belief = make_fidelity()
    belief.observe_kl(NET3, math.inf, acted=acted)
    assert belief.measured == {NET3}
    assert math.exp(belief.log_kl(NET3).mean) > 1.0


def test_a_kl_that_is_not_a_number_says_nothing_but_of_what_acted() -> None:
    kl_nats = math.nan
    belief = make_fidelity()
    before, seen = belief.log_kl(INT8), raw(kl_mean_nats=kl_nats, policy_lag=3.0, ess_fraction=0.5)
    belief.observe_kl(INT8, kl_nats)
    observe(belief, IDENTITY, seen, 3.0)
    observe(belief, INT8, seen | {"kl_is_new": 0.0}, 3.0)
    assert belief.log_kl(INT8) == before
    assert not belief.measured
    observe(belief, INT8, seen, 3.0)
    assert belief.measured == {INT8}
    assert math.exp(belief.log_kl(INT8).mean) > 1.0
    assert belief.log_cost == make_fidelity().log_cost
    assert math.isfinite(belief.log_efficiency(INT8, 3.0, 3.0).mean)
