"""MinAtarEnvs: the games that are played here, all environments at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from accerl.envs.base import Step
from accerl.envs.minatar.asterix import Asterix
from accerl.envs.minatar.breakout import Breakout
from accerl.envs.minatar.dice import Dice
from accerl.envs.minatar.freeway import Freeway
from accerl.envs.minatar.game import SIDE, STICKY_PROBABILITY, Game
from accerl.envs.minatar.space_invaders import SpaceInvaders
from accerl.networks.observation import ObservationSpec

GAMES: dict[str, type[Game]] = {
    "minatar-asterix": Asterix,
    "minatar-breakout": Breakout,
    "minatar-freeway": Freeway,
    "minatar-space-invaders": SpaceInvaders,
}


class MinAtarEnvs:
    """One of the games, as the package minatar plays it, step by step and draw by draw.

    See `PackagedEnvs` for what that means. The rules are written anew on arrays, because a step of
    32 environments one after the other needs up to ten times as long.
    """

    def __init__(self, game: str, num_envs: int) -> None:
        self._game = GAMES[game](num_envs)
        self._dice = Dice(num_envs)
        self.num_envs = num_envs
        self.num_actions = self._game.ACTIONS
        self.observation = ObservationSpec((self._game.CHANNELS, SIDE, SIDE), "uint8")
        self.exact_resume = True
        self._last = np.zeros(num_envs, dtype=np.int64)
        self.reset(0)

    def reset(self, seed: int) -> np.ndarray:
        """See `Envs.reset`."""
        self._last[:] = 0
        self._dice.seed(seed)
        self._game.begin(np.arange(self.num_envs), self._dice)
        return self._game.boards()

    def step(self, actions: np.ndarray) -> Step:
        """See `Envs.step`."""
        np.copyto(self._last, actions, where=self._dice.uniforms() >= STICKY_PROBABILITY)
        reward, over = self._game.act(self._last, self._dice)
        if over.any():
            self._game.begin(np.flatnonzero(over), self._dice)
        return Step(self._game.boards(), reward.astype(np.float32), over, np.zeros_like(over))

    def state_dict(self) -> dict[str, Any]:
        """See `Envs.state_dict`."""
        arrays = {name: getattr(self._game, name).copy() for name in self._game.ARRAYS}
        return {"last": self._last.copy(), "dice": self._dice.state_dict(), "game": arrays}

    def load_state_dict(self, state: dict[str, Any]) -> np.ndarray:
        """See `Envs.load_state_dict`."""
        self._last = state["last"].copy()
        self._dice.load_state_dict(state["dice"])
        for name in self._game.ARRAYS:
            setattr(self._game, name, state["game"][name].copy())
        return self._game.boards()

    def close(self) -> None:
        """Nothing is held."""
