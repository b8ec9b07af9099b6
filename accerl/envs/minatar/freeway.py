"""Freeway: a chicken crosses eight lanes of cars."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from accerl.envs.minatar.dice import Dice
from accerl.envs.minatar.game import CELLS, ON, SIDE, clamp

LANES = 8
"""rows 1 to 8"""
SLOWEST = 5
"""steps between two moves of the slowest car"""
COLUMN = 4
"""of the chicken"""
BOTTOM = SIDE - 1
REST = 3
"""steps between two moves of the chicken"""
STEPS = 2500
_MOVES = np.array([0, -1, 1])


class Freeway:
    """Actions: stay, up, down. Reaching the top is worth 1, and draws new speeds for all cars.

    Whoever is hit begins again at the bottom. An episode ends after 2,501 steps.
    """

    CHANNELS: ClassVar[int] = 7  # chicken, cars, and where those of each of five speeds were
    ACTIONS: ClassVar[int] = 3
    ARRAYS: ClassVar[tuple[str, ...]] = (
        "row", "rest", "left", "column", "wait", "period", "direction",
    )  # fmt: skip

    def __init__(self, num_envs: int) -> None:
        self.row, self.rest, self.left = (np.zeros(num_envs, dtype=np.int64) for _ in range(3))
        self.column, self.wait, self.period, self.direction = (
            np.zeros((num_envs, LANES), dtype=np.int64) for _ in range(4)
        )
        self._envs = np.arange(num_envs)
        first = self.CHANNELS * CELLS * self._envs
        self._first = first + COLUMN
        self._lanes = first[:, None] + CELLS + SIDE * np.arange(1, LANES + 1)

    def begin(self, envs: np.ndarray, dice: Dice) -> None:
        """See `Game.begin`: all cars begin on the left."""
        self._draw_speeds(envs, dice)
        self.column[envs] = 0
        self.row[envs], self.rest[envs], self.left[envs] = BOTTOM, REST, STEPS

    def _draw_speeds(self, envs: np.ndarray, dice: Dice) -> None:
        for env in envs.tolist():
            self.period[env] = [1 + dice.below(env, SLOWEST) for _ in range(LANES)]
            self.direction[env] = [1 if dice.uniform(env) > 0.5 else -1 for _ in range(LANES)]
        self.wait[envs] = self.period[envs]

    def act(self, action: np.ndarray, dice: Dice) -> tuple[np.ndarray, np.ndarray]:
        """See `Game.act`."""
        moves = (self.rest == 0) & (action > 0)
        self.row = clamp(self.row + _MOVES.take(action) * moves, 0, BOTTOM)
        self.rest[moves] = REST
        won = self.row == 0
        if won.any():
            winners = np.flatnonzero(won)
            self._draw_speeds(winners, dice)
            self.row[winners] = BOTTOM
        # Only the car of the chicken's own lane can hit it, before it moves or after.
        lane = self.row - 1
        endangered = lane < LANES
        lane[~endangered] = 0
        hit = self.column[self._envs, lane] == COLUMN
        drives = self.wait == 0
        np.add(self.column, self.direction, out=self.column, where=drives)
        np.remainder(self.column, SIDE, out=self.column)
        self.wait -= 1
        np.copyto(self.wait, self.period, where=drives)
        hit |= self.column[self._envs, lane] == COLUMN
        self.row[hit & endangered] = BOTTOM
        self.rest -= self.rest > 0
        self.left -= 1
        return won, self.left < 0

    def boards(self) -> np.ndarray:
        """See `Game.boards`."""
        boards = np.zeros((len(self.row), self.CHANNELS, SIDE, SIDE), dtype=np.uint8)
        cells = boards.reshape(-1)
        cells[self._first + SIDE * self.row] = ON
        cells[self._lanes + self.column] = ON
        behind = np.remainder(self.column - self.direction, SIDE)
        cells[self._lanes + CELLS * self.period + behind] = ON
        return boards
