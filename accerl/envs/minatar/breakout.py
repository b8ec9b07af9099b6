"""Breakout: three rows of bricks, a ball that moves along diagonals, a paddle below."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from accerl.envs.minatar.dice import Dice
from accerl.envs.minatar.game import CELLS, ON, SIDE, clamp

BRICKS = slice(1, 4)
"""rows"""
FLOOR = SIDE - 1
START_ROW, START_PADDLE = 3, 4
_MOVES = np.array([0, -1, 1])


class Breakout:
    """Actions: stay, left, right. A brick is worth 1; a ball that the paddle misses ends it.

    The ball breaks a brick only if it was not inside one in the step before. When all bricks are
    gone, the next ball that comes down brings three new rows.
    """

    CHANNELS: ClassVar[int] = 4  # paddle, ball, where the ball was, bricks
    ACTIONS: ClassVar[int] = 3
    ARRAYS: ClassVar[tuple[str, ...]] = (
        "paddle", "x", "y", "dx", "dy", "last_x", "last_y", "inside", "bricks",
    )  # fmt: skip

    def __init__(self, num_envs: int) -> None:
        self.paddle, self.x, self.y, self.dx, self.dy, self.last_x, self.last_y = (
            np.zeros(num_envs, dtype=np.int64) for _ in range(7)
        )
        self.inside = np.zeros(num_envs, dtype=np.bool_)
        self.bricks = np.zeros((num_envs, SIDE, SIDE), dtype=np.uint8)
        self._first = CELLS * np.arange(num_envs)

    def begin(self, envs: np.ndarray, dice: Dice) -> None:
        """See `Game.begin`: the ball comes from the left or from the right."""
        side = np.array([dice.below(env, 2) for env in envs.tolist()])
        self.x[envs] = self.last_x[envs] = (SIDE - 1) * side
        self.y[envs] = self.last_y[envs] = START_ROW
        self.dx[envs], self.dy[envs] = 1 - 2 * side, 1
        self.paddle[envs], self.inside[envs] = START_PADDLE, False
        self.bricks[envs, BRICKS] = ON

    def act(self, action: np.ndarray, dice: Dice) -> tuple[np.ndarray, np.ndarray]:
        """See `Game.act`."""
        self.paddle = clamp(self.paddle + _MOVES.take(action), 0, SIDE - 1)
        self.last_x, self.last_y = self.x, self.y
        aimed = self.x + self.dx
        x = clamp(aimed, 0, SIDE - 1)
        self.dx = np.where(x == aimed, self.dx, -self.dx)
        aimed = self.y + self.dy
        y = np.maximum(aimed, 0)
        turns = aimed < 0
        cell = self._first + SIDE * y + x
        brick = self.bricks.reshape(-1).take(cell) > 0
        broken = brick & ~self.inside
        self.bricks.reshape(-1)[cell[broken]] = 0
        self.inside = brick
        turns |= broken
        back = broken
        over = y == FLOOR
        if over.any():
            below = np.flatnonzero(over)
            back = broken.copy()
            back[below] = self._meets_paddle(below, x[below])
            turns |= back
            over &= ~back
        self.dy = np.where(turns, -self.dy, self.dy)
        self.x, self.y = x, np.where(back, self.last_y, y)
        return broken, over

    def _meets_paddle(self, envs: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Return whether balls on the floor come back; one that meets the edge turns around."""
        cleared = envs[~self.bricks[envs].any(axis=(1, 2))]
        self.bricks[cleared, BRICKS] = ON
        paddle = self.paddle[envs]
        middle = self.last_x[envs] == paddle
        edge = (x == paddle) & ~middle
        self.dx[envs[edge]] *= -1
        return middle | edge

    def boards(self) -> np.ndarray:
        """See `Game.boards`."""
        boards = np.zeros((len(self.x), self.CHANNELS, SIDE, SIDE), dtype=np.uint8)
        cells, first = boards.reshape(-1), self.CHANNELS * self._first
        cells[first + (SIDE * FLOOR + self.paddle)] = ON
        cells[first + (CELLS + SIDE * self.y + self.x)] = ON
        cells[first + (2 * CELLS + SIDE * self.last_y + self.last_x)] = ON
        boards[:, 3] = self.bricks
        return boards
