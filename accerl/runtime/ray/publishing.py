"""RayPublishing: the compressor's Ray actor as the learner's process sees it."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import numpy as np

from accerl.compress.compressor import Compressor
from accerl.learner.learner import Learner
from accerl.rollout import Rollout
from accerl.runtime.interval import IntervalRecorder
from accerl.runtime.publishing.charges import PIECE_UPDATES, Charge, Charges
from accerl.runtime.publishing.delivery import Order
from accerl.runtime.publishing.orders import PublicationOrders
from accerl.runtime.publishing.work import sample_states
from accerl.runtime.ray.placement import RayCluster
from accerl.runtime.ray.roles import packed_state, unpacked_state
from accerl.runtime.ray.worker import Call, RayWorker
from accerl.weights import weight_arrays

UNSEEN_ROLLOUTS = 2
"""that may wait for the compressor to record them; what comes meanwhile is not shown to it"""


class RayPublishing:
    """Has the compressor do the work; the learner puts its weights into the object store.

    As in the process runtime, one piece of work is under way at most, and the compressor's last
    known state is that of the last snapshot: its successor goes on from there.
    """

    def __init__(
        self,
        cluster: RayCluster,
        orders: PublicationOrders,
        compressor: Compressor,
        learner: Learner,
        recorder: IntervalRecorder,
    ) -> None:
        self.orders = orders
        self.is_published = False
        """whether there is anything to act with"""
        self.worker: RayWorker
        """set by the run"""
        self._cluster = cluster
        self._config = compressor.config
        self._charges = Charges(0, compressor.config.distill_updates or PIECE_UPDATES)
        self._known: dict[str, Any] = {"compressor": compressor.state_dict(), "ring": None}
        self._known_update = 0
        self._fresh = True  # whether `_known` is what the actor holds
        self._order: Order | None = None
        self._learner = learner
        self._recorder = recorder
        self._states: list[np.ndarray] = []  # since the last piece of work
        self._unseen: list[Any] = []

    def start_state(self) -> np.ndarray:
        """Return what a compressor starts from."""
        return packed_state(self._known)

    def hear(self, actors: Mapping[str, Any]) -> None:
        """Have publications sent to these actors."""
        if self.worker.ready:
            self.worker.tell("hear", actors)

    def see(self, rollout: Any, logits: np.ndarray) -> None:
        """Show the compressor a rollout, by its reference, and what the learner made of it."""
        if self._unseen:
            done = self._cluster.ready(self._unseen, 0.0)
            self._unseen = [ref for ref in self._unseen if ref not in done]
        if self.worker.ready and len(self._unseen) < UNSEEN_ROLLOUTS:
            version = self._learner.updates - 1
            self._unseen.append(self.worker.tell("see", rollout, logits, version))

    def after_update(self, rollout: Rollout) -> None:
        """Record states; if the compressor has nothing to do, give it what there is."""
        kept = self._config.calibration_states
        self._states.append(sample_states(rollout, self._config))
        while sum(map(len, self._states[1:])) >= kept:
            del self._states[0]
        due = self.orders.is_due(self._learner.updates)
        if self._is_idle and (due or self._to_distill()):
            self._send(publish=due)

    def publish(self) -> None:
        """Order a publication of the learner's weights, if the compressor has nothing to do."""
        if self._is_idle:
            self._send(publish=True)

    @property
    def _is_idle(self) -> bool:
        return self.worker.ready and not self.worker.calls

    def _to_distill(self) -> tuple[Charge, ...]:
        return self._charges.left_to_compressor(self.orders.acting)

    def _send(self, *, publish: bool) -> None:
        before = perf_counter()
        learner = self._learner
        if publish:
            self._order = self.orders.order(learner.updates)
        gradients = self._config.prune_criterion == "taylor"
        weights = weight_arrays(learner.policy, gradients=gradients)
        states = np.concatenate(self._states) if self._states else np.empty(0)
        self._states, self._fresh = [], False
        work = (weights, learner.updates, states, self._to_distill(), self._order)
        self.worker.call("work", *work)
        self._recorder.add_seconds("publish", perf_counter() - before)

    def handle(self, call: Call, answer: Any) -> None:
        """Take the compressor's answer to a call."""
        if call.method == "state":
            self._known, self._fresh = unpacked_state(answer), True
            self._known_update = self._learner.updates
        elif call.method == "work":
            distilled, delivery = answer
            self._recorder.add_seconds("compress", distilled.seconds)
            self._recorder.add_distillation(distilled.updates, distilled.cpu_seconds)
            if delivery is not None:
                self._order, self.is_published = None, True
                self._recorder.add_seconds("publish", delivery.seconds)
                self.orders.book(delivery, self._recorder, by=self.worker.name)

    def died(self) -> str:
        """The compressor has ended; return what was done about it."""
        self._fresh, self._unseen = True, []
        if self._order is not None:
            self._order = None
            self.orders.lost()
        return f"with the students of update {self._known_update}"

    @property
    def is_known(self) -> bool:
        """Whether `state_dict` would be up to date."""
        return self._fresh

    def ask_state(self) -> None:
        """Ask the compressor for its state, which it sends when its work is done."""
        if not self._fresh:
            self.worker.call("state")

    def state_dict(self) -> dict[str, Any]:
        """Return orders, and the compressor's state as it was last known."""
        return {"orders": self.orders.state_dict(), **self._known}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state returned by `state_dict`; only before the compressor starts."""
        self._known = {name: state[name] for name in ("compressor", "ring")}
        self._known_update = self._learner.updates
        self.orders.load_state_dict(state["orders"])
