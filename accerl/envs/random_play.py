"""What random play tells of a game before anything is learned: its pixels, and its rewards."""

from __future__ import annotations

import numpy as np

from accerl.envs import make_envs
from accerl.envs.config import AS_IT_IS, EnvConfig

NUM_ENVS, STEPS = 4, 300


def measure_pixels(
    game: str, env: EnvConfig = AS_IT_IS, *, steps: int = STEPS, seed: int = 0
) -> tuple[int, float]:
    """Return (centre, unit) of a game's pixels under random play, as configurations hold them.

    The centre is the median, so that background becomes exactly 0; the unit is the standard
    deviation. See `ObservationSpec`.
    """
    envs, generator = make_envs(game, NUM_ENVS, env), np.random.default_rng(seed)
    envs.reset(seed)
    frames = []
    for step in range(steps):
        obs = envs.step(generator.integers(envs.num_actions, size=envs.num_envs)).obs
        if step % 10 == 0:
            # Of stacked frames the newest: the others were it before.
            frames.append(obs[:, -1].copy() if envs.observation.is_pixels else obs.copy())
    envs.close()
    pixels = np.concatenate(frames)
    return int(np.median(pixels)), float(pixels.std()) or 255.0


def measure_returns(
    game: str,
    env: EnvConfig = AS_IT_IS,
    *,
    discount: float,
    steps: int = STEPS,
    seed: int = 0,
) -> float:
    """Return the largest absolute discounted return of a state under random play.

    That is how large the values are with which learning begins; 0 where nothing was rewarded.
    """
    envs, generator = make_envs(game, NUM_ENVS, env), np.random.default_rng(seed)
    envs.reset(seed)
    rewards, ended = np.zeros((steps, NUM_ENVS)), np.zeros((steps, NUM_ENVS), bool)
    for t in range(steps):
        step = envs.step(generator.integers(envs.num_actions, size=envs.num_envs))
        rewards[t], ended[t] = step.reward, step.terminated | step.truncated
    envs.close()
    largest, returns = 0.0, np.zeros(NUM_ENVS)
    for reward, over in zip(rewards[::-1], ended[::-1], strict=True):
        returns = reward + discount * returns * ~over
        largest = max(largest, float(np.abs(returns).max()))
    return largest
