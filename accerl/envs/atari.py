"""Atari 2600 through ale-py."""

from __future__ import annotations

import numpy as np

from accerl.envs.base import Step, UnsavedEnvs
from accerl.networks.observation import ATARI_STACK, ObservationSpec

MOST_FRAMES = 108_000
"""of the emulator, after which a game is cut off: half an hour, as the benchmark has it"""


class AtariEnvs(UnsavedEnvs):
    """Atari 2600 through ale-py's C++ vector environment: 4 stacked 84x84 frames, frameskip 4."""

    def __init__(self, game: str, num_envs: int) -> None:
        from ale_py.vector_env import AtariVectorEnv
        from gymnasium.spaces import Discrete
        from gymnasium.vector import AutoresetMode

        self._env = AtariVectorEnv(
            game,
            num_envs,
            # Its threads spin before they sleep, so more than one per process only steals cores.
            num_threads=1,
            # What is played is said here: a newer ale-py may have other defaults.
            frameskip=4,
            stack_num=4,
            maxpool=True,
            noop_max=30,
            use_fire_reset=True,
            repeat_action_probability=0.0,
            full_action_space=False,
            episodic_life=False,
            max_num_frames_per_episode=MOST_FRAMES,
            # Raw scores are recorded; the learner clips.
            reward_clipping=False,
            autoreset_mode=AutoresetMode.SAME_STEP,
        )
        self.num_envs = num_envs
        actions = self._env.single_action_space
        assert isinstance(actions, Discrete)
        self.num_actions = int(actions.n)
        self.observation = ObservationSpec(ATARI_STACK, "uint8", frames=ATARI_STACK[0])
        self._lives = np.zeros(num_envs, np.int64)

    def reset(self, seed: int) -> np.ndarray:
        """See `Envs.reset`."""
        self._seed = seed
        # Sub-environments take consecutive seeds, and ale-py holds them in 32 bits.
        obs, info = self._env.reset(seed=seed % (2**31 - self.num_envs))
        self._lives[:] = info["lives"]
        return obs

    def step(self, actions: np.ndarray) -> Step:
        """See `Envs.step`."""
        obs, reward, terminated, truncated, info = self._env.step(actions)
        # Where a game ended, the count is already the next one's: there are more, not fewer.
        life_lost = (info["lives"] < self._lives) & ~terminated & ~truncated
        self._lives[:] = info["lives"]
        return Step(obs, reward.astype(np.float32), terminated, truncated, life_lost)


def atari_games() -> list[str]:
    """Return the Atari games whose ROM ships with ale-py, in snake case."""
    from ale_py import roms

    return sorted(roms.get_all_rom_ids())
