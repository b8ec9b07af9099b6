"""The actor's side of measuring a latency profile: a process that acts as it is asked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import cycle
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch

from accerl.acting.actor import Actor
from accerl.acting.rollout import ACTING_SECONDS, Rollout, RolloutShape
from accerl.config import RunConfig
from accerl.envs import EnvConfig, Envs, make_envs
from accerl.errors import UserError
from accerl.runtime.machine.cores import LearnersCores
from accerl.runtime.machine.memory import give_back_large_blocks
from accerl.runtime.process.messages import Act, Timed
from accerl.runtime.process.supervise import Worker
from accerl.runtime.process.wire import Channel, PeerGoneError
from accerl.weights import Mailbox

STEPS = 4
"""environment steps in one measurement of acting"""


def relative_spread(times: Sequence[float]) -> float:
    """Return the interquartile range over the median."""
    low, middle, high = np.percentile(times, (25, 50, 75))
    return float((high - low) / middle)


def play_at_random(envs: Envs, least: int) -> np.ndarray:
    """Return states [N, *shape] of random play, 128 or `least` if that is more."""
    count = max(128, least)
    rng = np.random.default_rng(0)
    obs = envs.reset(0)
    kept: list[np.ndarray] = []
    while sum(map(len, kept)) < count:
        for _ in range(15):
            obs = envs.step(rng.integers(envs.num_actions, size=envs.num_envs)).obs
        kept.append(obs.copy())
    return np.concatenate(kept)[:count]


class Acted:
    """Microseconds per environment and step that the actor reported."""

    def __init__(self) -> None:
        self._times: defaultdict[tuple[int, str], list[float]] = defaultdict(list)

    def add(self, index: int, batch: int, times: dict[str, float]) -> None:
        """Add what one artifact took at one batch size."""
        for name, value in times.items():
            self._times[index, f"infer {batch}" if name == "infer" else name].append(value)

    def median(self, index: int, name: str) -> float:
        """Return the median of one artifact's operation."""
        return median(self._times[index, name])

    def all(self, name: str) -> float:
        """Return the median of an operation over all artifacts."""
        return median(
            value for key, times in self._times.items() if key[1] == name for value in times
        )

    def spreads(self) -> dict[str, float]:
        """Return the middle one of the specs' spreads, by operation."""
        found = defaultdict(list)
        for (_, name), times in self._times.items():
            found[name].append(relative_spread(times))
        return {name: median(spreads) for name, spreads in found.items()}


class Acting:
    """The actor's process as the learner's sees it."""

    def __init__(
        self,
        config: RunConfig,
        mailbox: Mailbox,
        *,
        beside: bool,
        cores: LearnersCores | None = None,
    ) -> None:
        """Start it, off the learner's cores if these are named."""
        runtime = config.runtime
        rows = config.learner.unroll * (2 + runtime.queue_rollouts)
        game = (config.game, config.env, runtime.num_envs)
        arguments = (mailbox.handle(), *game, rows, beside)
        self._worker = Worker("actor", 0, act, lambda _: arguments)
        with nullcontext() if cores is None else cores.place("actor"):
            self._worker.start()
        self._beside = beside

    def ask(self, batch: int) -> None:
        """Have it act with what is in the mailbox, so many states per inference."""
        self._worker.send(Act(batch))

    def answered(self) -> bool:
        """Whether it has answered; on a single core nothing is to be done meanwhile."""
        return not self._beside or self._worker.channel.poll()

    def answer(self) -> dict[str, float]:
        """Wait for microseconds per step and environment, and of loading.

        Raises:
            UserError: its environments have failed, or it has died.
        """
        try:
            message = self._worker.receive()
        except PeerGoneError as error:
            exit_code = self._worker.end()
            raise UserError(
                f"the actor's process died while it was timed (exit code {exit_code}); its "
                "messages are above"
            ) from error
        assert isinstance(message, Timed)
        return message.microseconds

    def close(self) -> None:
        """End the process."""
        self._worker.end(patience_seconds=5.0)


def act(
    channel: Channel,
    mailbox_handle: dict[str, Any],
    game: str,
    env: EnvConfig,
    num_envs: int,
    rows: int,
    beside: bool,
) -> None:
    """Body of the actor's process: act as it is asked, and between questions too if `beside`.

    It writes to as many `rows` of rollouts in turn as a run's slots have: fewer would stay in the
    processor's caches.
    """
    give_back_large_blocks()
    envs = make_envs(game, num_envs, env)
    mailbox = Mailbox(**mailbox_handle)
    shape = RolloutShape.of(envs, STEPS)
    rollouts = cycle([Rollout.allocate(shape) for _ in range(max(rows // STEPS, 1))])
    actors: dict[int, Actor] = {}  # by states per inference; they share the environments
    acting: Actor | None = None
    torch.set_num_threads(1)

    def collect(actor: Actor) -> list[float]:
        """Return microseconds per step and environment: env, infer, write."""
        rollout = next(rollouts)
        actor.collect(rollout)
        return [
            float(seconds) * 1e6 / rollout.action.size for seconds in rollout.header[ACTING_SECONDS]
        ]

    try:
        while True:
            while acting is not None and beside and not channel.poll():
                collect(acting)
            message = channel.receive()
            assert isinstance(message, Act)
            batch = message.batch
            if batch not in actors:
                actors[batch] = Actor(envs, 0, infer_batch=batch)
            acting = actors[batch]
            before = perf_counter()
            acting.load(mailbox.get())
            acting.drop_artifacts()
            load_us = (perf_counter() - before) * 1e6
            _, first_us, _ = collect(acting)
            env_us, infer_us, write_us = collect(acting)
            # The first calls of an engine are slower; that is part of beginning to act with it.
            load_us += max(first_us - infer_us, 0.0) * STEPS * num_envs
            times = {"env": env_us, "infer": infer_us, "write": write_us, "load": load_us}
            channel.send(Timed(times))
    finally:
        mailbox.close()
        envs.close()
