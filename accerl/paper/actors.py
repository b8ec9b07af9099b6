"""Who collects: networks, actors and the memory that their rollouts pass through (Tables 1, 2)."""

from __future__ import annotations

import torch
from gymnasium.spaces import Discrete

from accerl.compress.chain import CompressedPolicy
from accerl.correct import Corrector, CorrectorChain
from accerl.envs import make_envs
from accerl.errors import UserError
from accerl.networks import PolicyNet, make_policy
from accerl.observation import ObservationSpec
from accerl.presets import load_preset


def policy_for(env: str, network: str = "original", seed: int = 0) -> PolicyNet:
    """Return a network of the ladder of Table 6 for a game, seeing its observations as its preset.

    Raises:
        UserError: there is no such game or network.
    """
    config = load_preset(env)
    envs = make_envs(config.game, 1)
    observation, num_actions = config.inputs(envs.observation), envs.num_actions
    envs.close()
    return make_policy(network, observation, num_actions, torch.Generator().manual_seed(seed))


def AtariCNN(action_space: Discrete | int, network: str = "original") -> PolicyNet:
    """Return a network of Table 6 for stacks of four 84 x 84 frames; its weights have seed 0.

    Args:
        action_space: of the game, or its number of actions.
        network: original, net1, net2 or net3.
    """
    num_actions = action_space if isinstance(action_space, int) else int(action_space.n)
    frames = ObservationSpec((4, 84, 84), "uint8")
    return make_policy(network, frames, num_actions, torch.Generator().manual_seed(0))


class Actor:
    """One actor process of a run, playing the game `env` with the compressed policy.

    Args:
        env: name of the game, as in ``accerl train``.
        policy: what it acts with, ``chain.policy``.
        rank: its number, from 0.
    """

    def __init__(self, env: str, policy: CompressedPolicy, rank: int) -> None:
        self.env = env
        self.policy = policy
        self.rank = rank
        self.started = False

    def start(self) -> None:
        """Take part from the moment that the learner starts."""
        self.started = True


class QManager:
    """The memory between actors and learner: queues of rollouts, corrected before they are used.

    Without a corrector the data is taken as on-policy.

    Raises:
        UserError: there is no actor, or they differ in more than their ranks.
    """

    def __init__(self, agents: list[Actor]) -> None:
        if not agents:
            raise UserError("QManager: give it at least one Actor")
        if len({agent.env for agent in agents}) > 1:
            games = sorted({agent.env for agent in agents})
            raise UserError(f"QManager: all actors play one game, got {', '.join(games)}")
        if len({id(agent.policy.chain) for agent in agents}) > 1:
            raise UserError("QManager: all actors act with the policy of one chain")
        if sorted(agent.rank for agent in agents) != list(range(len(agents))):
            raise UserError(f"QManager: ranks must be 0 to {len(agents) - 1}, each once")
        self.agents = list(agents)
        self.env = agents[0].env
        self.correctors = CorrectorChain()

    def add_corrector(self, corrector: Corrector) -> QManager:
        """Append a corrector and return the memory, so that calls can follow one another."""
        self.correctors.add_corrector(corrector)
        return self
