"""Rules that go by the KL of each of their specs: the linear mix, and advise + KL cap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from accerl.monitor.compliance import made_up_features
from accerl.monitor.strategies import AdviseKLCapStrategy, FirstThatFires, LinearKLMixStrategy
from accerl.monitor.strategy import reject
from accerl.spec import IDENTITY, CompressionSpec, Decision

INT8, BF16 = CompressionSpec(bits=8), CompressionSpec(bits=16)
NET3 = CompressionSpec(student="net3")


@pytest.mark.parametrize(
    ("kl_nats", "alpha"), [(0.0, 1.0), (0.2, 1.0), (0.4, 0.75), (0.8, 0.25), (1.0, 0.0), (9.0, 0.0)]
)
def test_linear_mix_falls_with_the_mean_kl(kl_nats: float, alpha: float) -> None:
    strategy = LinearKLMixStrategy(kl_low_nats=0.2, kl_high_nats=1.0)
    shares = {
        spec.student: share
        for spec, share in strategy.decide(made_up_features(mix_kl_nats=kl_nats)).mix
    }
    expected = {"net3": alpha, "original": 1.0 - alpha}
    assert shares == pytest.approx({key: share for key, share in expected.items() if share})


def test_linear_mix_acts_with_the_large_network_when_one_diverged() -> None:
    decision = LinearKLMixStrategy().decide(made_up_features(kl_mean_nats=math.nan))
    # The small one's shadow says when it may act again.
    assert decision == replace(Decision.of(IDENTITY), shadow=NET3)


@pytest.mark.parametrize(("small_nats", "alpha"), [(0.02, 1.0), (0.3, 4 / 9), (0.46, 4 / 45)])
def test_a_linear_mix_settles_where_the_small_network_s_own_kl_says(
    small_nats: float, alpha: float
) -> None:
    """Of ten rollouts chance gives the small network more than its share, or none."""
    strategy, dice = LinearKLMixStrategy(), np.random.default_rng(0)
    shares, measured = [1.0], {"mix_kl_nats": small_nats}
    for _ in range(40):
        decision = strategy.decide(made_up_features(staleness_kl_nats=0.01, **measured))
        shares.append(dict(decision.mix)[NET3])
        acted = dice.binomial(10, shares[-1]) / 10.0
        own = {"mix_kl_nats": small_nats} if acted else {}
        measured = {"kl_mean_nats": acted * small_nats + (1.0 - acted) * 0.01, **own}
    assert shares[1:] == pytest.approx([alpha] * 40)


def test_a_linear_mix_that_does_not_act_goes_by_its_shadow() -> None:
    strategy = LinearKLMixStrategy()
    decision = strategy.decide(made_up_features(mix_kl_nats=0.8))
    assert decision == replace(Decision.of(IDENTITY), shadow=NET3)
    # What acts is the large network: the mix' first spec is not the small one.
    others = {"mix_kl_nats": 0.01, "staleness_kl_nats": 0.1}
    assert strategy.decide(made_up_features(**others)) == decision
    shown = strategy.decide(made_up_features(shadow_kl_nats=0.175, **others))
    assert dict(shown.mix)[NET3] == pytest.approx(0.5)


def test_a_linear_mix_that_is_overruled_learns_nothing_of_its_small_network() -> None:
    strategy = LinearKLMixStrategy()
    first = strategy.decide(made_up_features(mix_kl_nats=0.3))
    strategy.overruled(Decision.of(INT8))
    assert strategy.decide(made_up_features(mix_kl_nats=5.0)).mix == first.mix
    strategy.overruled(replace(Decision.of(INT8), shadow=BF16))  # whose KL is no one else's
    assert strategy.decide(made_up_features(shadow_kl_nats=5.0)).mix == first.mix
    strategy.overruled(replace(Decision.of(INT8), shadow=NET3))
    assert strategy.decide(made_up_features(shadow_kl_nats=5.0)).mix == ((IDENTITY, 1.0),)


def capped(
    *timeline: tuple[float, float, float], is_new: Sequence[bool] = ()
) -> list[CompressionSpec]:
    """Decide at the start and after intervals of (seconds, KL of compression, served share).

    `is_new` says where the KL was measured; by default everywhere.
    """
    strategy = AdviseKLCapStrategy(specs=(NET3, INT8, IDENTITY), cap_nats=0.1, retry_fraction=0.5)
    strategy.reset()
    found = [strategy.decide(made_up_features()).main]
    measured = is_new or [True] * len(timeline)
    for (seconds, kl_nats, served), new in zip(timeline, measured, strict=True):
        raw = {"seconds": seconds, "compression_kl_nats": kl_nats, "served_share": served}
        raw["compression_kl_is_new"] = float(new)
        found.append(strategy.decide(made_up_features(**raw)).main)
    return found


def test_the_fastest_spec_acts_until_its_kl_exceeds_the_cap() -> None:
    assert capped((1.0, 0.05, 1.0), (2.0, 0.2, 1.0), (3.0, 0.01, 1.0)) == [NET3, NET3, INT8, INT8]


def test_a_spec_that_exceeded_the_cap_is_tried_again_after_a_while() -> None:
    """The horizon is 60 s: half of it after 2 s are over at 32 s; what is close now stays."""
    after = [(2.0, 0.2, 1.0), (31.0, 0.01, 1.0), (32.0, 0.02, 1.0), (33.0, 0.09, 1.0)]
    assert capped(*after) == [NET3, INT8, INT8, NET3, NET3]


def test_a_kl_that_was_not_measured_while_a_spec_acted_is_not_its_own() -> None:
    """An old value, and one of what acts while a student waits to be admitted, say nothing."""
    rows = ((1.0, 0.2, 0.1), (2.0, 0.2, 1.0), (3.0, 0.3, 1.0))
    waits = capped(*rows, is_new=(True, False, True))
    assert waits == [NET3, NET3, NET3, INT8]
    old = capped((1.0, 0.2, 1.0), (2.0, 0.2, 1.0), is_new=(True, False))
    assert old == [NET3, INT8, INT8]


def test_a_spec_that_is_tried_again_is_judged_by_what_is_measured_then() -> None:
    """Until something is sampled, the indicator shows its KL of long ago."""
    again = [(1.0, 0.5, 1.0), (20.0, 0.01, 1.0), (32.0, 0.01, 1.0), (34.0, 0.5, 1.0)]
    found = capped(*again, (36.0, 0.5, 1.0), is_new=(True, True, False, False, False))
    assert found == [NET3, INT8, INT8, NET3, NET3, NET3]


def test_a_kl_that_was_measured_while_another_spec_acted_instead_is_that_one_s() -> None:
    strategy = AdviseKLCapStrategy(specs=(NET3, INT8, IDENTITY), cap_nats=0.1)
    strategy.reset()
    strategy.decide(made_up_features())
    far = {"compression_kl_nats": 0.5, "compression_kl_is_new": 1.0, "served_share": 1.0}
    for instead in (BF16, INT8):  # a shield's, none of its own; and one of its own
        strategy.overruled(Decision.of(instead))
        assert strategy.decide(made_up_features(seconds=1.0, **far)).main == NET3
    strategy.overruled(Decision.of(NET3))
    assert strategy.decide(made_up_features(seconds=2.0, **far)).main == IDENTITY


def test_what_is_measured_while_the_learner_used_no_rollout_is_of_what_was_decided() -> None:
    strategy = AdviseKLCapStrategy(specs=(NET3, INT8, IDENTITY), cap_nats=0.1)
    strategy.reset()
    strategy.decide(made_up_features())
    far = {"compression_kl_nats": 0.5, "compression_kl_is_new": 1.0, "served_share": math.nan}
    assert strategy.decide(made_up_features(seconds=1.0, **far)).main == INT8


def test_a_student_that_waits_too_far_away_is_not_waited_for() -> None:
    strategy = AdviseKLCapStrategy(specs=(NET3, INT8, IDENTITY), cap_nats=0.1)
    strategy.reset()
    waits = {"seconds": 1.0, "served_share": 0.0, "compression_kl_nats": 0.01}
    assert strategy.decide(made_up_features()).main == NET3
    assert strategy.decide(made_up_features(**waits, waiting_kl_nats=0.05)).main == NET3
    assert strategy.decide(made_up_features(**waits, waiting_kl_nats=2.0)).main == INT8


def test_where_all_exceed_the_cap_the_closest_acts() -> None:
    found = capped((1.0, 0.4, 1.0), (2.0, 0.2, 1.0), (3.0, 0.3, 1.0))
    assert found == [NET3, INT8, IDENTITY, INT8]


def test_a_linear_mix_whose_small_network_waits_goes_by_what_it_would_act_like() -> None:
    """Meanwhile the large one acts for it, whose KL is small and says nothing of it."""
    strategy = LinearKLMixStrategy(kl_low_nats=0.2, kl_high_nats=1.0)
    assert strategy.decide(made_up_features(mix_kl_nats=0.05)).main == NET3
    waits = {"kl_mean_nats": 0.05, "staleness_kl_nats": 0.05}
    found = strategy.decide(made_up_features(waiting_kl_nats=0.35, **waits))
    assert dict(found.mix)[NET3] == pytest.approx(0.75)
    # Of less than half of a mix nobody says how far it is: what was known stays.
    assert dict(strategy.decide(made_up_features(waiting_kl_nats=0.75, **waits)).mix) == (
        pytest.approx({NET3: 0.25, IDENTITY: 0.75})
    )
    again = strategy.decide(made_up_features(waiting_kl_nats=0.01, **waits))
    assert dict(again.mix) == pytest.approx({NET3: 0.25, IDENTITY: 0.75})


def test_a_linear_mix_goes_by_its_small_network_while_its_large_one_waits() -> None:
    strategy = LinearKLMixStrategy(
        small=NET3, large=CompressionSpec(student="net1"), kl_low_nats=0.2, kl_high_nats=1.0
    )
    found = strategy.decide(made_up_features(mix_kl_nats=0.8))
    assert dict(found.mix)[NET3] == pytest.approx(0.25)
    found = strategy.decide(made_up_features(mix_kl_nats=0.4, waiting_kl_nats=3.0))
    assert dict(found.mix)[NET3] == pytest.approx(0.75)


def test_a_waiting_kl_that_stays_the_same_is_one_measurement() -> None:
    """Until the next delivery the indicator shows the last; the wait begins where it was new."""
    strategy = AdviseKLCapStrategy(specs=(NET3, IDENTITY), cap_nats=0.1, retry_fraction=0.5)
    strategy.reset()
    assert strategy.decide(made_up_features()).main == NET3
    waits = {"served_share": 0.0, "waiting_kl_nats": 2.0, "horizon_seconds": 60.0}
    assert strategy.decide(made_up_features(seconds=1.0, **waits)).main == IDENTITY
    assert strategy.decide(made_up_features(seconds=31.0, served_share=1.0)).main == NET3
    assert strategy.decide(made_up_features(seconds=32.0, **waits)).main == IDENTITY
    strategy.overruled(Decision.of(NET3))
    assert strategy.decide(made_up_features(seconds=62.0, **waits)).main == NET3


def test_a_spec_that_cannot_be_built_is_never_tried_again() -> None:
    strategy = AdviseKLCapStrategy(specs=(NET3, INT8, IDENTITY), retry_fraction=0.05)
    composed = FirstThatFires((strategy,))
    composed.reset()
    assert composed.decide(made_up_features()).main == NET3
    reject(composed, NET3)
    for seconds in (1.0, 20.0, 55.0):
        found = composed.decide(made_up_features(seconds=seconds, served_share=0.0))
        assert found.main == INT8


DIVERGED = {"kl_mean_nats": math.nan, "compression_kl_nats": math.nan}


@pytest.mark.parametrize("specs", [(NET3, IDENTITY), (NET3, INT8, IDENTITY)])
def test_only_what_diverged_is_left_for_it(specs: tuple[CompressionSpec, ...]) -> None:
    """Its last rollouts are used while the next spec acts already, and NaN may be an old value."""
    strategy = AdviseKLCapStrategy(specs=specs, cap_nats=0.1)
    strategy.reset()
    timeline = [
        {},
        DIVERGED | {"served_share": 1.0, "compression_kl_is_new": 1.0},
        {"kl_mean_nats": math.nan, "served_share": 0.9, "kl_is_new": 1.0},
        {"kl_mean_nats": math.nan, "served_share": 1.0, "kl_is_new": 0.0},
        {"kl_mean_nats": math.nan, "served_share": math.nan},
        {"kl_mean_nats": 0.01, "served_share": 1.0, "kl_is_new": 1.0},
    ]
    horizon = {"horizon_seconds": 600.0, "compression_kl_nats": 0.0, "compression_kl_is_new": 1.0}
    found = [
        strategy.decide(made_up_features(seconds=10.0 * step, **horizon | known)).main
        for step, known in enumerate(timeline)
    ]
    assert found == [NET3, *[specs[1]] * 5]


@pytest.mark.parametrize(
    "known",
    [
        {"kl_mean_nats": math.nan, "served_share": 0.95},
        {"kl_mean_nats": math.inf, "served_share": 1.0},
        DIVERGED | {"compression_kl_is_new": 1.0, "served_share": 0.5},
    ],
)
def test_what_diverged_is_left(known: dict[str, float]) -> None:
    strategy = AdviseKLCapStrategy(specs=(NET3, IDENTITY), cap_nats=0.1)
    strategy.reset()
    assert strategy.decide(made_up_features()).main == NET3
    assert strategy.decide(made_up_features(seconds=1.0, **known)).main == IDENTITY


def test_where_all_have_diverged_the_mildest_acts_that_can_be_built() -> None:
    strategy = AdviseKLCapStrategy(specs=(NET3, INT8, BF16, IDENTITY), cap_nats=0.1)
    strategy.reset()
    strategy.decide(made_up_features())
    reject(strategy, IDENTITY)
    known = DIVERGED | {"served_share": 1.0}
    found = [strategy.decide(made_up_features(seconds=at, **known)).main for at in (1.0, 2.0, 3.0)]
    assert found == [INT8, BF16, BF16]
