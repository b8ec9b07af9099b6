"""What the Ray actors of a run do that play: act, or evaluate. The others are in `compressing`.

The methods of all run one after the other, in the order of the calls. Only what brings news
(`RolloutActor.news`; `hear`, `see`, `show` and `follow` of the others) runs beside them, in the
group `BESIDE`: it must not wait for work that is under way.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import accerl
from accerl.acting.actor import Actor
from accerl.acting.rollout import Rollout, RolloutShape
from accerl.envs import EnvConfig, make_envs
from accerl.runtime.machine.memory import give_back_large_blocks
from accerl.runtime.process.roles import act_with, policy_and_evaluator
from accerl.runtime.publishing.delivery import Tag
from accerl.runtime.ray.cluster import this_node
from accerl.runtime.ray.packing import pack
from accerl.weights import Publication, load_weights

BESIDE = "beside"
"""concurrency group, of one thread, for what runs beside an actor's work"""


class Started(NamedTuple):
    """A Ray actor is ready for work."""

    node: str
    pid: int
    version: str
    """of AcceRL"""

    @classmethod
    def here(cls) -> Started:
        """Return this process."""
        import os

        return cls(this_node(), os.getpid(), accerl.__version__)


class Collected(NamedTuple):
    """A rollout on its way, and what acted in it."""

    arrays: dict[str, np.ndarray]
    acted: Tag


class Reachable:
    """What every role has."""

    def reach(self) -> Started:
        """Say that it is still there, after its node could not be reached for a while."""
        return Started.here()


class RolloutActor(Reachable):
    """Fills one rollout a call, and takes news of weights meanwhile."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._news: np.ndarray | None = None  # the newest publication, unless it acts already
        self._newest = -1  # its number
        self._tags: list[Tag] = []  # of what acts
        self._settled = -1  # number of the newest one that nobody need wait for

    def start(
        self,
        game: str,
        env: EnvConfig,
        shape: RolloutShape,
        threads: int,
        infer_batch: int,
        patience_seconds: float,
        seed: int,
        home: str,
    ) -> Started:
        """Make the environments; rollouts travel unless this is the node `home`."""
        give_back_large_blocks()
        self._threads = threads
        self._patience_seconds = patience_seconds
        self._observation = shape.observation
        self._rollout = Rollout.allocate(shape)
        envs = make_envs(game, shape.num_envs, env)
        self._actor = Actor(envs, seed, threads=threads, infer_batch=infer_batch)
        started = Started.here()
        self._travels = started.node != home
        return started

    def news(self, number: int, publication: np.ndarray | None) -> None:
        """Act with a publication from the next rollout on; None: what acts already serves on."""
        with self._changed:
            # Older ones are of a compressor that has died meanwhile. Who is new may hear that what
            # acts already serves on before it is sent that.
            if publication is not None and number > self._newest:
                self._news, self._newest = publication, number
            self._settled = max(self._settled, number)
            self._changed.notify_all()

    def collect(self, publication: int) -> Collected:
        """Return a rollout, acted with the newest publication.

        An actor with time on its hands gets here before the publication that was ordered last
        does: it waits a few milliseconds rather than act with weights that are one update older.

        Args:
            publication: number of the publication that was ordered last.
        """
        with self._changed:
            arrived = partial(self._has, publication)
            self._changed.wait_for(arrived, self._patience_seconds)
            if self._actor.publication_number < 0:  # it has nothing to act with
                self._changed.wait_for(lambda: self._news is not None)
            news, self._news = self._news, None
        if news is not None:
            loaded = Publication.from_bytes(news.data)
            self._tags = [Tag(artifact.spec, artifact.version) for artifact in loaded.artifacts]
            act_with(self._actor, loaded, self._threads)
        self._actor.collect(self._rollout)
        arrays = pack(self._rollout, self._observation, travels=self._travels)
        return Collected(arrays, self._tags[self._rollout.spec_index])

    def _has(self, publication: int) -> bool:
        return self._settled >= publication


class EvaluatorActor(Reachable):
    """Measures J of the weights it is sent."""

    def start(self, *given: Any) -> Started:
        """Make network and environments; the arguments are those of `policy_and_evaluator`."""
        self._policy, self._evaluator = policy_and_evaluator(*given)
        return Started.here()

    def measure(self, weights: Sequence[np.ndarray]) -> float | None:
        """Return J."""
        load_weights(self._policy, weights)
        return self._evaluator.measure(self._policy)
