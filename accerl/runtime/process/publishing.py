"""Publishing beside a learner in its own process: inline, or by the compressor's process."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from accerl.compress.compressor import Compressor
from accerl.compress.config import CompressionConfig
from accerl.learner.learner import Learner
from accerl.rollout import Rollout
from accerl.runtime.interval import IntervalRecorder
from accerl.runtime.process.distillers import DistillerPool
from accerl.runtime.process.samples import SampleRing
from accerl.runtime.process.supervise import Worker
from accerl.runtime.publishing.orders import Ledger, Order
from accerl.runtime.publishing.probe import KLSplit
from accerl.runtime.publishing.publisher import Publisher, sample_states
from accerl.spec import by_spec
from accerl.weights import Mailbox, Publication, WeightVector


class InlinePublishing:
    """Compresses in the learner's process, which does nothing else meanwhile."""

    def __init__(
        self, publisher: Publisher, learner: Learner, recorder: IntervalRecorder, mailbox: Mailbox
    ) -> None:
        self.publisher = publisher
        self._learner = learner
        self._recorder = recorder
        self._mailbox = mailbox
        self._current: Publication | None = None

    def after_update(self, rollout: Rollout) -> None:
        """Record states, distil, and publish if it is time."""
        self.publisher.observe(rollout)
        before = perf_counter()
        if self.publisher.distill(self._learner.policy):
            self._recorder.add_seconds("compress", perf_counter() - before)
        if self.publisher.is_due(self._learner.updates):
            self.publish()

    def publish(self) -> None:
        """Compress and publish the learner's weights."""
        before = perf_counter()
        built = self.publisher.build(self._learner.policy, self._learner.updates, self._current)
        if built.unchanged:
            self._mailbox.settle(built.publication.number)
        else:
            self._mailbox.put(built.publication)
            self._current = built.publication
        seconds = perf_counter() - before
        self._recorder.add_seconds("publish", seconds)
        self.publisher.charge(seconds)
        policy = self._learner.policy
        kl_nats = self.publisher.students_kl_nats(policy)
        split = self.publisher.split(policy, built)
        self._recorder.add_publication(built.unchanged, built.size_bytes, kl_nats, split)

    def state_dict(self) -> dict[str, Any]:
        """Return the publisher's state."""
        return self.publisher.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state returned by `state_dict`, of either kind of publishing."""
        self.publisher.load_state_dict(state)


class RemotePublishing:
    """Has the compressor's process do the work; the learner copies its weights and goes on.

    One piece of work is under way at most. Whatever the learner would like to have done meanwhile
    waits for its next update: nothing queues, so what is published is never older than one piece
    of work. Students, their optimisers and the recorded states live in that process. This one
    keeps their last `state_dict`, taken at every snapshot: a compressor that takes the place of
    one that was killed goes on from there, and loses what was distilled since.
    """

    def __init__(
        self,
        compressor: Compressor,
        worker: Worker,
        learner: Learner,
        recorder: IntervalRecorder,
        *,
        publish_every: int,
        check_every: int,
        weights: WeightVector,
        samples: SampleRing,
        pool: DistillerPool,
    ) -> None:
        self.publisher = Ledger(publish_every, check_every)
        self.worker = worker
        self.idle = False
        """whether it is ready and has nothing to do"""
        self.reading = False
        """whether it may still be copying weights or states out of shared memory"""
        self._config: CompressionConfig = compressor.config
        self._known = compressor.state_dict()
        self._known_update = 0
        self._fresh = True  # whether `_known` is what the process holds
        self._order: Order | None = None
        self._learner = learner
        self._recorder = recorder
        self._weights = weights
        self._samples = samples
        self.pool = pool

    def after_update(self, rollout: Rollout) -> None:
        """Record states; if the compressor has nothing to do, give it what there is."""
        states = sample_states(rollout, self._config)
        self._samples.add(states)
        if self.pool.distillers:
            self.pool.after_update(states, self.publisher.acting, self._put_weights)
        due = self.publisher.is_due(self._learner.updates)
        if self.idle and (due or self._students()):
            self._send(publish=due)

    def publish(self) -> None:
        """Order a publication of the learner's weights, if the compressor has nothing to do."""
        if self.idle:
            self._send(publish=True)

    def _students(self) -> list[dict[str, Any]]:
        """Return the specs in effect whose network the compressor must distil."""
        if self.pool.distillers:
            return []
        return [spec.to_json() for spec in self.publisher.acting if spec.student_key is not None]

    def _send(self, *, publish: bool) -> None:
        before = perf_counter()
        updates = self._learner.updates
        self._put_weights()
        if publish:
            self._order = self.publisher.order(updates)
        order = None if self._order is None else self._order.to_json()
        self.idle, self.reading, self._fresh = False, True, False
        work = {"distill": self._students(), "order": order}
        self.worker.send({"work": work, "states": self._samples.lend()})
        self._recorder.add_seconds("publish", perf_counter() - before)

    def _put_weights(self) -> None:
        self._weights.put(self._learner.updates, self._learner.policy)

    def handle(self, worker: Worker, message: dict[str, Any]) -> None:
        """Take a message of the compressor's process, or of a distiller's."""
        if worker is not self.worker:
            seconds = self.pool.handle(worker, message, self._known)
            self._recorder.add_seconds("compress", seconds)
        elif "hello" in message:
            self.worker.send({"state": self.pool.merged(self._known)})
        elif "ready" in message:
            self.idle = True
        elif "taken" in message:
            self._returned()
        elif "state" in message:
            self._known, self._fresh = message["state"], True
            self._known_update = self._learner.updates
        else:
            self._finished(**message["done"])

    def _finished(
        self,
        *,
        distill_seconds: float,
        publish_seconds: float | None,
        delivered: dict[str, Any] | None,
    ) -> None:
        self.idle = True
        self._recorder.add_seconds("compress", distill_seconds)
        if publish_seconds is not None and delivered is not None:
            assert self._order is not None
            self._deliver(self._order.number, **delivered)
            self._recorder.add_seconds("publish", publish_seconds)
            self.publisher.charge(publish_seconds, self._order.decision)
            self._order = None

    def _deliver(
        self,
        number: int,
        *,
        acted: list[list[Any]],
        rejected: dict[str, str],
        unchanged: bool,
        size_bytes: int,
        student_kl_nats: dict[str, float],
        split: dict[str, Any],
    ) -> None:
        if unchanged:
            self.publisher.unchanged(number)
        else:
            self.publisher.delivered(number, acted, rejected)
        self._recorder.add_publication(
            unchanged,
            size_bytes,
            by_spec(student_kl_nats),
            KLSplit.from_json(split),
            by=self.worker.name,
        )

    def died(self, worker: Worker) -> str:
        """The compressor's process has ended, or a distiller's; return what was done about it."""
        if worker is not self.worker:
            return self.pool.died(worker)
        self.idle, self._fresh = False, True
        self._returned()
        if self._order is not None:
            self._order = None
            self.publisher.lost()
        return f"with the students of update {self._known_update}"

    def _returned(self) -> None:
        self.reading = False
        self._samples.returned()

    @property
    def is_known(self) -> bool:
        """Whether `state_dict` would be up to date."""
        return self._fresh and self.pool.is_known

    def ask_state(self) -> None:
        """Ask the processes for their state, which they send when their work is done."""
        if not self._fresh:
            self.worker.send({"state": None})
        self.pool.ask_state()

    @property
    def workers(self) -> list[Worker]:
        """The compressor's process and the distillers'."""
        return [self.worker, *self.pool.workers]

    def state_dict(self) -> dict[str, Any]:
        """Return the state of an inline publisher, with the compressor's as it was last known."""
        return {"compressor": self.pool.merged(self._known), **self.publisher.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state of either kind of publishing; only before the process starts."""
        self._known, self._known_update = state["compressor"], self._learner.updates
        self.publisher.load_state_dict(state)
