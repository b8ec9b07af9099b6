from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import mannwhitneyu, trim_mean

from analysis.comparison import stats


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 19, 40])
def test_iqm_equals_the_trimmed_mean_of_scipy(count: int) -> None:
    values = np.random.default_rng(count).lognormal(size=(count, 3))
    assert stats.iqm(values) == pytest.approx(trim_mean(values, 0.25, axis=0), rel=1e-12)


def test_every_game_weighs_the_same_however_many_seeds_it_has() -> None:
    weights = stats.game_weights(["a", "a", "a", "b"])
    assert weights == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2])


def test_bootstrap_variance_is_the_closed_form_of_a_stratified_mean() -> None:
    rng = np.random.default_rng(0)
    games = ["a"] * 3 + ["b"] * 5 + ["c"] * 2
    values = rng.normal(size=10) + np.repeat([0.0, 50.0, -50.0], [3, 5, 2])
    samples = stats.bootstrap_weights(games, rng, 200_000) @ values
    # Var of (1/G) sum of game means = (1/G^2) sum of s_g^2 / n_g; between games adds nothing.
    parts = [values[:3], values[3:8], values[8:]]
    expected = sum(part.var(ddof=1) / len(part) for part in parts) / 9.0
    assert samples.var() == pytest.approx(expected, rel=0.02)
    assert samples.mean() == pytest.approx(np.mean([part.mean() for part in parts]), abs=0.01)


def test_bootstrap_weights_sum_to_one_and_follow_the_generator() -> None:
    games = ["a", "a", "b", "b", "b"]
    first = stats.bootstrap_weights(games, np.random.default_rng(3), 50)
    again = stats.bootstrap_weights(games, np.random.default_rng(3), 50)
    other = stats.bootstrap_weights(games, np.random.default_rng(4), 50)
    assert first.sum(axis=1) == pytest.approx(np.ones(50))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_one_pair_a_game_is_resampled_across_games_instead_of_claiming_certainty() -> None:
    found = stats.paired_mean(np.array([0.0, 1.0, 2.0]), ["a", "b", "c"], np.random.default_rng(0))
    assert found.estimate == pytest.approx(1.0)
    assert found.low < 0.5 < 1.5 < found.high


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_than_three_pairs_have_an_estimate_and_no_interval(count: int) -> None:
    values = np.array([0.3, 0.5])[:count]
    found = stats.paired_mean(values, ["a"] * count, np.random.default_rng(0))
    assert found.estimate == pytest.approx(values.mean())
    assert np.isnan(found.low)
    assert np.isnan(found.high)


def test_two_seeds_on_many_machines_are_two_clusters_and_give_no_interval() -> None:
    games = [f"game-{machine}" for machine in range(6) for _ in range(2)]
    clusters = [("game", seed) for _ in range(6) for seed in range(2)]
    assert stats.degrees_of_freedom(games, clusters) == 0
    assert stats.degrees_of_freedom(games) == 6


@pytest.mark.parametrize(("games", "seeds"), [(1, 3), (2, 3), (3, 5), (3, 1)])
def test_intervals_cover_the_truth_as_often_as_they_say(games: int, seeds: int) -> None:
    """On three machines each, whose runs share the dice of their game and seed."""
    rng, repeats = np.random.default_rng(1), 1_500
    pairs = [(g, m, s) for g in range(games) for m in range(3) for s in range(seeds)]
    names = [f"{game}-{machine}" for game, machine, _ in pairs]
    clusters = [(game, seed) for game, _, seed in pairs]
    shared = rng.normal(size=(games, seeds, repeats))
    values = np.array([shared[g, s] for g, _, s in pairs])
    values += 0.5 * rng.normal(size=values.shape)
    means = stats.game_weights(names) @ values
    samples = stats.bootstrap_weights(names, rng, 1_000, clusters=clusters) @ values
    freedom = stats.degrees_of_freedom(names, clusters)
    found = [
        stats.bootstrap_interval(mean, drawn, freedom)
        for mean, drawn in zip(means, samples.T, strict=True)
    ]
    covered = np.mean([each.low <= 0.0 <= each.high for each in found])
    assert 0.93 <= covered <= 0.98


@pytest.mark.parametrize(("games", "seeds"), [(12, 2), (3, 3)])
def test_intervals_of_the_iqm_cover_it_as_often_as_they_say(games: int, seeds: int) -> None:
    rng = np.random.default_rng(2)
    names = [f"game-{game}" for game in range(games) for _ in range(seeds)]
    values = rng.normal(size=(500, len(names)))  # whose IQM is 0
    found = [stats.iqm_interval(row, names, rng, 400) for row in values]
    covered = np.mean([each.low <= 0.0 <= each.high for each in found])
    assert 0.92 <= covered <= 0.98


@pytest.mark.parametrize("pairs", [3, 4])
def test_no_interval_leans_on_one_degree_of_freedom(pairs: int) -> None:
    found = {
        stats.degrees_of_freedom(games, clusters)
        for games in itertools.product("ab", repeat=pairs)
        for clusters in itertools.product(range(4), repeat=pairs)
    }
    assert 1 not in found


def test_an_interval_ends_where_what_is_possible_ends() -> None:
    assert stats.Interval(0.53, -0.53, 1.6).within(0.0, 1.0) == stats.Interval(0.53, 0.0, 1.0)
    assert np.isnan(stats.Interval(0.53, np.nan, np.nan).within(0.0, 1.0).low)


def test_log_ratio_is_the_geometric_mean_and_inverts_with_the_sides() -> None:
    a, b = np.array([50.0, 80.0, 20.0, 20.0]), np.array([100.0, 100.0, 40.0, 10.0])
    games = ["a", "a", "b", "b"]
    forth = stats.paired_log_ratio(a, b, games, np.random.default_rng(5))
    back = stats.paired_log_ratio(b, a, games, np.random.default_rng(5))
    assert forth.estimate == pytest.approx((0.5 * 0.8 * 0.5 * 2.0) ** 0.25)
    assert back.estimate == pytest.approx(1.0 / forth.estimate)
    assert back.low == pytest.approx(1.0 / forth.high)


def test_ratio_of_means_and_its_refusal_of_an_unsafe_denominator() -> None:
    games = ["a", "a", "b", "b"]
    a, b = np.array([2.0, 4.0, 6.0, 8.0]), np.array([1.0, 2.0, 3.0, 4.0])
    found = stats.paired_ratio_of_means(a, b, games, np.random.default_rng(0))
    assert found is not None
    assert (found.estimate, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0))
    unsafe = np.array([1.0, -3.0, 3.0, 4.0])
    assert stats.paired_ratio_of_means(a, unsafe, games, np.random.default_rng(0)) is None
    assert stats.paired_ratio_of_means(a, -b, games, np.random.default_rng(0)) is None


def test_exact_sign_flip_p_equals_counting_by_hand() -> None:
    rng = np.random.default_rng(2)
    differences = rng.normal(0.3, 1.0, size=9)
    games = ["a"] * 4 + ["b"] * 5
    weights = stats.game_weights(games)
    observed = abs(weights @ differences)
    totals = [
        abs(sum(w * s * d for w, s, d in zip(weights, signs, differences, strict=True)))
        for signs in itertools.product((-1, 1), repeat=9)
    ]
    expected = np.mean([total >= observed - 1e-12 for total in totals])
    assert stats.sign_flip_p(differences, games, rng) == pytest.approx(expected)


def test_sampled_sign_flip_p_is_close_to_the_normal_limit_and_never_zero() -> None:
    rng = np.random.default_rng(3)
    differences = rng.normal(size=60)
    differences += 2.0 / np.sqrt(60) * differences.std() - differences.mean()
    p = stats.sign_flip_p(differences, ["a"] * 60, rng, 40_000)
    assert p == pytest.approx(0.0455, abs=0.012)
    assert 0.0 < stats.sign_flip_p(np.full(60, 1.0), ["a"] * 60, rng) < 0.001


def test_no_difference_at_all_gives_p_one() -> None:
    assert stats.sign_flip_p(np.zeros(5), ["a"] * 5, np.random.default_rng(0)) == 1.0


def test_smallest_p_is_what_unanimous_pairs_give() -> None:
    for count in (1, 2, 5, 8):
        p = stats.sign_flip_p(np.ones(count), ["a"] * count, np.random.default_rng(0))
        assert p == pytest.approx(stats.smallest_p(count))


def test_holm_against_the_worked_example_and_its_laws() -> None:
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    p = np.random.default_rng(4).uniform(size=8)
    adjusted = np.array(stats.holm(p.tolist()))
    assert np.all(adjusted >= p)
    assert np.all(adjusted <= np.minimum(8 * p, 1.0) + 1e-15)
    assert np.all(np.diff(adjusted[np.argsort(p)]) >= 0.0)
    assert stats.holm([]) == []


def test_probability_of_improvement_is_mann_whitney_averaged_over_games() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.integers(0, 6, 14).astype(float), rng.integers(1, 7, 10).astype(float)
    games_a, games_b = ["x"] * 8 + ["y"] * 6, ["x"] * 5 + ["y"] * 5
    expected = np.mean(
        [
            mannwhitneyu(a[:8], b[:5]).statistic / 40.0,
            mannwhitneyu(a[8:], b[5:]).statistic / 30.0,
        ]
    )
    assert stats.probability_of_improvement(a, games_a, b, games_b) == pytest.approx(expected)
    flipped = stats.probability_of_improvement(a, games_a, b, games_b, lower_is_better=True)
    assert flipped == pytest.approx(1.0 - expected)


def test_iqm_interval_shrinks_with_more_runs() -> None:
    rng = np.random.default_rng(6)
    few, many = rng.normal(size=8), rng.normal(size=400)
    narrow = stats.iqm_interval(many, ["a"] * 400, rng)
    wide = stats.iqm_interval(few, ["a"] * 4 + ["b"] * 4, rng)
    assert narrow.high - narrow.low < 0.5 * (wide.high - wide.low)


def test_perfectly_correlated_instances_give_the_interval_and_p_of_one() -> None:
    one = np.random.default_rng(7).normal(0.9, 1.0, size=10)
    seeds = list(range(10))
    alone = stats.paired_mean(one, ["edge"] * 10, np.random.default_rng(0))
    thrice = np.tile(one, 3)
    games = [name for name in ("edge", "slow", "paper") for _ in seeds]
    clusters = [("acrobot", seed) for _ in range(3) for seed in seeds]
    copies = stats.paired_mean(thrice, games, np.random.default_rng(0), clusters=clusters)
    assert (copies.estimate, copies.low, copies.high) == pytest.approx(
        (alone.estimate, alone.low, alone.high)
    )
    naive = stats.paired_mean(thrice, games, np.random.default_rng(0))
    assert naive.high - naive.low < 0.7 * (copies.high - copies.low)
    p = stats.sign_flip_p(one, ["edge"] * 10, np.random.default_rng(0))
    flipped = stats.sign_flip_p(thrice, games, np.random.default_rng(0), clusters=clusters)
    assert flipped == pytest.approx(p)
    assert stats.sign_flip_p(thrice, games, np.random.default_rng(0)) < 0.5 * p


def test_cluster_bootstrap_variance_is_the_closed_form() -> None:
    """Two instances of one game share four seeds, a third game has five of its own."""
    rng = np.random.default_rng(8)
    games = ["a-x"] * 4 + ["a-y"] * 4 + ["b"] * 5
    clusters = [("a", seed) for seed in (*range(4), *range(4))] + [("b", n) for n in range(5)]
    values = rng.normal(size=13) + np.repeat([0.0, 30.0, -30.0], [4, 4, 5])
    samples = stats.bootstrap_weights(games, rng, 200_000, clusters=clusters) @ values
    # (1/3) (mean of x + mean of y over the same seeds) + (1/3) mean of b.
    shared, own = values[:4] + values[4:8], values[8:]
    expected = (shared.var(ddof=1) / 4 + own.var(ddof=1) / 5) / 9.0
    assert samples.var() == pytest.approx(expected, rel=0.02)
    assert samples.mean() == pytest.approx((shared.mean() + own.mean()) / 3.0, abs=0.01)


def test_a_missing_pair_changes_no_games_weight() -> None:
    games = ["a-x", "a-x", "a-x", "a-y", "a-y"]
    clusters = [("a", 0), ("a", 1), ("a", 2), ("a", 0), ("a", 1)]
    weights = stats.bootstrap_weights(games, np.random.default_rng(9), 400, clusters=clusters)
    assert weights[:, :3].sum(axis=1) == pytest.approx(np.full(400, 0.5))
    assert weights[:, 3:].sum(axis=1) == pytest.approx(np.full(400, 0.5))


def test_an_instance_with_one_pair_makes_intervals_wider_not_narrower() -> None:
    """Two machines of a game share seeds, and but one run of the second is there."""
    games, seeds = ["a"] * 8 + ["b"], [*range(8), 0]
    rng, covered = np.random.default_rng(0), 0
    for _ in range(200):
        found = stats.paired_mean(rng.standard_normal(9), games, rng, clusters=seeds)
        covered += found.low <= 0.0 <= found.high
    assert covered >= 180


def test_one_cluster_has_no_interval_however_many_pairs_it_holds() -> None:
    pairs, games, clusters = np.array([0.1, 0.3]), ["a-x", "a-y"], [("a", 0), ("a", 0)]
    rng = np.random.default_rng(0)
    found = stats.paired_mean(pairs, games, rng, clusters=clusters)
    assert found.estimate == pytest.approx(0.2)
    assert np.isnan(found.low)
    assert np.isnan(stats.iqm_interval(pairs, games, rng, clusters=clusters).low)
    ratio = stats.paired_ratio_of_means(pairs, pairs, games, rng, clusters=clusters)
    assert ratio is not None
    assert np.isnan(ratio.high)
    assert stats.sign_flip_p(pairs, games, rng, clusters=clusters) == 1.0


def test_exact_cluster_flips_equal_counting_by_hand() -> None:
    rng = np.random.default_rng(10)
    differences = rng.normal(0.4, 1.0, size=8)
    games = ["a-x"] * 3 + ["a-y"] * 3 + ["b"] * 2
    clusters = [("a", 0), ("a", 1), ("a", 2), ("a", 2), ("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    terms = differences * np.array([1 / 9] * 6 + [1 / 6] * 2)
    totals = []
    for signs in itertools.product((-1, 1), repeat=5):
        sign = dict(zip(dict.fromkeys(clusters), signs, strict=True))
        totals.append(abs(sum(sign[c] * t for c, t in zip(clusters, terms, strict=True))))
    expected = np.mean([total >= abs(terms.sum()) - 1e-12 for total in totals])
    assert stats.sign_flip_p(differences, games, rng, clusters=clusters) == pytest.approx(expected)
    same = np.abs(differences)
    lowest = stats.sign_flip_p(same, games, rng, clusters=clusters)
    assert lowest == stats.smallest_p(len(set(clusters))) == 2.0**-4


def test_iqm_of_copied_instances_has_the_interval_of_one() -> None:
    values = np.random.default_rng(11).normal(size=16)
    games = ["x"] * 16 + ["y"] * 16
    clusters = [("g", n) for n in range(16)] * 2
    one = stats.iqm_interval(values, ["x"] * 16, np.random.default_rng(0))
    two = stats.iqm_interval(np.tile(values, 2), games, np.random.default_rng(0), clusters=clusters)
    assert (two.estimate, two.low, two.high) == pytest.approx((one.estimate, one.low, one.high))


def test_iqm_of_repeated_values_is_the_iqm_of_the_long_list() -> None:
    rng = np.random.default_rng(12)
    values, times = rng.normal(size=7), rng.integers(0, 4, size=(30, 7)).astype(float)
    times[:, 0] += 1.0
    expected = [stats.iqm(np.repeat(values, row.astype(int))) for row in times]
    assert stats._iqm_of_repeated(values, times) == pytest.approx(np.array(expected))
