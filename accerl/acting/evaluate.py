"""Evaluation of the learner's full-precision policy, off the clock: J, the outer reward's basis."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from accerl.acting.actor import gumbel_max
from accerl.compress.engine import Engine, open_session
from accerl.compress.graphs.onnx_export import onnx_fp32
from accerl.envs import EnvConfig, Envs, make_envs
from accerl.envs.base import Rests
from accerl.envs.config import AS_IT_IS
from accerl.networks.graph_policy import Policy
from accerl.networks.policy_net import PolicyNet
from accerl.seeds import Role, generator, number

EVALUATION_SEED = number(0, Role.EVALUATION)
"""the same for all runs: they are compared on common random numbers"""

MAX_STEPS = 30_000
"""length at which an episode that is measured is cut off"""
FEWEST_STATES = 4
"""smallest batch of a call: BLAS uses kernels that round differently for fewer rows"""

Infer = Callable[[np.ndarray], np.ndarray]
"""observations [B, *shape] -> logits [B, A]"""


class Evaluator:
    """Plays the same `episodes` starts again at every measurement."""

    def __init__(self, game: str, episodes: int, env: EnvConfig = AS_IT_IS) -> None:
        self._envs = make_envs(game, episodes, env) if episodes else None

    def measure(self, policy: Policy) -> float | None:
        """Return J, the mean return of the stochastic policy; None when turned off."""
        if self._envs is None:
            return None
        return float(np.mean(play_episodes(self._envs, fast_infer(policy), EVALUATION_SEED)))

    def close(self) -> None:
        """Release the environments."""
        if self._envs is not None:
            self._envs.close()


def policy_infer(policy: Policy) -> Infer:
    """Return a function that computes a network's logits."""

    @torch.no_grad()
    def infer(obs: np.ndarray) -> np.ndarray:
        return policy(torch.from_numpy(obs))[0].numpy()

    return infer


def fast_infer(policy: Policy) -> Infer:
    """Return a function that computes a network's logits in full precision, as fast as it can.

    ONNX Runtime takes half of torch's time for the few states of an evaluation.
    """
    if not isinstance(policy, PolicyNet):
        return policy_infer(policy)
    session = open_session(onnx_fp32(policy))
    return lambda obs: np.asarray(session.run(("logits",), {"obs": obs})[0])


def engine_infer(engine: Engine) -> Infer:
    """Return a function that computes an engine's logits."""
    return lambda obs: engine.infer(obs)[0]


def play_episodes(
    envs: Envs,
    infer: Infer,
    seed: int,
    *,
    antithetic: bool = True,
    cut_off: np.ndarray | None = None,
) -> np.ndarray:
    """Play one episode in every environment; return their raw scores [B].

    An environment that has finished waits for the others: its further episodes do not count,
    nothing is inferred for them, and it rests if it can. After `MAX_STEPS` the scores so far stand.

    Args:
        envs: one episode is played in each; of an odd number, one has no partner.
        infer: returns the logits to act on, of some of the environments.
        seed: of starts and actions.
        antithetic: whether the second half of the environments acts by the mirrored dice of the
            first, 1 - u for u. Starts are independent all the same: pairs that shared one were
            alike (correlation 0.25 in MinAtar's Breakout, against 0), so their mean scattered more.
        cut_off: gets which episodes had not ended by then, [B] bool.
    """
    rng = generator(seed, Role.ACTIONS)
    obs = envs.reset(number(seed, Role.EPISODES))
    score = np.zeros(envs.num_envs, dtype=np.float64)
    running = np.ones(envs.num_envs, dtype=np.bool_)
    uniforms = np.empty((envs.num_envs, envs.num_actions), dtype=np.float32)
    action = np.empty(envs.num_envs, dtype=np.int64)
    logits = np.zeros((envs.num_envs, envs.num_actions), dtype=np.float32)
    rows: slice | np.ndarray = slice(None)
    for _ in range(MAX_STEPS):
        draw_uniforms(rng, uniforms, antithetic=antithetic)
        logits[rows] = infer(obs[rows])
        gumbel_max(logits, uniforms, out=action)
        step = envs.step(action)
        score += step.reward * running
        ended = running & (step.terminated | step.truncated)
        if ended.any():
            running &= ~ended
            if not running.any():
                break
            rows = _rows(running)
            if isinstance(envs, Rests):
                envs.rest(~running)
        obs = step.obs
    if cut_off is not None:
        cut_off[:] = running
    return score


def _rows(running: np.ndarray) -> np.ndarray:
    """Return the indices of those that run, [B] bool, and of others if they are too few."""
    rows = np.flatnonzero(running)
    others = np.flatnonzero(~running)[: max(FEWEST_STATES - len(rows), 0)]
    return np.sort(np.concatenate([rows, others]))


def draw_uniforms(rng: np.random.Generator, out: np.ndarray, *, antithetic: bool) -> None:
    """Fill `out` [B, A] float32 with uniforms in [0, 1); with pairs, the second half mirrored.

    Row i is mirrored in row i + ceil(B / 2). Draws are multiples of 2^-24, and so are mirrors.
    """
    own = (len(out) + 1) // 2 if antithetic else len(out)
    rng.random(out=out[:own], dtype=np.float32)
    np.subtract(np.float32(1.0 - 2.0**-24), out[: len(out) - own], out=out[own:])
