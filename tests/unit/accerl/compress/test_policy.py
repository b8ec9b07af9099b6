"""Policies that were trained elsewhere, compressed in one call."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from stable_baselines3 import PPO
from stable_baselines3.common.policies import ActorCriticCnnPolicy, ActorCriticPolicy

import accerl
from accerl.compress.check import kl_nats
from accerl.errors import UserError
from accerl.networks.observation import ObservationSpec
from tests.fixtures.own_networks import OwnConv, OwnMLP

VECTOR = ObservationSpec((6,), "float32")
BOARD = ObservationSpec((2, 10, 10), "uint8")


def vectors(count: int = 64) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, 6)).astype(np.float32)


@pytest.fixture(scope="module")
def cartpole() -> tuple[PPO, np.ndarray]:
    """Return an agent that has learned a little, and states that it met."""
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=128, batch_size=64, n_epochs=2, seed=0)
    model.learn(256)
    envs = gymnasium.make_vec("CartPole-v1", 8)
    obs, _ = envs.reset(seed=0)
    states = []
    while len(states) < 16:
        obs = envs.step(model.predict(obs)[0])[0]
        states.append(obs)
    envs.close()
    with torch.no_grad():  # so little was learned that all actions are about as likely
        next(model.policy.action_net.parameters()).mul_(50.0)
    return model, np.concatenate(states).astype(np.float32)


@pytest.mark.parametrize(
    "spec",
    [
        accerl.CompressionSpec(),
        accerl.CompressionSpec(graph="eager"),
        accerl.CompressionSpec(bits=16),
        accerl.CompressionSpec(bits=8),
        accerl.CompressionSpec(sparsity=0.25, graph="torchscript"),
        accerl.CompressionSpec(student="net2", bits=8),
    ],
    ids=lambda spec: spec.label,
)
def test_a_policy_of_stable_baselines3_is_compressed(
    cartpole: tuple[PPO, np.ndarray], spec: accerl.CompressionSpec
) -> None:
    sb3_model, observations = cartpole
    before = {name: value.clone() for name, value in sb3_model.policy.state_dict().items()}
    policy = accerl.compress(sb3_model.policy, spec, observations)
    assert policy.spec == spec
    with torch.no_grad():
        states = torch.from_numpy(observations)
        distribution: Any = sb3_model.policy.get_distribution(states)
        wanted = distribution.distribution.logits.numpy()
        values = sb3_model.policy.predict_values(states).squeeze(-1).numpy()
    logits, acted = policy.infer(observations)
    exact = spec.sparsity == 0.0 and spec.student == "original"
    decided = kl_nats(wanted, np.zeros_like(wanted)).mean()  # away from chance
    assert decided > 0.1
    assert kl_nats(wanted, logits).mean() < (0.001 if exact else 0.2) * decided
    if exact:
        tolerance = {32: 1e-5, 16: 0.02, 8: 0.05}[spec.bits]
        np.testing.assert_allclose(acted, values, atol=tolerance * np.abs(values).max())
    actions, _ = sb3_model.predict(observations, deterministic=True)
    assert (policy(observations) == actions).mean() > (0.95 if exact else 0.85)
    assert policy(observations, np.random.default_rng(0)).shape == (len(observations),)
    after = sb3_model.policy.state_dict()
    assert all(torch.equal(value, before[name]) for name, value in after.items())


@pytest.mark.parametrize("share", [True, False])
def test_images_of_stable_baselines3_are_scaled_as_it_does(share: bool) -> None:
    torch.manual_seed(0)
    space = Box(0, 255, (3, 36, 36), np.uint8, seed=0)
    given = ActorCriticCnnPolicy(space, Discrete(4), lambda _: 1e-3, share_features_extractor=share)
    observations = np.stack([space.sample() for _ in range(8)])
    spec = accerl.CompressionSpec(graph="eager")
    with torch.no_grad():
        distribution: Any = given.get_distribution(torch.from_numpy(observations))
    wanted = distribution.distribution.logits.numpy()
    logits = accerl.compress(given, spec, observations).logits(observations)
    centred = logits - logits.mean(1, keepdims=True)
    np.testing.assert_allclose(centred, wanted - wanted.mean(1, keepdims=True), atol=1e-5)


@pytest.mark.parametrize(
    "space",
    [Box(0, 255, (16,), np.uint8), Box(0, 255, (4, 6), np.uint8), Box(0, 9, (2, 6, 6), np.uint8)],
    ids=str,
)
def test_bytes_that_are_no_image_of_stable_baselines3_are_not_scaled(space: Box) -> None:
    torch.manual_seed(0)
    space.seed(0)
    given = ActorCriticPolicy(space, Discrete(4), lambda _: 1e-3)
    observations = np.stack([space.sample() for _ in range(8)])
    with torch.no_grad():
        distribution: Any = given.get_distribution(torch.from_numpy(observations))
    wanted = distribution.distribution.logits.numpy()
    logits = accerl.compress(given, accerl.CompressionSpec(), observations).logits(observations)
    centred = logits - logits.mean(1, keepdims=True)
    np.testing.assert_allclose(centred, wanted - wanted.mean(1, keepdims=True), atol=1e-4)


def test_recurrent_policies_of_stable_baselines3_are_refused() -> None:
    given = ActorCriticPolicy(Box(0, 1, (4,), np.float32), Discrete(2), lambda _: 1e-3)
    given.lstm_actor = torch.nn.LSTM(4, 4)  # as sb3-contrib's have
    with pytest.raises(UserError, match="a recurrent policy remembers"):
        accerl.compress(given, accerl.CompressionSpec(), np.zeros((8, 4), np.float32))


def test_any_module_is_compressed_and_chains_are_saved_as_onnx(tmp_path: Any) -> None:
    torch.manual_seed(0)
    module = OwnConv(BOARD, 4)
    boards = np.random.default_rng(0).integers(0, 256, (64, *BOARD.shape)).astype(np.uint8)
    policy = accerl.compress(module, accerl.CompressionSpec(bits=8), boards)
    policy.save(tmp_path / "policy.onnx")
    assert (tmp_path / "policy.onnx").stat().st_size > 0
    assert policy(boards).shape == (64,)
    with pytest.raises(UserError, match=r"states must be uint8 \[B, 2, 10, 10\], got float32"):
        policy(boards.astype(np.float32))


def test_equal_seeds_give_equal_policies() -> None:
    torch.manual_seed(0)
    module, spec = OwnMLP(VECTOR, 4), accerl.CompressionSpec(student="net3", graph="eager")
    made = [accerl.compress(module, spec, vectors(), seed=seed) for seed in (1, 1, 2)]
    first, again, other = (policy.logits(vectors()) for policy in made)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_what_cannot_be_compressed_is_refused_with_one_line() -> None:
    spec = accerl.CompressionSpec(graph="eager")
    module = OwnMLP(VECTOR, 4)
    space = Box(-1.0, 1.0, (6,), np.float32)
    several = ActorCriticPolicy(space, MultiDiscrete([2, 3]), lambda _: 1e-3)
    refused: list[tuple[torch.nn.Module, np.ndarray | None, str]] = [
        (module, None, "give recorded states"),
        (module, vectors()[:0], "give recorded states"),
        (module, vectors().astype(np.float64), r"must be uint8 or float32, not float64; use"),
        (module, vectors()[:, :5], "OwnMLP cannot act on"),
        (torch.nn.Linear(6, 2), vectors(), "Linear does not return two tensors"),
        (several, vectors(), "Discrete actions is needed, not MultiDiscrete"),
    ]
    for given, observations, reason in refused:
        with pytest.raises(UserError, match=reason) as error:
            accerl.compress(given, spec, observations)
        assert "\n" not in str(error.value)


def test_the_package_keeps_its_name() -> None:
    from accerl.compress import Pruning

    assert Pruning is accerl.Pruning
    assert accerl.compress.__name__ == "accerl.compress"
