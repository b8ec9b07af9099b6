"""Who collects: networks, actors and the memory that their rollouts pass through (Tables 1, 2)."""

from __future__ import annotations

from operator import index
from typing import SupportsIndex

from gymnasium.spaces import Discrete

from accerl.compress.chain import CompressedPolicy
from accerl.correct import Corrector, CorrectorChain
from accerl.envs import make_envs
from accerl.errors import UserError
from accerl.networks.graph_policy import Policy
from accerl.networks.make import make_network
from accerl.networks.observation import ATARI_STACK, ObservationSpec
from accerl.presets import load_preset
from accerl.seeds import Role, torch_generator


def policy_for(env: str, network: str = "original", seed: int = 0) -> Policy:
    """Return a network by its name for a game, seeing its observations as the game's preset.

    Raises:
        UserError: there is no such game or network.
    """
    config = load_preset(env)
    envs = make_envs(config.game, 1, config.env)
    observation, num_actions = config.inputs(envs.observation), envs.num_actions
    envs.close()
    return _network(network, observation, num_actions, seed)


def AtariCNN(
    action_space: Discrete | SupportsIndex, network: str = "original", seed: int = 0
) -> Policy:
    """Return a network of Table 6 for stacks of four 84 x 84 frames.

    It divides pixels by 255, whatever the game; `policy_for` has them centred and scaled as the
    game's preset says, with which Pong is learned twice as fast.

    Args:
        action_space: of the game, or its number of actions.
        network: original, net1, net2 or net3, or another that a run can learn.
        seed: of its weights.

    Raises:
        UserError: there is no such network, or there are no actions.
    """
    try:
        actions = index(action_space.n if isinstance(action_space, Discrete) else action_space)
    except TypeError:
        raise UserError(
            "AtariCNN: action_space must be a Discrete space or its number of actions, got "
            f"{action_space!r}"
        ) from None
    observation = ObservationSpec(ATARI_STACK, "uint8", frames=ATARI_STACK[0])
    return _network(network, observation, actions, seed)


def _network(network: str, observation: ObservationSpec, num_actions: int, seed: int) -> Policy:
    if num_actions < 1:
        raise UserError(f"a policy needs at least 1 action, got {num_actions}")
    return make_network(network, observation, num_actions, torch_generator(seed, Role.LEARNER))


class Actor:
    """One actor process of a run, playing the game `env` with the compressed policy.

    Args:
        env: name of the game, as in ``accerl train``.
        policy: what it acts with, ``chain.policy``.
        rank: its number, from 0.

    Raises:
        UserError: the policy is not that of a chain.
    """

    def __init__(self, env: str, policy: CompressedPolicy, rank: int) -> None:
        require_compressed("Actor", policy)
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
        if not agents or not all(isinstance(agent, Actor) for agent in agents):
            raise UserError(f"QManager: give it a list of at least one Actor, got {agents!r}")
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
        """Append a corrector and return the memory, so that calls can follow one another.

        Raises:
            UserError: it is no corrector, or the class of one.
        """
        if isinstance(corrector, type) or not callable(getattr(corrector, "correct", None)):
            raise UserError(
                f"QManager: a corrector has a method `correct`, such as VTraceCorrector(1.0, 1.0); "
                f"got {corrector!r}"
            )
        self.correctors.add_corrector(corrector)
        return self


def require_compressed(caller: str, policy: object) -> None:
    """Require the policy of a chain.

    Raises:
        UserError: it is something else.
    """
    if not isinstance(policy, CompressedPolicy):
        raise UserError(
            f"{caller}: give it the policy of a CompressorChain, chain.policy; got "
            f"{type(policy).__name__}"
        )
