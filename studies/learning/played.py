"""States of games that a trained policy plays: what copies of it learn from and are compared on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from accerl.acting.evaluate import policy_infer
from accerl.compress.config import CompressionConfig
from accerl.compress.distillation.state_ring import StateRing
from accerl.envs import make_envs
from accerl.errors import UserError
from accerl.networks.policy_net import PolicyNet
from accerl.training.run_folder import read_config, saved_run
from accerl.training.saved_policy import learned_policy

ENVS = 32
SETTLING = 200
"""steps before the first state: environments that begin together are alike"""
SPACING = 4
"""steps between two states of a game that are compared"""
UNROLL = 32
"""steps that are recorded together: of a stack, only new frames are stored"""


@dataclass(frozen=True)
class Played:
    """A policy, and states of games that it plays."""

    policy: PolicyNet
    config: CompressionConfig
    ring: StateRing
    """what networks learn from"""
    compared: np.ndarray
    """[N, *shape], of later steps: nobody learns from them"""
    origin: str


def play(path: Path, states: int, compared: int, seed: int) -> Played:
    """Record states of games that the policy of a run's checkpoint plays.

    Args:
        path: the run's folder.
        states: to learn from.
        compared: to compare on.
        seed: of the games.

    Raises:
        UserError: there is no such run or checkpoint, or its network is no chain of layers.
    """
    run = read_config(path)
    envs = make_envs(run.game, ENVS, run.env)
    generator = np.random.default_rng(seed)
    try:
        policy = learned_policy(saved_run(path), run, envs, torch.Generator())
        if not isinstance(policy, PolicyNet):
            raise UserError(f"{path}: chains of layers are compared, not {run.network}")
        infer = policy_infer(policy)
        ring = StateRing(policy.observation, envs.num_actions, states)
        obs = envs.reset(seed)

        def steps(count: int) -> tuple[np.ndarray, np.ndarray]:
            """Return the states [T, B, *shape] of so many steps, and the policy's logits."""
            nonlocal obs
            shown, said = [], []
            for _ in range(count):
                logits = infer(obs)
                shown.append(obs.copy())
                said.append(logits)
                obs = envs.step((logits + generator.gumbel(size=logits.shape)).argmax(1)).obs
            return np.stack(shown), np.stack(said)

        steps(SETTLING)
        while len(ring) + UNROLL * ENVS <= states:
            ring.add(*steps(UNROLL), 0)
        steps(SETTLING)
        held = [steps(SPACING)[0][-1] for _ in range(-(-compared // ENVS))]
    finally:
        envs.close()
    states_held = np.concatenate(held)[:compared]
    return Played(policy, run.compression, ring, states_held, path.name)
