"""Bandits: who is chosen, by a slow oracle and by hand; that they find what pays, and forget."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from accerl.errors import UserError
from accerl.monitor.compliance import StrategyCompliance, made_up_features
from accerl.monitor.strategy import Strategy, specs_of
from accerl.spec import IDENTITY, CompressionSpec
from controller.comparators.bandits import SlidingWindowUCB, ThompsonBandit
from controller.comparators.credit import JOINT_SPECS, Credit, RunLearner
from controller.comparators.gp_bandit import GPBandit
from tests.fixtures.runs.scripted_runs import ScriptedRun

INT8, BF16 = CompressionSpec(bits=8), CompressionSpec(bits=16)
NET3, HALF = CompressionSpec(student="net3"), CompressionSpec(sparsity=0.5)
GRID = tuple(
    CompressionSpec(bits=bits, sparsity=sparsity, student=student)
    for bits in (32, 8)
    for sparsity in (0.0, 0.5)
    for student in ("original", "net3")
)
SEEDS = range(4)


class TestSlidingWindow(StrategyCompliance):
    def make(self) -> Strategy:
        return SlidingWindowUCB((IDENTITY, INT8, NET3), seed=3)


class TestFactoredSlidingWindow(StrategyCompliance):
    def make(self) -> Strategy:
        return SlidingWindowUCB(JOINT_SPECS, factored=True, window=4)


class TestThompson(StrategyCompliance):
    def make(self) -> Strategy:
        return ThompsonBandit()


class TestFactoredThompson(StrategyCompliance):
    def make(self) -> Strategy:
        return ThompsonBandit(GRID, factored=True, hold_intervals=3)


def credit(spec: CompressionSpec, gain: float, share: float = 1.0) -> Credit:
    return Credit(spec=spec, gain_per_second=gain, share=share, time_fraction=0.0, return_level=0.0)


def choose(strategy: RunLearner, credits: list[Credit], seed: int = 0) -> CompressionSpec:
    """What is chosen where each credit is of a stretch of its own."""
    ordered = [replace(item, stretch=place) for place, item in enumerate(credits)]
    return strategy.choose(made_up_features(), ordered, np.random.default_rng(seed))


def oracle(strategy: SlidingWindowUCB, credits: list[Credit]) -> list[float]:
    """The bounds of a sliding window, one credit at a time."""
    window = credits[-strategy.window :]
    total = sum(item.share for item in window)
    mean = sum(item.share * item.gain_per_second for item in window) / total
    spread = sum(item.share * (item.gain_per_second - mean) ** 2 for item in window) / total
    bounds = []
    for spec in strategy.specs:
        own = [item for item in window if item.spec == spec]
        count = sum(item.share for item in own)
        if count == 0.0:
            bounds.append(math.inf)
            continue
        gain = sum(item.share * item.gain_per_second for item in own) / count
        bonus = strategy.exploration * math.sqrt(math.log(total) / count)
        bounds.append((gain - mean) / math.sqrt(spread) + bonus)
    return bounds


@pytest.mark.parametrize("exploration", [0.0, 0.5, 3.0])
def test_the_window_s_bounds_are_those_of_a_slow_oracle(exploration: float) -> None:
    generator = np.random.default_rng(1)
    strategy = SlidingWindowUCB((IDENTITY, INT8, NET3), window=7, exploration=exploration)
    credits: list[Credit] = []
    untried = 0
    for _ in range(60):
        spec = strategy.specs[int(generator.choice(3, p=(0.2, 0.2, 0.6)))]
        share = float(generator.uniform(0.3, 1.0))
        credits.append(credit(spec, float(generator.normal(0.0, 100.0)), share))
        if len(credits) >= 3:
            bounds = oracle(strategy, credits)
            best = [strategy.specs[i] for i in range(3) if bounds[i] == max(bounds)]
            assert choose(strategy, credits) in best
            untried += max(bounds) == math.inf
    assert 0 < untried < 50  # both kinds of decision were seen


def test_counts_leave_the_window_with_their_earnings() -> None:
    strategy = SlidingWindowUCB((IDENTITY, INT8), window=4)
    credits = [credit(INT8, 5.0), *[credit(IDENTITY, 1.0 + i) for i in range(3)]]
    assert choose(strategy, credits) == INT8
    for _ in range(8):
        credits.append(credit(IDENTITY, 9.0))
        assert choose(strategy, credits) == INT8  # untried, as far as the window knows


def test_a_switch_that_leaves_two_credits_is_one_stretch() -> None:
    """The window reaches as far back, and a discount forgets no faster."""
    window = SlidingWindowUCB((IDENTITY, INT8), window=3, exploration=0.0)
    late = [
        replace(credit(spec, gain, share), stretch=stretch)
        for stretch, spec, gain, share in (
            (1, INT8, 9.0, 1.0),
            (2, IDENTITY, 1.0, 0.9),
            (2, INT8, 1.0, 0.1),
            (3, IDENTITY, 2.0, 1.0),
        )
    ]
    features, rng = made_up_features(), np.random.default_rng(0)
    assert window.choose(features, late, rng) == INT8  # by its 9, which credits counted out
    thompson = ThompsonBandit((IDENTITY, INT8), discount=0.5, noise=0.01)
    weighed = []

    def weights(ages: np.ndarray) -> np.ndarray:
        weighed.append(ages.tolist())
        return 0.5**ages

    object.__setattr__(thompson, "weights", weights)
    thompson.choose(features, late, rng)
    assert weighed == [[2, 1, 1, 0]]


def test_draws_come_from_the_posterior() -> None:
    """Against Bayes' rule on a fine grid: prior N(0, 1), three observations of mean 0.8."""
    strategy = ThompsonBandit((IDENTITY, INT8), noise=0.7)
    grid = np.linspace(-6.0, 6.0, 20_001)
    log_density = -0.5 * grid**2 - 3 * 0.5 * ((grid - 0.8) / 0.7) ** 2
    density = np.exp(log_density - log_density.max())
    density /= density.sum()
    mean = float(density @ grid)
    deviation = math.sqrt(float(density @ (grid - mean) ** 2))
    draws = strategy.scores(np.full(40_000, 0.8), np.full(40_000, 3.0), np.random.default_rng(0))
    assert draws.mean() == pytest.approx(mean, abs=0.01)
    assert draws.std() == pytest.approx(deviation, rel=0.02)
    untried = strategy.scores(np.zeros(40_000), np.zeros(40_000), np.random.default_rng(0))
    assert (untried.mean(), untried.std()) == pytest.approx((0.0, 1.0), abs=0.02)


def test_arms_that_are_thought_alike_promise_little_untried() -> None:
    strategy = ThompsonBandit((IDENTITY, INT8), noise=0.7, prior=0.1)
    untried, tried = (
        strategy.scores(np.full(40_000, 0.8), np.full(40_000, count), np.random.default_rng(0))
        for count in (0.0, 98.0)
    )
    assert (untried.mean(), untried.std()) == pytest.approx((0.0, 0.1), abs=0.01)
    # By hand: k = 49, so the mean is 98 / 147 of 0.8, and the deviation 0.7 / sqrt(147).
    assert (tried.mean(), tried.std()) == pytest.approx((0.8 * 98 / 147, 0.7 / 147**0.5), rel=0.02)


def test_what_is_discounted_drifts_back_to_the_prior() -> None:
    weights = ThompsonBandit(discount=0.5).weights(np.arange(3))
    assert weights.tolist() == [1.0, 0.5, 0.25]
    old = [credit(INT8, -9.0), *[credit(IDENTITY, gain) for gain in (1.0, -1.0) * 10]]
    for discount, often in ((0.5, True), (1.0, False)):
        strategy = ThompsonBandit((IDENTITY, INT8), discount=discount, noise=0.3)
        chosen = Counter(choose(strategy, old, seed) for seed in range(200))
        assert (chosen[INT8] > 40) is often


def bandits(specs: tuple[CompressionSpec, ...], **options: Any) -> list[RunLearner]:
    return [
        bandit
        for seed in SEEDS
        for bandit in (
            SlidingWindowUCB(specs, seed=seed, window=16, **options),
            ThompsonBandit(specs, seed=seed, discount=0.9, noise=0.5, **options),
        )
    ]


@pytest.mark.parametrize("lag", [0, 1])
def test_what_pays_is_found(lag: int) -> None:
    rates = {IDENTITY: 1.0, BF16: 1.5, INT8: 4.0, NET3: 0.0}
    for bandit in bandits(tuple(rates)):
        decided = ScriptedRun(lambda _, spec: rates[spec], 60, lag=lag).play(bandit)
        assert Counter(decided[30:]).most_common(1)[0][0] == INT8, bandit
        assert set(decided) == set(rates)  # nothing was left untried


def test_a_change_is_followed() -> None:
    def rate(time_fraction: float, spec: CompressionSpec) -> float:
        return {INT8: 3.0, IDENTITY: 1.0}[spec] if time_fraction < 0.5 else float(spec == IDENTITY)

    for bandit in bandits((IDENTITY, INT8)):
        decided = ScriptedRun(rate, 80).play(bandit)
        assert Counter(decided[20:40]).most_common(1)[0][0] == INT8, bandit
        assert Counter(decided[60:]).most_common(1)[0][0] == IDENTITY, bandit


def test_heads_learn_side_by_side() -> None:
    """Eight specs, of which each head learns from every credit."""

    def rate(_: float, spec: CompressionSpec) -> float:
        return 2.0 * (spec.bits == 8) - 2.0 * (spec.sparsity > 0.0) + 1.0 * (spec.student == "net3")

    best = CompressionSpec(bits=8, student="net3")
    for bandit in bandits(GRID, factored=True):
        decided = ScriptedRun(rate, 80).play(bandit)
        assert Counter(decided[40:]).most_common(1)[0][0] == best, bandit


def test_a_head_does_not_earn_what_another_one_made() -> None:
    """net3 pays 1 and INT8 pays 10, but net3 was only ever seen in 32 bits."""
    seen = [(IDENTITY, 0.0), (NET3, 1.0), (NET3, 1.0), (HALF, -5.0), (INT8, 10.0)]
    credits = [credit(spec, gain) for spec, gain in seen]
    heads = SlidingWindowUCB(GRID, factored=True, exploration=0.0)
    assert choose(heads, credits) == CompressionSpec(bits=8, student="net3")
    net3, original = ([g for s, g in seen if s.student == name] for name in ("net3", "original"))
    assert np.mean(net3) < np.mean(original)  # plain means would have it the other way round


def test_what_does_not_exist_is_replaced_and_the_replacement_earns() -> None:
    """Both hard levels pay, but not together: a spec that has one of them acts, and they earn."""
    specs = (IDENTITY, INT8, NET3)
    for bandit in bandits(specs, factored=True):
        decided = ScriptedRun(lambda _, spec: float(spec != IDENTITY), 40).play(bandit)
        assert set(decided) <= set(specs)
        assert Counter(decided[20:])[IDENTITY] < 10, bandit


def test_a_spec_is_kept_until_it_has_a_credit() -> None:
    run = ScriptedRun(lambda *_: 1.0, 8, silent={0, 1, 4})
    decided = run.play(SlidingWindowUCB((IDENTITY, INT8, NET3, BF16)))
    assert len(set(decided[:4])) == 1  # the first return is known after the third interval
    assert len({decided[3], decided[4], decided[6]}) == 3
    assert decided[5] == decided[4]


@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.parametrize("kind", [SlidingWindowUCB, ThompsonBandit])
def test_a_spec_that_never_acts_is_not_chosen_for_ever(
    kind: type[RunLearner], is_told: bool
) -> None:
    """It waits to be admitted, or cannot be built: the learner's own network acts for it."""
    never = {NET3: IDENTITY, HALF: IDENTITY}
    run = ScriptedRun(
        lambda _, spec: 2.0 if spec == INT8 else 1.0, 60, stand_ins=never, is_told=is_told
    )
    decided = run.play(kind(specs=(IDENTITY, INT8, NET3, HALF)))
    assert set(decided) == {IDENTITY, INT8, NET3, HALF}
    assert decided[-30:].count(INT8) > 15


def test_a_spec_is_held() -> None:
    for first_seconds in (2.0, 0.2):  # the others have two seconds
        run = ScriptedRun(lambda *_: 1.0, 12, first_seconds=first_seconds)
        decided = run.play(SlidingWindowUCB((IDENTITY, INT8, NET3), hold_intervals=3))
        changes = [i for i in range(1, 12) if decided[i] != decided[i - 1]]
        assert changes[0] == 3
        assert all(change % 3 == 0 for change in changes)


def test_a_hold_that_is_over_still_waits_for_a_credit() -> None:
    """Nothing is measured in the intervals 4 to 6: what was chosen before them is kept."""
    run = ScriptedRun(lambda *_: 1.0, 12, silent={4, 5, 6})
    decided = run.play(SlidingWindowUCB((IDENTITY, INT8, NET3, BF16), hold_intervals=2))
    changes = [i for i in range(1, 9) if decided[i] != decided[i - 1]]
    assert changes == [2, 4, 8]


@pytest.mark.parametrize("kind", [SlidingWindowUCB, ThompsonBandit, GPBandit])
def test_what_pays_is_found_where_little_is_measured(kind: type[RunLearner]) -> None:
    """After a short first interval, with a return in every third one."""
    rates = {IDENTITY: 1.0, INT8: 4.0, NET3: 0.0}
    silent = {index for index in range(90) if index % 3}
    for seed in SEEDS:
        bandit = kind(tuple(rates), seed=seed)
        run = ScriptedRun(lambda _, spec: rates[spec], 90, silent=silent, first_seconds=0.2)
        decided = run.play(bandit)
        assert set(decided) == set(rates)
        assert Counter(decided[45:]).most_common(1)[0][0] == INT8, bandit


def test_equal_seeds_decide_alike_and_others_do_not() -> None:
    def decisions(kind: type[RunLearner], seed: int) -> list[CompressionSpec]:
        return ScriptedRun(lambda _, spec: spec.sparsity, 30).play(kind(GRID, seed=seed))

    for kind in (SlidingWindowUCB, ThompsonBandit):
        assert decisions(kind, 1) == decisions(kind, 1)
        assert decisions(kind, 1) != decisions(kind, 2)


def test_by_default_the_joint_presets_are_tried() -> None:
    assert specs_of(ThompsonBandit()) == JOINT_SPECS
    assert len(JOINT_SPECS) == 8


@pytest.mark.parametrize(
    "specs",
    [
        (IDENTITY, CompressionSpec(graph="eager")),
        (IDENTITY, CompressionSpec(rank=0.5)),
        (IDENTITY, CompressionSpec(student="mynets:small")),
    ],
)
def test_heads_need_levels(specs: tuple[CompressionSpec, ...]) -> None:
    with pytest.raises(UserError, match="differ in bits, sparsity and student"):
        SlidingWindowUCB(specs, factored=True)
    assert set(SlidingWindowUCB(specs).specs) == set(specs)


def test_specs_that_differ_in_several_heads_are_reached() -> None:
    specs = (IDENTITY, best := CompressionSpec(student="net3", bits=8))
    for bandit in bandits(specs, factored=True):
        decided = ScriptedRun(lambda _, spec: 10.0 if spec == best else 1.0, 80).play(bandit)
        assert Counter(decided[50:]).most_common(1)[0][0] == best, bandit
