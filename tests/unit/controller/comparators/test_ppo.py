"""PPO as a rival: deterministic, masked, within its budget, and plain numbers once trained."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from accerl.errors import UserError
from accerl.monitor.compliance import StrategyCompliance, made_up_features
from accerl.monitor.features import FEATURE_NAMES
from accerl.monitor.strategies import FixedStrategy
from accerl.monitor.strategy import Strategy
from accerl.spec import IDENTITY, CompressionSpec, Decision
from controller.actions import PresetActions
from controller.comparators.ppo import PPOConfig, PPOStrategy, TrainedPPO, in_units, train_ppo
from controller.comparators.sb3_training import Training, simulated_turns, turns
from controller.env.control_env import CompressionControlEnv
from controller.env.instances import Instance
from controller.env.play import play
from studies.jobs.inner import build_strategy
from studies.jobs.rivals import PPOJob
from tests.fixtures.controllers.outer_envs import drawn_instance, limited_instance, tiny_instance
from tests.fixtures.runs.inner_runs import tiny_catch

INT8, NET3 = CompressionSpec(bits=8), CompressionSpec(student="net3")
SPECS = (IDENTITY, INT8, NET3)
GAME = drawn_instance()
"""four intervals"""
SMALL = PPOConfig(episodes=3, epochs=2, hidden=(8,), checks=2)


def made(seed: int = 0) -> PPOStrategy:
    """A strategy with random weights."""
    rng = np.random.default_rng(seed)
    sizes = [len(FEATURE_NAMES), 8, len(SPECS)]
    layers = [
        (rng.normal(size=(after, before)).astype(np.float32), np.zeros(after, np.float32))
        for before, after in pairwise(sizes)
    ]
    return PPOStrategy(PresetActions(SPECS), tuple(layers), (True,) * 3)


class TestPPO(StrategyCompliance):
    def make(self) -> Strategy:
        return made().where(lambda spec: spec != INT8)


def trained(seed: int = 0, game: Instance = GAME, **changes: Any) -> TrainedPPO:
    arguments: dict[str, Any] = {
        "seeds": range(2), "validation": [(game, 50)], "inner_runs": 15, "config": SMALL
    }  # fmt: skip
    return train_ppo([game], SPECS, seed=seed, **{**arguments, **changes})


def test_equal_seeds_train_alike_within_the_budget_and_others_do_not() -> None:
    first, second, other = (trained(seed) for seed in (0, 0, 1))
    assert first.to_json() == second.to_json()
    assert first.to_json() != other.to_json()
    # Two checks of one run leave 13 for training: four updates of three.
    assert (first.inner_runs, first.validation_runs) == (12, 2)
    assert len(first.scores) == 2
    assert in_units(GAME, first.strategy.play(GAME, 50)) == max(first.scores)


def test_what_is_entered_is_what_the_given_score_holds_to_be_best() -> None:
    """Of the same two checks, by the gain and by its opposite."""
    best = trained()
    worst = trained(score=lambda instance, played: -in_units(instance, played))
    assert [-score for score in worst.scores] == list(best.scores)
    assert in_units(GAME, worst.strategy.play(GAME, 50)) == min(best.scores)


def test_it_rehearses_on_simulated_runs_that_cost_no_inner_run() -> None:
    simulated: dict[str, Any] = {"simulated": [GAME], "simulated_runs": 7}
    once, again = trained(**simulated), trained(**simulated)
    assert once.to_json() == again.to_json()
    assert (once.simulated_runs, once.inner_runs, once.validation_runs) == (6, 12, 2)
    assert len(once.scores) == 2  # before the first inner run, and after the last
    assert once.strategy.to_json() != trained().strategy.to_json()
    assert trained(**simulated, config=replace(SMALL, checks=1)).inner_runs == 12
    assert trained(simulated=[GAME], simulated_runs=2).to_json() == trained().to_json()


def test_simulated_gains_count_in_units_of_no_compression() -> None:
    order = simulated_turns([GAME], 0)
    (instance, seed), (_, other) = next(order), next(order)
    alone = play(FixedStrategy(IDENTITY), GAME, seed).gain(GAME)
    assert instance.fp32_gain == pytest.approx(max(alone, 0.1))
    assert seed != other


def test_what_is_trained_is_plain_json() -> None:
    result = trained()
    again = TrainedPPO.from_json(json.loads(json.dumps(result.to_json())))
    assert again.to_json() == result.to_json()
    rng = np.random.default_rng(0)
    for _ in range(50):
        features = made_up_features()
        vector = rng.uniform(-3.0, 3.0, len(FEATURE_NAMES)).astype(np.float32)
        features = replace(features, vector=vector)
        assert again.strategy.decide(features) == result.strategy.decide(features)


def test_the_strategy_acts_as_the_trained_actor_would() -> None:
    training = Training([GAME], PresetActions(SPECS), [0], 0, SMALL)
    training.learn(1)
    strategy, rng = training.strategy(), np.random.default_rng(0)
    chosen = set()
    for mask in ((1, 1, 1), (0, 1, 1), (1, 0, 1), (1, 1, 0)):
        limited = strategy.where(lambda spec, mask=mask: bool(mask[SPECS.index(spec)]))
        for _ in range(20):
            vector = rng.uniform(-3.0, 3.0, len(FEATURE_NAMES)).astype(np.float32)
            features = replace(made_up_features(), vector=vector)
            observation = np.concatenate([vector, mask], dtype=np.float32)
            expected = int(training._model.predict(observation, deterministic=True)[0])
            assert limited.decide(features) == Decision.of(SPECS[expected])
            chosen.add(expected)
    training.close()
    assert len(chosen) == 3


def test_what_does_not_exist_is_never_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    step, replaced = CompressionControlEnv.step, []

    def watched(self: CompressionControlEnv, action: Any) -> Any:
        result = step(self, action)
        replaced.append(result[4]["action_replaced"])
        return result

    monkeypatch.setattr(CompressionControlEnv, "step", watched)
    game = limited_instance(lambda spec: spec != INT8)
    result = trained(game=game)
    assert len(replaced) == 12 * 4
    assert not any(replaced)
    assert result.strategy.where(game.has).specs == (IDENTITY, NET3)


def test_turns_are_passes_over_instances_and_seeds() -> None:
    other = replace(GAME, game="other")
    order = turns([GAME, other], [3, 4], 0)
    passes = [[next(order) for _ in range(4)] for _ in range(5)]
    for one in passes:
        found = sorted((instance.game, seed) for instance, seed in one)
        assert found == [("breakout", 3), ("breakout", 4), ("other", 3), ("other", 4)]
    assert len({str(one) for one in passes}) > 1


def test_a_job_trains_it_on_real_learning_and_another_acts_with_it() -> None:
    game = replace(tiny_instance(), horizon_seconds=0.05)
    job = PPOJob(
        instances=(game,), specs=(IDENTITY, INT8), seeds=(0, 1), validation=((game, 50),),
        inner_runs=3, seed=0, config=replace(SMALL, episodes=2, checks=1),
    )  # fmt: skip
    done = job.run()
    result = job.read_result(json.loads(json.dumps(done.to_json())))
    assert result.to_json() == done.to_json()
    assert (result.inner_runs, result.validation_runs) == (2, 1)
    assert json.dumps(job.to_json()) != json.dumps(replace(job, seed=1).to_json())
    described = {**made().to_json(), "label": "ppo"}
    strategy = build_strategy(described, replace(game, base=replace(tiny_catch(), network="net3")))
    assert isinstance(strategy, PPOStrategy)
    assert strategy.specs == (IDENTITY, INT8)  # a student no smaller than the learner is none


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inner_runs": 7}, "7 inner runs are too few for 2 checks of 1 runs .* 8 is the least"),
        ({"validation": []}, "give instances, seeds and validation runs"),
        ({"seeds": []}, "give instances, seeds and validation runs"),
    ],
)
def test_too_little_to_train_on_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        trained(**changes)


def test_without_stable_baselines_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.comparators.ppo.find_spec", lambda _: None)
    assert importlib.util.find_spec("stable_baselines3")
    with pytest.raises(UserError, match=r"pip install stable-baselines3"):
        trained()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda policy: policy.update(features_version=2), "features of version 2"),
        (lambda policy: policy.pop("layers"), "incomplete or mistyped"),
        (lambda policy: policy["layers"][0].update(weight=5, bias=1), "incomplete or mistyped"),
        (lambda policy: policy["layers"].pop(), "do not lead from 31 features to 3 specs"),
        (lambda policy: policy["specs"].pop(), "do not lead from 31 features to 2 specs"),
    ],
)
def test_damaged_json_is_refused(damage: Any, message: str) -> None:
    data = json.loads(json.dumps(made().to_json()))
    damage(data["policy"])
    with pytest.raises(UserError, match=message):
        PPOStrategy.from_json(data)


def test_a_run_without_any_of_its_specs_is_refused() -> None:
    with pytest.raises(UserError, match="none of its specs exists"):
        made().where(lambda _: False)
