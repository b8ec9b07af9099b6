"""The surface that all environments share.

Every surface autoresets in the same step: when an episode ends, `step` returns the first
observation of the next one, so that each row is a real transition (no junk rows).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from accerl.networks.observation import ObservationSpec
from accerl.seeds import Role, number


@dataclass(frozen=True)
class Step:
    """One step of all environments; `obs` already belongs to the next episode where one ended."""

    obs: np.ndarray  # [B, *shape]
    reward: np.ndarray  # [B] float32, raw game score
    terminated: np.ndarray  # [B] bool: the episode ended in the game
    truncated: np.ndarray  # [B] bool: the episode was cut off by a time limit
    life_lost: np.ndarray | None = None  # [B] bool: a life went, the game goes on; None: no lives


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


@runtime_checkable
class Rests(Protocol):
    """Environments that can be left out of `Envs.step`, as each has a simulator of its own."""

    def rest(self, rows: np.ndarray) -> None:
        """Leave out `rows` [B] bool until the next `reset`: what is shown of them says nothing."""
        ...


class UnsavedEnvs(ABC):
    """What environments share that cannot be saved themselves: to go on is to start new episodes.

    Subclasses set `_env` when they are made, and `_seed` in `reset`.
    """

    exact_resume = False
    _env: Any
    _seed = 0

    @abstractmethod
    def reset(self, seed: int) -> np.ndarray:
        """See `Envs.reset`."""

    def state_dict(self) -> dict[str, Any]:
        """Return the next seed: the environments themselves cannot be saved."""
        return {"seed": number(self._seed, Role.RESUMED_EPISODES)}

    def load_state_dict(self, state: dict[str, Any]) -> np.ndarray:
        """Start new episodes from a seed that has not been used yet."""
        return self.reset(state["seed"])

    def close(self) -> None:
        """See `Envs.close`."""
        self._env.close()
