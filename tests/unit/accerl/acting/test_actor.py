"""The actor: what it stores is what its engine produced, and what it samples is its softmax."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import chisquare

from accerl.acting.actor import Actor, action_log_prob, sample_actions
from accerl.acting.rollout import Rollout, RolloutShape
from accerl.checkpoint import load_checkpoint, save_checkpoint
from accerl.compress.compressor import Compressor
from accerl.compress.config import CompressionConfig
from accerl.compress.engine import make_engine
from accerl.compress.quantization.cpu import computes_bfloat16
from accerl.envs import Envs, Step, make_envs
from accerl.networks.policy_net import PolicyNet, make_policy
from accerl.spec import CompressionSpec
from accerl.weights import Publication

SPECS = [
    CompressionSpec(graph="eager"),
    CompressionSpec(),
    CompressionSpec(bits=16),
    CompressionSpec(bits=8),
    CompressionSpec(student="net3", sparsity=0.25, bits=8),
]


def policy_for(envs: Envs, seed: int = 0) -> PolicyNet:
    net = make_policy(
        "original", envs.observation, envs.num_actions, torch.Generator().manual_seed(seed)
    )
    with torch.no_grad():
        net.policy_head.weight.mul_(200.0)  # fresh heads are almost uniform: nothing would show
    return net


def publish(
    envs: Envs, specs: list[CompressionSpec], *, number: int = 0, seed: int = 0
) -> Publication:
    generator = torch.Generator().manual_seed(seed)
    compressor = Compressor(envs.observation, envs.num_actions, CompressionConfig(), generator)
    compressor.observe(envs.reset(0))
    policy = policy_for(envs, seed)
    artifacts = [compressor.build(spec, policy, number) for spec in specs]
    return Publication(number, artifacts, [1.0 / len(specs)] * len(specs))


def blank(envs: Envs, unroll: int) -> Rollout:
    shape = RolloutShape(
        unroll=unroll,
        num_envs=envs.num_envs,
        num_actions=envs.num_actions,
        observation=envs.observation,
    )
    return Rollout.allocate(shape)


@pytest.mark.parametrize("game", ["catch", "cartpole"])
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.label)
def test_stored_logits_are_bit_for_bit_what_the_engine_produces(
    game: str, spec: CompressionSpec
) -> None:
    envs = make_envs(game, 6)
    publication = publish(envs, [spec])
    actor, rollout = Actor(envs, 0), blank(envs, 12)
    actor.load(publication)
    actor.collect(rollout)
    engine = make_engine(publication.artifacts[0])
    for t in range(12):
        again = engine.infer(rollout.obs[t])[0]
        assert rollout.logits[t].tobytes() == again.tobytes()
    exact = np.log(softmax(rollout.logits.astype(np.float64), axis=-1))
    chosen = np.take_along_axis(exact, rollout.action[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(rollout.log_prob, chosen, rtol=1e-5, atol=2e-6)
    with torch.no_grad():
        learner = policy_for(envs)(torch.from_numpy(rollout.obs[:-1]).flatten(0, 1))[0]
    gap = np.abs(learner.numpy().reshape(rollout.logits.shape) - rollout.logits).max()
    # Compressed logits are the engine's own, not the learner's in disguise.
    if spec.bits == 32:
        assert gap < 1e-4
    else:  # float16 takes the place of bfloat16 where there are no instructions for that
        assert gap > (1e-5 if spec.bits == 16 and not computes_bfloat16() else 1e-3)


@pytest.mark.parametrize("infer_batch", [1, 4])
def test_pieces_of_a_batch_are_those_of_their_own_environments(infer_batch: int) -> None:
    envs = make_envs("cartpole", 6)
    publication = publish(envs, [CompressionSpec()])
    actor, rollout = Actor(envs, 0, infer_batch=infer_batch), blank(envs, 5)
    actor.load(publication)
    actor.collect(rollout)
    engine = make_engine(publication.artifacts[0])
    for t in range(5):
        for low in range(0, 6, infer_batch):
            part = slice(low, low + infer_batch)
            again = engine.infer(rollout.obs[t, part])[0]
            assert rollout.logits[t, part].tobytes() == again.tobytes()


class Recorder:
    """Environments that remember what the actor did to them, and may interrupt it."""

    def __init__(self, envs: Envs) -> None:
        self.envs = envs
        self.num_envs, self.num_actions = envs.num_envs, envs.num_actions
        self.observation, self.exact_resume = envs.observation, envs.exact_resume
        self.actions: list[np.ndarray] = []
        self.steps: list[Step] = []
        self.on_step: Any = None

    def reset(self, seed: int) -> np.ndarray:
        self.first = self.envs.reset(seed)
        return self.first

    def step(self, actions: np.ndarray) -> Step:
        if self.on_step is not None:
            self.on_step()
        self.actions.append(actions.copy())
        self.steps.append(self.envs.step(actions))
        return self.steps[-1]

    def state_dict(self) -> dict[str, Any]:
        return self.envs.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> np.ndarray:
        return self.envs.load_state_dict(state)

    def close(self) -> None:
        self.envs.close()


@pytest.mark.parametrize("exact", [True, False])
def test_a_score_goes_on_only_where_the_episode_does(exact: bool) -> None:
    envs = Recorder(make_envs("cartpole", 4))
    envs.exact_resume = exact
    actor, again = Actor(envs, 0), Actor(envs, 0)
    actor.load(publish(make_envs("cartpole", 4), [CompressionSpec()]))
    actor.collect(blank(envs, 5))
    actor._running_return[:] = 100.0
    again.load_state_dict(actor.state_dict())
    rollout = blank(envs, 300)
    again.collect(rollout)
    scores = rollout.episode_return[np.isfinite(rollout.episode_return)]
    firsts = [column[np.isfinite(column)][0] for column in rollout.episode_return.T]
    assert len(scores) > 4
    assert all((score > 100.0) == exact for score in firsts)


def test_rollouts_are_what_happened_in_the_environments() -> None:
    """Rows, alignment of observations and actions, and returns that cross rollout borders."""
    envs = Recorder(make_envs("cartpole", 4))
    actor = Actor(envs, 0)
    actor.load(publish(make_envs("cartpole", 4), [CompressionSpec()]))
    rollouts = []
    for _ in range(8):
        rollout = blank(envs, 7)
        rollout.episode_return[:] = 5.0  # a slot's last content
        actor.collect(rollout)
        rollouts.append(rollout)
    steps = envs.steps
    expected_obs = [envs.first, *(step.obs for step in steps)]
    running, episodes = np.zeros(4), []
    for number, rollout in enumerate(rollouts):
        for t in range(7):
            row = 7 * number + t
            np.testing.assert_array_equal(rollout.obs[t], expected_obs[row])
            np.testing.assert_array_equal(rollout.action[t], envs.actions[row])
            for name in ("reward", "terminated", "truncated"):
                np.testing.assert_array_equal(getattr(rollout, name)[t], getattr(steps[row], name))
            running += steps[row].reward
            done = steps[row].terminated | steps[row].truncated
            np.testing.assert_array_equal(np.isnan(rollout.episode_return[t]), ~done)
            np.testing.assert_array_equal(rollout.episode_return[t][done], running[done])
            episodes += list(running[done])
            running[done] = 0.0
        np.testing.assert_array_equal(rollout.obs[-1], expected_obs[7 * number + 7])
    assert [score for rollout in rollouts for score in rollout.returns()] == episodes
    assert len(episodes) >= 4
    assert max(episodes) > 7.0  # some episode was longer than a rollout
    assert all(rollout.header[2:5].min() >= 0.0 for rollout in rollouts)


def test_new_weights_wait_for_the_next_rollout() -> None:
    """Even if they arrive in the middle of one."""
    envs = Recorder(make_envs("catch", 3))
    first = publish(make_envs("catch", 3), [CompressionSpec()], number=4, seed=0)
    second = publish(make_envs("catch", 3), [CompressionSpec(bits=8)], number=5, seed=1)
    actor = Actor(envs, 0)
    assert actor.publication_number == -1
    actor.load(first)
    envs.on_step = lambda: actor.load(second)
    one, two = blank(envs, 9), blank(envs, 9)
    actor.collect(one)
    actor.collect(two)
    assert (one.publication, two.publication, actor.publication_number) == (4, 5, 5)
    for rollout, publication in ((one, first), (two, second)):
        engine = make_engine(publication.artifacts[0])
        for t in range(9):
            np.testing.assert_array_equal(rollout.logits[t], engine.infer(rollout.obs[t])[0])
    assert not np.array_equal(one.logits, two.logits)


def test_a_mix_is_drawn_by_its_shares_and_tagged_with_what_acted() -> None:
    envs = make_envs("catch", 1)
    publication = publish(envs, [CompressionSpec(), CompressionSpec(student="net3")])
    publication.shares = [0.3, 0.7]
    actor, rollout = Actor(envs, 0), blank(envs, 1)
    actor.load(publication)
    engines = [make_engine(artifact) for artifact in publication.artifacts]
    counts = [0, 0]
    for _ in range(600):
        actor.collect(rollout)
        which = rollout.spec_index
        counts[which] += 1
        np.testing.assert_array_equal(rollout.logits[0], engines[which].infer(rollout.obs[0])[0])
    assert counts[1] / 600 == pytest.approx(0.7, abs=4.0 * np.sqrt(0.21 / 600))


def test_without_weights_it_cannot_act() -> None:
    envs = make_envs("catch", 1)
    with pytest.raises(RuntimeError, match=r"call load\(\) first"):
        Actor(envs, 0).collect(blank(envs, 1))


LOGITS = np.array([[0.0, 0.0, 0.0, 0.0], [2.0, 1.0, 0.0, -1.0], [-3.0, 4.0, 4.0, -9.0]])


@pytest.mark.parametrize("row", range(len(LOGITS)))
def test_actions_are_drawn_from_the_softmax(row: int) -> None:
    rng, batch = np.random.default_rng(row), 2000
    logits = np.tile(LOGITS[row].astype(np.float32), (batch, 1))
    noise, action = np.empty_like(logits), np.empty(batch, np.int64)
    counts = np.zeros(4)
    for _ in range(25):
        sample_actions(rng, logits, noise, out=action)
        counts += np.bincount(action, minlength=4)
    expected = softmax(LOGITS[row]) * counts.sum()
    likely = expected > 5.0
    assert counts[~likely].sum() <= expected[~likely].sum() + 5.0
    share = expected[likely] * counts[likely].sum() / expected[likely].sum()
    assert chisquare(counts[likely], share).pvalue > 1e-3


def test_sampling_survives_extreme_logits() -> None:
    rng = np.random.default_rng(0)
    logits = np.array([[0.0, 1e6, -1e6], [-np.inf, 0.0, -np.inf]], np.float32)
    noise, action = np.empty_like(logits), np.empty(2, np.int64)
    for _ in range(200):
        sample_actions(rng, logits, noise, out=action)
        assert action.tolist() == [1, 1]
    assert action_log_prob(logits, action).tolist() == [0.0, 0.0]


def test_a_saved_actor_goes_on_bit_by_bit(tmp_path: Path) -> None:
    actor = Actor(make_envs("catch", 4), 3)
    publication = publish(make_envs("catch", 4), [CompressionSpec(bits=8), CompressionSpec()])
    actor.load(publication)
    envs = actor.envs
    actor.collect(blank(envs, 5))
    save_checkpoint(tmp_path / "actor", actor.state_dict())
    other = Actor(make_envs("catch", 4), 8)
    other.load_state_dict(load_checkpoint(tmp_path / "actor"))
    for _ in range(6):
        one, two = blank(envs, 5), blank(envs, 5)
        actor.collect(one)
        other.collect(two)
        for name, array in one.state_dict().items():
            compared = slice(2) if name == "header" else slice(None)  # the rest is seconds
            np.testing.assert_array_equal(array[compared], two.state_dict()[name][compared])


def test_it_acts_the_same_without_the_bytes_of_its_engines() -> None:
    rollouts = []
    for drop in (False, True):
        envs = make_envs("catch", 4)
        actor, rollout = Actor(envs, 0), blank(envs, 10)
        actor.load(publish(envs, [CompressionSpec(), CompressionSpec(bits=8)], number=6))
        if drop:
            actor.drop_artifacts()
        actor.collect(rollout)
        assert actor.publication_number == rollout.publication == 6
        rollouts.append(rollout)
    np.testing.assert_array_equal(rollouts[0].logits, rollouts[1].logits)
    np.testing.assert_array_equal(rollouts[0].action, rollouts[1].action)


def test_an_actor_on_onnx_runtime_imports_no_torch() -> None:
    """torch costs 165 MB and two seconds of start in every actor's process."""
    imports = "import sys, accerl.runtime.process.roles"
    code = f"{imports}; print({{'torch', 'onnx'}} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
