"""make_envs(): ALE, Gymnasium and our own Catch behind one small surface.

Every surface autoresets in the same step: when an episode ends, `step` returns the first
observation of the next one, so that each row is a real transition (no junk rows).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from accerl.errors import UserError, did_you_mean
from accerl.observation import ObservationSpec


@dataclass(frozen=True)
class Step:
    """One step of all environments; `obs` already belongs to the next episode where one ended."""

    obs: np.ndarray  # [B, *shape]
    reward: np.ndarray  # [B] float32, raw game score
    terminated: np.ndarray  # [B] bool: the episode ended in the game
    truncated: np.ndarray  # [B] bool: the episode was cut off by a time limit


class Envs(Protocol):
    """A batch of environments with same-step autoreset."""

    num_envs: int
    num_actions: int
    observation: ObservationSpec
    exact_resume: bool
    """whether `load_state_dict` continues bit-exactly; otherwise it starts new episodes"""

    def reset(self, seed: int) -> np.ndarray:
        """Start every environment anew from `seed`; return observations [B, *shape]."""
        ...

    def step(self, actions: np.ndarray) -> Step:
        """Act with `actions` [B] int64."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return what is needed to go on: bit-exactly where `exact_resume`."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> np.ndarray:
        """Go on from a state returned by `state_dict`; return the observations [B, *shape]."""
        ...

    def close(self) -> None:
        """Release what the environments hold."""
        ...


class CatchEnvs:
    """Catch: a ball falls through a 10x5 board, a paddle on the bottom row must meet it.

    Actions: left, stay, right. The reward is +1 or -1 when the ball reaches the bottom row, after
    nine steps; a random policy scores about -0.6, a perfect one +1.
    """

    ROWS, COLUMNS = 10, 5

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.num_actions = 3
        self.observation = ObservationSpec((self.ROWS, self.COLUMNS), "uint8")
        self.exact_resume = True
        self._rng = np.random.default_rng(0)
        self._row = np.zeros(num_envs, dtype=np.int64)
        self._ball = np.zeros(num_envs, dtype=np.int64)
        self._paddle = np.full(num_envs, self.COLUMNS // 2, dtype=np.int64)
        self._index = np.arange(num_envs)

    def reset(self, seed: int) -> np.ndarray:
        """See `Envs.reset`."""
        self._rng = np.random.default_rng(seed)
        self._row[:] = 0
        self._ball = self._rng.integers(self.COLUMNS, size=self.num_envs)
        self._paddle[:] = self.COLUMNS // 2
        return self._render()

    def step(self, actions: np.ndarray) -> Step:
        """See `Envs.step`."""
        np.clip(self._paddle + actions - 1, 0, self.COLUMNS - 1, out=self._paddle)
        self._row += 1
        done = self._row == self.ROWS - 1
        caught = np.where(self._ball == self._paddle, 1.0, -1.0)
        reward = np.where(done, caught, 0.0).astype(np.float32)
        ended = int(done.sum())
        if ended:
            self._row[done] = 0
            self._paddle[done] = self.COLUMNS // 2
            self._ball[done] = self._rng.integers(self.COLUMNS, size=ended)
        return Step(self._render(), reward, done, np.zeros_like(done))

    def _render(self) -> np.ndarray:
        board = np.zeros((self.num_envs, self.ROWS, self.COLUMNS), dtype=np.uint8)
        board[self._index, self._row, self._ball] = 255
        board[self._index, self.ROWS - 1, self._paddle] = 255
        return board

    def state_dict(self) -> dict[str, Any]:
        """See `Envs.state_dict`."""
        arrays = {"row": self._row, "ball": self._ball, "paddle": self._paddle}
        copies = {name: array.copy() for name, array in arrays.items()}
        return {**copies, "rng": self._rng.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> np.ndarray:
        """See `Envs.load_state_dict`."""
        self._row, self._ball = state["row"].copy(), state["ball"].copy()
        self._paddle = state["paddle"].copy()
        self._rng.bit_generator.state = state["rng"]
        return self._render()

    def close(self) -> None:
        """Nothing is held."""


class CartPoleEnvs:
    """CartPole-v1 through Gymnasium's own vectorised numpy environment."""

    def __init__(self, num_envs: int) -> None:
        import gymnasium

        made = gymnasium.make_vec(
            "CartPole-v1", num_envs, vectorization_mode="vector_entry_point"
        ).unwrapped
        self._env: Any = made
        self.num_envs = num_envs
        self.num_actions = 2
        self.observation = ObservationSpec((4,), "float32")
        self.exact_resume = True

    def reset(self, seed: int) -> np.ndarray:
        """See `Envs.reset`."""
        obs, _ = self._env.reset(seed=seed)
        return obs

    def step(self, actions: np.ndarray) -> Step:
        """See `Envs.step`."""
        env = self._env
        obs, reward, terminated, truncated, _ = env.step(actions)
        done = terminated | truncated
        if done.any():
            # Gymnasium's vector CartPole resets one step late and ignores that step's action:
            # a junk row per episode. Resetting here, the way it does itself, avoids it.
            size = (4, int(done.sum()))
            env.state[:, done] = env.np_random.uniform(env.low, env.high, size)
            env.steps[done] = 0
            env.prev_done[:] = False
            obs = env.state.T.astype(np.float32)
        return Step(obs, reward, terminated, truncated)

    def state_dict(self) -> dict[str, Any]:
        """See `Envs.state_dict`."""
        env = self._env
        rng = env.np_random.bit_generator.state
        return {"state": env.state.copy(), "steps": env.steps.copy(), "rng": rng}

    def load_state_dict(self, state: dict[str, Any]) -> np.ndarray:
        """See `Envs.load_state_dict`."""
        self._env.reset(seed=0)
        self._env.state = state["state"].copy()
        self._env.steps = state["steps"].copy()
        self._env.np_random.bit_generator.state = state["rng"]
        return self._env.state.T.astype(np.float32)

    def close(self) -> None:
        """See `Envs.close`."""
        self._env.close()


_FRESH_SEED = 7_919  # between the seeds of one actor before and after it was restored


class AtariEnvs:
    """Atari 2600 through ale-py's C++ vector environment: 4 stacked 84x84 frames, frameskip 4."""

    def __init__(self, game: str, num_envs: int, num_threads: int = 1) -> None:
        from ale_py.vector_env import AtariVectorEnv
        from gymnasium.spaces import Discrete
        from gymnasium.vector import AutoresetMode

        self._env = AtariVectorEnv(
            game,
            num_envs,
            # Its threads spin before they sleep, so more than one per process only steals cores.
            num_threads=num_threads,
            # Raw scores are recorded; the learner clips.
            reward_clipping=False,
            autoreset_mode=AutoresetMode.SAME_STEP,
        )
        self.num_envs = num_envs
        actions = self._env.single_action_space
        assert isinstance(actions, Discrete)
        self.num_actions = int(actions.n)
        self.observation = ObservationSpec((4, 84, 84), "uint8")
        self.exact_resume = False
        self._seed = 0

    def reset(self, seed: int) -> np.ndarray:
        """See `Envs.reset`."""
        self._seed = seed
        # Sub-environments take consecutive seeds, and ale-py holds them in 32 bits.
        obs, _ = self._env.reset(seed=seed * 10_007 % (2**31 - self.num_envs))
        return obs

    def step(self, actions: np.ndarray) -> Step:
        """See `Envs.step`."""
        obs, reward, terminated, truncated, _ = self._env.step(actions)
        return Step(obs, reward.astype(np.float32), terminated, truncated)

    def state_dict(self) -> dict[str, Any]:
        """Return the next seed: the C++ vector environment itself cannot be saved."""
        return {"seed": self._seed + _FRESH_SEED}

    def load_state_dict(self, state: dict[str, Any]) -> np.ndarray:
        """Start new episodes from a seed that has not been used yet."""
        return self.reset(state["seed"])

    def close(self) -> None:
        """See `Envs.close`."""
        self._env.close()


def measure_pixels(game: str, *, steps: int = 300, seed: int = 0) -> tuple[int, float]:
    """Return (centre, unit) of a game's pixels under random play, as presets hold them.

    The centre is the median, so that background becomes exactly 0; the unit is the standard
    deviation. See `ObservationSpec`.
    """
    envs, generator = make_envs(game, 4), np.random.default_rng(seed)
    envs.reset(seed)
    frames = []
    for step in range(steps):
        obs = envs.step(generator.integers(envs.num_actions, size=envs.num_envs)).obs
        if step % 10 == 0:
            frames.append(obs[:, -1].copy())
    envs.close()
    pixels = np.concatenate(frames)
    return int(np.median(pixels)), float(pixels.std())


OWN_GAMES = {"catch": CatchEnvs, "cartpole": CartPoleEnvs}


def atari_games() -> list[str]:
    """Return the Atari games whose ROM ships with ale-py, in snake case."""
    from ale_py import roms

    return sorted(roms.get_all_rom_ids())


def check_game(game: str) -> None:
    """Refuse a game that does not exist.

    Raises:
        UserError: with the closest spelling.
    """
    if game in OWN_GAMES or game in atari_games():
        return
    import difflib

    allowed = [*OWN_GAMES, *atari_games()]
    close = difflib.get_close_matches(game, allowed, n=3)
    hint = f"did you mean {', '.join(close)}?" if close else did_you_mean(game, list(OWN_GAMES))
    raise UserError(f"game {game!r} does not exist; {hint} (or any Atari game in snake_case)")


def make_envs(game: str, num_envs: int) -> Envs:
    """Return `num_envs` environments of `game`: catch, cartpole or an Atari game.

    Raises:
        UserError: the game does not exist.
    """
    check_game(game)
    if game in OWN_GAMES:
        return OWN_GAMES[game](num_envs)
    return AtariEnvs(game, num_envs)
