"""Asterix: enemies and gold cross eight lanes; touch the gold, avoid the enemies."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from accerl.envs.minatar.dice import Dice
from accerl.envs.minatar.game import CELLS, ON, SIDE, clamp

LANES = 8
"""rows 1 to 8, each with one enemy or gold at most"""
SPAWN_EVERY, MOVE_EVERY, RAMP_EVERY = 10, 5, 100
"""steps, at the beginning"""
START = 5
PLAYER, ENEMY, TRAIL, GOLD = range(4)
_RIGHT = np.array([0, -1, 0, 1, 0])
_DOWN = np.array([0, 0, -1, 0, 1])


class Asterix:
    """Actions: stay, left, up, right, down. Gold is worth 1; touching an enemy ends it.

    Every 101 steps new ones come more often, and every other time all of them move faster.
    """

    CHANNELS: ClassVar[int] = 4
    ACTIONS: ClassVar[int] = 5
    ARRAYS: ClassVar[tuple[str, ...]] = (
        "x", "y", "spawn_every", "spawn_in", "move_every", "move_in", "ramp_in", "ramps",
        "present", "gold", "column", "direction",
    )  # fmt: skip

    def __init__(self, num_envs: int) -> None:
        (
            self.x, self.y, self.spawn_every, self.spawn_in,
            self.move_every, self.move_in, self.ramp_in, self.ramps,
        ) = (np.zeros(num_envs, dtype=np.int64) for _ in range(8))  # fmt: skip
        self.present, self.gold = (np.zeros((num_envs, LANES), np.bool_) for _ in range(2))
        self.column, self.direction = (np.zeros((num_envs, LANES), np.int64) for _ in range(2))
        self._envs = np.arange(num_envs)
        self._first = self.CHANNELS * CELLS * self._envs
        self._lanes = self._first[:, None] + SIDE * np.arange(1, LANES + 1)

    def begin(self, envs: np.ndarray, dice: Dice) -> None:
        """See `Game.begin`."""
        self.x[envs] = self.y[envs] = START
        self.spawn_every[envs] = self.spawn_in[envs] = SPAWN_EVERY
        self.move_every[envs] = self.move_in[envs] = MOVE_EVERY
        self.ramp_in[envs], self.ramps[envs] = RAMP_EVERY, 0
        self.present[envs] = False

    def act(self, action: np.ndarray, dice: Dice) -> tuple[np.ndarray, np.ndarray]:
        """See `Game.act`."""
        for env in np.flatnonzero(self.spawn_in == 0).tolist():
            self._spawn(env, dice)
        self.x = clamp(self.x + _RIGHT.take(action), 0, SIDE - 1)
        self.y = clamp(self.y + _DOWN.take(action), 1, LANES)
        reward, over = self._touch()
        moves = self.move_in == 0
        if moves.any():
            self.move_in[moves] = self.move_every[moves]
            np.add(self.column, self.direction, out=self.column, where=moves[:, None])
            self.present &= (self.column >= 0) & (self.column < SIDE)
            more, ended = self._touch()  # who has not moved was looked at already
            reward |= more
            over |= ended
        self.spawn_in -= 1
        self.move_in -= 1
        self._ramp()
        return reward, over

    def _spawn(self, env: int, dice: Dice) -> None:
        """Have an enemy or gold enter one of the free lanes, from either side."""
        from_left, is_gold = dice.uniform(env) < 1 / 2, dice.uniform(env) < 1 / 3
        self.spawn_in[env] = self.spawn_every[env]
        free = [lane for lane, taken in enumerate(self.present[env].tolist()) if not taken]
        if not free:
            return
        lane = free[dice.below(env, len(free))]
        self.present[env, lane], self.gold[env, lane] = True, is_gold
        self.column[env, lane] = 0 if from_left else SIDE - 1
        self.direction[env, lane] = 1 if from_left else -1

    def _touch(self) -> tuple[np.ndarray, np.ndarray]:
        """Take the gold that the player touches; return who took some, and who met an enemy."""
        lane = self.y - 1
        touched = self.present[self._envs, lane] & (self.column[self._envs, lane] == self.x)
        taken = touched & self.gold[self._envs, lane]
        self.present[taken, lane[taken]] = False
        return taken, touched & ~taken

    def _ramp(self) -> None:
        """Make the games harder whose time has come."""
        hardest = (self.spawn_every <= 1) & (self.move_every <= 1)
        due = np.flatnonzero((self.ramp_in < 0) & ~hardest)
        self.ramp_in -= ~hardest
        if len(due):
            self.move_every[due] -= (self.move_every[due] > 1) & (self.ramps[due] % 2 == 1)
            self.spawn_every[due] -= self.spawn_every[due] > 1
            self.ramps[due] += 1
            self.ramp_in[due] = RAMP_EVERY

    def boards(self) -> np.ndarray:
        """See `Game.boards`."""
        boards = np.zeros((len(self.x), self.CHANNELS, SIDE, SIDE), dtype=np.uint8)
        cells = boards.reshape(-1)
        cells[self._first + (SIDE * self.y + self.x)] = ON
        kind = np.where(self.gold, GOLD * CELLS, ENEMY * CELLS)
        cells[(self._lanes + kind + self.column)[self.present]] = ON
        behind = self.column - self.direction
        seen = self.present & (behind >= 0) & (behind < SIDE)
        cells[(self._lanes + TRAIL * CELLS + behind)[seen]] = ON
        return boards
