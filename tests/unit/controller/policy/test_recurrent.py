"""The recurrent controller: it remembers within an episode and nothing across; its ONNX graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from controller.policy.onnx_graph import build_onnx, onnx_logits
from controller.policy.policy import LearnedStrategy
from controller.training.batch import make_batch
from controller.training.rollouts import rollout
from tests.fixtures.trajectories import ACTIONS, GAME, make_policy
from tests.unit.controller.policy.test_policy import features, vectors


def test_it_remembers_what_it_saw() -> None:
    policy = make_policy(spread=1.0, recurrent=True)
    first, last = vectors(8), vectors(8, seed=1)
    first[-1] = last[-1]
    one, other = (policy(torch.from_numpy(seen))[2] for seen in (first, last))
    assert not torch.allclose(one[-1], other[-1], atol=1e-3)
    alone = policy(torch.from_numpy(last[-1:]))[2]
    assert not torch.allclose(alone[-1], other[-1], atol=1e-3)


def test_step_by_step_it_does_what_it_does_at_once() -> None:
    policy, seen, state = make_policy(spread=1.0, recurrent=True), vectors(8), None
    at_once = policy.log_probs(torch.from_numpy(seen)).detach()
    for row, vector in zip(at_once, seen, strict=True):
        action = policy.act(vector, state=state)
        state = action.state
        assert ACTIONS.position(action.indices) == int(row.argmax())
        assert action.log_prob == pytest.approx(float(row.max()), abs=1e-5)


def test_every_episode_of_a_batch_starts_from_nothing() -> None:
    policy = make_policy(spread=1.0, recurrent=True)
    episodes = [rollout(policy.to_json(), ACTIONS, GAME, seed, seed) for seed in (0, 1)]
    both = make_batch(episodes).log_probs(policy)
    for number, episode in enumerate(episodes):
        alone = make_batch([episode]).log_probs(policy)
        assert torch.allclose(both[4 * number : 4 * number + 4], alone, atol=1e-6)


def test_padding_changes_nothing() -> None:
    policy = make_policy(spread=1.0, recurrent=True)
    long = rollout(policy.to_json(), ACTIONS, GAME, 0, 0)
    short = make_batch([long]).vectors[0, :2]
    log_probs = policy.log_probs(short)
    padded = torch.cat([short, torch.zeros(5, short.shape[1])])
    assert torch.allclose(policy.log_probs(padded)[:2], log_probs, atol=1e-6)


def test_a_reset_strategy_has_forgotten() -> None:
    policy = make_policy(spread=2.0, recurrent=True)
    strategy, seen = LearnedStrategy(policy, ACTIONS), vectors(12)
    first = [strategy.decide(features(vector)) for vector in seen]
    without_reset = [strategy.decide(features(vector)) for vector in seen]
    strategy.reset()
    assert [strategy.decide(features(vector)) for vector in seen] == first
    assert without_reset != first


def test_its_graph_computes_the_same_logits() -> None:
    policy = make_policy(spread=1.0, recurrent=True, features="reward")
    policy.normaliser.fit(vectors(50, seed=2))
    seen = vectors(10)
    there = onnx_logits(build_onnx(policy), seen)
    for mine, theirs in zip(policy(torch.from_numpy(seen)), there, strict=True):
        np.testing.assert_allclose(theirs, mine.detach().numpy(), atol=1e-5)


def test_its_graph_goes_on_from_the_state_it_returned() -> None:
    import onnxruntime

    policy, seen = make_policy(spread=1.0, recurrent=True), vectors(6)
    session = onnxruntime.InferenceSession(build_onnx(policy), providers=["CPUExecutionProvider"])
    state, last = np.zeros((1, 1, policy.hidden), dtype=np.float32), []
    for vector in seen:
        *last, state = (
            np.asarray(each)
            for each in session.run(None, {"features": vector[None], "state": state})
        )
    for mine, theirs in zip(policy(torch.from_numpy(seen)), last, strict=True):
        np.testing.assert_allclose(theirs[0], mine[-1].detach().numpy(), atol=1e-5)
