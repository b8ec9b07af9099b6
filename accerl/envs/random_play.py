"""What random play shows of a game before anything is learned: its pixels, and its rewards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np

from accerl.envs import Envs, Step, make_envs
from accerl.envs.config import AS_IT_IS, EnvConfig
from accerl.networks.observation import centre_and_unit

NUM_ENVS, STEPS, SEED = 4, 300, 0


def measure_pixels(game: str, env: EnvConfig = AS_IT_IS) -> tuple[int, float]:
    """Return (centre, unit) of a game's pixels under random play, as configurations hold them.

    The centre is the median, so that background becomes exactly 0; the unit is the standard
    deviation. See `ObservationSpec`.
    """
    frames = []
    with closing(make_envs(game, NUM_ENVS, env)) as envs:
        for t, step in enumerate(_random_steps(envs)):
            if t % 10 == 0:
                # Of stacked frames the newest: the others were it before.
                channels = envs.observation.shape[0] // envs.observation.frames
                newest = step.obs[:, -channels:] if envs.observation.is_pixels else step.obs
                frames.append(newest.copy())
    return centre_and_unit(np.concatenate(frames))


def reaches(game: str, env: EnvConfig, value: float) -> bool:
    """Return whether observations have so large a value under random play; ends at the first."""
    with closing(make_envs(game, NUM_ENVS, env)) as envs:
        return any(step.obs.max() >= value for step in _random_steps(envs))


def measure_returns(game: str, env: EnvConfig = AS_IT_IS, *, discount: float) -> float:
    """Return the largest absolute discounted return of a state under random play.

    That is how large the values are with which learning begins; 0 where nothing was rewarded.
    """
    rewards, ended = np.zeros((STEPS, NUM_ENVS)), np.zeros((STEPS, NUM_ENVS), bool)
    with closing(make_envs(game, NUM_ENVS, env)) as envs:
        for t, step in enumerate(_random_steps(envs)):
            rewards[t], ended[t] = step.reward, step.terminated | step.truncated
    largest, returns = 0.0, np.zeros(NUM_ENVS)
    for reward, over in zip(rewards[::-1], ended[::-1], strict=True):
        returns = reward + discount * returns * ~over
        largest = max(largest, float(np.abs(returns).max()))
    return largest


def _random_steps(envs: Envs) -> Iterator[Step]:
    """Yield what comes of `STEPS` random steps; the next one overwrites it."""
    generator = np.random.default_rng(SEED)
    envs.reset(SEED)
    for _ in range(STEPS):
        yield envs.step(generator.integers(envs.num_actions, size=envs.num_envs))
