"""Game: what `MinAtarEnvs` needs of one of the games, N boards at a time."""

from __future__ import annotations

from typing import ClassVar, Protocol

import numpy as np

from accerl.envs.minatar.dice import Dice

SIDE = 10
CELLS = SIDE * SIDE
STICKY_PROBABILITY = 0.1
"""of repeating the last action in place of the new one"""
ON = np.uint8(255)
"""of a cell that holds an object"""


def clamp(values: np.ndarray, low: int, high: int) -> np.ndarray:
    """Return `values` in [low, high]; numpy's own takes five times as long for so few."""
    return np.minimum(np.maximum(values, low), high)


class Game(Protocol):
    """The state of N boards as arrays whose first axis is N, and the rules that change it."""

    CHANNELS: ClassVar[int]
    ACTIONS: ClassVar[int]
    """0 does nothing"""
    ARRAYS: ClassVar[tuple[str, ...]]
    """names of the arrays that make up the state"""

    def __init__(self, num_envs: int) -> None: ...

    def begin(self, envs: np.ndarray, dice: Dice) -> None:
        """Begin a new episode in these environments, [K] indices."""
        ...

    def act(self, action: np.ndarray, dice: Dice) -> tuple[np.ndarray, np.ndarray]:
        """Act with `action` [N]; return rewards [N] and where the episode ended [N] bool."""
        ...

    def boards(self) -> np.ndarray:
        """Return what is seen, a new array [N, CHANNELS, 10, 10] uint8 of 0 and `ON`."""
        ...
