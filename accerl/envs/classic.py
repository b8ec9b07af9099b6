"""CartPole and Acrobot, by Gymnasium's own physics."""

from __future__ import annotations

from typing import Any

import numpy as np

from accerl.envs.base import Step
from accerl.networks.observation import ObservationSpec


class CartPoleEnvs:
    """CartPole-v1 through Gymnasium's own vectorised numpy environment."""

    def __init__(self, num_envs: int) -> None:
        import gymnasium

        made = gymnasium.make_vec(
            "CartPole-v1", num_envs, vectorization_mode="vector_entry_point"
        ).unwrapped
        self._env: Any = made
        self.num_envs = num_envs
        self.num_actions = 2
        self.observation = ObservationSpec((4,), "float32")
        self.exact_resume = True

    def reset(self, seed: int) -> np.ndarray:
        """See `Envs.reset`."""
        obs, _ = self._env.reset(seed=seed)
        return obs

    def step(self, actions: np.ndarray) -> Step:
        """See `Envs.step`."""
        env = self._env
        obs, reward, terminated, truncated, _ = env.step(actions)
        done = terminated | truncated
        if done.any():
            # Gymnasium's vector CartPole resets one step late and ignores that step's action:
            # a junk row per episode. Resetting here, the way it does itself, avoids it.
            size = (4, int(done.sum()))
            env.state[:, done] = env.np_random.uniform(env.low, env.high, size)
            env.steps[done] = 0
            env.prev_done[:] = False
            obs = env.state.T.astype(np.float32)
        return Step(obs, reward, terminated, truncated)

    def state_dict(self) -> dict[str, Any]:
        """See `Envs.state_dict`."""
        env = self._env
        rng = env.np_random.bit_generator.state
        return {"state": env.state.copy(), "steps": env.steps.copy(), "rng": rng}

    def load_state_dict(self, state: dict[str, Any]) -> np.ndarray:
        """See `Envs.load_state_dict`."""
        self._env.reset(seed=0)
        self._env.state = state["state"].copy()
        self._env.steps = state["steps"].copy()
        self._env.np_random.bit_generator.state = state["rng"]
        return self._env.state.T.astype(np.float32)

    def close(self) -> None:
        """See `Envs.close`."""
        self._env.close()


class AcrobotEnvs:
    """Acrobot-v1: Gymnasium's own equations of motion, on all environments at once.

    Actions: torque -1, 0 or +1 on the joint. Every step costs 1 until the tip has swung up; an
    episode is cut off after 500 steps.
    """

    MAX_STEPS = 500

    def __init__(self, num_envs: int) -> None:
        from gymnasium.envs.classic_control.acrobot import AcrobotEnv

        self._physics = AcrobotEnv()
        self.num_envs = num_envs
        self.num_actions = 3
        self.observation = ObservationSpec((6,), "float32")
        self.exact_resume = True
        self._rng = np.random.default_rng(0)
        self._state = np.zeros((4, num_envs))  # two angles, two angular velocities
        self._steps = np.zeros(num_envs, dtype=np.int64)

    def reset(self, seed: int) -> np.ndarray:
        """See `Envs.reset`."""
        self._rng = np.random.default_rng(seed)
        self._state = self._starts(self.num_envs)
        self._steps = np.zeros(self.num_envs, dtype=np.int64)
        return self._observe()

    def step(self, actions: np.ndarray) -> Step:
        """See `Envs.step`."""
        physics = self._physics
        torque = np.asarray(physics.AVAIL_TORQUE)[actions]
        angles, speeds = np.split(self._integrate(torque), 2)
        angles -= 2.0 * np.pi * np.round(angles / (2.0 * np.pi))
        limits = np.array([[physics.MAX_VEL_1], [physics.MAX_VEL_2]])
        self._state = np.concatenate([angles, np.clip(speeds, -limits, limits)])
        self._steps += 1
        terminated = -np.cos(angles[0]) - np.cos(angles[1] + angles[0]) > 1.0
        # As with Gymnasium's time limit, an episode can end in both ways at once.
        truncated = self._steps == self.MAX_STEPS
        reward = np.where(terminated, 0.0, -1.0).astype(np.float32)
        done = terminated | truncated
        ended = int(done.sum())
        if ended:
            self._state[:, done] = self._starts(ended)
            self._steps[done] = 0
        return Step(self._observe(), reward, terminated, truncated)

    def _starts(self, count: int) -> np.ndarray:
        """Draw start states [4, count]; Gymnasium rounds its own to float32 as well."""
        return self._rng.uniform(-0.1, 0.1, (4, count)).astype(np.float32).astype(np.float64)

    def _integrate(self, torque: np.ndarray) -> np.ndarray:
        """Return the states [4, B] one time step later, by the classic Runge-Kutta method."""
        state, dt = np.vstack([self._state, torque]), self._physics.dt

        def slope(at: np.ndarray) -> np.ndarray:
            return np.stack(np.broadcast_arrays(*self._physics._dsdt(at)))

        k1 = slope(state)
        k2 = slope(state + dt / 2.0 * k1)
        k3 = slope(state + dt / 2.0 * k2)
        k4 = slope(state + dt * k3)
        return (state + dt / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4))[:4]

    def _observe(self) -> np.ndarray:
        first, second, speed_1, speed_2 = self._state
        parts = [np.cos(first), np.sin(first), np.cos(second), np.sin(second), speed_1, speed_2]
        return np.stack(parts, axis=1).astype(np.float32)

    def state_dict(self) -> dict[str, Any]:
        """See `Envs.state_dict`."""
        rng = self._rng.bit_generator.state
        return {"state": self._state.copy(), "steps": self._steps.copy(), "rng": rng}

    def load_state_dict(self, state: dict[str, Any]) -> np.ndarray:
        """See `Envs.load_state_dict`."""
        self._state, self._steps = state["state"].copy(), state["steps"].copy()
        self._rng.bit_generator.state = state["rng"]
        return self._observe()

    def close(self) -> None:
        """Nothing is held."""
