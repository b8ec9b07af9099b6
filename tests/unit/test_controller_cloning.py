"""Behaviour cloning repeats a rule that lies inside the policy class."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from accerl.errors import UserError
from accerl.monitor.features import FEATURE_NAMES, Features
from accerl.spec import CompressionSpec, Decision
from controller.actions import ActionSpace
from controller.cloning import clone, record
from controller.env import CompressionControlEnv
from controller.policy import ControllerPolicy, LearnedStrategy

FAST, EXACT = CompressionSpec(student="net3", bits=8), CompressionSpec()


class Halfway:
    """Compress hard in the first half of the horizon, not at all in the second."""

    resets = 0

    def reset(self) -> None:
        self.resets += 1

    def decide(self, features: Features) -> Decision:
        early = features.raw["seconds"] < 0.5 * features.raw["horizon_seconds"]
        return Decision.of(FAST if early else EXACT)


class Mixed(Halfway):
    def decide(self, features: Features) -> Decision:
        return Decision(((FAST, 0.3), (EXACT, 0.7)))


class Outside(Halfway):
    def decide(self, features: Features) -> Decision:
        return Decision.of(CompressionSpec(bits=16))


def make_policy(env: CompressionControlEnv) -> ControllerPolicy:
    return ControllerPolicy(env.actions.sizes, generator=torch.Generator().manual_seed(0))


def test_a_clone_repeats_the_rule_on_a_fresh_run() -> None:
    env, rule = CompressionControlEnv(actions=ActionSpace()), Halfway()
    vectors, indices = record(env, rule, seeds=(0, 1, 2))
    assert rule.resets == 3
    assert vectors.shape == (60, len(FEATURE_NAMES))
    assert indices[0].tolist() == [1, 0, 3]
    policy = make_policy(env)
    assert clone(policy, vectors, indices) > 0.95
    _, repeated = record(env, LearnedStrategy(policy, env.actions), seeds=(50,))
    agreement = (repeated == indices[:20]).all(axis=1).mean()
    assert agreement >= 0.9


def test_a_mix_is_recorded_as_its_main_spec() -> None:
    _, indices = record(CompressionControlEnv(actions=ActionSpace()), Mixed(), seeds=(0,))
    assert np.unique(indices, axis=0).tolist() == [[0, 0, 0]]


def test_mistakes_are_refused() -> None:
    env = CompressionControlEnv(actions=ActionSpace())
    with pytest.raises(UserError, match="bf16 is not in it"):
        record(env, Outside(), seeds=(0,))
    with pytest.raises(UserError, match="at least one seed"):
        clone(make_policy(env), *record(env, Halfway(), seeds=()))
