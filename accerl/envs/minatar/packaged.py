"""PackagedEnvs: MinAtar's games as the package minatar plays them, one environment by one."""

from __future__ import annotations

import copy
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from accerl.envs.base import Step
from accerl.envs.minatar.game import STICKY_PROBABILITY
from accerl.errors import UserError
from accerl.networks.observation import ObservationSpec
from accerl.seeds import Role, stream

INSTALL = "pip install --no-deps minatar==1.0.15"
_CONSTANTS = ("channels", "action_map", "random", "ramping")  # of a game; the rest is its state


class PackagedEnvs:
    """One of the games with sticky actions (0.1) and difficulty ramping on.

    Those are the package's defaults. As in the Atari surface, actions are the minimal set of the
    game. Observations are uint8 [C, 10, 10], 255 where the object of a channel is. Episodes have
    no time limit.

    Raises:
        UserError: the package is not installed.
    """

    def __init__(self, game: str, num_envs: int) -> None:
        module = _load_game(game)
        self._games: list[Any] = [module.Env(ramping=True) for _ in range(num_envs)]
        self._actions = np.array(self._games[0].minimal_action_set())
        self.num_envs = num_envs
        self.num_actions = len(self._actions)
        height, width, channels = self._games[0].state_shape()
        self.observation = ObservationSpec((channels, height, width), "uint8")
        self.exact_resume = True
        self._last = np.zeros(num_envs, dtype=np.int64)
        self.reset(0)

    def reset(self, seed: int) -> np.ndarray:
        """See `Envs.reset`."""
        self._last[:] = 0
        for index, game in enumerate(self._games):
            bits = np.random.MT19937(stream(seed, Role.EPISODES, index))
            game.random = np.random.RandomState(bits)
            game.reset()
        return self._observe()

    def step(self, actions: np.ndarray) -> Step:
        """See `Envs.step`."""
        reward = np.zeros(self.num_envs, dtype=np.float32)
        terminated = np.zeros(self.num_envs, dtype=np.bool_)
        wanted = self._actions[actions]
        for index, game in enumerate(self._games):
            if game.random.rand() >= STICKY_PROBABILITY:
                self._last[index] = wanted[index]
            reward[index], terminated[index] = game.act(self._last[index])
            if terminated[index]:
                game.reset()
        return Step(self._observe(), reward, terminated, np.zeros_like(terminated))

    def _observe(self) -> np.ndarray:
        boards = np.stack([game.state() for game in self._games])
        return np.where(boards.transpose(0, 3, 1, 2), np.uint8(255), np.uint8(0))

    def state_dict(self) -> dict[str, Any]:
        """See `Envs.state_dict`."""
        games = []
        for game in self._games:
            state = {key: value for key, value in vars(game).items() if key not in _CONSTANTS}
            games.append({**_plain(state), "random": game.random.get_state(legacy=False)})
        return {"last": self._last.copy(), "games": games}

    def load_state_dict(self, state: dict[str, Any]) -> np.ndarray:
        """See `Envs.load_state_dict`."""
        self._last = state["last"].copy()
        for game, saved in zip(self._games, state["games"], strict=True):
            saved = copy.deepcopy(saved)
            game.random.set_state(saved.pop("random"))
            vars(game).update(saved)
        return self._observe()

    def close(self) -> None:
        """Nothing is held."""


def require_minatar() -> Path:
    """Return the folder of the package.

    Raises:
        UserError: it is not installed; with how to do that.
    """
    found = importlib.util.find_spec("minatar")
    if found is None or not found.submodule_search_locations:
        raise UserError(f"the MinAtar games need the package minatar; run `{INSTALL}`")
    return Path(found.submodule_search_locations[0])


def _load_game(game: str) -> ModuleType:
    """Import the rules of one game.

    They need numpy alone. Importing the package around them would also import matplotlib and
    seaborn, or complain through the root logger that it cannot.
    """
    name = game.removeprefix("minatar-").replace("-", "_")
    path = require_minatar() / "environments" / f"{name}.py"
    found = importlib.util.spec_from_file_location(f"accerl_minatar_{name}", path)
    if found is None or found.loader is None or not path.is_file():
        raise UserError(f"the package minatar holds no {path.name}; run `{INSTALL}`")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def _plain(value: Any) -> Any:
    """Return a copy of a game's state without numpy's scalars, which JSON does not know."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return copy.copy(value)
