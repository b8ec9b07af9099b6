"""Behaviour cloning repeats a rule that lies inside the policy class, and softly so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from accerl.errors import UserError
from accerl.monitor.features import FEATURE_NAMES, Features
from accerl.spec import CompressionSpec, Decision
from controller.actions import ActionSpace
from controller.env.control_env import CompressionControlEnv
from controller.policy.joint import entropy_nats
from controller.policy.policy import ControllerPolicy, LearnedStrategy
from controller.training.batch import make_batch
from controller.training.cloning import clone, record
from controller.training.rollouts import RecordedEpisode
from tests.fixtures.controllers.outer_envs import limited_instance
from tests.fixtures.controllers.trajectories import make_policy

ACTIONS = ActionSpace()
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


@pytest.fixture(scope="module")
def env() -> CompressionControlEnv:
    return CompressionControlEnv(actions=ACTIONS)


@pytest.fixture(scope="module")
def halfway(env: CompressionControlEnv) -> list[RecordedEpisode]:
    rule = Halfway()
    episodes = record(env, rule, seeds=(0, 1, 2))
    assert rule.resets == 3
    return episodes


def probabilities(policy: ControllerPolicy, episodes: list[RecordedEpisode]) -> torch.Tensor:
    with torch.no_grad():
        return make_batch(policy.sizes, episodes).log_probs(policy)


def test_recordings_hold_what_was_seen_and_chosen(halfway: list[RecordedEpisode]) -> None:
    assert [episode.observations.shape for episode in halfway] == [(20, len(FEATURE_NAMES))] * 3
    assert halfway[0].actions.tolist() == [[1, 0, 3]] * 10 + [[0, 0, 0]] * 10
    assert halfway[0].mask.all()
    assert halfway[0].seconds.tolist() == [3.0] * 20


def test_a_clone_repeats_the_rule_on_a_fresh_run(
    env: CompressionControlEnv, halfway: list[RecordedEpisode]
) -> None:
    policy = make_policy()
    assert clone(policy, halfway) > 0.95
    (repeated,) = record(env, LearnedStrategy(policy, env.actions), seeds=(50,))
    agreement = (repeated.actions == halfway[0].actions).all(axis=1).mean()
    assert agreement >= 0.9


def test_the_normaliser_is_fitted_first(halfway: list[RecordedEpisode]) -> None:
    policy, alone = make_policy(), make_policy()
    clone(policy, halfway, steps=1)
    alone.normaliser.fit(np.concatenate([episode.observations for episode in halfway]))
    assert torch.equal(policy.normaliser.mean, alone.normaliser.mean)
    assert torch.equal(policy.normaliser.std, alone.normaliser.std)


def test_a_soft_clone_still_explores(halfway: list[RecordedEpisode]) -> None:
    hard, soft = make_policy(), make_policy()
    assert clone(hard, halfway, smoothing=0.0) > 0.95
    assert clone(soft, halfway, smoothing=0.3) > 0.95
    entropies = [float(entropy_nats(probabilities(p, halfway)).mean()) for p in (hard, soft)]
    assert entropies[0] < 0.1
    assert entropies[1] > 0.5
    # What was never chosen keeps some of the share that smoothing gives it.
    never = ACTIONS.position((0, 2, 2))
    rarest = [float(probabilities(p, halfway)[:, never].exp().mean()) for p in (hard, soft)]
    assert rarest[0] < 1e-4
    assert rarest[1] > 1e-3


def test_long_intervals_weigh_more(halfway: list[RecordedEpisode]) -> None:
    # The same moment was decided in two ways; the one that lasted longer is repeated.
    short = replace(halfway[0], seconds=np.full(20, 1.0))
    long = replace(short, actions=np.zeros_like(short.actions), seconds=np.full(20, 5.0))
    for episodes, share in (
        ([short, long], 0.75),
        ([replace(short, seconds=9 * short.seconds), long], 1.0),
    ):
        policy = make_policy()
        clone(policy, episodes)
        likeliest = probabilities(policy, [short])[:10].argmax(dim=-1)
        longest = (0, 0, 0) if share < 1.0 else (1, 0, 3)
        assert (likeliest == ACTIONS.position(longest)).float().mean() > 0.9


def test_a_mix_is_recorded_as_its_main_spec(env: CompressionControlEnv) -> None:
    (episode,) = record(env, Mixed(), seeds=(0,))
    assert np.unique(episode.actions, axis=0).tolist() == [[0, 0, 0]]


def test_what_does_not_exist_gets_no_share() -> None:
    instance = limited_instance(lambda spec: spec.student != "net1")
    episodes = record(CompressionControlEnv([instance], actions=ACTIONS), Halfway(), seeds=(0,))
    policy = make_policy()
    assert clone(policy, episodes) > 0.95
    probs = probabilities(policy, episodes).exp()
    assert float(probs[:, ~torch.from_numpy(episodes[0].mask)].abs().max()) == 0.0
    assert torch.allclose(probs.sum(-1), torch.ones(20))
    missing = limited_instance(lambda spec: spec.student != "net3")
    episodes = record(CompressionControlEnv([missing], actions=ACTIONS), Halfway(), seeds=(0,))
    with pytest.raises(UserError, match="does not exist for its learner"):
        clone(policy, episodes)


def test_mistakes_are_refused(env: CompressionControlEnv, halfway: list[RecordedEpisode]) -> None:
    with pytest.raises(UserError, match="bf16 is not in it"):
        record(env, Outside(), seeds=(0,))
    with pytest.raises(UserError, match="at least one seed"):
        clone(make_policy(), record(env, Halfway(), seeds=()))
    with pytest.raises(UserError, match="smoothing"):
        clone(make_policy(), halfway, smoothing=1.0)
