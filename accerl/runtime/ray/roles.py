"""What each Ray actor of a run does: act, compress, or evaluate.

Their methods run one after the other, in the order of the calls. Only `RolloutActor.news`,
`CompressorActor.hear` and `CompressorActor.see` run beside the others, in the group `BESIDE`: what
they bring must not wait for work that is under way.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import accerl
from accerl.actor import Actor
from accerl.envs import EnvConfig, make_envs
from accerl.networks.observation import ObservationSpec
from accerl.rollout import Rollout, RolloutShape
from accerl.runtime.machine.memory import give_back_large_blocks
from accerl.runtime.process.messages import Distilled
from accerl.runtime.process.roles import empty_policy, policy_and_compressor
from accerl.runtime.process.wire import pack as pack_tree
from accerl.runtime.process.wire import unpack as unpack_tree
from accerl.runtime.publishing.charges import Charge, Pace
from accerl.runtime.publishing.delivery import Delivery, Order, Tag
from accerl.runtime.ray.cluster import put, this_node
from accerl.runtime.ray.packing import pack, unpack
from accerl.weights import Publication, load_weights

if TYPE_CHECKING:
    from accerl.compress.config import CompressionConfig
    from accerl.compress.links import Link

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


class _Reachable:
    """What every role has."""

    def reach(self) -> Started:
        """Say that it is still there, after its node could not be reached for a while."""
        return Started.here()


class RolloutActor(_Reachable):
    """Fills one rollout a call, and takes news of weights meanwhile."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._news: np.ndarray | None = None  # the newest publication, unless it acts already
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
            if number <= self._settled:
                return  # of a compressor that has died meanwhile
            if publication is not None:
                self._news = publication
            self._settled = number
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
            self._actor.load(loaded)
            self._actor.drop_artifacts()
            if "torch" in sys.modules:  # one of the engines is torch's
                sys.modules["torch"].set_num_threads(self._threads)
        self._actor.collect(self._rollout)
        arrays = pack(self._rollout, self._observation, travels=self._travels)
        return Collected(arrays, self._tags[self._rollout.spec_index])

    def _has(self, publication: int) -> bool:
        return self._settled >= publication


class CompressorActor(_Reachable):
    """Does one piece of work a call: take weights and states, distil, compress, publish."""

    def start(
        self,
        network: str,
        observation: ObservationSpec,
        num_actions: int,
        config: CompressionConfig,
        links: Sequence[Link],
        kept_states: int,
        state: np.ndarray,
    ) -> Started:
        """Go on from a state that `state` returned; see `CompressionConfig` for the others."""
        from accerl.compress.distillation.state_ring import StateRing
        from accerl.runtime.publishing.probe import KLProbe

        self._observation = observation
        self._gradients = config.prune_criterion == "taylor"
        self._ring = StateRing(observation, num_actions, kept_states)
        self._policy, self._compressor = policy_and_compressor(
            network, observation, num_actions, config, links, self._ring
        )
        known = unpack_tree(state.tobytes())
        self._compressor.load_state_dict(known["compressor"])
        if known["ring"] is not None:
            self._ring.load_state_dict(known["ring"])
        self._probe, self._pace = KLProbe(), Pace()
        self._current: Publication | None = None
        self._audience: Mapping[str, Any] = {}
        self._sent: tuple[int, Any] | None = None  # number and reference of what acts
        return Started.here()

    def hear(self, actors: Mapping[str, Any]) -> None:
        """Send publications to these actors from now on; those that are new get what acts already.

        Args:
            actors: by names that are not used again.
        """
        known, self._audience = self._audience, actors
        sent = self._sent  # read last: a publication that is sent now finds the new audience
        if sent is not None:
            for name in actors.keys() - known.keys():
                _tell(actors[name], *sent)

    def see(self, rollout: Collected, logits: np.ndarray, version: int) -> None:
        """Record a rollout's states, with the logits [T, B, A] of the learner, to distil on."""
        obs = unpack(rollout.arrays, self._observation).obs
        self._ring.add(obs[:-1], logits, version)

    def work(
        self,
        weights: Sequence[np.ndarray],
        version: int,
        states: np.ndarray,
        distill: Sequence[Charge],
        order: Order | None,
    ) -> tuple[Distilled, Delivery | None]:
        """Distil a piece, publish what is ordered, distil the rest that is allowed.

        Args:
            weights: of the learner, see `weight_arrays`.
            version: its updates.
            states: recorded since the last call [N, *shape].
            distill: what to distil, and how much of it.
            order: what to publish, if anything.

        Returns:
            What was distilled, and what became of the order.
        """
        from accerl.runtime.publishing.work import make_publication

        load_weights(self._policy, weights, gradients=self._gradients)
        if len(states):
            self._compressor.observe(states)
        done, delivery = self._distill(distill, version, len(distill)), None
        if order is not None:
            send = partial(self._send, order.number)
            made = make_publication(
                self._compressor, self._probe, self._policy, order, self._current, send
            )
            self._current, delivery = made.publication or self._current, made.delivery
        rest = self._distill(distill, version)
        return done + rest, delivery

    def _distill(
        self, charges: Sequence[Charge], version: int, pieces: int | None = None
    ) -> Distilled:
        """Distil in pieces, so many or all."""
        before, cpu_before, updates = perf_counter(), thread_time(), 0
        while pieces != 0 and (piece := self._pace.next(charges, version)) is not None:
            charge, wanted = piece
            done = self._compressor.distill(self._policy, [charge.spec], version, wanted)
            self._pace.add(charge, wanted)
            updates, pieces = updates + done, None if pieces is None else pieces - 1
        return Distilled(updates, perf_counter() - before, thread_time() - cpu_before)

    def _send(self, number: int, publication: Publication | None) -> None:
        """Put a publication into the object store once, and tell every actor of it."""
        data = None
        if publication is not None:
            data = put(np.frombuffer(publication.to_bytes(), np.uint8))
            self._sent = (number, data)
        for actor in self._audience.values():
            _tell(actor, number, data)

    def state(self) -> np.ndarray:
        """Return what a successor starts from."""
        known = {"compressor": self._compressor.state_dict(), "ring": self._ring.state_dict()}
        return packed_state(known)


def packed_state(known: dict[str, Any]) -> np.ndarray:
    """Return a compressor's state as `CompressorActor.start` takes it."""
    return np.frombuffer(pack_tree(known), np.uint8)


def unpacked_state(state: np.ndarray) -> dict[str, Any]:
    """Read what `packed_state` returned."""
    return unpack_tree(state.tobytes())


def _tell(actor: Any, number: int, publication: Any) -> None:
    # Nobody waits for the answer: if the actor has died, its successor is told.
    actor.news.options(concurrency_group=BESIDE).remote(number, publication)


class EvaluatorActor(_Reachable):
    """Measures J of the weights it is sent."""

    def start(
        self,
        network: str,
        observation: ObservationSpec,
        num_actions: int,
        game: str,
        env: EnvConfig,
        episodes: int,
    ) -> Started:
        """Make network and environments."""
        import torch

        from accerl.evaluate import Evaluator

        torch.set_num_threads(1)
        self._policy = empty_policy(network, observation, num_actions)
        self._evaluator = Evaluator(game, episodes, env)
        return Started.here()

    def measure(self, weights: Sequence[np.ndarray]) -> float | None:
        """Return J."""
        load_weights(self._policy, weights)
        return self._evaluator.measure(self._policy)
