"""What the Ray actors do that follow the learner's weights: compress, or distil.

Both have a ring of states of their own, filled from the rollouts' references, and hear beside
their work what distillers show.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any

import numpy as np

from accerl.compress.compressor import Compressor
from accerl.compress.config import CompressionConfig
from accerl.compress.distillation.sharing import Entry, Shown
from accerl.compress.distillation.state_ring import StateRing
from accerl.compress.links import Link
from accerl.networks.graph_policy import Policy
from accerl.networks.observation import ObservationSpec
from accerl.runtime.process.messages import Distilled
from accerl.runtime.process.roles import policy_and_compressor
from accerl.runtime.process.wire import pack, unpack
from accerl.runtime.publishing.charges import Charge
from accerl.runtime.publishing.delivery import Delivery, Order, Shadow
from accerl.runtime.publishing.pieces import BASE_BITS, Pieces
from accerl.runtime.publishing.probe import KLProbe
from accerl.runtime.publishing.work import make_publication, try_shadow
from accerl.runtime.ray.cluster import put
from accerl.runtime.ray.packing import unpack as unpack_rollout
from accerl.runtime.ray.roles import BESIDE, Collected, Reachable, Started
from accerl.weights import Publication, load_weights

ROUND_SECONDS = 0.1
"""of distilling after which a distiller reports, and shows what it has made"""


class _Follower(Reachable):
    """What the compressor and the distillers have in common; `changed` guards what comes beside."""

    def _begin(
        self,
        network: str,
        observation: ObservationSpec,
        num_actions: int,
        config: CompressionConfig,
        links: Sequence[Link],
        kept_states: int,
        distillers: int,
        state: np.ndarray,
    ) -> None:
        """Go on from a state that `packed_state` returned; see `CompressionConfig`."""
        self._observation = observation
        self._gradients = config.needs_gradients
        self._ring = StateRing(observation, num_actions, kept_states)
        self._policy: Policy
        self._compressor: Compressor
        self._policy, self._compressor = policy_and_compressor(
            network, observation, num_actions, config, links, self._ring
        )
        known = unpacked(state)
        self._compressor.load_state_dict(known["compressor"])
        if known["ring"] is not None:
            self._ring.load_state_dict(known["ring"])
        self._changed = threading.Condition()
        self._shown, self._news = Shown(distillers), False

    def see(self, rollout: Collected, logits: np.ndarray, version: int) -> None:
        """Record a rollout's states, with the logits [T, B, A] of the learner, to distil on."""
        obs = unpack_rollout(rollout.arrays, self._observation).obs
        with self._changed:
            self._ring.add(obs[:-1], logits, version)

    def show(self, index: int, entries: np.ndarray) -> None:
        """Note what a distiller shows now, as its `distil` returned it."""
        with self._changed:
            self._shown.put(index, unpacked(entries))
            self._news = True

    def _load(self, weights: Sequence[np.ndarray]) -> None:
        load_weights(self._policy, weights, gradients=self._gradients)


class CompressorActor(_Follower):
    """Does one piece of work a call: take weights and states, distil, compress, publish."""

    def start(self, *given: Any) -> Started:
        """Get ready; the arguments are those of `_begin`."""
        self._begin(*given)
        self._pieces = Pieces(self._compressor, self._policy)
        self._probe = KLProbe()
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

    def work(
        self,
        weights: Sequence[np.ndarray],
        version: int,
        states: np.ndarray,
        distill: Sequence[Charge],
        order: Order | None,
    ) -> tuple[Distilled, Delivery | None, Shadow | None]:
        """Distil a piece of everything, publish what is ordered, distil the rest that is allowed.

        A shadow comes when the publication was sent.

        Args:
            weights: of the learner, see `weight_arrays`.
            version: its updates.
            states: recorded since the last call [N, *shape].
            distill: what to distil, and how much of it.
            order: what to publish, if anything.

        Returns:
            What was distilled, and what became of the order and of its shadow.
        """
        self._load(weights)
        if len(states):
            self._compressor.observe(states)
        pieces, delivery, shadow = self._pieces, None, None
        pieces.charges, pieces.version = distill, version
        for _ in distill:
            pieces.step()
        if order is not None:
            self._take_students()
            send = partial(self._send, order.number)
            made = make_publication(
                self._compressor, self._probe, self._policy, order, self._current, send
            )
            self._current, delivery = made.publication or self._current, made.delivery
            if order.shadow is not None:
                shadow, _ = try_shadow(self._compressor, self._policy, order)
        while pieces.step():
            pass
        return Distilled(*pieces.take_report()), delivery, shadow

    def _take_students(self) -> None:
        """Have the compressor act with what the distillers show."""
        with self._changed:
            news, self._news = self._news, False
            students = self._shown.students() if news else []
        self._compressor.take_students(students)

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
        with self._changed:  # nothing is added meanwhile
            ring = self._ring.state_dict()
        return packed({"compressor": self._compressor.state_dict(), "ring": ring})


class DistillerActor(_Follower):
    """Distils for some time a call, towards the newest weights that it has heard of."""

    def start(self, index: int, restarts: int, own: np.ndarray | None, *given: Any) -> Started:
        """Get ready.

        Args:
            index: of the distiller.
            restarts: how many predecessors it had.
            own: what the last of them has shown, if that is known.
            given: the arguments of `_begin`.
        """
        self._begin(*given)
        self._index = index
        self._weights: tuple[Sequence[np.ndarray], int] | None = None  # those to be loaded
        first_base = restarts << BASE_BITS
        self._pieces = Pieces(self._compressor, self._policy, index, first_base=first_base)
        if own is not None:
            self.show(index, own)
            self._pieces.recover(self._shown.of(index))
        return Started.here()

    def follow(self, weights: Sequence[np.ndarray], version: int) -> None:
        """Distil towards these weights of the learner from the next piece on."""
        with self._changed:
            self._weights = (weights, version)
            self._changed.notify_all()

    def distil(self, charges: Sequence[Charge]) -> tuple[Distilled, np.ndarray | None]:
        """Distil these for a while, or until newer weights are needed; wait for those as long.

        Returns:
            What was done, and what others are to see of it, for their `show`.
        """
        self._pieces.charges = charges
        end, followed = monotonic() + ROUND_SECONDS, False
        while monotonic() < end:
            with self._changed:
                news, self._weights = self._weights, None
            if news is not None:
                self._load(news[0])
                self._pieces.version = news[1]
                followed = True
            ready = self._pieces.version >= 0 and len(self._ring) > 0
            if not (ready and self._pieces.step(self._others)):
                if self._pieces.seconds or (ready and followed):
                    break
                with self._changed:
                    self._changed.wait_for(self._has_news, end - monotonic())
        report = Distilled(*self._pieces.take_report())
        return report, packed(self._pieces.entries()) if report.updates else None

    def _has_news(self) -> bool:
        return self._weights is not None

    def _others(self) -> list[Entry]:
        with self._changed:
            return self._shown.besides(self._index)

    def state(self) -> np.ndarray:
        """Return the state of what it distils."""
        return packed(self._compressor.state_dict())


def packed(tree: Any) -> np.ndarray:
    """Return a tree of plain values, arrays and tensors as it travels through the object store."""
    return np.frombuffer(pack(tree), np.uint8)


def unpacked(data: np.ndarray) -> Any:
    """Return what `packed` was given."""
    return unpack(data.tobytes())


def _tell(actor: Any, number: int, publication: Any) -> None:
    # Nobody waits for the answer: if the actor has died, its successor is told.
    actor.news.options(concurrency_group=BESIDE).remote(number, publication)
