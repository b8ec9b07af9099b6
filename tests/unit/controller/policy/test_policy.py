"""ControllerPolicy: small, ordinal, exact in its probabilities; LearnedStrategy holds decisions."""

from __future__ import annotations

import json
import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from accerl.errors import UserError
from accerl.monitor.compliance import StrategyCompliance
from accerl.monitor.features import FEATURE_NAMES, FEATURES_VERSION, Features
from accerl.monitor.monitor import Monitor
from accerl.monitor.strategy import Strategy
from accerl.spec import IDENTITY, Decision
from controller.actions import ActionSpace
from controller.policy.normalise import FEATURE_SETS, FeatureNormaliser, features_seen
from controller.policy.policy import ControllerPolicy, LearnedStrategy
from tests.fixtures import trajectories

SIZES = (2, 3, 4)


make_policy = partial(trajectories.make_policy, spread=1.0)  # choices depend on the features


def vectors(count: int, seed: int = 0) -> np.ndarray:
    shape = (count, len(FEATURE_NAMES))
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype(np.float32)


def features(vector: np.ndarray, version: int = FEATURES_VERSION) -> Features:
    return Features(raw=Monitor(6, 60.0).start().raw, vector=vector, version=version)


def test_it_has_a_few_hundred_parameters() -> None:
    features = len(FEATURE_NAMES)
    assert make_policy().num_parameters() == features * 8 + 8 + 8 * 3 + 3 + 9
    assert make_policy().num_parameters() < 300
    assert make_policy(recurrent=True).num_parameters() == 3 * 4 * (features + 4 + 2) + 15 + 9


def test_an_untrained_policy_is_nearly_uniform() -> None:
    policy = ControllerPolicy(SIZES, generator=torch.Generator().manual_seed(0))
    entropy = policy.act(vectors(1)[0]).entropy
    assert entropy == pytest.approx(math.log(2 * 3 * 4), abs=0.01)


def test_initialisation_follows_its_generator() -> None:
    first, same, other = make_policy(1), make_policy(1), make_policy(2)
    assert first.to_json() == same.to_json()
    assert first.to_json() != other.to_json()


def test_logits_are_ordinal() -> None:
    # The second difference over the levels of a head must not depend on the features.
    policy = make_policy()
    for logits in policy(torch.from_numpy(vectors(8))):
        bends = logits.diff(n=2, dim=-1)
        assert torch.allclose(bends, bends[:1].expand_as(bends), atol=1e-4)


def test_act_and_evaluate_agree() -> None:
    policy, dice = make_policy(), np.random.default_rng(0)
    inputs = vectors(20)
    actions = [policy.act(vector, dice) for vector in inputs]
    indices = torch.tensor([action.indices for action in actions])
    log_prob, entropy = policy.evaluate(torch.from_numpy(inputs), indices)
    assert log_prob.tolist() == pytest.approx([a.log_prob for a in actions], abs=1e-5)
    assert entropy.tolist() == pytest.approx([a.entropy for a in actions], abs=1e-5)


def test_sampling_has_the_probabilities_it_claims() -> None:
    policy, vector = make_policy(spread=0.5), vectors(1)[0]
    grid = (np.arange(2000) + 0.5) / 2000
    draws = np.array([policy.sample(vector, np.full(3, u)).indices for u in grid])
    for head, logits in enumerate(policy(torch.from_numpy(vector))):
        shares = np.bincount(draws[:, head], minlength=SIZES[head]) / len(grid)
        assert shares == pytest.approx(torch.softmax(logits, -1).tolist(), abs=1e-3)


@pytest.mark.parametrize("u", [0.0, 1.0 - 2.0**-53, 1.0])
def test_extreme_uniforms_stay_valid(u: float) -> None:
    indices = make_policy().sample(vectors(1)[0], np.full(3, u)).indices
    assert all(0 <= index < size for index, size in zip(indices, SIZES, strict=True))


def test_greedy_takes_the_most_likely_level_of_every_head() -> None:
    policy = make_policy()
    for vector in vectors(10):
        expected = [int(logits.argmax()) for logits in policy(torch.from_numpy(vector))]
        assert list(policy.act(vector).indices) == expected


@pytest.mark.parametrize(
    "options", [{}, {"features": "kl"}, {"recurrent": True}, {"recurrent": True, "hidden": 3}]
)
def test_json_round_trip_is_exact(options: dict[str, Any]) -> None:
    policy = make_policy(**options)
    policy.normaliser.fit(vectors(50))
    copy = ControllerPolicy.from_json(json.loads(json.dumps(policy.to_json(), allow_nan=False)))
    inputs = torch.from_numpy(vectors(5))
    assert (copy.recurrent, copy.hidden) == (policy.recurrent, policy.hidden)
    np.testing.assert_array_equal(copy.normaliser.seen, policy.normaliser.seen)
    for mine, theirs in zip(policy(inputs), copy(inputs), strict=True):
        assert torch.equal(mine, theirs)


def test_weights_that_do_not_fit_are_refused() -> None:
    weights = make_policy().state_dict()
    with pytest.raises(UserError, match="do not fit"):
        ControllerPolicy.from_weights((2, 3, 5), weights)
    with pytest.raises(UserError, match="do not fit"):
        ControllerPolicy.from_weights(SIZES, {k: v for k, v in weights.items() if k != "offsets"})


def test_normaliser_is_the_identity_until_fitted() -> None:
    normaliser = FeatureNormaliser(3)
    data = torch.tensor([[0.5, -2.0, 3.0]])
    assert torch.equal(normaliser(data), data)
    samples = np.array([[1.0, 5.0, 0.0], [3.0, 5.0, 4.0]])
    normaliser.fit(samples, limit=2.0)
    fitted = normaliser(torch.tensor([[1.0, 5.5, 400.0]]))
    assert fitted.tolist() == [[-1.0, 0.5, 2.0]]
    assert not list(normaliser.parameters())


def test_normaliser_refuses_what_it_cannot_use() -> None:
    with pytest.raises(UserError, match="shape"):
        FeatureNormaliser(3).fit(np.zeros((0, 3)))
    with pytest.raises(UserError, match="NaN"):
        FeatureNormaliser(3).fit(np.full((2, 3), np.nan))


def test_feature_sets_split_the_vector_but_for_what_all_need() -> None:
    kl, reward, machine = (set(FEATURE_SETS[name]) for name in ("kl", "reward", "machine"))
    always = {"bits_level", "sparsity", "student_level", "since_switch", "time_fraction"}
    assert kl & reward == kl & machine == reward & machine == always
    assert kl | reward | machine == set(FEATURE_NAMES) == set(FEATURE_SETS["all"])
    assert {"log_kl_mean", "argmax_agreement"} <= kl
    assert {"return_level", "stage"} <= reward
    assert {"learner_idle", "log_speed"} <= machine
    with pytest.raises(UserError, match="'rewards' does not exist"):
        make_policy(features="rewards")


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("features", ["kl", "reward", "machine"])
def test_features_that_are_not_seen_change_nothing(features: str, recurrent: bool) -> None:
    policy, seen = make_policy(features=features, recurrent=recurrent), features_seen(features)
    for fitted in (False, True):
        if fitted:
            policy.normaliser.fit(vectors(50))
        inputs, others = torch.from_numpy(vectors(5)), torch.from_numpy(vectors(5, seed=1))
        mixed = torch.where(torch.from_numpy(seen), inputs, others)
        for mine, theirs in zip(policy(inputs), policy(mixed), strict=True):
            assert torch.equal(mine, theirs)
        for place in np.flatnonzero(seen):
            moved = inputs.clone()
            moved[:, place] += 0.1
            assert not torch.equal(policy(inputs)[0], policy(moved)[0])


def test_strategy_is_greedy_and_repeatable() -> None:
    policy, actions = make_policy(), ActionSpace()
    strategy = LearnedStrategy(policy, actions)
    for vector in vectors(10):
        assert strategy.decide(features(vector)) == actions.decision(policy.act(vector).indices)


def test_strategy_can_sample_with_its_own_dice() -> None:
    runs = []
    for seed in (0, 0, 1):
        strategy = LearnedStrategy(make_policy(spread=0.1), ActionSpace(), sample_seed=seed)
        runs.append([strategy.decide(features(vector)).label for vector in vectors(10)])
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize("sample_seed", [None, 0])
def test_features_that_are_not_numbers_give_the_mildest_decision(sample_seed: int | None) -> None:
    strategy = LearnedStrategy(make_policy(), ActionSpace(), sample_seed=sample_seed)
    broken = np.full(len(FEATURE_NAMES), np.nan, dtype=np.float32)
    assert strategy.decide(features(broken)) == Decision.of(IDENTITY)


def test_strategy_keeps_to_what_exists() -> None:
    actions = ActionSpace()
    mask = actions.mask(lambda spec: spec.student != "original" or spec.bits == 32)
    strategy = LearnedStrategy(make_policy(), actions, sample_seed=0, mask=mask)
    assert len(strategy.specs) == mask.sum() == 21
    decided = {strategy.decide(features(vector)).main for vector in vectors(100)}
    assert len(decided) > 5
    assert decided <= set(strategy.specs)


class TestGreedyCompliance(StrategyCompliance):
    def make(self) -> Strategy:
        return LearnedStrategy(make_policy(), ActionSpace(), min_dwell_intervals=2)


class TestSampledCompliance(StrategyCompliance):
    def make(self) -> Strategy:
        return LearnedStrategy(make_policy(spread=0.1), ActionSpace(), sample_seed=3)


class TestRecurrentCompliance(StrategyCompliance):
    def make(self) -> Strategy:
        return LearnedStrategy(make_policy(recurrent=True), ActionSpace())


def test_strategy_holds_a_decision_for_its_dwell() -> None:
    policy, actions = make_policy(spread=2.0), ActionSpace()
    held = LearnedStrategy(policy, actions, min_dwell_intervals=3)
    inputs = vectors(30)
    labels = [held.decide(features(vector)).label for vector in inputs]
    changes = [k for k in range(1, 30) if labels[k] != labels[k - 1]]
    assert changes
    assert all(b - a >= 3 for a, b in zip([0, *changes], changes, strict=False))
    held.reset()
    assert held.decide(features(inputs[5])) == actions.decision(policy.act(inputs[5]).indices)


def test_strategy_refuses_what_does_not_fit() -> None:
    with pytest.raises(UserError, match="heads"):
        LearnedStrategy(make_policy(), ActionSpace(bits=(32,)))
    with pytest.raises(UserError, match="min_dwell"):
        LearnedStrategy(make_policy(), ActionSpace(), min_dwell_intervals=0)
    for mask in (np.ones(5, dtype=bool), np.zeros(24, dtype=bool)):
        with pytest.raises(UserError, match="one flag for each of 24"):
            LearnedStrategy(make_policy(), ActionSpace(), mask=mask)
    with pytest.raises(UserError, match="version 99"):
        LearnedStrategy(make_policy(), ActionSpace()).decide(features(vectors(1)[0], version=99))
