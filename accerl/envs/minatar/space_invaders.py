"""Space Invaders: a cannon below, a block of aliens above, bullets in both directions."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from accerl.envs.minatar.dice import Dice
from accerl.envs.minatar.game import CELLS, ON, SIDE, clamp

WAVE = (slice(None), slice(0, 4), slice(2, 8))
"""where the aliens of a new wave are"""
GROUND = SIDE - 1
START = 5
RELOAD = 5
"""steps between two bullets of the cannon"""
SHOT_EVERY = 10
"""steps between two bullets of the aliens"""
MOVE_EVERY, FASTEST = 12, 6
"""steps between two moves of a large first wave, and of large later ones at the least"""
LEFT, RIGHT, FIRE = 1, 2, 3
_MOVES = np.array([0, -1, 1, 0])
_BY_DISTANCE = np.array(
    [sorted(range(SIDE), key=lambda column: abs(column - cannon)) for cannon in range(SIDE)]
)
"""columns, nearest to each column first, of two equally near ones the left"""


class SpaceInvaders:
    """Actions: stay, left, right, fire. An alien is worth 1; a bullet or an alien ends it.

    Aliens move faster the fewer they are, and each wave faster than the one before.
    """

    CHANNELS: ClassVar[int] = 6  # cannon, aliens, the same by direction (two), bullets (two)
    ACTIONS: ClassVar[int] = 4
    ARRAYS: ClassVar[tuple[str, ...]] = (
        "cannon", "reload", "move_in", "move_every", "shot_in", "direction",
        "aliens", "bullets", "bombs",
    )  # fmt: skip

    def __init__(self, num_envs: int) -> None:
        self.cannon, self.reload, self.move_in, self.move_every, self.shot_in, self.direction = (
            np.zeros(num_envs, dtype=np.int64) for _ in range(6)
        )
        self.aliens, self.bullets, self.bombs = (
            np.zeros((num_envs, SIDE, SIDE), dtype=np.uint8) for _ in range(3)
        )
        self._envs = np.arange(num_envs)

    def begin(self, envs: np.ndarray, dice: Dice) -> None:
        """See `Game.begin`."""
        self.cannon[envs], self.reload[envs], self.direction[envs] = START, 0, -1
        self.move_in[envs] = self.move_every[envs] = MOVE_EVERY
        self.shot_in[envs] = SHOT_EVERY
        self.bullets[envs] = self.bombs[envs] = self.aliens[envs] = 0
        self._send_wave(envs)

    def _send_wave(self, envs: np.ndarray) -> None:
        _, rows, columns = WAVE
        self.aliens[envs, rows, columns] = ON

    def act(self, action: np.ndarray, dice: Dice) -> tuple[np.ndarray, np.ndarray]:
        """See `Game.act`."""
        fires = np.flatnonzero((action == FIRE) & (self.reload == 0))
        self.bullets[fires, GROUND, self.cannon[fires]] = ON
        self.reload[fires] = RELOAD
        self.cannon = clamp(self.cannon + _MOVES.take(action), 0, SIDE - 1)
        self.bullets[:, :-1] = self.bullets[:, 1:]
        self.bullets[:, -1] = 0
        self.bombs[:, 1:] = self.bombs[:, :-1]
        self.bombs[:, 0] = 0
        over = self._at_cannon(self.bombs) | self._at_cannon(self.aliens)
        moving = np.flatnonzero(self.move_in == 0)
        if len(moving):
            over[moving] |= self._march(moving)
        shooting = np.flatnonzero(self.shot_in == 0)
        if len(shooting):
            self._shoot(shooting)
        self.reload -= self.reload > 0
        self.move_in -= 1
        self.shot_in -= 1
        return self._kill(), over

    def _kill(self) -> np.ndarray:
        """Remove bullets and aliens that meet; return how many, [N]. The last one brings more."""
        reward = np.zeros(len(self._envs), dtype=np.int64)
        env, row, column = np.nonzero(self.aliens & self.bullets)
        if len(env):
            self.aliens[env, row, column] = self.bullets[env, row, column] = 0
            np.add.at(reward, env, 1)
            cleared = env[~self.aliens[env].any(axis=(1, 2))]
            self.move_every[cleared] -= self.move_every[cleared] > FASTEST
            self._send_wave(cleared)
        return reward

    def _at_cannon(self, cells: np.ndarray) -> np.ndarray:
        """Return whether the cannon's own cell is taken, [N] bool."""
        return cells[self._envs, GROUND, self.cannon] > 0

    def _march(self, envs: np.ndarray) -> np.ndarray:
        """Move the aliens of these environments; return where that ends the episode.

        A block that stands at the edge it moves towards goes down and turns around.
        """
        aliens, direction = self.aliens[envs], self.direction[envs]
        count = np.count_nonzero(aliens.reshape(-1, CELLS), axis=1)
        self.move_in[envs] = np.minimum(count, self.move_every[envs])
        edge = np.where(direction < 0, 0, SIDE - 1)
        turns = aliens[np.arange(len(envs)), :, edge].any(axis=1)
        landed = turns & aliens[:, GROUND].any(axis=1)
        moved = np.zeros_like(aliens)
        left, right = ~turns & (direction < 0), ~turns & (direction > 0)
        moved[turns, 1:] = aliens[turns, :-1]
        moved[turns, 0] = aliens[turns, -1]  # who has landed, but that is the end
        moved[left, :, :-1] = aliens[left, :, 1:]
        moved[right, :, 1:] = aliens[right, :, :-1]
        self.aliens[envs] = moved
        self.direction[envs] = np.where(turns, -direction, direction)
        return landed | (self.aliens[envs, GROUND, self.cannon[envs]] > 0)

    def _shoot(self, envs: np.ndarray) -> None:
        """Have the lowest alien of the column that is nearest to the cannon drop a bomb."""
        self.shot_in[envs] = SHOT_EVERY
        aliens = self.aliens[envs] > 0
        by_distance = _BY_DISTANCE[self.cannon[envs]]
        taken = np.take_along_axis(aliens.any(axis=1), by_distance, axis=1)
        each = np.arange(len(envs))
        column = by_distance[each, taken.argmax(axis=1)]
        row = GROUND - aliens[each, ::-1, column].argmax(axis=1)
        self.bombs[envs, row, column] = ON

    def boards(self) -> np.ndarray:
        """See `Game.boards`."""
        boards = np.zeros((len(self.cannon), self.CHANNELS, SIDE, SIDE), dtype=np.uint8)
        boards[self._envs, 0, GROUND, self.cannon] = ON
        boards[:, 1] = self.aliens
        boards[self._envs, np.where(self.direction < 0, 2, 3)] = self.aliens
        boards[:, 4], boards[:, 5] = self.bullets, self.bombs
        return boards
