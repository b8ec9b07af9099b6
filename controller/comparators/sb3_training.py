"""Training of `ppo.PPOStrategy`: the one module that knows Stable-Baselines3.

PPO there has no masks. Here the observation carries the mask behind the features, and the policy
takes it off again, so that what is collected and what is learned from are masked alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.distributions import CategoricalDistribution, Distribution
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import MlpExtractor
from torch import Tensor, nn

from accerl.monitor.features import FEATURE_NAMES, LIMIT
from accerl.monitor.strategies import FixedStrategy
from accerl.seeds import Role, generator, number
from accerl.spec import IDENTITY
from controller.actions import PresetActions
from controller.comparators.ppo import PPOConfig, PPOStrategy
from controller.env.control_env import CompressionControlEnv
from controller.env.instances import Instance, Instances
from controller.env.play import play
from controller.objective import OFFSET

MASKED = -1e8
"""logit of what does not exist: minus infinity would make the entropy NaN"""


class MaskedExtractor(MlpExtractor):
    """Actor and critic networks of the features; the mask goes past the actor's."""

    def forward_actor(self, features: Tensor) -> Tensor:
        """Return [..., latent + specs]: what the actor makes of the features, and the mask."""
        split = len(FEATURE_NAMES)
        return torch.cat([self.policy_net(features[..., :split]), features[..., split:]], dim=-1)

    def forward_critic(self, features: Tensor) -> Tensor:
        """Return [..., latent]."""
        return self.value_net(features[..., : len(FEATURE_NAMES)])


class MaskedPolicy(ActorCriticPolicy):
    """Stable-Baselines3's policy, over the specs that exist."""

    def _build_mlp_extractor(self) -> None:
        self.mlp_extractor = MaskedExtractor(
            len(FEATURE_NAMES), self.net_arch, self.activation_fn, self.device
        )

    def _get_action_dist_from_latent(self, latent_pi: Tensor) -> Distribution:
        split = self.mlp_extractor.latent_dim_pi
        logits = self.action_net(latent_pi[..., :split])
        assert isinstance(self.action_dist, CategoricalDistribution)
        return self.action_dist.proba_distribution(
            action_logits=logits.masked_fill(latent_pi[..., split:] < 0.5, MASKED)
        )


class Episodes(gymnasium.Env[np.ndarray, np.int64]):
    """Inner runs in turn, rewarded with what they add to the outer objective.

    Observation: features and mask, float32 [F + N]. Reward: exp(-beta t_k) r_k over the instance's
    fp32 gain, t_k the clock after the step, so nothing is left to discount. The end is the horizon,
    beyond which nothing counts, so it terminates and is not truncated.

    Args:
        actions: the N specs.
        turns: instances and seeds, without end.
    """

    def __init__(self, actions: PresetActions, turns: Iterator[tuple[Instance, int]]) -> None:
        self.turn_to(turns)
        self._env = CompressionControlEnv([self._instance], actions=actions)
        size = len(FEATURE_NAMES) + len(actions.specs)
        self.observation_space = spaces.Box(-LIMIT, LIMIT, (size,), np.float32)
        self.action_space = spaces.Discrete(len(actions.specs))
        self._discount = 1.0

    def turn_to(self, turns: Iterator[tuple[Instance, int]]) -> None:
        """Play others from the next reset on, and count from 0."""
        self._turns = turns
        self._instance, self._seed = next(turns)
        self._is_new = True
        self.inner_runs = 0
        """how many have begun to run"""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start the inner run whose turn it is; the seed is its own."""
        super().reset(seed=seed)
        if not self._is_new:
            self._instance, self._seed = next(self._turns)
        options = {"instance": self._instance}
        observation, info = self._env.reset(seed=self._seed, options=options)
        self._discount, self._is_new = 1.0, True
        return self._with_mask(observation, info), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Act for one interval."""
        self.inner_runs += self._is_new
        self._is_new = False
        observation, reward, _, ended, info = self._env.step(int(action))
        self._discount *= info["discount"]
        worth = self._discount * reward / self._instance.fp32_gain
        return self._with_mask(observation, info), worth, ended, False, {}

    def _with_mask(self, observation: np.ndarray, info: dict[str, Any]) -> np.ndarray:
        return np.concatenate([observation, info["action_mask"]], dtype=np.float32)

    def close(self) -> None:
        """Close the inner run."""
        self._env.close()


def turns(
    instances: Sequence[Instance], seeds: Sequence[int], seed: int
) -> Iterator[tuple[Instance, int]]:
    """Yield passes over all instances and seeds, each in an order of its own, without end."""
    pairs, rng = list(product(instances, seeds)), generator(seed, Role.PPO)
    while True:
        for place in rng.permutation(len(pairs)).tolist():
            yield pairs[place]


def simulated_turns(simulated: Instances, seed: int) -> Iterator[tuple[Instance, int]]:
    """Yield simulated instances and seeds without end, in units of their gain without compression.

    Args:
        simulated: from which they are drawn.
        seed: of the draws.
    """
    rng = generator(seed, Role.PPO, 1)
    while True:
        place, own_seed = (int(rng.integers(most)) for most in (len(simulated), 2**31))
        instance = simulated[place]
        gain = play(FixedStrategy(IDENTITY), instance, own_seed).gain(instance)
        yield replace(instance, fp32_gain=max(gain, OFFSET)), own_seed


class Training:
    """PPO in training; see `ppo.train_ppo`, whose arguments these are."""

    def __init__(
        self,
        instances: Sequence[Instance],
        actions: PresetActions,
        seeds: Sequence[int],
        seed: int,
        config: PPOConfig,
        simulated: Instances | None = None,
    ) -> None:
        self._actions = actions
        self._turns = turns(instances, seeds, seed)
        first = self._turns if simulated is None else simulated_turns(simulated, seed)
        self._episodes = Episodes(actions, first)
        steps = np.mean([instance.num_intervals for instance in instances])
        self._steps = max(round(config.episodes * float(steps)), 2)
        # Actions and weights are drawn from torch's global stream, which is kept here between its
        # turns. Minibatches come from numpy's, and `seed` reseeds numpy's and random's for all.
        with torch.random.fork_rng(devices=[]):
            self._model = PPO(
                MaskedPolicy,
                self._episodes,
                n_steps=self._steps,
                batch_size=max(-(-self._steps // config.minibatches), 2),
                n_epochs=config.epochs,
                learning_rate=config.learning_rate,
                target_kl=config.target_kl_nats,
                gamma=1.0,  # rewards are discounted
                ent_coef=config.entropy,
                policy_kwargs={"net_arch": list(config.hidden), "activation_fn": nn.Tanh},
                seed=number(seed, Role.PPO) % 2**31,
                device="cpu",
            )
            self._random = torch.random.get_rng_state()
        self._model.set_logger(Logger(None, []))  # its own leaves a folder in /tmp
        self._begins = True
        """whether the next update begins an episode"""

    @property
    def inner_runs(self) -> int:
        """How many inner runs it has learned from, without simulated ones."""
        return self._episodes.inner_runs

    def rehearse(self, updates: int) -> None:
        """Make so many updates on simulated runs; those after them are on the others."""
        self.learn(updates)
        self._episodes.turn_to(self._turns)
        self._begins = True

    def learn(self, updates: int) -> None:
        """Make so many updates."""
        with torch.random.fork_rng(devices=[]):
            torch.random.set_rng_state(self._random)
            self._model.learn(updates * self._steps, reset_num_timesteps=self._begins)
            self._random = torch.random.get_rng_state()
        self._begins = False

    def strategy(self) -> PPOStrategy:
        """Return what the actor has become."""
        state = {
            name: value.numpy().copy() for name, value in self._model.policy.state_dict().items()
        }
        hidden = [name for name in state if name.startswith("mlp_extractor.policy_net")]
        names = [name.removesuffix(".weight") for name in hidden if name.endswith(".weight")]
        layers = [(state[f"{n}.weight"], state[f"{n}.bias"]) for n in (*names, "action_net")]
        return PPOStrategy(self._actions, tuple(layers), (True,) * len(self._actions.specs))

    def close(self) -> None:
        """Close the inner run."""
        self._episodes.close()
