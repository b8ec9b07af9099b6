"""Actor: environments plus a compressed policy; fills rollouts."""

from __future__ import annotations

from time import perf_counter, process_time
from typing import Any

import numpy as np

from accerl.acting.rollout import Rollout
from accerl.compress.engine import Engine, make_engine
from accerl.envs import Envs
from accerl.seeds import Role, generator, number
from accerl.weights import Publication, publication_from_state, publication_state


class Actor:
    """Acts with the engines of the newest publication it was given.

    Engines change only between rollouts, so every rollout has one version and one spec.
    """

    def __init__(self, envs: Envs, seed: int, *, threads: int = 1, infer_batch: int = 0) -> None:
        self.envs = envs
        self._threads = threads
        self._infer_batch = infer_batch or envs.num_envs
        self._rng = generator(seed, Role.ACTIONS)
        self._obs = envs.reset(number(seed, Role.EPISODES))
        self._running_return = np.zeros(envs.num_envs, dtype=np.float64)
        self._noise = np.empty((envs.num_envs, envs.num_actions), dtype=np.float32)
        self._publication: Publication | None = None
        self._engines: list[Engine] = []

    @property
    def publication_number(self) -> int:
        """Number of the publication it acts with; -1 before the first."""
        return -1 if self._publication is None else self._publication.number

    @property
    def obs(self) -> np.ndarray:
        """The observations [B, *shape] it will act on next."""
        return self._obs

    def load(self, publication: Publication) -> None:
        """Act with `publication` from the next rollout on."""
        self._engines = []  # the old ones first: two sets of weights are more than a process needs
        self._engines = [
            make_engine(artifact, threads=self._threads) for artifact in publication.artifacts
        ]
        self._publication = publication

    def reseed(self, seed: int) -> None:
        """Go on with other dice."""
        self._rng = generator(seed, Role.ACTIONS, 1)

    def drop_artifacts(self) -> None:
        """Keep the engines only, not the bytes they were made of: `state_dict` loses them."""
        if self._publication is not None:
            loaded = self._publication
            self._publication = Publication(loaded.number, [], loaded.shares)

    def collect(self, rollout: Rollout) -> None:
        """Fill `rollout` in place: T steps of every environment with one engine."""
        publication = self._publication
        if publication is None:
            raise RuntimeError("the actor has no weights yet; call load() first")
        which = self._draw(publication.shares)
        engine, envs = self._engines[which], self.envs
        env_seconds = infer_seconds = 0.0
        started, core_started = perf_counter(), process_time()
        rollout.episode_return.fill(np.nan)
        for t in range(rollout.action.shape[0]):
            rollout.obs[t] = self._obs
            before = perf_counter()
            logits = rollout.logits[t]
            for low in range(0, envs.num_envs, self._infer_batch):
                part = slice(low, low + self._infer_batch)
                logits[part], _ = engine.infer(self._obs[part])
            infer_seconds += perf_counter() - before
            action = rollout.action[t]
            sample_actions(self._rng, logits, self._noise, out=action)
            before = perf_counter()
            step = envs.step(action)
            env_seconds += perf_counter() - before
            rollout.reward[t] = step.reward
            rollout.terminated[t] = step.terminated
            rollout.truncated[t] = step.truncated
            rollout.life_lost[t] = False if step.life_lost is None else step.life_lost
            self._running_return += step.reward
            done = step.terminated | step.truncated
            if done.any():
                rollout.episode_return[t, done] = self._running_return[done]
                self._running_return[done] = 0.0
            self._obs = step.obs
        rollout.obs[-1] = self._obs
        rollout.log_prob[:] = action_log_prob(rollout.logits, rollout.action)
        write_seconds = perf_counter() - started - env_seconds - infer_seconds
        seconds = (env_seconds, infer_seconds, write_seconds)
        core_seconds = process_time() - core_started
        rollout.header[:] = (publication.number, which, *seconds, core_seconds)

    def _draw(self, shares: list[float]) -> int:
        """Draw which spec of the mix acts in this rollout."""
        if len(shares) == 1:
            return 0
        return int(np.searchsorted(np.cumsum(shares), self._rng.random(), side="right")) % len(
            shares
        )

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on (bit-exactly, if the environments can)."""
        return {
            "envs": self.envs.state_dict(),
            "rng": self._rng.bit_generator.state,
            "running_return": self._running_return.copy(),
            "publication": publication_state(self._publication),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state returned by `state_dict`."""
        self._obs = self.envs.load_state_dict(state["envs"])
        self._rng.bit_generator.state = state["rng"]
        self._running_return = state["running_return"] * self.envs.exact_resume
        publication = publication_from_state(state["publication"])
        self._publication, self._engines = None, []
        if publication is not None:
            self.load(publication)


def sample_actions(
    rng: np.random.Generator, logits: np.ndarray, noise: np.ndarray, out: np.ndarray
) -> None:
    """Sample actions [B] from softmax(logits [B, A]) by the Gumbel-max trick.

    `noise` [B, A] float32 is scratch memory: nothing is allocated per step.
    """
    rng.random(out=noise, dtype=np.float32)
    gumbel_max(logits, noise, out)


def gumbel_max(logits: np.ndarray, uniforms: np.ndarray, out: np.ndarray) -> None:
    """Choose actions [B] from softmax(logits [B, A]) by one uniform in [0, 1) per action.

    `uniforms` [B, A] float32 is scratch memory as well: it holds something else afterwards.
    """
    np.maximum(uniforms, 1e-20, out=uniforms)
    np.log(uniforms, out=uniforms)
    np.negative(uniforms, out=uniforms)
    np.log(uniforms, out=uniforms)
    np.subtract(logits, uniforms, out=uniforms)
    np.argmax(uniforms, axis=-1, out=out)


def action_log_prob(logits: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Return log softmax(logits)[action] for logits [..., A] and actions [...]."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_total = np.log(np.exp(shifted).sum(axis=-1))
    chosen = np.take_along_axis(shifted, action[..., None], axis=-1)[..., 0]
    return chosen - log_total
