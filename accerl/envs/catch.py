"""Catch, the smallest game of all."""

from __future__ import annotations

from typing import Any

import numpy as np

from accerl.envs.base import Step
from accerl.networks.observation import ObservationSpec


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
