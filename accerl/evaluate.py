"""Evaluation of the learner's full-precision policy, off the clock: J, the outer reward's basis."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from accerl.actor import sample_actions
from accerl.compress.engine import Engine
from accerl.envs import Envs, make_envs
from accerl.networks import PolicyNet

EVALUATION_SEED = 777_000  # far from every training seed; the same for all runs: common numbers

Infer = Callable[[np.ndarray], np.ndarray]
"""observations [B, *shape] -> logits [B, A]"""


class Evaluator:
    """Plays the same `episodes` starts again at every measurement."""

    def __init__(self, game: str, episodes: int) -> None:
        self._envs = make_envs(game, episodes) if episodes else None

    def measure(self, policy: PolicyNet) -> float | None:
        """Return J, the mean return of the stochastic policy; None when turned off."""
        if self._envs is None:
            return None
        return float(np.mean(play_episodes(self._envs, policy_infer(policy), EVALUATION_SEED)))

    def close(self) -> None:
        """Release the environments."""
        if self._envs is not None:
            self._envs.close()


def policy_infer(policy: PolicyNet) -> Infer:
    """Return a function that computes a network's logits."""

    @torch.no_grad()
    def infer(obs: np.ndarray) -> np.ndarray:
        return policy(torch.from_numpy(obs))[0].numpy()

    return infer


def engine_infer(engine: Engine) -> Infer:
    """Return a function that computes an engine's logits."""
    return lambda obs: engine.infer(obs)[0]


def play_episodes(envs: Envs, infer: Infer, seed: int, *, max_steps: int = 30_000) -> np.ndarray:
    """Play one episode in every environment; return their raw scores [B].

    An environment that has finished waits for the others (its further episodes do not count).
    After `max_steps` the scores so far stand.
    """
    rng = np.random.default_rng(seed)
    obs = envs.reset(seed)
    score = np.zeros(envs.num_envs, dtype=np.float64)
    running = np.ones(envs.num_envs, dtype=np.bool_)
    noise = np.empty((envs.num_envs, envs.num_actions), dtype=np.float32)
    action = np.empty(envs.num_envs, dtype=np.int64)
    for _ in range(max_steps):
        sample_actions(rng, infer(obs), noise, out=action)
        step = envs.step(action)
        score += step.reward * running
        running &= ~(step.terminated | step.truncated)
        if not running.any():
            break
        obs = step.obs
    return score
