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
from controller.policy.joint import entropy_nats
from controller.policy.normalise import FeatureNormaliser
from controller.policy.policy import ControllerPolicy, LearnedStrategy
from tests.fixtures.controllers import trajectories

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


def test_an_untrained_policy_is_nearly_uniform() -> None:
    policy = ControllerPolicy(SIZES, generator=torch.Generator().manual_seed(0))
    entropy = entropy_nats(policy.log_probs(torch.from_numpy(vectors(1)[0])))
    assert entropy.item() == pytest.approx(math.log(2 * 3 * 4), abs=0.01)


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


def test_an_action_has_the_log_probability_of_its_place() -> None:
    policy, dice = make_policy(), np.random.default_rng(0)
    inputs = vectors(20)
    actions = [policy.act(vector, dice.random(3)) for vector in inputs]
    indices = torch.tensor([action.indices for action in actions])
    log_prob = trajectories.log_probs_of(policy, torch.from_numpy(inputs), indices)
    assert log_prob.tolist() == pytest.approx([a.log_prob for a in actions], abs=1e-5)


def test_sampling_has_the_probabilities_it_claims() -> None:
    policy, vector = make_policy(spread=0.5), vectors(1)[0]
    grid = (np.arange(2000) + 0.5) / 2000
    draws = np.array([policy.act(vector, np.full(3, u)).indices for u in grid])
    for head, logits in enumerate(policy(torch.from_numpy(vector))):
        shares = np.bincount(draws[:, head], minlength=SIZES[head]) / len(grid)
        assert shares == pytest.approx(torch.softmax(logits, -1).tolist(), abs=1e-3)


@pytest.mark.parametrize("u", [0.0, 1.0 - 2.0**-53, 1.0])
def test_extreme_uniforms_stay_valid(u: float) -> None:
    indices = make_policy().act(vectors(1)[0], np.full(3, u)).indices
    assert all(0 <= index < size for index, size in zip(indices, SIZES, strict=True))


def test_greedy_takes_the_most_likely_level_of_every_head() -> None:
    policy = make_policy()
    for vector in vectors(10):
        expected = [int(logits.argmax()) for logits in policy(torch.from_numpy(vector))]
        assert list(policy.act(vector).indices) == expected


@pytest.mark.parametrize("options", [{}, {"hidden": 3}])
def test_json_round_trip_is_exact(options: dict[str, Any]) -> None:
    policy = make_policy(**options)
    policy.normaliser.fit(vectors(50))
    copy = ControllerPolicy.from_json(json.loads(json.dumps(policy.to_json(), allow_nan=False)))
    inputs = torch.from_numpy(vectors(5))
    assert copy.hidden == policy.hidden
    for mine, theirs in zip(policy(inputs), copy(inputs), strict=True):
        assert torch.equal(mine, theirs)


def test_weights_that_do_not_fit_are_refused() -> None:
    data = make_policy().to_json()
    with pytest.raises(UserError, match="do not fit"):
        ControllerPolicy.from_json({**data, "sizes": (2, 3, 5)})
    with pytest.raises(UserError, match="do not fit"):
        ControllerPolicy.from_json({**data, "hidden": 9})
    for name in data["weights"]:
        fewer = {key: value for key, value in data["weights"].items() if key != name}
        with pytest.raises(UserError, match="do not fit"):
            ControllerPolicy.from_json({**data, "weights": fewer})


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


def test_strategy_is_greedy_and_repeatable() -> None:
    policy, actions = make_policy(), ActionSpace()
    strategy = LearnedStrategy(policy, actions)
    for vector in vectors(10):
        assert strategy.decide(features(vector)) == actions.decision(policy.act(vector).indices)


def test_features_that_are_not_numbers_give_the_mildest_decision() -> None:
    policy = make_policy()
    broken = np.full(len(FEATURE_NAMES), np.nan, dtype=np.float32)
    assert LearnedStrategy(policy, ActionSpace()).decide(features(broken)) == Decision.of(IDENTITY)
    assert policy.act(broken, np.full(3, 0.9)).indices == (0, 0, 0)


class TestGreedyCompliance(StrategyCompliance):
    def make(self) -> Strategy:
        return LearnedStrategy(make_policy(), ActionSpace(), min_dwell_intervals=2)


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
    with pytest.raises(UserError, match="version 99"):
        LearnedStrategy(make_policy(), ActionSpace()).decide(features(vectors(1)[0], version=99))
