"""RayPublishing: the Ray actors that compress and distil, as the learner's process sees them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from accerl.acting.rollout import Rollout, RolloutShape
from accerl.compress.compressor import Compressor
from accerl.compress.distillation.state_ring import kept_states
from accerl.compress.links import Link
from accerl.config import RunConfig
from accerl.learner.learner import Learner
from accerl.runtime.interval import IntervalRecorder
from accerl.runtime.machine.cores import usable_cores
from accerl.runtime.process.messages import Distilled
from accerl.runtime.publishing.charges import PIECE_UPDATES, Charge, Charges
from accerl.runtime.publishing.delivery import Order
from accerl.runtime.publishing.orders import PublicationOrders
from accerl.runtime.publishing.work import sample_states
from accerl.runtime.ray.compressing import CompressorActor, DistillerActor, packed, unpacked
from accerl.runtime.ray.distillers import RayDistillers
from accerl.runtime.ray.placement import RayCluster
from accerl.runtime.ray.worker import Call, RayWorker
from accerl.runtime.wiring import Wiring
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
        config: RunConfig,
        links: Sequence[Link],
        shape: RolloutShape,
        compressor: Compressor,
        learner: Learner,
        recorder: IntervalRecorder,
    ) -> None:
        """Start nothing; see `RemotePublishing`."""
        self.orders = orders
        self.is_published = False
        """whether there is anything to act with"""
        self._cluster = cluster
        self._config = compression = config.compression
        self._known: dict[str, Any] = {"compressor": compressor.state_dict(), "ring": None}
        self._known_update = 0
        self._fresh = True  # whether `_known` is what the actor holds
        self._awaited = False  # whether somebody waits for what it holds
        self._order: Order | None = None
        self._learner = learner
        self._recorder = recorder
        self._states: list[np.ndarray] = []  # since the last piece of work
        self._unseen: dict[str, list[Any]] = {}  # rollouts on their way, by name of who sees them
        policy, many = learner.policy, config.runtime.num_distillers
        kept = kept_states(shape.observation, compression.distill_states, shape.samples)
        network = (config.network, policy.observation, policy.num_actions, compression)
        given = (*network, links, kept, many)
        self.worker = RayWorker(
            cluster, "compressor", None, CompressorActor, lambda _: (*given, self._start_state())
        )
        """the compressor"""

        def distiller(index: int) -> RayWorker:
            def arguments(restarts: int) -> tuple[Any, ...]:
                first, state = self.distillers.start_arguments(index, self._known, restarts)
                return *first, *network, (), kept, many, state

            return RayWorker(cluster, "distiller", index, DistillerActor, arguments)

        workers = [distiller(index) for index in range(many)]
        # A cluster of the run's own is this machine, whatever number of CPUs it was given.
        cores = math.inf if config.ray.address else usable_cores()
        crowded = replace(Wiring.of(config.runtime), cores=cores).is_crowded
        self.distillers = RayDistillers(
            cluster, workers, compression, policy, follow_idle=not crowded
        )
        # The compressor answers a call when all of it is done: without a limit, that is a piece.
        updates = compression.distill_updates or PIECE_UPDATES
        self._charges = Charges(many, updates)

    @property
    def workers(self) -> list[RayWorker]:
        """The compressor and the distillers."""
        return [self.worker, *self.distillers.workers]

    def _merged(self) -> dict[str, Any]:
        return {**self._known, "compressor": self.distillers.led.merged(self._known["compressor"])}

    def _start_state(self) -> np.ndarray:
        return packed(self._merged())

    def hear(self, actors: Mapping[str, Any]) -> None:
        """Have publications sent to these actors."""
        if self.worker.ready:
            self.worker.tell("hear", actors)

    def ready(self, worker: RayWorker) -> None:
        """The compressor or a distiller is ready, at first or again."""
        self._unseen.pop(worker.name, None)
        self.distillers.show_all(worker)
        if worker is self.worker and self.is_published:
            self.publish()  # actors that died with its predecessor have nothing to act with

    def see(self, rollout: Any, logits: np.ndarray) -> None:
        """Show all that distil a rollout, by its reference, and what the learner made of it."""
        for worker in self.workers:
            waiting = self._unseen.pop(worker.name, [])
            done = self._cluster.ready(waiting, 0.0) if waiting else []
            self._unseen[worker.name] = waiting = [ref for ref in waiting if ref not in done]
            if worker.ready and len(waiting) < UNSEEN_ROLLOUTS:
                version = self._learner.updates - 1
                waiting.append(worker.tell("see", rollout, logits, version))

    def after_update(self, rollout: Rollout) -> None:
        """Record states; if the compressor has nothing to do, give it what there is."""
        kept = self._config.calibration_states
        self._states.append(sample_states(rollout, self._config))
        while sum(map(len, self._states[1:])) >= kept:
            del self._states[0]
        due = self.orders.is_due(self._learner.updates)
        if self._is_idle and (due or self._to_distill()):
            self._send(publish=due)
        self.distillers.after_update(self.orders.in_use, self._learner.updates)

    def rest(self) -> None:
        """See `Publishing.rest`."""
        if not self._config.distill_updates:
            self.distillers.rest()

    def publish(self) -> None:
        """Order a publication of the learner's weights, if the compressor has nothing to do."""
        if self._is_idle:
            self._send(publish=True)

    @property
    def _is_idle(self) -> bool:
        return self.worker.ready and not self.is_working

    def _to_distill(self) -> tuple[Charge, ...]:
        return self._charges.left_to_compressor(self.orders.in_use)

    def _send(self, *, publish: bool) -> None:
        before = perf_counter()
        learner = self._learner
        if publish:
            self._order = self.orders.order(learner.updates)
        weights = weight_arrays(learner.policy, gradients=self._config.needs_gradients)
        states = np.concatenate(self._states) if self._states else np.empty(0)
        self._states, self._fresh = [], False
        work = (weights, learner.updates, states, self._to_distill(), self._order)
        self.worker.call("work", *work)
        if self._awaited:  # it has taken the place of one that was asked
            self.worker.call("state")
        self._recorder.add_seconds("publish", perf_counter() - before)

    def handle(self, worker: RayWorker, call: Call, answer: Any) -> None:
        """Take the answer of the compressor or of a distiller to a call."""
        match call.method:
            case "state" if worker is self.worker:
                self._known, self._fresh = unpacked(answer), True
                self._known_update = self._learner.updates
            case "state":
                self.distillers.take_state(worker, answer)
            case "distil":
                self._note(answer)
                self.distillers.distilled(worker, call, answer.updates, self.worker)
            case "work":
                distilled, delivery, shadow = answer
                self._note(distilled)
                if delivery is not None:
                    self._order, self.is_published = None, True
                    self._recorder.add_seconds("publish", delivery.seconds)
                    self.orders.book(delivery, self._recorder, by=self.worker.name)
                if shadow is not None:
                    self._recorder.add_seconds("compress", shadow.seconds)
                    self.orders.book_shadow(shadow, self._recorder)

    def _note(self, distilled: Distilled) -> None:
        self._recorder.add_seconds("compress", distilled.seconds)
        self._recorder.add_distillation(distilled.updates, distilled.cpu_seconds)

    def died(self, worker: RayWorker) -> str:
        """The compressor or a distiller has ended; return what was done about it."""
        if worker is not self.worker:
            return self.distillers.died(worker)
        self._fresh = True
        if self._order is not None:
            self._order = None
            self.orders.lost()
        return f"with the students of update {self._known_update}"

    @property
    def is_working(self) -> bool:
        """Whether the compressor has a call to answer."""
        return self.worker.ready and bool(self.worker.calls)

    @property
    def following(self) -> dict[str, bool]:
        """Which distillers, by name, have been shown weights and not said that they took them."""
        return self.distillers.following

    @property
    def is_known(self) -> bool:
        """Whether `state_dict` would be up to date."""
        return self._fresh and self.distillers.led.is_known

    def ask_state(self) -> None:
        """Ask who compresses and distils for their states, which they send in turn."""
        self._awaited = True
        if not self._fresh:
            self.worker.call("state")
        self.distillers.ask_state()

    def state_dict(self) -> dict[str, Any]:
        """Return orders, and the compressor's state as it was last known."""
        self._awaited = False
        return {"orders": self.orders.state_dict(), **self._merged()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state returned by `state_dict`; only before the compressor starts."""
        self._known = {name: state[name] for name in ("compressor", "ring")}
        self._known_update = self._learner.updates
        entries = self._known["compressor"]["students"]
        self.distillers.led.lead(entry["student"] for entry in entries)
        self.orders.load_state_dict(state["orders"])
