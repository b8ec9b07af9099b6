"""Environments whose own vector entry point does not do what is asked of it."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from accerl.envs import make_envs
from accerl.errors import UserError

GAMES = "tests.unit.accerl.envs.test_vector_entry"


class Late(SyncVectorEnv):
    """Resets in the step after an episode's end, whatever it is asked for."""

    def __init__(self, num_envs: int, autoreset_mode: Any, **options: Any) -> None:
        super().__init__([CartPoleEnv] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


class Untimed(SyncVectorEnv):
    """Takes no limit on an episode's steps, which Gymnasium gives it."""

    def __init__(self, num_envs: int, autoreset_mode: Any) -> None:
        super().__init__([CartPoleEnv] * num_envs, autoreset_mode=autoreset_mode)


CART = "gymnasium.envs.classic_control:CartPoleEnv"
gymnasium.register("Late-v0", CART, vector_entry_point=f"{GAMES}:Late")
gymnasium.register("LateAlone-v0", vector_entry_point=f"{GAMES}:Late")
gymnasium.register("Untimed-v0", CART, vector_entry_point=f"{GAMES}:Untimed", max_episode_steps=20)


@pytest.mark.parametrize("game", ["Late-v0", "Untimed-v0"])
def test_single_environments_take_their_place(game: str) -> None:
    envs, ended = make_envs(f"{GAMES}:{game}", 3), 0
    envs.reset(0)
    for _ in range(200):
        step = envs.step(np.zeros(3, int))
        np.testing.assert_array_equal(step.reward, [1.0] * 3)  # a row of a reset has 0
        ended += int((step.terminated | step.truncated).sum())
    assert ended > 20
    envs.close()


def test_what_has_no_single_environment_is_refused() -> None:
    with pytest.raises(UserError, match=r"does not say that it resets .* set metadata"):
        make_envs(f"{GAMES}:LateAlone-v0", 3)
